// What tests see and steer: counters of everything the driver did, and faults that it was told to
// make.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace npu_driver {

struct Counters {
  std::atomic<uint64_t> buffers_made{0};
  std::atomic<uint64_t> buffers_live{0};
  std::atomic<uint64_t> bytes_live{0};
  std::atomic<uint64_t> contexts_made{0};
  std::atomic<uint64_t> contexts_live{0};
  std::atomic<uint64_t> submissions{0};  // commands that came in; a runlist is one
  std::atomic<uint64_t> runs{0};         // designs that were run
  std::atomic<uint64_t> switches{0};     // runs of another design than the one before
  std::atomic<uint64_t> syncs_to_device{0};
  std::atomic<uint64_t> syncs_from_device{0};
  std::atomic<uint64_t> bytes_to_device{0};
  std::atomic<uint64_t> bytes_from_device{0};
  std::atomic<uint64_t> files_open{0};
};

extern Counters counters;

enum class Fault {
  kHang,         // a run that never ends
  kError,        // a run that ends with an error
  kContextLost,  // a run that takes its context with it
  kAllocation,   // a buffer that is refused
  kContext,      // a context that is refused
  kSubmission,   // a command that is refused
  kFirmware,     // a context that an old firmware does not know how to make
  kCount,
};

// Whether this occasion is one that was to fail; counts it.
bool fails(Fault fault);

// "hang", "error", ... as tests write them. Of the occasions from now on, `after` pass and then
// `times` fail. Returns false for an unknown name.
bool set_fault(const std::string& name, uint64_t after, uint64_t times);

// Which machine this is: "npu1" (Phoenix) or "npu2" (Strix).
struct Machine {
  const char* name;
  uint32_t columns;
  uint32_t context_limit;
  uint32_t aie_major;
  uint32_t aie_minor;
};

const Machine& machine();

// Milliseconds after which the driver gives up on a run, as the real one does.
uint64_t give_up_ms();

// Where NPU_DRIVER_DEBUG is set, a line on stderr.
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace npu_driver
