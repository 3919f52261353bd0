#include "provider/native/describe_attribute.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/kernel.h"
#include "provider/native/status.h"

namespace onnx_iron {
namespace {

template <typename Item>
std::vector<Item> read_list(const ort::Attribute* attribute, int32_t kind) {
  size_t bytes = 0;
  if (ort::Status* too_small = ort::ReadOpAttr(attribute, kind, nullptr, 0, &bytes)) {
    ort::ReleaseStatus(too_small);
  }
  std::vector<Item> items(bytes / sizeof(Item));
  if (!items.empty()) check(ort::ReadOpAttr(attribute, kind, items.data(), bytes, &bytes));
  return items;
}

// A tensor of one element, by its dtype and value; null for another, and for dtypes without a
// kernel.
void write_element(JsonWriter& json, const ort::Attribute* attribute) {
  ort::Value* made = nullptr;
  check(ort::OpAttr_GetTensorAttributeAsOrtValue(attribute, &made));
  if (made == nullptr) return json.null();
  std::unique_ptr<ort::Value, void (*)(ort::Value*)> tensor(
      made, [](ort::Value* held) { ort::ReleaseValue(held); });
  int32_t dtype = 0;
  const int64_t* dims = nullptr;
  size_t rank = 0;
  check(ort::GetTensorElementTypeAndShapeDataReference(tensor.get(), &dtype, &dims, &rank));
  if (std::any_of(dims, dims + rank, [](int64_t dim) { return dim != 1; })) return json.null();
  const void* data = nullptr;
  check(ort::GetTensorData(tensor.get(), &data));
  json.begin_object();
  json.member("dtype", int64_t{dtype});
  json.key("value");
  switch (static_cast<DType>(dtype)) {
    case DType::kFloat32:
      json.value(*static_cast<const float*>(data));
      break;
    case DType::kInt32:
      json.value(int64_t{*static_cast<const int32_t*>(data)});
      break;
    case DType::kInt64:
      json.value(*static_cast<const int64_t*>(data));
      break;
    case DType::kBool:
      json.value(*static_cast<const uint8_t*>(data) != 0);
      break;
    case DType::kBFloat16:
      json.value(widen_one(*static_cast<const bf16*>(data)));
      break;
    default:
      json.null();
  }
  json.end_object();
}

}  // namespace

void write_attribute(JsonWriter& json, const ort::Attribute* attribute) {
  int32_t kind = 0;
  // onnxruntime has no kind for a type, and fails.
  if (!succeeds(ort::OpAttr_GetType(attribute, &kind))) return json.null();
  size_t bytes = 0;
  switch (kind) {
    case ort::kInt: {
      int64_t number = 0;
      check(ort::ReadOpAttr(attribute, kind, &number, sizeof number, &bytes));
      return json.value(number);
    }
    case ort::kFloat: {
      float number = 0;
      check(ort::ReadOpAttr(attribute, kind, &number, sizeof number, &bytes));
      return json.value(number);
    }
    case ort::kInts:
      return json.array(read_list<int64_t>(attribute, kind));
    case ort::kFloats:
      return json.array(read_list<float>(attribute, kind));
    case ort::kString: {
      std::vector<char> letters = read_list<char>(attribute, kind);
      return json.value(std::string_view(letters.data(), letters.size()));
    }
    case ort::kTensorAttribute:
      return write_element(json, attribute);
    default:
      // Graphs and lists of strings: nothing that the provider runs has one.
      return json.null();
  }
}

}  // namespace onnx_iron
