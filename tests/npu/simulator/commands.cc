#include "commands.h"

#include <errno.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "control.h"

namespace npu_driver {
namespace {

// A packet's first word: state in bits 0-3, further masks of compute units in 10-11, the count of
// words after it in 12-22, the opcode in 23-27.
constexpr uint32_t kRun = 0;
constexpr uint32_t kRunList = 19;

constexpr uint32_t kNew = 1;
constexpr uint32_t kCompleted = 4;
constexpr uint32_t kError = 5;
constexpr uint32_t kAborted = 6;
constexpr uint32_t kTimeout = 8;

// A run list: how many runs, two indices that the driver writes, three words of nothing, then the
// runs' handles in 8 bytes each.
constexpr size_t kCountWord = 1, kSubmittedWord = 2, kFailedWord = 3, kHandlesWord = 7;

// The arguments of a run, by their offsets in the kernel's declaration.
constexpr size_t kInstructions = 0x08, kInstructionCount = 0x10, kFirstBuffer = 0x14;
constexpr uint64_t kOpcode = 3;

uint32_t* words(Bytes packet) { return reinterpret_cast<uint32_t*>(packet.data); }

void set_state(Bytes packet, uint32_t state) {
  std::atomic_ref<uint32_t> first(words(packet)[0]);
  first = (first.load() & ~uint32_t{0xf}) | state;
}

template <typename T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

Commands::Commands(Memory& memory, Contexts& contexts) : memory_(memory), contexts_(contexts) {}

int Commands::submit(uint32_t context, uint32_t packet, uint64_t* number) {
  std::shared_ptr<Context> found = contexts_.find(context);
  Bytes bytes = memory_.of(packet);
  if (found == nullptr || bytes.size < 4096) return EINVAL;
  if (found->lost) return EIO;
  if (fails(Fault::kSubmission)) return ENOSPC;
  std::lock_guard lock(mutex_);
  if (!started_) {
    started_ = true;
    std::thread([this] { work(); }).detach();
  }
  set_state(bytes, kNew);
  ++counters.submissions;
  *number = ++submitted_;
  queue_.push_back({*number, context, std::move(found), packet});
  changed_.notify_all();
  return 0;
}

int Commands::wait(uint64_t number, uint32_t timeout_ms) {
  std::unique_lock lock(mutex_);
  auto is_done = [&] { return done_ >= number; };
  if (timeout_ms == 0) {
    changed_.wait(lock, is_done);
    return 0;
  }
  return changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), is_done) ? 0 : ETIME;
}

void Commands::abort(uint32_t context) {
  std::unique_lock lock(mutex_);
  aborting_ = context;
  changed_.notify_all();
  changed_.wait(lock, [&] {
    for (const Command& command : queue_) {
      if (command.handle == context) return false;
    }
    return true;
  });
  aborting_ = 0;
}

void Commands::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !queue_.empty(); });
    Command command = queue_.front();
    bool run = aborting_ != command.handle && !command.context->lost;
    lock.unlock();
    uint32_t state = run ? run_packet(command, command.packet) : kAborted;
    Bytes packet = memory_.of(command.packet);
    if (packet.data != nullptr) set_state(packet, state);
    lock.lock();
    queue_.pop_front();
    done_ = command.number;
    changed_.notify_all();
  }
}

uint32_t Commands::run_packet(const Command& command, uint32_t handle) {
  Bytes packet = memory_.of(handle);
  if (packet.data == nullptr) return kError;
  switch (words(packet)[0] >> 23 & 0x1f) {
    case kRun:
      return run_design(command, packet);
    case kRunList:
      return run_list(command, packet);
    default:
      log("opcode %u is not known", words(packet)[0] >> 23 & 0x1f);
      return kError;
  }
}

uint32_t Commands::run_list(const Command& command, Bytes packet) {
  uint32_t* list = words(packet);
  uint32_t count = list[kCountWord];
  if ((kHandlesWord + 2 * uint64_t{count}) * 4 > packet.size) return kError;
  for (uint32_t i = 0; i < count; ++i) {
    list[kSubmittedWord] = i;
    auto handle = static_cast<uint32_t>(read<uint64_t>(packet.data + 4 * (kHandlesWord + 2 * i)));
    uint32_t state = run_packet(command, handle);
    if (state == kCompleted) continue;
    list[kFailedWord] = i;
    Bytes failed = memory_.of(handle);
    if (failed.data != nullptr) set_state(failed, state);
    return state;
  }
  return kCompleted;
}

uint32_t Commands::fail(const Command& command) {
  if (fails(Fault::kError)) return kError;
  if (fails(Fault::kContextLost)) {
    command.context->lost = true;
    return kAborted;
  }
  if (!fails(Fault::kHang)) return 0;
  std::unique_lock lock(mutex_);
  bool aborted = changed_.wait_for(lock, std::chrono::milliseconds(give_up_ms()),
                                   [&] { return aborting_ == command.handle; });
  return aborted ? kAborted : kTimeout;
}

uint32_t Commands::run_design(const Command& command, Bytes packet) {
  if (uint32_t state = fail(command)) return state;
  const uint32_t* list = words(packet);
  size_t masks = 1 + (list[0] >> 10 & 3);
  size_t count = list[0] >> 12 & 0x7ff;
  // Which compute unit: the only bit that is set in the masks.
  size_t unit = 0;
  for (size_t i = 0; i < masks && list[1 + i] == 0; ++i) unit += 32;
  if (unit == 32 * masks) return kError;
  unit += static_cast<size_t>(__builtin_ctz(list[1 + unit / 32]));

  const std::byte* arguments = packet.data + 4 * (1 + masks);
  size_t bytes = 4 * (count - masks);
  const auto& units = command.context->units;
  if (unit >= units.size() || units[unit] == nullptr || bytes < kFirstBuffer) return kError;
  Bytes instructions = memory_.at(read<uint64_t>(arguments + kInstructions));
  uint64_t needed = uint64_t{4} * read<uint32_t>(arguments + kInstructionCount);
  if (read<uint64_t>(arguments) != kOpcode || needed > instructions.size) return kError;
  instructions.size = needed;
  std::vector<Bytes> buffers;
  for (size_t at = kFirstBuffer; at + 8 <= bytes; at += 8) {
    buffers.push_back(memory_.at(read<uint64_t>(arguments + at)));
  }
  const Design& design = *units[unit];
  try {
    design.run(instructions, buffers);
  } catch (const std::exception& error) {
    log("run: %s", error.what());
    return kError;
  }
  ++counters.runs;
  if (design.digest() != last_) ++counters.switches;
  last_ = design.digest();
  return kCompleted;
}

}  // namespace npu_driver
