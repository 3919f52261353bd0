// What a context's compute unit runs: a design, as the simulator's artifacts carry it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "memory.h"

namespace npu_driver {

// A design's bytes begin with kMagic, its digest, and the length of the text that follows; the
// instructions of a run are kMagic and the digest.
inline constexpr char kMagic[16] = "onnx_iron.sim.1";
using Digest = std::array<std::byte, 32>;

class Design {
 public:
  // Throws std::runtime_error where the bytes are no design of the simulator's.
  explicit Design(Bytes pdi);

  // Whether these are the instructions that belong to this design.
  bool has_instructions(Bytes instructions) const;
  // Runs the design over the buffers, in the order of the run's arguments. Throws
  // std::runtime_error with what is wrong.
  void run(const std::vector<Bytes>& buffers) const;

  const Digest& digest() const { return digest_; }

 private:
  Digest digest_{};
  std::string text_;
  std::shared_ptr<void> loaded_;  // the interpreter's
};

}  // namespace npu_driver
