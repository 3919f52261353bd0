// What a CPU kernel is: made once for a node with known dtypes and shapes, then run many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace onnx_iron {

// Numbered as ONNX's TensorProto.DataType.
enum class DType : int32_t {
  kFloat32 = 1,
  kUInt8 = 2,  // codes of quantized weights, and nothing else
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kBFloat16 = 16
};

// Bytes of one element; throws std::invalid_argument for a dtype that no kernel knows.
size_t size_of(DType dtype);

using Shape = std::vector<int64_t>;

// Number of elements: the product of the dimensions.
int64_t element_count(const Shape& shape);

// An operand as it is known when a node is compiled. An omitted optional input is not present.
struct Operand {
  DType dtype = DType::kFloat32;
  Shape shape;
  bool present = true;

  bool operator==(const Operand&) const = default;
};

// A node's attributes by name.
class Attributes {
 public:
  using Value = std::variant<int64_t, float, std::string, std::vector<int64_t>>;

  void set(std::string name, Value value);

  // The value, or the default where the node has no such attribute. A value of another kind
  // throws std::invalid_argument.
  int64_t integer(std::string_view name, std::optional<int64_t> otherwise = {}) const;
  float real(std::string_view name, std::optional<float> otherwise = {}) const;
  std::string text(std::string_view name, std::optional<std::string> otherwise = {}) const;
  std::vector<int64_t> integers(std::string_view name,
                                std::optional<std::vector<int64_t>> otherwise = {}) const;
  bool has(std::string_view name) const;

 private:
  const Value* find(std::string_view name) const;
  std::vector<std::pair<std::string, Value>> values_;
};

// A node to be compiled. The outputs' shapes are given: a kernel checks that they follow.
struct Node {
  std::string op;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  Attributes attributes;

  bool has_input(size_t index) const { return index < inputs.size() && inputs[index].present; }
};

// Who runs a kernel's tasks. Tasks are independent; results never depend on how many run at once.
class Threads {
 public:
  using Task = void (*)(void* context, size_t index);

  virtual ~Threads() = default;
  // How many tasks can run at once; a hint for the size of tasks.
  virtual size_t count() const = 0;
  virtual void run(size_t tasks, Task task, void* context) = 0;

  // body(index) for every index below `tasks`; returns when all are done. body must not throw.
  template <typename Body>
  void parallel(size_t tasks, Body&& body) {
    if (tasks == 0) return;
    if (tasks == 1) {
      body(size_t{0});
      return;
    }
    run(
        tasks,
        [](void* context, size_t index) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(index);
        },
        &body);
  }
};

// Where one call's operands are. An omitted input is null. scratch has scratch_bytes() bytes,
// aligned to 64, and is this call's own.
struct Buffers {
  const void* const* inputs;
  void* const* outputs;
  void* scratch;
};

// What a call does: additions and multiplications, about, and bytes that it reads and writes.
struct Work {
  int64_t flops = 0;
  int64_t bytes = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Throws std::invalid_argument for a per-call value out of range, before it writes anything.
  virtual void run(const Buffers& buffers, Threads& threads) const = 0;
  virtual size_t scratch_bytes() const { return 0; }
  // What a call does, given what its operator declares for these shapes: a kernel says where that
  // depends on the call's values. For profiles, so it may look at the operands, and costs little.
  virtual Work work(const Buffers& /*buffers*/, const Work& declared) const { return declared; }
  // Bytes of tables that it made, as far as they grow with the shapes.
  virtual size_t table_bytes() const { return 0; }
};

// Checks the node's dtypes, shapes and attributes and makes its kernel. Throws
// std::invalid_argument that says what is wrong and what was expected.
std::unique_ptr<Kernel> make_kernel(const Node& node);

// The outputs of a node of the domain onnx_iron: their shapes by the op's rule, their dtype that of
// the first input. Reads the inputs and attributes alone. Throws std::invalid_argument for inputs
// that have no outputs.
std::vector<Operand> infer_outputs(const Node& node);

// The ops that have a kernel, sorted.
std::vector<std::string> kernel_names();

// Registration: each kernel file ends with `static const Registration r("RMSNorm", make_rms_norm);`
// A second one of the same op ends the process as the library is loaded.
using Factory = std::unique_ptr<Kernel> (*)(const Node& node);
// The outputs' shapes; without a rule, one output as the first input.
using ShapeRule = std::vector<Shape> (*)(const Node& node);
struct Registration {
  Registration(const char* op, Factory factory, ShapeRule shapes = nullptr);
};

}  // namespace onnx_iron
