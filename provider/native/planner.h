// The questions that native code asks Python: which nodes to claim, how to compile a subgraph.
// Python answers through the functions of planner_api.h while the question is being asked.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "provider/native/ort_api.h"
#include "provider/native/profile.h"
#include "provider/native/program.h"
#include "provider/native/recipe.h"

namespace onnx_iron {

struct Request {
  // What to ask: an object with a member "kind".
  std::string question;
  // Where the planner's remarks go; null where nobody wants them.
  const ort::Logger* logger = nullptr;
  // Answers. A failure is a text for the user.
  bool failed = false;
  bool answered = false;
  std::string failure;
  std::vector<std::vector<size_t>> claims;
  size_t program_cache_bytes = 0;
  std::shared_ptr<Recording> recording;
  // Where the question is about a program, an empty one to fill in.
  std::unique_ptr<Program> program;
  // What made it, where that makes programs for other shapes too.
  std::shared_ptr<const Recipe> recipe;

  void fail(std::string message);
};

// Python's side: tells the request that it is answered, or that it failed; neither is an
// interruption (Ctrl-C). What it returns says nothing: it is undefined where an exception came out.
using Planner = int (*)(void* request, const char* question, size_t length);

// null takes the planner away, and waits for the questions that it is still answering.
void set_planner(Planner planner);

// A question that Ctrl-C ended. An error from onnxruntime would reach the user before the
// interpreter runs its handler, so what can go on without an answer does.
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("onnx-iron: interrupted") {}
};

// Throws Interrupted, and std::invalid_argument with the failure, if there is one.
void ask(Request& request);

}  // namespace onnx_iron
