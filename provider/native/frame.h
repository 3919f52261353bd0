// The memory that one call of a program works in, and a pool of such frames, which all programs of
// a session share: a thread that runs one has a frame for itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace onnx_iron {

inline constexpr size_t kAlignment = 64;

// Uninitialised bytes at an address that is a multiple of kAlignment.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size) { allocate(size); }
  ~AlignedBytes() { release(); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;

  // Makes it at least as big, which loses the contents; true if it moved. Some room is added, for
  // sizes that grow by little from call to call would leave holes all over the heap.
  bool grow(size_t size) {
    if (size <= size_) return false;
    size_t roomy = size_ == 0 ? size : std::max(size, size_ + size_ / 4);
    release();
    allocate(roomy);
    return true;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void allocate(size_t size) {
    data_ =
        static_cast<std::byte*>(::operator new(size == 0 ? 1 : size, std::align_val_t{kAlignment}));
    size_ = size;
  }
  void release() {
    ::operator delete(data_, std::align_val_t{kAlignment});
    data_ = nullptr;
    size_ = 0;
  }

  size_t size_ = 0;
  std::byte* data_ = nullptr;
};

// The bytes of all frames' arenas and scratch in this process.
inline std::atomic<size_t> frame_bytes{0};

class Frame {
 public:
  Frame() = default;
  ~Frame() { frame_bytes -= arena_.size() + scratch_.size(); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // Makes room for a program's call.
  void reserve(size_t arena_bytes, size_t scratch_bytes) {
    size_t before = arena_.size() + scratch_.size();
    bool moved = false;
    try {
      moved = arena_.grow(arena_bytes);
      scratch_.grow(scratch_bytes);
    } catch (...) {
      program = kNoProgram;
      count_from(before);
      throw;
    }
    if (moved) program = kNoProgram;
    count_from(before);
  }
  std::byte* arena() const { return arena_.data(); }
  std::byte* scratch() const { return scratch_.data(); }

  // The program, and the addresses of its inputs and outputs, that the pointers below were made
  // for: a call with the same ones reuses them.
  static constexpr uint64_t kNoProgram = 0;
  uint64_t program = kNoProgram;
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

 private:
  void count_from(size_t before) { frame_bytes += arena_.size() + scratch_.size() - before; }

  AlignedBytes arena_{0};
  AlignedBytes scratch_{0};
};

class FramePool {
 public:
  // A frame for as long as the lease lives. One that is bound to the program, if there is one.
  class Lease {
   public:
    Lease(FramePool& pool, uint64_t program = Frame::kNoProgram)
        : pool_(pool), frame_(pool.take(program)) {}
    ~Lease() { pool_.give(std::move(frame_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Frame& operator*() { return *frame_; }
    Frame* operator->() { return frame_.get(); }

   private:
    FramePool& pool_;
    std::unique_ptr<Frame> frame_;
  };

 private:
  std::unique_ptr<Frame> take(uint64_t program) {
    std::lock_guard lock(mutex_);
    free_.reserve(free_.size() + used_ + 2);  // so that give() has room
    if (free_.empty()) {
      auto frame = std::make_unique<Frame>();
      ++used_;
      return frame;
    }
    auto bound = std::find_if(free_.begin(), free_.end(),
                              [program](const auto& frame) { return frame->program == program; });
    if (bound == free_.end()) --bound;
    std::unique_ptr<Frame> frame = std::move(*bound);
    free_.erase(bound);
    ++used_;
    return frame;
  }
  // After many calls at once, frames that nobody needs go: one more is kept than is in use.
  void give(std::unique_ptr<Frame> frame) {
    std::lock_guard lock(mutex_);
    --used_;
    free_.push_back(std::move(frame));
    while (free_.size() > used_ + 1) free_.erase(free_.begin());
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> free_;
  size_t used_ = 0;
};

}  // namespace onnx_iron
