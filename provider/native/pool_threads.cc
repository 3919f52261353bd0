#include "provider/native/pool_threads.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace onnx_iron {
namespace {

// Processors that this process may run on.
size_t processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<size_t>(CPU_COUNT(&set));
  return std::max<size_t>(1, std::thread::hardware_concurrency());
}

}  // namespace

size_t PoolThreads::count() const {
  static const size_t available = processors();
  return available;
}

}  // namespace onnx_iron
