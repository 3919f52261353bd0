#include "provider/native/planner.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>
#include <utility>

namespace onnx_iron {
namespace {

std::atomic<Planner> current_planner{nullptr};
std::atomic<int> questions_being_answered{0};

// Counts a question for as long as it lives. No lock is held while Python works: a thread that
// waits for one could hold Python's own.
struct Question {
  Question() { ++questions_being_answered; }
  ~Question() { --questions_being_answered; }
};

}  // namespace

void Request::fail(std::string message) {
  if (failed) return;
  failed = true;
  failure = std::move(message);
}

void set_planner(Planner planner) {
  current_planner = planner;
  if (planner != nullptr) return;
  while (questions_being_answered > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void ask(Request& request) {
  Question question;
  Planner planner = current_planner;
  if (planner == nullptr) {
    throw std::invalid_argument(
        "onnx-iron: there is no planner: either this process registered the library without asking "
        "onnx_iron.provider.get_library_path() or onnx_iron.provider.register(), or Python is "
        "shutting down");
  }
  planner(&request, request.question.data(), request.question.size());
  if (!request.answered && !request.failed) {
    // Python is told again, for onnxruntime's own code lies between it and the one who waits: its
    // handler runs when that code is back in Python.
    std::raise(SIGINT);
    throw Interrupted();
  }
  if (request.failed) throw std::invalid_argument(request.failure);
}

}  // namespace onnx_iron
