// The session's own intra-op threads, as kernels see them.
#pragma once

#include <cstddef>

#include "kernels/cpu/kernel.h"
#include "provider/native/ort_api.h"
#include "provider/native/status.h"

namespace onnx_iron {

class PoolThreads : public Threads {
 public:
  explicit PoolThreads(const ort::KernelContext* context) : context_(context) {}

  // The pool's size is not to be had from onnxruntime; its default is a thread for each processor.
  size_t count() const override;
  void run(size_t tasks, Task task, void* context) override {
    check(ort::KernelContext_ParallelFor(context_, task, tasks, tasks, context));
  }

 private:
  const ort::KernelContext* context_;
};

}  // namespace onnx_iron
