#include "provider/native/profile.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/loops.h"
#include "provider/native/json.h"
#include "provider/native/program.h"

namespace onnx_iron {
namespace {

// How a file of ours begins: another one is not written over.
constexpr char kHead[] =
    "{\"otherData\":{\"producer\":\"onnx-iron\",\"version\":\"" ONNX_IRON_VERSION "\"";
constexpr size_t kMark = sizeof "{\"otherData\":{\"producer\":\"onnx-iron\"" - 1;

std::mutex recordings_mutex;
std::vector<std::weak_ptr<Recording>> recordings;

int64_t clock_ns() {
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

int32_t this_thread() {
  static thread_local const int32_t number = static_cast<int32_t>(gettid());
  return number;
}

std::string error_text() { return std::strerror(errno); }

// The member `name` of an object that is being written, as JSON.
std::string quoted(const std::string& text) {
  JsonWriter json;
  json.value(std::string_view(text));
  return json.text();
}

std::vector<std::string> texts_of(const std::vector<Operand>& operands) {
  std::vector<std::string> texts;
  for (const Operand& operand : operands) {
    texts.push_back(operand.present ? text(text_of(operand.dtype), " ", text_of(operand.shape))
                                    : "omitted");
  }
  return texts;
}

std::string array_of(const std::vector<std::string>& texts) {
  JsonWriter json;
  json.begin_array();
  for (const std::string& item : texts) json.value(std::string_view(item));
  json.end_array();
  return json.text();
}

// An event's name and the arguments that do not change; the object of these stays open.
std::string members_of(const ProfiledStep& step) {
  auto given = std::find_if(step.inputs.begin(), step.inputs.end(),
                            [](const Operand& operand) { return operand.present; });
  const Operand& typical = given != step.inputs.end() ? *given : step.outputs.front();
  return "\"name\":" + quoted(step.op) + ",\"args\":{\"op\":" + quoted(step.op) +
         ",\"node\":" + quoted(step.node) + ",\"dtype\":" + quoted(text_of(typical.dtype)) +
         ",\"inputs\":" + array_of(texts_of(step.inputs)) +
         ",\"outputs\":" + array_of(texts_of(step.outputs)) +
         ",\"cpu_path\":" + quoted(loops().name);
}

// A file's descriptor, with room for what is written next.
class Output {
 public:
  Output(int descriptor, const std::string& path) : descriptor_(descriptor), path_(path) {
    struct stat found;
    if (fstat(descriptor_, &found) != 0 || ftruncate(descriptor_, 0) != 0 ||
        lseek(descriptor_, 0, SEEK_SET) != 0) {
      fail(error_text());
    }
    if (found.st_nlink == 0) fail("it was removed");
  }

  void put(std::string_view text) {
    waiting_ += text;
    if (waiting_.size() > kMost) flush();
  }
  void flush() {
    size_t done = 0;
    while (done < waiting_.size()) {
      ssize_t count = ::write(descriptor_, waiting_.data() + done, waiting_.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(count < 0 ? error_text() : "nothing more is taken");
      done += static_cast<size_t>(count);
    }
    waiting_.clear();
  }

 private:
  static constexpr size_t kMost = 1 << 16;

  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error("onnx-iron: the profile '" + path_ + "' can't be written: " + why);
  }

  int descriptor_;
  const std::string& path_;
  std::string waiting_;
};

// An event's begin and how long it took, in the microseconds that the format has.
std::string span(int64_t begin, int64_t end) {
  char text[96];
  int64_t took = end - begin;
  std::snprintf(text, sizeof text, ",\"ts\":%lld.%03lld,\"dur\":%lld.%03lld,",
                static_cast<long long>(begin / 1000), static_cast<long long>(begin % 1000),
                static_cast<long long>(took / 1000), static_cast<long long>(took % 1000));
  return text;
}

std::string rates(const RecordedStep& step) {
  char text[192];
  double took = static_cast<double>(std::max<int64_t>(step.end - step.begin, 1));
  std::snprintf(text, sizeof text,
                ",\"bytes\":%lld,\"flops\":%lld,\"GB/s\":%.3f,\"GFLOP/s\":%.3f,\"threads\":%d}}",
                static_cast<long long>(step.work.bytes), static_cast<long long>(step.work.flops),
                static_cast<double>(step.work.bytes) / took,
                static_cast<double>(step.work.flops) / took, static_cast<int>(step.threads));
  return text;
}

}  // namespace

void CountedThreads::note() {
  const int32_t thread = this_thread();
  for (std::atomic<int32_t>& slot : seen_) {
    int32_t found = slot.load(std::memory_order_relaxed);
    if (found == 0 && slot.compare_exchange_strong(found, thread)) return;
    if (found == thread) return;
  }
}

void CountedThreads::run(size_t tasks, Task task, void* context) {
  struct Region {
    CountedThreads& self;
    Task task;
    void* context;
  } region{*this, task, context};
  threads_.run(
      tasks,
      [](void* held, size_t index) {
        Region& around = *static_cast<Region*>(held);
        around.self.note();
        around.task(around.context, index);
      },
      &region);
}

int32_t CountedThreads::used() const {
  auto count = std::count_if(seen_.begin(), seen_.end(),
                             [](const std::atomic<int32_t>& slot) { return slot.load() != 0; });
  return std::max<int32_t>(1, static_cast<int32_t>(count));
}

std::shared_ptr<Recording> Recording::open(const std::string& path, size_t limit) {
  auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("IronExecutionProvider: option 'profile' is '" + path + "', " +
                                why + "; name a file that may be written");
  };
  std::lock_guard lock(recordings_mutex);
  // Neither waits for who reads a pipe, nor makes a device do anything.
  int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (descriptor < 0) refuse("which can't be opened: " + error_text());
  try {
    struct stat found;
    if (fstat(descriptor, &found) != 0) refuse("which can't be looked at: " + error_text());
    if (!S_ISREG(found.st_mode)) refuse("which is no regular file");
    for (const std::weak_ptr<Recording>& held : recordings) {
      std::shared_ptr<Recording> other = held.lock();
      if (other == nullptr || !other->is_at(found.st_dev, found.st_ino)) continue;
      ::close(descriptor);
      return other;
    }
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      refuse("which another process records in");
    }
    char begin[kMark];
    bool ours = pread(descriptor, begin, kMark, 0) == static_cast<ssize_t>(kMark) &&
                std::memcmp(begin, kHead, kMark) == 0;
    if (found.st_size > 0 && !ours) refuse("which holds something else than a profile");
    std::shared_ptr<Recording> made(new Recording(path, descriptor, limit));
    made->device_ = found.st_dev;
    made->file_ = found.st_ino;
    std::erase_if(recordings, [](const auto& held) { return held.expired(); });
    recordings.push_back(made);
    return made;
  } catch (const std::invalid_argument&) {
    ::close(descriptor);
    throw;
  }
}

