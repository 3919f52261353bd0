#include "memory.h"

#include <drm/amdxdna_accel.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "control.h"

namespace npu_driver {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHeapAlignment = uint64_t{64} << 20;
constexpr uint64_t kInstructionAlignment = 32 << 10;
constexpr uint64_t kHeapBase = 0x4000000;      // where the device sees its heap
constexpr uint64_t kHostBase = 0x10000000000;  // and the host's buffers
// Every process has a part of the accel node's file to itself.
constexpr uint64_t kProcessSpan = uint64_t{1} << 38;

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

uint64_t process_begin() { return (static_cast<uint64_t>(getpid()) % (1 << 22)) * kProcessSpan; }

std::byte* map_private(uint64_t size) {
  void* made = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return made == MAP_FAILED ? nullptr : static_cast<std::byte*>(made);
}

}  // namespace

Storage::~Storage() {
  if (owns_host) {
    // The file keeps nothing of it.
    madvise(host, size, MADV_REMOVE);
    munmap(host, size);
  }
  if (owns_device) munmap(device, size);
}

int Memory::create(int file, uint32_t type, uint64_t size, void* user, uint32_t* handle) {
  std::lock_guard lock(mutex_);
  if (size == 0) return EINVAL;
  if (fails(Fault::kAllocation)) return ENOMEM;
  Buffer buffer;
  buffer.file = file;
  buffer.type = type;
  buffer.size = user == nullptr ? round_up(size, kPage) : size;
  if (int error = place(buffer, user)) return error;
  *handle = next_handle_++;
  if (type != AMDXDNA_BO_CMD && type != AMDXDNA_BO_DEV_HEAP) {
    by_address_[buffer.address] = *handle;
  }
  buffers_[*handle] = buffer;
  ++counters.buffers_made;
  ++counters.buffers_live;
  counters.bytes_live += buffer.size;
  log("buffer %u: type %u, %lu bytes at %lx", *handle, type, buffer.size, buffer.address);
  return 0;
}

int Memory::place(Buffer& buffer, void* user) {
  if (buffer.type == AMDXDNA_BO_DEV) {
    Buffer* heap = heap_with(buffer.size, &buffer.begin);
    if (heap == nullptr) return EAGAIN;
    buffer.offset = kNoOffset;
    buffer.address = heap->address + buffer.begin;
    buffer.storage = heap->storage;
    return 0;
  }
  bool heap = buffer.type == AMDXDNA_BO_DEV_HEAP;
  auto storage = std::make_shared<Storage>();
  storage->size = buffer.size;
  if (user != nullptr) {
    buffer.offset = kNoOffset;
    buffer.address = kHostBase + reinterpret_cast<uint64_t>(user);
    storage->host = static_cast<std::byte*>(user);
  } else {
    next_offset_ = round_up(next_offset_, heap ? kHeapAlignment : kPage);
    if (next_offset_ + buffer.size > kProcessSpan) return ENOSPC;
    buffer.offset = process_begin() + next_offset_;
    buffer.address = heap ? kHeapBase + next_heap_ : kHostBase + next_offset_;
    void* mapped = mmap(nullptr, buffer.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                        buffer.file, static_cast<off_t>(buffer.offset));
    if (mapped == MAP_FAILED) return errno;
    next_offset_ += buffer.size;
    if (heap) next_heap_ += round_up(buffer.size, kHeapAlignment);
    storage->host = static_cast<std::byte*>(mapped);
    storage->owns_host = true;
  }
  if (buffer.type == AMDXDNA_BO_CMD) {
    storage->device = storage->host;
  } else {
    storage->device = map_private(buffer.size);
    if (storage->device == nullptr) return ENOMEM;
    storage->owns_device = true;
  }
  buffer.storage = std::move(storage);
  return 0;
}

// First gap in a heap; buffers of the device's own are few and live long.
Buffer* Memory::heap_with(uint64_t size, uint64_t* begin) {
  for (auto& [unused, heap] : buffers_) {
    if (heap.type != AMDXDNA_BO_DEV_HEAP) continue;
    uint64_t candidate = heap.address;
    for (auto at = by_address_.lower_bound(heap.address); at != by_address_.end(); ++at) {
      if (at->first >= heap.address + heap.size || candidate + size <= at->first) break;
      candidate = round_up(at->first + buffers_.at(at->second).size, kInstructionAlignment);
    }
    if (candidate + size <= heap.address + heap.size) {
      *begin = candidate - heap.address;
      return &heap;
    }
  }
  return nullptr;
}

int Memory::describe(uint32_t handle, Buffer* buffer) {
  std::lock_guard lock(mutex_);
  auto found = buffers_.find(handle);
  if (found == buffers_.end()) return ENOENT;
  *buffer = found->second;
  return 0;
}

int Memory::close(uint32_t handle) {
  std::lock_guard lock(mutex_);
  auto found = buffers_.find(handle);
  if (found == buffers_.end()) return EINVAL;
  Buffer& buffer = found->second;
  auto at = by_address_.find(buffer.address);
  if (at != by_address_.end() && at->second == handle) by_address_.erase(at);
  --counters.buffers_live;
  counters.bytes_live -= buffer.size;
  buffers_.erase(found);
  return 0;
}

void Memory::close_file(int file) {
  std::vector<uint32_t> handles;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [handle, buffer] : buffers_) {
      if (buffer.file == file) handles.push_back(handle);
    }
  }
  for (uint32_t handle : handles) close(handle);
}

int Memory::sync(uint32_t handle, bool to_device, uint64_t offset, uint64_t size) {
  std::lock_guard lock(mutex_);
  auto found = buffers_.find(handle);
  if (found == buffers_.end()) return ENOENT;
  Buffer& buffer = found->second;
  if (offset > buffer.size || size > buffer.size - offset) return EINVAL;
  ++(to_device ? counters.syncs_to_device : counters.syncs_from_device);
  (to_device ? counters.bytes_to_device : counters.bytes_from_device) += size;
  const Storage& storage = *buffer.storage;
  if (storage.host == storage.device) return 0;
  std::byte* host = storage.host + buffer.begin + offset;
  std::byte* device = storage.device + buffer.begin + offset;
  std::memcpy(to_device ? device : host, to_device ? host : device, size);
  return 0;
}

Bytes Memory::at(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return {};
  const Buffer& buffer = buffers_.at(std::prev(after)->second);
  uint64_t begin = address - buffer.address;
  if (begin >= buffer.size) return {};
  return {buffer.storage->device + buffer.begin + begin, buffer.size - begin, buffer.storage};
}

Bytes Memory::of(uint32_t handle) {
  std::lock_guard lock(mutex_);
  auto found = buffers_.find(handle);
  if (found == buffers_.end()) return {};
  const Buffer& buffer = found->second;
  return {buffer.storage->device + buffer.begin, buffer.size, buffer.storage};
}

}  // namespace npu_driver
