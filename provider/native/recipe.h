// How a subgraph's programs are made, for all shapes of its inputs that lead to the same steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "provider/native/program.h"

namespace onnx_iron {

class Recipe {
 public:
  // `code` is what provider/program.py writes: lists, each after its length, of
  //   numbers     operation, a, b: see Numbers in provider/symbols.py
  //   answers     relation, a, b, 0 or 1: what holds for the numbers
  //   outputs     dtype, shape
  //   constants   1, bytes in `data`, or 0, dtype, elements
  //   spans       begin, end, bytes: what the arena holds
  //   values      name, dtype, shape, place, index, offset
  //   steps       name, operator, inputs, outputs, attributes
  //   pairs       input, output
  // where a shape, an element, a size, an offset or an integer attribute is a row of the numbers.
  Recipe(std::vector<int64_t> code, std::string data)
      : code_(std::move(code)), data_(std::move(data)) {}

  // The program for these inputs, or null where they lead to other steps. Throws
  // std::invalid_argument where a kernel refuses them.
  std::unique_ptr<Program> make(const std::vector<Border>& inputs, size_t outputs) const;

 private:
  std::vector<int64_t> code_;
  std::string data_;
};

}  // namespace onnx_iron