Recording::Recording(std::string path, int descriptor, size_t limit)
    : path_(std::move(path)),
      descriptor_(descriptor),
      owner_(getpid()),
      limit_(limit),
      started_(clock_ns()) {}

Recording::~Recording() {
  try {
    write();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  ::close(descriptor_);
}

bool Recording::take(size_t bytes) {
  if (bytes > limit_ - used_) return false;
  used_ += bytes;
  return true;
}

void Recording::name_session(int64_t session, const std::string& name) {
  std::lock_guard lock(mutex_);
  if (take(name.size() + sizeof name)) sessions_[session] = name;
}

int64_t Recording::now() const { return clock_ns() - started_; }

void Recording::describe(const Program& program) {
  {
    std::lock_guard lock(mutex_);
    if (steps_.count(program.number()) > 0) return;
  }
  std::vector<std::string> texts;
  size_t bytes = 0;
  for (const ProfiledStep& step : program.profiled_steps()) {
    texts.push_back(members_of(step));
    bytes += texts.back().capacity() + sizeof texts[0];
  }
  std::lock_guard lock(mutex_);
  if (steps_.count(program.number()) == 0 && take(bytes)) {
    steps_.emplace(program.number(), std::move(texts));
  }
}

void Recording::add(Run run) noexcept {
  std::lock_guard lock(mutex_);
  size_t bytes = sizeof run + run.steps.capacity() * sizeof run.steps[0];
  try {
    if (steps_.count(run.program) > 0 && take(bytes)) {
      runs_.push_back(std::move(run));
      return;
    }
  } catch (const std::bad_alloc&) {
    // As where there is no room.
  }
  ++dropped_runs_;
  dropped_steps_ += run.steps.size();
}

void Recording::write() {
  if (getpid() != owner_) return;  // a child's copy; the file is its parent's
  std::lock_guard lock(mutex_);
  Output out(descriptor_, path_);
  out.put(kHead);
  out.put(",\"cpu_path\":" + quoted(loops().name) + ",\"dropped_runs\":" +
          std::to_string(dropped_runs_) + ",\"dropped_steps\":" + std::to_string(dropped_steps_) +
          ",\"profile_bytes\":" + std::to_string(limit_) +
          "},\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  const char* between = "\n";
  auto event = [&](const std::string& text) {
    out.put(between);
    out.put(text);
    between = ",\n";
  };
  for (const auto& [session, name] : sessions_) {
    event("{\"ph\":\"M\",\"pid\":" + std::to_string(session) +
          ",\"name\":\"process_name\",\"args\":{\"name\":" +
          quoted("session " + std::to_string(session) + " " + name) + "}}");
  }
  size_t number = 0;
  for (const Run& run : runs_) {
    const std::string where = "{\"ph\":\"X\",\"pid\":" + std::to_string(run.session) +
                              ",\"tid\":" + std::to_string(run.thread);
    const std::string which =
        ",\"group\":" + std::to_string(run.group) + ",\"run\":" + std::to_string(number++);
    event(where + ",\"cat\":\"run\"" + span(run.begin, run.end) + "\"name\":\"group " +
          std::to_string(run.group) + "\",\"args\":{\"device\":\"" +
          (run.on_device ? "npu" : "cpu") + "\",\"failed\":" + (run.failed ? "true" : "false") +
          ",\"steps\":" + std::to_string(run.steps.size()) + which + "}}");
    const std::vector<std::string>& texts = steps_.at(run.program);
    for (size_t i = 0; i < run.steps.size(); ++i) {
      const RecordedStep& step = run.steps[i];
      event(where + ",\"cat\":\"step\"" + span(step.begin, step.end) + texts[i] + which +
            rates(step));
    }
  }
  if (dropped_runs_ > 0) {
    const int64_t last = runs_.empty() ? 0 : runs_.back().end;
    event("{\"ph\":\"I\",\"s\":\"g\",\"pid\":0,\"tid\":0" + span(last, last) +
          "\"name\":\"not recorded from here on: " + std::to_string(dropped_runs_) + " runs, " +
          std::to_string(dropped_steps_) + " steps (option profile_bytes)\"}");
  }
  out.put("\n]}\n");
  out.flush();
}

RecordedRun::RecordedRun(Recording& recording, int64_t session, int64_t group)
    : recording_(recording),
      run_{session, group, 0, this_thread(), recording.now(), 0, {}, false, false},
      exceptions_(std::uncaught_exceptions()) {}

RecordedRun::~RecordedRun() {
  run_.end = now();
  run_.failed = std::uncaught_exceptions() > exceptions_;
  recording_.add(std::move(run_));
}

void RecordedRun::is_of(const Program& program) {
  recording_.describe(program);
  run_.program = program.number();
  run_.steps.reserve(program.step_count());
}

namespace {

std::vector<std::shared_ptr<Recording>> all_recordings() {
  std::lock_guard lock(recordings_mutex);
  std::vector<std::shared_ptr<Recording>> all;
  for (const std::weak_ptr<Recording>& held : recordings) {
    if (std::shared_ptr<Recording> recording = held.lock()) all.push_back(std::move(recording));
  }
  return all;
}

}  // namespace

void write_recording(const std::string& path) {
  struct stat found;
  bool there = stat(path.c_str(), &found) == 0;
  for (const std::shared_ptr<Recording>& recording : all_recordings()) {
    if (there && recording->is_at(found.st_dev, found.st_ino)) return recording->write();
  }
  throw std::invalid_argument("onnx-iron: no session records in '" + path +
                              "'; open one with the provider's option 'profile'");
}

void write_recordings() {
  for (const std::shared_ptr<Recording>& recording : all_recordings()) {
    try {
      recording->write();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
}

}  // namespace onnx_iron
