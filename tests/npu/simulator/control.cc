#include "control.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>

namespace npu_driver {

Counters counters;

namespace {

struct Plan {
  uint64_t after = 0;
  uint64_t times = 0;
};

constexpr size_t kFaults = static_cast<size_t>(Fault::kCount);
constexpr std::array<const char*, kFaults> kNames = {
    "hang", "error", "context_lost", "allocation", "context", "submission", "firmware"};

std::mutex plans_mutex;
std::array<Plan, kFaults> plans;
std::once_flag environment_read;

// NPU_DRIVER_FAULTS holds "name", "name:after" or "name:after:times", separated by commas.
void read_environment() {
  const char* given = std::getenv("NPU_DRIVER_FAULTS");
  std::istringstream list(given == nullptr ? "" : given);
  for (std::string item; std::getline(list, item, ',');) {
    std::istringstream parts(item);
    std::string name, after = "0", times = "1";
    std::getline(parts, name, ':');
    std::getline(parts, after, ':');
    std::getline(parts, times, ':');
    if (!set_fault(name, std::strtoull(after.c_str(), nullptr, 10),
                   std::strtoull(times.c_str(), nullptr, 10))) {
      std::fprintf(stderr, "npu_driver: NPU_DRIVER_FAULTS names no fault %s\n", name.c_str());
      std::abort();
    }
  }
}

std::string report() {
  std::ostringstream text;
  const char* separator = "{";
  auto add = [&](const char* name, const std::atomic<uint64_t>& value) {
    text << separator << '"' << name << "\":" << value.load();
    separator = ",";
  };
  add("buffers_made", counters.buffers_made);
  add("buffers_live", counters.buffers_live);
  add("bytes_live", counters.bytes_live);
  add("contexts_made", counters.contexts_made);
  add("contexts_live", counters.contexts_live);
  add("submissions", counters.submissions);
  add("runs", counters.runs);
  add("switches", counters.switches);
  add("syncs_to_device", counters.syncs_to_device);
  add("syncs_from_device", counters.syncs_from_device);
  add("bytes_to_device", counters.bytes_to_device);
  add("bytes_from_device", counters.bytes_from_device);
  add("files_open", counters.files_open);
  text << "}";
  return text.str();
}

// A process may leave its counters in a file when it ends.
struct ReportAtExit {
  ~ReportAtExit() {
    const char* path = std::getenv("NPU_DRIVER_REPORT");
    if (path == nullptr || counters.contexts_made + counters.buffers_made == 0) return;
    if (std::FILE* file = std::fopen(path, "w")) {
      std::fputs(report().c_str(), file);
      std::fclose(file);
    }
  }
} report_at_exit;

}  // namespace

bool set_fault(const std::string& name, uint64_t after, uint64_t times) {
  for (size_t i = 0; i < kFaults; ++i) {
    if (name == kNames[i]) {
      std::lock_guard lock(plans_mutex);
      plans[i] = {after, times};
      return true;
    }
  }
  return false;
}

bool fails(Fault fault) {
  std::call_once(environment_read, read_environment);
  std::lock_guard lock(plans_mutex);
  Plan& plan = plans[static_cast<size_t>(fault)];
  if (plan.times == 0) return false;
  if (plan.after > 0) {
    --plan.after;
    return false;
  }
  --plan.times;
  log("fault: %s", kNames[static_cast<size_t>(fault)]);
  return true;
}

const Machine& machine() {
  // Columns and limits as the driver has them for Phoenix and Strix.
  static constexpr Machine kPhoenix = {"npu1", 5, 6, 1, 1};
  static constexpr Machine kStrix = {"npu2", 8, 16, 2, 2};
  static const Machine& chosen = [&]() -> const Machine& {
    const char* name = std::getenv("NPU_DRIVER_TARGET");
    return name != nullptr && std::strcmp(name, "npu1") == 0 ? kPhoenix : kStrix;
  }();
  return chosen;
}

uint64_t give_up_ms() {
  static const uint64_t value = [] {
    const char* given = std::getenv("NPU_DRIVER_GIVE_UP_MS");
    return given == nullptr ? 2000 : std::strtoull(given, nullptr, 10);
  }();
  return value;
}

void log(const char* format, ...) {
  static const bool wanted = std::getenv("NPU_DRIVER_DEBUG") != nullptr;
  if (!wanted) return;
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "[npu_driver] %s\n", line);
}

}  // namespace npu_driver

extern "C" {

// The counters as JSON; returns the bytes needed.
__attribute__((visibility("default"))) size_t npu_driver_report(char* text, size_t size) {
  std::string made = npu_driver::report();
  if (size > made.size()) std::memcpy(text, made.c_str(), made.size() + 1);
  return made.size() + 1;
}

__attribute__((visibility("default"))) int npu_driver_fault(const char* name, uint64_t after,
                                                            uint64_t times) {
  return npu_driver::set_fault(name, after, times) ? 0 : -1;
}

}  // extern "C"
