// bfloat16 functions of one operand as tables of all 65,536 results.
#include "kernels/cpu/tables.h"

#include <map>
#include <memory>
#include <mutex>

namespace onnx_iron {

const bf16* table_of(const UnaryFunction& function) {
  constexpr int kValues = 65536;
  static std::mutex mutex;
  static std::map<const UnaryFunction*, std::unique_ptr<bf16[]>> tables;
  const std::lock_guard<std::mutex> turn(mutex);
  std::unique_ptr<bf16[]>& table = tables[&function];
  if (table == nullptr) {
    auto made = std::make_unique<bf16[]>(kValues);
    for (int bits = 0; bits < kValues; ++bits) {
      const double x = widen_one(bf16{static_cast<uint16_t>(bits)});
      made[bits] = narrow_to_bf16(static_cast<float>(function.exact(x)));
    }
    table = std::move(made);
  }
  return table.get();
}

}  // namespace onnx_iron
