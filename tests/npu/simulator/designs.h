// What a context's compute unit runs: designs, as the simulator's artifacts carry it.
#pragma once

#include <array>
#include <vector>

#include "memory.h"

namespace npu_driver {

// What configures the array is kMagic and the configuration's digest. The instructions of a run are
// the same, then, in numbers of 8 bytes, how many designs run, and of each: how many bytes follow
// the next number, how many buffers it has, which of the run's buffers each is, again how many, the
// size of each, and the length of the design as the interpreter reads it; the design; and what of
// the bytes is left, the per-call values.
inline constexpr char kMagic[16] = "onnx_iron.sim.3";
using Digest = std::array<std::byte, 32>;

class Design {
 public:
  // Throws std::runtime_error where the bytes are no design of the simulator's.
  explicit Design(Bytes pdi);

  // Runs the instructions' designs over the buffers, in the order of the run's arguments. Throws
  // std::runtime_error with what is wrong: instructions of another configuration, or what the
  // interpreter says.
  void run(Bytes instructions, const std::vector<Bytes>& buffers) const;

  const Digest& digest() const { return digest_; }

 private:
  Digest digest_{};
};

}  // namespace npu_driver
