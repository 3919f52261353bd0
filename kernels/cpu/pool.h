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

  Task task_ = nullptr;
  void* context_ = nullptr;
  size_t tasks_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> busy_{0};        // workers that have not finished the current call
  std::atomic<uint64_t> calls_{0};     // what workers wait on
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace onnx_iron
