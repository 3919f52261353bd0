#include "provider/native/planner_api.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/kernel.h"
#include "provider/native/arena.h"
#include "provider/native/planner.h"
#include "provider/native/status.h"
#include "provider/native/subgraph.h"

namespace onnx_iron {
namespace {

// Runs body(), which gives back a Result; an exception fails the request.
template <typename Result, typename Body>
Result answer(void* handle, Result on_failure, Body&& body) noexcept {
  Request& request = *static_cast<Request*>(handle);
  try {
    if (request.failed) return on_failure;
    return body(request);
  } catch (const std::exception& error) {
    request.fail(error.what());
  }
  return on_failure;
}

Program& program_of(Request& request) {
  if (request.program == nullptr) throw std::invalid_argument("planner: not asked for a program");
  return *request.program;
}

}  // namespace
}  // namespace onnx_iron

using namespace onnx_iron;

void onnx_iron_set_planner(int (*planner)(void*, const char*, size_t)) { set_planner(planner); }

void onnx_iron_request_fail(void* request, const char* message) {
  static_cast<Request*>(request)->fail(message);
}

void onnx_iron_request_answered(void* request) { static_cast<Request*>(request)->answered = true; }

void onnx_iron_request_log(void* request, const char* text) {
  answer(request, false, [&](Request& to) {
    if (to.logger != nullptr) {
      check(ort::Logger_LogMessage(to.logger, ort::kVerbose, text, "onnx-iron", 0, "planner"));
    }
    return true;
  });
}

void onnx_iron_request_program_cache(void* request, size_t bytes) {
  static_cast<Request*>(request)->program_cache_bytes = bytes;
}

void onnx_iron_request_profile(void* request, const char* path, size_t bytes) {
  answer(request, false, [&](Request& to) {
    to.recording = Recording::open(path, bytes);
    return true;
  });
}

int onnx_iron_profile_write(const char* path, char* error, size_t capacity) {
  try {
    write_recording(path);
    return 0;
  } catch (const std::exception& caught) {
    std::snprintf(error, capacity, "%s", caught.what());
    return 1;
  }
}

void onnx_iron_profiles_write() { write_recordings(); }

void onnx_iron_request_claim(void* request, const size_t* nodes, size_t count) {
  answer(request, false, [&](Request& to) {
    to.claims.emplace_back(nodes, nodes + count);
    return true;
  });
}

bool onnx_iron_program_recipe(void* request, const int64_t* code, size_t count, const char* data,
                              size_t bytes, bool general) {
  return answer(request, false, [&](Request& to) {
    auto recipe = std::make_shared<const Recipe>(std::vector<int64_t>(code, code + count),
                                                 std::string(data, bytes));
    if (to.program == nullptr) {  // it is asked for before there are shapes
      to.recipe = std::move(recipe);
      return true;
    }
    Program& asked = program_of(to);
    std::unique_ptr<Program> made = recipe->make(asked.inputs(), asked.outputs().size());
    if (made == nullptr) throw std::invalid_argument("program: it is for other shapes");
    to.program = std::move(made);
    if (general) to.recipe = std::move(recipe);
    return true;
  });
}

bool onnx_iron_arena_offsets(const int64_t* spans, size_t count, int64_t* offsets) {
  try {
    std::vector<Span> list;
    for (size_t i = 0; i < count; ++i) {
      list.push_back({spans[3 * i], spans[3 * i + 1], spans[3 * i + 2]});
    }
    std::vector<int64_t> found = arena_offsets(list);
    std::copy(found.begin(), found.end(), offsets);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool onnx_iron_program_device(void* request, int64_t number) {
  return answer(request, false, [&](Request& to) {
    program_of(to).set_device_program(number);
    return true;
  });
}

size_t onnx_iron_programs_compiled() { return programs_compiled; }

size_t onnx_iron_programs_cached() { return programs_cached; }

size_t onnx_iron_frame_bytes() { return frame_bytes; }
