// Buffers. Each has two memories, the host's and the device's: only a sync carries bytes from one
// to the other, so that a sync left out shows as a wrong result, as it may on a real machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace npu_driver {

// A buffer's two memories. Whoever holds it keeps them, as a command under way does.
struct Storage {
  Storage() = default;
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  uint64_t size = 0;
  std::byte* host = nullptr;
  std::byte* device = nullptr;  // the host's own for commands, which both sides read and write
  bool owns_host = false;
  bool owns_device = false;
};

struct Buffer {
  int file = -1;
  uint32_t type = 0;
  uint64_t size = 0;
  uint64_t offset = 0;   // in the accel node's file; kNoOffset where it can't be mapped
  uint64_t address = 0;  // what the device calls it
  std::shared_ptr<Storage> storage;
  uint64_t begin = 0;  // in the storage: the device's own buffers are parts of a heap
};

inline constexpr uint64_t kNoOffset = ~uint64_t{0};

// The device's memory from some place on, up to the end of a buffer.
struct Bytes {
  std::byte* data = nullptr;
  uint64_t size = 0;
  std::shared_ptr<Storage> storage;
};

class Memory {
 public:
  // These return 0 or an errno. `user` is the caller's own memory, or null.
  int create(int file, uint32_t type, uint64_t size, void* user, uint32_t* handle);
  int describe(uint32_t handle, Buffer* buffer);
  int close(uint32_t handle);
  int sync(uint32_t handle, bool to_device, uint64_t offset, uint64_t size);

  // The file was closed: its buffers go.
  void close_file(int file);

  // The memory at an address; no bytes where no buffer is there.
  Bytes at(uint64_t address);
  // A whole buffer as the device sees it.
  Bytes of(uint32_t handle);

 private:
  int place(Buffer& buffer, void* user);
  Buffer* heap_with(uint64_t size, uint64_t* begin);

  std::mutex mutex_;
  std::map<uint32_t, Buffer> buffers_;
  std::map<uint64_t, uint32_t> by_address_;  // those that the device can name
  uint32_t next_handle_ = 1;
  uint64_t next_offset_ = 0;
  uint64_t next_heap_ = 0;
};

}  // namespace npu_driver
