#include <drm/amdxdna_accel.h>
#include <errno.h>

#include <algorithm>
#include <cstring>

#include "control.h"
#include "driver.h"

namespace npu_driver {
namespace {

template <typename T>
int give(const amdxdna_drm_get_info& info, const T& answer) {
  if (info.buffer_size < sizeof answer) return EINVAL;
  std::memcpy(reinterpret_cast<void*>(info.buffer), &answer, sizeof answer);
  return 0;
}

amdxdna_drm_query_aie_metadata array() {
  amdxdna_drm_query_aie_metadata answer{};
  answer.col_size = 1 << 25;
  answer.cols = static_cast<uint16_t>(machine().columns);
  answer.rows = 6;
  answer.version = {machine().aie_major, machine().aie_minor};
  // A row of shims, a row of memory, four of cores.
  answer.shim.row_count = 1;
  answer.mem.row_count = 1;
  answer.mem.row_start = 1;
  answer.core.row_count = 4;
  answer.core.row_start = 2;
  answer.shim.dma_channel_count = answer.core.dma_channel_count = 2;
  answer.mem.dma_channel_count = 6;
  return answer;
}

amdxdna_drm_query_clock_metadata clocks() {
  amdxdna_drm_query_clock_metadata answer{};
  std::memcpy(answer.mp_npu_clock.name, "MP-NPU Clock", 12);
  answer.mp_npu_clock.freq_mhz = 1267;
  std::memcpy(answer.h_clock.name, "H Clock", 7);
  answer.h_clock.freq_mhz = 1800;
  return answer;
}

}  // namespace

int query(void* argument) {
  auto& info = *static_cast<amdxdna_drm_get_info*>(argument);
  switch (info.param) {
    case DRM_AMDXDNA_QUERY_AIE_METADATA:
      return give(info, array());
    case DRM_AMDXDNA_QUERY_AIE_VERSION:
      return give(info, amdxdna_drm_query_aie_version{machine().aie_major, machine().aie_minor});
    case DRM_AMDXDNA_QUERY_CLOCK_METADATA:
      return give(info, clocks());
    case DRM_AMDXDNA_QUERY_FIRMWARE_VERSION:
      return give(info, amdxdna_drm_query_firmware_version{1, 1, 2, 65});
    default:
      // Sensors, telemetry and the like read nothing.
      std::memset(reinterpret_cast<void*>(info.buffer), 0, info.buffer_size);
      return 0;
  }
}

}  // namespace npu_driver
