// Stands before the C library: what concerns the accel node goes to the driver, all else on.
#include <dlfcn.h>
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <mutex>
#include <set>

#include "driver.h"

namespace {

constexpr char kNode[] = "/dev/accel/accel0";
constexpr unsigned kDrm = 'd';

std::mutex files_mutex;

// Files that made a request; never destroyed, as a close may come after everything else.
std::set<int>& files() {
  static auto* open = new std::set<int>;
  return *open;
}

bool is_node(int file) {
  struct stat node, given;
  return stat(kNode, &node) == 0 && fstat(file, &given) == 0 && node.st_ino == given.st_ino &&
         node.st_dev == given.st_dev;
}

bool is_known(int file) {
  std::lock_guard lock(files_mutex);
  return files().count(file) != 0;
}

bool is_ours(int file) {
  if (is_known(file)) return true;
  if (!is_node(file)) return false;
  std::lock_guard lock(files_mutex);
  if (files().insert(file).second) npu_driver::Driver::get().opened(file);
  return true;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int ioctl(int file, unsigned long code, ...) {
  va_list list;
  va_start(list, code);
  void* argument = va_arg(list, void*);
  va_end(list);
  if ((code >> 8 & 0xff) != kDrm || !is_ours(file)) {
    static auto* real = next<int(int, unsigned long, void*)>("ioctl");
    return real(file, code, argument);
  }
  int error = npu_driver::Driver::get().request(file, code, argument);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

__attribute__((visibility("default"))) int close(int file) {
  static auto* real = next<int(int)>("close");
  bool ours = false;
  {
    std::lock_guard lock(files_mutex);
    ours = files().erase(file) != 0;
  }
  if (ours) npu_driver::Driver::get().closed(file);
  return real(file);
}

}  // extern "C"
