#include "driver.h"

#include <drm/amdxdna_accel.h>
#include <drm/drm.h>
#include <errno.h>

#include "control.h"

namespace npu_driver {

Driver& Driver::get() {
  static Driver* driver = new Driver;
  return *driver;
}

int Driver::request(int file, unsigned long code, void* argument) {
  if (code == DRM_IOCTL_GEM_CLOSE) {
    return memory_.close(static_cast<drm_gem_close*>(argument)->handle);
  }
  // By the number alone: XRT's own copy of the ABI gives some requests another direction.
  switch (static_cast<int>(_IOC_NR(code)) - DRM_COMMAND_BASE) {
    case DRM_AMDXDNA_CREATE_BO:
      return create_buffer(file, argument);
    case DRM_AMDXDNA_GET_BO_INFO:
      return buffer_info(argument);
    case DRM_AMDXDNA_SYNC_BO: {
      auto& sync = *static_cast<amdxdna_drm_sync_bo*>(argument);
      return memory_.sync(sync.handle, sync.direction == SYNC_DIRECT_TO_DEVICE, sync.offset,
                          sync.size);
    }
    case DRM_AMDXDNA_CREATE_HWCTX:
      return create_context(file, argument);
    case DRM_AMDXDNA_CONFIG_HWCTX:
      return configure_context(argument);
    case DRM_AMDXDNA_DESTROY_HWCTX:
      return destroy_context(static_cast<amdxdna_drm_destroy_hwctx*>(argument)->handle);
    case DRM_AMDXDNA_EXEC_CMD:
      return execute(argument);
    case DRM_AMDXDNA_WAIT_CMD: {
      auto& wait = *static_cast<amdxdna_drm_wait_cmd*>(argument);
      return commands_.wait(wait.seq, wait.timeout);
    }
    case DRM_AMDXDNA_GET_INFO:
      return query(argument);
    case DRM_AMDXDNA_GET_ARRAY:
      static_cast<amdxdna_drm_get_array*>(argument)->num_element = 0;
      return 0;
    case DRM_AMDXDNA_SET_STATE:
      return 0;
    default:
      log("request %lx is not known", code);
      return EINVAL;
  }
}

void Driver::opened(int file) {
  ++counters.files_open;
  log("file %d opened", file);
}

void Driver::closed(int file) {
  for (uint32_t handle : contexts_.of_file(file)) destroy_context(handle);
  memory_.close_file(file);
  --counters.files_open;
  log("file %d closed", file);
}

int Driver::create_buffer(int file, void* argument) {
  auto& made = *static_cast<amdxdna_drm_create_bo*>(argument);
  if (made.vaddr == 0) return memory_.create(file, made.type, made.size, nullptr, &made.handle);
  auto& table = *reinterpret_cast<amdxdna_drm_va_tbl*>(made.vaddr);
  if (table.num_entries != 1) return EINVAL;
  const amdxdna_drm_va_entry& entry = table.va_entries[0];
  return memory_.create(file, made.type, entry.len, reinterpret_cast<void*>(entry.vaddr),
                        &made.handle);
}

int Driver::buffer_info(void* argument) {
  auto& info = *static_cast<amdxdna_drm_get_bo_info*>(argument);
  Buffer buffer;
  if (int error = memory_.describe(info.handle, &buffer)) return error;
  info.xdna_addr = buffer.address;
  info.vaddr = 0;
  info.map_offset = buffer.offset == kNoOffset ? AMDXDNA_INVALID_ADDR : buffer.offset;
  return 0;
}

int Driver::create_context(int file, void* argument) {
  auto& made = *static_cast<amdxdna_drm_create_hwctx*>(argument);
  made.syncobj_handle = AMDXDNA_INVALID_FENCE_HANDLE;
  made.umq_doorbell = AMDXDNA_INVALID_DOORBELL_OFFSET;
  return contexts_.create(file, made.num_tiles, &made.handle);
}

int Driver::configure_context(void* argument) {
  auto& given = *static_cast<amdxdna_drm_config_hwctx*>(argument);
  if (given.param_type != DRM_AMDXDNA_HWCTX_CONFIG_CU) return EINVAL;
  auto& units = *reinterpret_cast<amdxdna_hwctx_param_config_cu*>(given.param_val);
  std::vector<Bytes> designs;
  for (uint16_t i = 0; i < units.num_cus; ++i) {
    designs.push_back(memory_.of(units.cu_configs[i].cu_bo));
  }
  return contexts_.configure(given.handle, std::move(designs));
}

int Driver::destroy_context(uint32_t handle) {
  commands_.abort(handle);
  return contexts_.destroy(handle);
}

int Driver::execute(void* argument) {
  auto& given = *static_cast<amdxdna_drm_exec_cmd*>(argument);
  if (given.type != AMDXDNA_CMD_SUBMIT_EXEC_BUF || given.cmd_count != 1) return EINVAL;
  uint64_t number = 0;
  int error = commands_.submit(given.hwctx, static_cast<uint32_t>(given.cmd_handles), &number);
  given.seq = number;
  return error;
}

}  // namespace npu_driver
