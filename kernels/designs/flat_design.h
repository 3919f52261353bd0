// A design as the interpreter reads it: kernels/designs/design.py's dataclasses, with names
// resolved to numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace onnx_iron::designs {

struct Affine {
  int64_t constant;
  int64_t column, row;
  std::vector<int64_t> loops;
  std::vector<std::pair<int64_t, int64_t>> values;  // number of the value, its factor
  std::vector<int64_t> each;                        // column by column, or empty
};

struct Index {
  Affine of;
  std::optional<int64_t> low;
  std::optional<Affine> high;
};

struct Term {
  int64_t stride;
  Index index;
};

struct Transfer {
  int64_t buffer;
  std::vector<int64_t> sizes, strides;
  std::vector<Term> terms;
  int64_t times;  // the value that the outermost size is, -1: none
};

enum class Access : int64_t { kRead, kWrite, kUpdate };

struct Port {
  std::string name;
  int64_t item_bytes;
  int64_t elements;
  Access access;
};

struct Stream {
  std::string name;
  bool outgoing;
  int64_t level;
  int64_t item_bytes;
  int64_t elements;
  int64_t parts;  // cores whose tiles are moved at once
  std::vector<Transfer> transfers;
  std::vector<std::pair<int64_t, int64_t>> arrange;
  int64_t source;  // a stream's number, -1: its core
  bool whole;      // its transfers fill the tiles of all passes
  int64_t room;    // elements of the place where a core has a tile

  int64_t bytes() const { return item_bytes * elements; }
};

struct Local {
  std::string name;
  int64_t bytes;
};

struct Argument {
  // Streams are numbered first, then locals.
  enum class Form : int64_t { kTile, kIndex, kInteger, kReal } form;
  int64_t number = 0;  // of the tile, or the integer
  double real = 0;
  Index index;
};

struct Call {
  std::string kernel;
  int64_t level;
  bool after;
  std::vector<Argument> arguments;
};

struct Scalar {
  std::string name;
  int64_t low, high;
};

struct Design {
  std::string name;
  std::vector<Port> buffers;
  std::vector<Scalar> values;
  std::vector<std::vector<int64_t>> columns;
  int64_t rows;
  std::vector<Stream> streams;
  std::vector<Local> locals;
  std::vector<Call> calls;
  int64_t idle;  // a value's number, -1: none
  // Of the innermost loop, in the first pass of those around it and in the others, or empty.
  std::vector<Affine> innermost;
};

// Throws std::invalid_argument for bytes that are no design.
Design decode(const std::byte* bytes, size_t size);

}  // namespace onnx_iron::designs
