// What a context's compute unit runs: a design, as the simulator's artifacts carry it.
#pragma once

#include <array>
#include <vector>

#include "memory.h"

namespace npu_driver {

// A design's bytes are kMagic, its digest, then numbers of 8 bytes: how many buffers it has, the
// size of each, and the length of what follows, the design as the interpreter reads it. The
// instructions of a run are kMagic, the digest, and the per-call values.
inline constexpr char kMagic[16] = "onnx_iron.sim.1";
using Digest = std::array<std::byte, 32>;

class Design {
 public:
  // Throws std::runtime_error where the bytes are no design of the simulator's.
  explicit Design(Bytes pdi);

  // Runs the design over the buffers, in the order of the run's arguments. Throws
  // std::runtime_error with what is wrong: instructions of another design, or what the interpreter
  // says.
  void run(Bytes instructions, const std::vector<Bytes>& buffers) const;

  const Digest& digest() const { return digest_; }

 private:
  Digest digest_{};
  std::vector<size_t> sizes_;
  std::vector<std::byte> design_;
};

}  // namespace npu_driver
