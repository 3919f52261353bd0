// Vector loads and stores, held to the cores' alignment and to the buffers of the call.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "vector.hpp"

namespace aie {
namespace host {

// A buffer that a kernel was given.
struct Region {
  const std::byte* begin;
  size_t bytes;
  bool writable;
};

// The buffers of the call under way; null while nothing checks.
inline thread_local const std::span<const Region>* regions = nullptr;

inline void check_access(const void* address, size_t bytes, bool writes) {
  if (regions == nullptr) return;
  const auto* begin = static_cast<const std::byte*>(address);
  bool input = false;
  for (const Region& region : *regions) {
    if (begin < region.begin || begin >= region.begin + region.bytes) continue;
    if (writes && !region.writable) {
      input = true;  // it may be an output too
      continue;
    }
    if (bytes <= region.bytes - static_cast<size_t>(begin - region.begin)) return;
    throw std::out_of_range((writes ? "a store of " : "a load of ") + std::to_string(bytes) +
                            " bytes at byte " + std::to_string(begin - region.begin) +
                            " of a buffer of " + std::to_string(region.bytes) + " bytes");
  }
  throw std::out_of_range(input    ? "a store into an input"
                          : writes ? "a store outside the buffers"
                                   : "a load outside the buffers");
}

// What the cores' memory ports need: aie2 loads 32 bytes at the most at once, aie2p 64.
constexpr size_t alignment(size_t bytes) {
  const size_t widest = __AIE_ARCH__ >= 21 ? 64 : 32;
  return bytes < widest ? bytes : widest;
}

inline void check_alignment(const void* address, size_t bytes) {
  const size_t wanted = alignment(bytes);
  if (reinterpret_cast<uintptr_t>(address) % wanted != 0) {
    throw std::logic_error("a vector of " + std::to_string(bytes) +
                           " bytes at an address that is no multiple of " + std::to_string(wanted));
  }
}

}  // namespace host

template <unsigned N, typename T>
vector<T, N> load_v(const T* from) {
  host::check_alignment(from, N * sizeof(T));
  host::check_access(from, N * sizeof(T), false);
  vector<T, N> loaded;
  std::memcpy(loaded.lane.data(), from, N * sizeof(T));
  return loaded;
}

template <typename T, unsigned N>
T* store_v(T* to, const vector<T, N>& v) {
  host::check_alignment(to, N * sizeof(T));
  host::check_access(to, N * sizeof(T), true);
  std::memcpy(to, v.lane.data(), N * sizeof(T));
  return to;
}

}  // namespace aie
