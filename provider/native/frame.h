// The memory that one call of a program works in, and a pool of such frames, so that several
// threads may run one program at once.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace onnx_iron {

inline constexpr size_t kAlignment = 64;

// Uninitialised bytes at an address that is a multiple of kAlignment.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size)
      : size_(size),
        data_(static_cast<std::byte*>(
            ::operator new(size == 0 ? 1 : size, std::align_val_t{kAlignment}))) {}
  ~AlignedBytes() { ::operator delete(data_, std::align_val_t{kAlignment}); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  size_t size_;
  std::byte* data_;
};

struct Frame {
  Frame(size_t arena_bytes, size_t scratch_bytes) : arena(arena_bytes), scratch(scratch_bytes) {}

  AlignedBytes arena;
  AlignedBytes scratch;
  // The addresses that the pointers below were made for: a call with the same ones reuses them.
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<const void*> step_inputs;
  std::vector<void*> step_outputs;
  // An output that must not be written before the last step, and where it is kept until then.
  struct Delayed {
    size_t output;
    std::unique_ptr<AlignedBytes> bytes;
  };
  std::vector<Delayed> delayed;
};

class FramePool {
 public:
  // A frame that nobody uses, or null.
  std::unique_ptr<Frame> take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return nullptr;
    std::unique_ptr<Frame> frame = std::move(free_.back());
    free_.pop_back();
    return frame;
  }
  void give(std::unique_ptr<Frame> frame) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(frame));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> free_;
};

}  // namespace onnx_iron
