#include "provider/native/recipe.h"

#include <bit>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "provider/native/arena.h"

namespace onnx_iron {
namespace {

enum Operation { kConstant, kDim, kAdd, kSub, kMul, kFloorDiv, kMod };
enum Relation { kEqual, kLess, kLessEqual };
enum Kind { kInteger, kReal, kText, kIntegers };

[[noreturn]] void damaged() {
  throw std::invalid_argument("program: the planner's code is damaged");
}

class Reader {
 public:
  Reader(const std::vector<int64_t>& code, const std::string& data) : code_(code), data_(data) {}

  int64_t next() {
    if (at_ == code_.size()) damaged();
    return code_[at_++];
  }
  size_t count() {
    int64_t count = next();
    if (count < 0 || static_cast<size_t>(count) > code_.size()) damaged();
    return static_cast<size_t>(count);
  }
  std::string_view bytes() {
    size_t begin = static_cast<size_t>(next()), size = static_cast<size_t>(next());
    if (begin > data_.size() || size > data_.size() - begin) damaged();
    return std::string_view(data_).substr(begin, size);
  }
  std::string text() { return std::string(bytes()); }

 private:
  const std::vector<int64_t>& code_;
  const std::string& data_;
  size_t at_ = 0;
};

class Numbers {
 public:
  // False where the inputs have no such numbers: another rank, an overflow.
  bool read(Reader& reader, const std::vector<Border>& inputs) {
    values_.resize(reader.count());
    for (size_t i = 0; i < values_.size(); ++i) {
      int64_t operation = reader.next(), a = reader.next(), b = reader.next();
      if (operation == kConstant) {
        values_[i] = a;
      } else if (operation == kDim) {
        if (static_cast<size_t>(a) >= inputs.size()) damaged();
        const Shape& shape = inputs[static_cast<size_t>(a)].shape;
        if (static_cast<size_t>(b) >= shape.size()) return false;
        values_[i] = shape[static_cast<size_t>(b)];
      } else if (!make(operation, of(a, i), of(b, i), values_[i])) {
        return false;
      }
    }
    return true;
  }
  int64_t at(int64_t row) const { return of(row, values_.size()); }
  Shape shape(Reader& reader) const {
    Shape shape(reader.count());
    for (int64_t& dim : shape) dim = at(reader.next());
    return shape;
  }

 private:
  int64_t of(int64_t row, size_t end) const {
    if (static_cast<size_t>(row) >= end) damaged();
    return values_[static_cast<size_t>(row)];
  }
  static bool make(int64_t operation, int64_t a, int64_t b, int64_t& result) {
    switch (operation) {
      case kAdd:
        return !__builtin_add_overflow(a, b, &result);
      case kSub:
        return !__builtin_sub_overflow(a, b, &result);
      case kMul:
        return !__builtin_mul_overflow(a, b, &result);
      case kFloorDiv:
      case kMod: {
        if (b == 0 || b == -1) return false;
        int64_t rest = a % b;
        bool down = rest != 0 && (rest < 0) != (b < 0);
        result = operation == kMod ? rest + (down ? b : 0) : a / b - (down ? 1 : 0);
        return true;
      }
      default:
        damaged();
    }
  }

  std::vector<int64_t> values_;
};

bool holds(int64_t relation, int64_t a, int64_t b) {
  return relation == kEqual ? a == b : relation == kLess ? a < b : a <= b;
}

std::string constant_of(Reader& reader, const Numbers& numbers) {
  if (reader.next() == 1) return reader.text();
  DType dtype = static_cast<DType>(reader.next());
  std::string bytes;
  for (int64_t element : numbers.shape(reader)) {
    bytes.append(reinterpret_cast<const char*>(&element), size_of(dtype));  // little-endian
  }
  return bytes;
}

Attributes attributes_of(Reader& reader, const Numbers& numbers) {
  Attributes attributes;
  for (size_t count = reader.count(); count > 0; --count) {
    std::string name = reader.text();
    switch (reader.next()) {
      case kInteger:
        attributes.set(std::move(name), numbers.at(reader.next()));
        break;
      case kReal:
        attributes.set(std::move(name), std::bit_cast<float>(static_cast<int32_t>(reader.next())));
        break;
      case kText:
        attributes.set(std::move(name), reader.text());
        break;
      case kIntegers:
        attributes.set(std::move(name), numbers.shape(reader));
        break;
      default:
        damaged();
    }
  }
  return attributes;
}

std::vector<int32_t> list_of(Reader& reader) {
  std::vector<int32_t> list(reader.count());
  for (int32_t& number : list) number = static_cast<int32_t>(reader.next());
  return list;
}

}  // namespace

std::unique_ptr<Program> Recipe::make(const std::vector<Border>& inputs, size_t outputs) const {
  Reader reader(code_, data_);
  for (const Border& input : inputs) {
    if (reader.next() != static_cast<int64_t>(input.shape.size())) return nullptr;
  }
  Numbers numbers;
  if (!numbers.read(reader, inputs)) return nullptr;
  for (size_t count = reader.count(); count > 0; --count) {
    int64_t relation = reader.next(), a = reader.next(), b = reader.next(), answer = reader.next();
    if (holds(relation, numbers.at(a), numbers.at(b)) != (answer != 0)) return nullptr;
  }
  auto program = std::make_unique<Program>(inputs, outputs);
  size_t made = reader.count();
  for (size_t i = 0; i < made; ++i) {
    DType dtype = static_cast<DType>(reader.next());
    program->set_output(i, {dtype, numbers.shape(reader)});
  }
  for (size_t count = reader.count(); count > 0; --count) {
    std::string bytes = constant_of(reader, numbers);
    program->add_constant(bytes.data(), bytes.size());
  }
  std::vector<Span> spans(reader.count());
  for (Span& span : spans) {
    span = {reader.next(), reader.next(), numbers.at(reader.next())};
  }
  const std::vector<int64_t> offsets = arena_offsets(spans);
  for (size_t count = reader.count(); count > 0; --count) {
    std::string name = reader.text();
    Operand operand;
    operand.dtype = static_cast<DType>(reader.next());
    operand.shape = numbers.shape(reader);
    Location location;
    location.place = static_cast<Place>(reader.next());
    location.index = static_cast<size_t>(reader.next());
    location.offset = static_cast<size_t>(numbers.at(reader.next()));
    if (location.place == Place::kArena) {
      if (location.index >= offsets.size()) damaged();
      location.offset += static_cast<size_t>(offsets[location.index]);
      location.index = 0;
    }
    program->add_value(std::move(name), std::move(operand), location);
  }
  for (size_t count = reader.count(); count > 0; --count) {
    std::string name = reader.text(), op = reader.text();
    std::vector<int32_t> given = list_of(reader), results = list_of(reader);
    Attributes attributes = attributes_of(reader, numbers);
    Work declared{numbers.at(reader.next()), numbers.at(reader.next())};
    program->add_step(std::move(name), std::move(op), given, results, std::move(attributes),
                      declared);
  }
  for (size_t count = reader.count(); count > 0; --count) {
    int64_t input = reader.next(), output = reader.next();
    program->add_pair(static_cast<size_t>(input), static_cast<size_t>(output));
  }
  program->finish();
  return program;
}

}  // namespace onnx_iron
