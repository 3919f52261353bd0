// A record of sessions' calls, step by step, in memory and within a bound, and the trace that is
// written of it: JSON that chrome://tracing and Perfetto show.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cpu/kernel.h"

namespace onnx_iron {

class Program;

// A step as it is the same in every call. An omitted input is not present.
struct ProfiledStep {
  std::string op, node;
  std::vector<Operand> inputs, outputs;
};

// A step of one call; times are nanoseconds since the recording began.
struct RecordedStep {
  int64_t begin, end;
  Work work;
  int32_t threads;
};

// Threads, with a count of how many of them took a task.
class CountedThreads : public Threads {
 public:
  explicit CountedThreads(Threads& threads) : threads_(threads) {}

  size_t count() const override { return threads_.count(); }
  void run(size_t tasks, Task task, void* context) override;
  // The caller's own where nothing was divided; 64 at the most.
  int32_t used() const;

 private:
  void note();

  Threads& threads_;
  std::array<std::atomic<int32_t>, 64> seen_{};
};

// Of one or several sessions, one file's. Any thread may use it.
class Recording {
 public:
  // A call of a program, and what of its steps ended.
  struct Run {
    int64_t session, group;
    uint64_t program;
    int32_t thread;
    int64_t begin, end;
    std::vector<RecordedStep> steps;
    bool on_device, failed;
  };

  // The recording that this process already makes for the file, or a new one. `limit` is in bytes
  // of memory. Throws std::invalid_argument where the file can't be written, is another process's
  // recording, or holds something else than a trace of ours.
  static std::shared_ptr<Recording> open(const std::string& path, size_t limit);
  // Writes the file; says on stderr where that fails.
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void name_session(int64_t session, const std::string& name);
  int64_t now() const;
  // Keeps the program's steps, if they are not known and there is room.
  void describe(const Program& program);
  // Drops it, and counts it as dropped, where there is no room.
  void add(Run run) noexcept;
  // Throws std::runtime_error where that fails. Recording goes on.
  void write();
  bool is_at(dev_t device, ino_t file) const { return device_ == device && file_ == file; }

 private:
  Recording(std::string path, int descriptor, size_t limit);

  // Whether there is room for so much more.
  bool take(size_t bytes);

  const std::string path_;
  const int descriptor_;
  const pid_t owner_;
  const size_t limit_;
  const int64_t started_;
  dev_t device_ = 0;
  ino_t file_ = 0;
  std::mutex mutex_;
  size_t used_ = 0;
  std::map<int64_t, std::string> sessions_;
  // By program, for each of its steps the members that are the same in every call, as JSON.
  std::map<uint64_t, std::vector<std::string>> steps_;
  std::vector<Run> runs_;
  size_t dropped_runs_ = 0, dropped_steps_ = 0;
};

// A call while it is under way. What there is of it goes to the recording at its end.
class RecordedRun {
 public:
  RecordedRun(Recording& recording, int64_t session, int64_t group);
  ~RecordedRun();
  RecordedRun(const RecordedRun&) = delete;
  RecordedRun& operator=(const RecordedRun&) = delete;

  int64_t now() const { return recording_.now(); }
  void is_of(const Program& program);
  void was_on_device() { run_.on_device = true; }
  void add(const RecordedStep& step) { run_.steps.push_back(step); }

 private:
  Recording& recording_;
  Recording::Run run_;
  int exceptions_;
};

// What is recorded so far for a file. Throws std::invalid_argument where no session records there.
void write_recording(const std::string& path);
// All that is recorded; says on stderr what can't be written.
void write_recordings();

}  // namespace onnx_iron
