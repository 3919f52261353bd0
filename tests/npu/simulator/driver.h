// The driver: one for a process. Every request of <drm/amdxdna_accel.h> ends here.
#pragma once

#include "commands.h"
#include "contexts.h"
#include "memory.h"

namespace npu_driver {

class Driver {
 public:
  // Made when it is first needed, and never taken down: its thread may still be running.
  static Driver& get();

  // 0, or an errno.
  int request(int file, unsigned long code, void* argument);
  void opened(int file);
  void closed(int file);

 private:
  Driver() : commands_(memory_, contexts_) {}

  int create_buffer(int file, void* argument);
  int buffer_info(void* argument);
  int create_context(int file, void* argument);
  int configure_context(void* argument);
  int destroy_context(uint32_t handle);
  int execute(void* argument);

  Memory memory_;
  Contexts contexts_;
  Commands commands_;
};

// Answers of DRM_IOCTL_AMDXDNA_GET_INFO; 0, or an errno.
int query(void* argument);

}  // namespace npu_driver
