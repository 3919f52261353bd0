// Threads for kernels that run outside onnxruntime.
#include "kernels/cpu/pool.h"

namespace onnx_iron {
namespace {

// How often to look before sleeping, some 100 us: waking up takes tens. Offering the CPU meanwhile
// would keep two threads on one CPU for good.
constexpr int kLooks = 4000;

// Looks until `done` or tired of it.
template <typename Done>
void look_for(Done&& done) {
  for (int look = 0; look < kLooks && !done(); ++look) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

}  // namespace

Pool::Pool(size_t count) {
  for (size_t i = 1; i < count; ++i) workers_.emplace_back([this] { work(); });
}

Pool::~Pool() {
  stopping_ = true;
  start_call();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::start_call() {
  calls_.fetch_add(1);
  if (asleep_.load() != 0) calls_.notify_all();
}

void Pool::take_tasks() {
  for (size_t i = next_.fetch_add(1); i < tasks_; i = next_.fetch_add(1)) task_(context_, i);
}

void Pool::work() {
  // A call is over only when every worker has finished it, so none is missed.
  for (uint32_t seen = 0;; ++seen) {
    look_for([&] { return calls_.load() != seen; });
    if (calls_.load() == seen) {
      asleep_.fetch_add(1);
      calls_.wait(seen);
      asleep_.fetch_sub(1);
    }
    if (stopping_) return;
    take_tasks();
    if (busy_.fetch_sub(1) == 1) busy_.notify_one();
  }
}

void Pool::run(size_t tasks, Task task, void* context) {
  task_ = task;
  context_ = context;
  tasks_ = tasks;
  next_ = 0;
  busy_ = static_cast<uint32_t>(workers_.size());
  start_call();
  take_tasks();
  look_for([&] { return busy_.load() == 0; });
  for (uint32_t left = busy_.load(); left != 0; left = busy_.load()) busy_.wait(left);
}

}  // namespace onnx_iron
