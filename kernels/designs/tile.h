// A core's memory as the interpreter has it, and walks over elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace onnx_iron::designs {

// A tile or a local in a core's memory: aligned, between guards that nobody may touch.
class Tile {
 public:
  Tile(size_t bytes, uint8_t poison) : bytes_(bytes), room_(bytes + 3 * kGuard, kGuardByte) {
    const auto address = reinterpret_cast<uintptr_t>(room_.data()) + kGuard;
    start_ = kGuard + (kGuard - address % kGuard) % kGuard;
    fill(poison);
  }

  std::byte* data() { return reinterpret_cast<std::byte*>(room_.data() + start_); }
  size_t bytes() const { return bytes_; }
  void fill(uint8_t poison) { std::memset(data(), poison, bytes_); }

  bool intact() const {
    const auto clean = [](uint8_t byte) { return byte == kGuardByte; };
    const auto begin = room_.begin() + static_cast<std::ptrdiff_t>(start_);
    return std::all_of(room_.begin(), begin, clean) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), room_.end(), clean);
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr uint8_t kGuardByte = 0xa5;
  size_t bytes_;
  std::vector<uint8_t> room_;
  size_t start_;
};

// A walk over elements: calls visit(element, count) for each run of neighbours, in order.
template <typename Visit>
void walk(std::span<const int64_t> sizes, std::span<const int64_t> strides, int64_t offset,
          Visit&& visit) {
  if (sizes.size() == 1 && strides[0] == 1) {
    visit(offset, sizes[0]);
  } else {
    for (int64_t i = 0; i < sizes[0]; ++i) {
      const int64_t at = offset + i * strides[0];
      if (sizes.size() == 1) {
        visit(at, int64_t{1});
      } else {
        walk(sizes.subspan(1), strides.subspan(1), at, visit);
      }
    }
  }
}

}  // namespace onnx_iron::designs
