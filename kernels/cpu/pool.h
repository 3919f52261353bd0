// Threads for kernels that run outside onnxruntime: tests and benchmarks.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "kernels/cpu/kernel.h"

namespace onnx_iron {

class Pool : public Threads {
 public:
  // `count` threads with the caller's.
  explicit Pool(size_t count);
  ~Pool() override;

  size_t count() const override { return workers_.size() + 1; }
  void run(size_t tasks, Task task, void* context) override;

 private:
  void work();
  void take_tasks();
  void start_call();

  Task task_ = nullptr;
  void* context_ = nullptr;
  size_t tasks_ = 0;
  bool stopping_ = false;
  // 32 bits, which the kernel can wait on itself.
  std::atomic<uint32_t> calls_{0};   // counts calls; what workers wait for
  std::atomic<uint32_t> asleep_{0};  // workers that must be woken
  std::atomic<uint32_t> busy_{0};    // workers that have not finished the current call
  std::atomic<size_t> next_{0};      // the first task that nobody has taken
  std::vector<std::thread> workers_;
};

}  // namespace onnx_iron
