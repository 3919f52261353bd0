#include "provider/native/device_program.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace onnx_iron {
namespace {

using Run = int (*)(int64_t, const void* const*, void* const*, char*, size_t);
using Release = void (*)(int64_t);

constexpr size_t kReasonBytes = 4096;
constexpr int kDone = 0, kToTheHost = 1;

std::atomic<Run> current_run{nullptr};
std::atomic<Release> current_release{nullptr};
std::atomic<int> calls_under_way{0};

// Counts a call into Python for as long as it lives.
struct Visit {
  Visit() { ++calls_under_way; }
  ~Visit() { --calls_under_way; }
};

}  // namespace

DeviceProgram::~DeviceProgram() {
  Visit visit;
  if (Release release = current_release) release(number_);
}

bool DeviceProgram::run(const std::vector<const void*>& inputs,
                        const std::vector<void*>& outputs) const {
  Visit visit;
  Run run = current_run;
  if (run == nullptr) {
    throw std::runtime_error("onnx-iron: the NPU can't be used any more, Python is shutting down");
  }
  char reason[kReasonBytes] = "";
  int result = run(number_, inputs.data(), outputs.data(), reason, sizeof reason);
  if (result == kDone || result == kToTheHost) return result == kDone;
  throw std::runtime_error(reason[0] != '\0' ? reason : "onnx-iron: the NPU's program failed");
}

}  // namespace onnx_iron

void onnx_iron_set_device_runner(int (*run)(int64_t, const void* const*, void* const*, char*,
                                            size_t),
                                 void (*release)(int64_t)) {
  using namespace onnx_iron;
  current_run = run;
  current_release = release;
  if (run != nullptr) return;
  while (calls_under_way > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
