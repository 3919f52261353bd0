#include "designs.h"

#include <cstring>
#include <stdexcept>

namespace npu_driver {
namespace {

constexpr size_t kHeader = sizeof kMagic + sizeof(Digest) + sizeof(uint64_t);

bool begins_with_magic(Bytes bytes) {
  return bytes.size >= sizeof kMagic && std::memcmp(bytes.data, kMagic, sizeof kMagic) == 0;
}

}  // namespace

Design::Design(Bytes pdi) {
  if (pdi.size < kHeader || !begins_with_magic(pdi)) {
    throw std::runtime_error("the bytes are no design of the simulator's");
  }
  std::memcpy(digest_.data(), pdi.data + sizeof kMagic, sizeof digest_);
  uint64_t length = 0;
  std::memcpy(&length, pdi.data + sizeof kMagic + sizeof digest_, sizeof length);
  if (length > pdi.size - kHeader) throw std::runtime_error("the design is cut short");
  text_.assign(reinterpret_cast<const char*>(pdi.data) + kHeader, length);
}

bool Design::has_instructions(Bytes instructions) const {
  return instructions.size >= sizeof kMagic + sizeof digest_ && begins_with_magic(instructions) &&
         std::memcmp(instructions.data + sizeof kMagic, digest_.data(), sizeof digest_) == 0;
}

void Design::run(const std::vector<Bytes>& buffers) const {
  if (text_ != "add_float32" || buffers.size() < 3) throw std::runtime_error("unknown design");
  auto a = reinterpret_cast<float*>(buffers[0].data), b = reinterpret_cast<float*>(buffers[1].data),
       c = reinterpret_cast<float*>(buffers[2].data);
  for (size_t i = 0; i < buffers[2].size / 4; ++i) c[i] = a[i] + b[i];
}

}  // namespace npu_driver
