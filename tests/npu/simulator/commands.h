// Commands: packets as XRT writes them, run one after the other on a thread of the device's own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "contexts.h"
#include "memory.h"

namespace npu_driver {

class Commands {
 public:
  Commands(Memory& memory, Contexts& contexts);

  // These return 0 or an errno. `number` is what a wait asks for.
  int submit(uint32_t context, uint32_t packet, uint64_t* number);
  int wait(uint64_t number, uint32_t timeout_ms);

  // Aborts what the context still has to run, and waits for the run that is under way.
  void abort(uint32_t context);

 private:
  struct Command {
    uint64_t number = 0;
    uint32_t handle = 0;
    std::shared_ptr<Context> context;
    uint32_t packet = 0;
  };

  void work();
  uint32_t run_packet(const Command& command, uint32_t packet);
  uint32_t run_list(const Command& command, Bytes packet);
  uint32_t run_design(const Command& command, Bytes packet);
  // Returns the state in which a run ends that was to fail, or 0.
  uint32_t fail(const Command& command);

  Memory& memory_;
  Contexts& contexts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Command> queue_;  // the first is under way
  uint64_t submitted_ = 0;
  uint64_t done_ = 0;
  uint32_t aborting_ = 0;
  Digest last_{};
  bool started_ = false;
};

}  // namespace npu_driver
