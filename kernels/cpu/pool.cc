// Threads for kernels that run outside onnxruntime.
#include "kernels/cpu/pool.h"

namespace onnx_iron {
namespace {

// How often to look before sleeping: some 20 us, the distance of kernels in a benchmark.
constexpr int kLooks = 1000;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Pool::Pool(size_t count) {
  for (size_t i = 1; i < count; ++i) workers_.emplace_back([this] { work(); });
}

Pool::~Pool() {
  stopping_ = true;
  calls_.fetch_add(1);
  calls_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::take_tasks() {
  for (size_t i = next_.fetch_add(1); i < tasks_; i = next_.fetch_add(1)) task_(context_, i);
}

void Pool::work() {
  for (uint64_t seen = 0;;) {
    for (int look = 0; look < kLooks && calls_.load() == seen; ++look) pause();
    calls_.wait(seen);
    // One step at a time: a call is over only when every worker has finished it.
    ++seen;
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
  busy_ = workers_.size();
  calls_.fetch_add(1);
  calls_.notify_all();
  take_tasks();
  size_t left = busy_.load();
  for (int look = 0; look < kLooks && left != 0; ++look) {
    pause();
    left = busy_.load();
  }
  for (; left != 0; left = busy_.load()) busy_.wait(left);
}

}  // namespace onnx_iron
