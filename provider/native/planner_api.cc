#include "provider/native/planner_api.h"

#include <stdexcept>
#include <vector>

#include "kernels/cpu/kernel.h"
#include "provider/native/planner.h"
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

Shape shape_of(const int64_t* shape, int32_t rank) { return Shape(shape, shape + rank); }

}  // namespace
}  // namespace onnx_iron

using namespace onnx_iron;

void onnx_iron_set_planner(int (*planner)(void*, const char*, size_t)) { set_planner(planner); }

void onnx_iron_request_fail(void* request, const char* message) {
  static_cast<Request*>(request)->fail(message);
}

void onnx_iron_request_answered(void* request) { static_cast<Request*>(request)->answered = true; }

void onnx_iron_request_program_cache(void* request, size_t bytes) {
  static_cast<Request*>(request)->program_cache_bytes = bytes;
}

void onnx_iron_request_claim(void* request, const size_t* nodes, size_t count) {
  answer(request, false, [&](Request& to) {
    to.claims.emplace_back(nodes, nodes + count);
    return true;
  });
}

bool onnx_iron_program_output(void* request, size_t index, int32_t dtype, int32_t rank,
                              const int64_t* shape) {
  return answer(request, false, [&](Request& to) {
    program_of(to).set_output(index, {static_cast<DType>(dtype), shape_of(shape, rank)});
    return true;
  });
}

int32_t onnx_iron_program_constant(void* request, const void* data, size_t bytes) {
  return answer(request, -1, [&](Request& to) {
    return static_cast<int32_t>(program_of(to).add_constant(data, bytes));
  });
}

int32_t onnx_iron_program_value(void* request, const char* name, int32_t dtype, int32_t rank,
                                const int64_t* shape, int32_t place, size_t index, size_t offset) {
  return answer(request, -1, [&](Request& to) {
    Operand operand{static_cast<DType>(dtype), shape_of(shape, rank)};
    Location location{static_cast<Place>(place), index, offset};
    return static_cast<int32_t>(program_of(to).add_value(name, std::move(operand), location));
  });
}

bool onnx_iron_program_step(void* request, const char* name, const char* op, const int32_t* inputs,
                            size_t input_count, const int32_t* outputs, size_t output_count,
                            const OnnxIronAttribute* attributes, size_t attribute_count) {
  return answer(request, false, [&](Request& to) {
    Node node = node_from_c(op, nullptr, 0, nullptr, 0, attributes, attribute_count);
    program_of(to).add_step(name, op, {inputs, inputs + input_count},
                            {outputs, outputs + output_count}, std::move(node.attributes));
    return true;
  });
}

bool onnx_iron_program_pair(void* request, size_t input, size_t output) {
  return answer(request, false, [&](Request& to) {
    program_of(to).add_pair(input, output);
    return true;
  });
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
