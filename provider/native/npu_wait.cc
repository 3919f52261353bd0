// Waits for an XRT run list with a timeout, which pyxrt cannot: its wait() that takes one has
// arguments and a result of C++ types that it never declared to Python, and keeps Python's lock.
#include "provider/native/npu_wait.h"

#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <typeinfo>

// Only its name is taken, by which types of two libraries are the same.
namespace xrt {
class runlist {};
}  // namespace xrt

namespace {

using Milliseconds = std::chrono::milliseconds;
// xrt::runlist::wait(const std::chrono::milliseconds&) const, as a function of its object.
using Wait = std::cv_status (*)(const void* runlist, const Milliseconds& timeout);

constexpr char kLibrary[] = "libxrt_coreutil.so.2";
constexpr char kWait[] = "_ZNK3xrt7runlist4waitERKNSt6chrono8durationIlSt5ratioILl1ELl1000EEEE";

Wait find_wait() {
  // pyxrt has loaded it; it is not loaded anew.
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Wait>(dlsym(library, kWait));
}

}  // namespace

const void* onnx_iron_npu_run_list_type() { return &typeid(xrt::runlist); }

int onnx_iron_npu_wait(const void* runlist, int64_t timeout_ms, char* error, size_t size) {
  static const Wait wait = find_wait();
  if (wait == nullptr) return 3;
  try {
    return wait(runlist, Milliseconds(timeout_ms)) == std::cv_status::timeout ? 1 : 0;
  } catch (const std::exception& caught) {
    std::snprintf(error, size, "%s", caught.what());
  } catch (...) {
    std::snprintf(error, size, "XRT failed in an unknown way");
  }
  return 2;
}
