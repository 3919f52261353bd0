// Kernels for C. No exception leaves this file.
#include "kernels/cpu/c_api.h"

#include <cstring>
#include <mutex>
#include <new>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/pool.h"

namespace onnx_iron {
namespace {

constexpr std::align_val_t kScratchAlignment{64};
constexpr size_t kMostThreads = 256;

struct FreeScratch {
  void operator()(void* scratch) const { ::operator delete(scratch, kScratchAlignment); }
};

class Inline : public Threads {
 public:
  size_t count() const override { return 1; }
  void run(size_t tasks, Task task, void* context) override {
    for (size_t i = 0; i < tasks; ++i) task(context, i);
  }
};

// A kernel with the scratch space and the threads of its runs.
class Handle {
 public:
  explicit Handle(const Node& node) : kernel_(make_kernel(node)) {
    if (const size_t bytes = kernel_->scratch_bytes()) {
      scratch_.reset(::operator new(bytes, kScratchAlignment));
    }
  }

  void run(const void* const* inputs, void* const* outputs, size_t threads) {
    if (threads < 1 || threads > kMostThreads) {
      throw std::invalid_argument(text("threads is ", threads, ", expected 1..", kMostThreads));
    }
    const std::lock_guard<std::mutex> turn(mutex_);
    const Buffers buffers{inputs, outputs, scratch_.get()};
    if (threads == 1) {
      Inline here;
      kernel_->run(buffers, here);
      return;
    }
    if (pool_ == nullptr || pool_->count() != threads) pool_ = std::make_unique<Pool>(threads);
    kernel_->run(buffers, *pool_);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<void, FreeScratch> scratch_;
  std::unique_ptr<Pool> pool_;
  std::mutex mutex_;
};

template <typename Body>
int guarded(char* error, size_t capacity, Body&& body) {
  const auto report = [&](const char* message) {
    if (capacity == 0) return 1;
    std::strncpy(error, message, capacity - 1);
    error[capacity - 1] = '\0';
    return 1;
  };
  try {
    body();
    return 0;
  } catch (const std::exception& caught) {
    return report(caught.what());
  } catch (...) {
    return report("an unknown C++ exception");
  }
}

std::vector<Operand> operands_from_c(const OnnxIronOperand* operands, size_t count) {
  std::vector<Operand> result(count);
  for (size_t i = 0; i < count; ++i) {
    result[i].present = operands[i].dtype != 0;
    if (!result[i].present) continue;
    result[i].dtype = static_cast<DType>(operands[i].dtype);
    result[i].shape.assign(operands[i].shape, operands[i].shape + operands[i].rank);
  }
  return result;
}

}  // namespace

Node node_from_c(const char* op, const OnnxIronOperand* inputs, size_t n_inputs,
                 const OnnxIronOperand* outputs, size_t n_outputs,
                 const OnnxIronAttribute* attributes, size_t n_attributes) {
  Node node;
  node.op = op;
  node.inputs = operands_from_c(inputs, n_inputs);
  node.outputs = operands_from_c(outputs, n_outputs);
  for (size_t i = 0; i < n_attributes; ++i) {
    const OnnxIronAttribute& given = attributes[i];
    switch (given.kind) {
      case 0:
        node.attributes.set(given.name, given.integer);
        break;
      case 1:
        node.attributes.set(given.name, given.real);
        break;
      case 2:
        node.attributes.set(given.name, std::string(given.text));
        break;
      case 3:
        node.attributes.set(given.name,
                            std::vector<int64_t>(given.integers, given.integers + given.count));
        break;
      default:
        fail(node, "attribute ", given.name, " is of kind ", given.kind, ", expected 0..3");
    }
  }
  return node;
}

}  // namespace onnx_iron

int onnx_iron_kernel_create(const char* op, const OnnxIronOperand* inputs, size_t n_inputs,
                            const OnnxIronOperand* outputs, size_t n_outputs,
                            const OnnxIronAttribute* attributes, size_t n_attributes, void** kernel,
                            char* error, size_t capacity) {
  return onnx_iron::guarded(error, capacity, [&] {
    *kernel = new onnx_iron::Handle(
        onnx_iron::node_from_c(op, inputs, n_inputs, outputs, n_outputs, attributes, n_attributes));
  });
}

int onnx_iron_kernel_run(void* kernel, const void* const* inputs, void* const* outputs,
                         size_t threads, char* error, size_t capacity) {
  return onnx_iron::guarded(error, capacity, [&] {
    static_cast<onnx_iron::Handle*>(kernel)->run(inputs, outputs, threads);
  });
}

void onnx_iron_kernel_destroy(void* kernel) { delete static_cast<onnx_iron::Handle*>(kernel); }

const char* onnx_iron_kernel_names(void) {
  static const std::string names = [] {
    std::string joined;
    for (const std::string& name : onnx_iron::kernel_names()) {
      joined += joined.empty() ? name : "\n" + name;
    }
    return joined;
  }();
  return names.c_str();
}

const char* onnx_iron_cpu_path(void) {
  const char* name = nullptr;
  onnx_iron::guarded(nullptr, 0, [&] { name = onnx_iron::loops().name; });
  return name;
}
