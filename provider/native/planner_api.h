// What Python calls: the planner's seat, and the answers to a question while it is being asked.
// Every function with a request returns a value below zero (or false) after it has failed the
// request; no C++ exception comes out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/c_api.h"

extern "C" {

ONNX_IRON_EXPORT void onnx_iron_set_planner(int (*planner)(void* request, const char* question,
                                                           size_t length));

// A text that the user reads.
ONNX_IRON_EXPORT void onnx_iron_request_fail(void* request, const char* message);

// Says that the answer is complete.
ONNX_IRON_EXPORT void onnx_iron_request_answered(void* request);

// How many bytes of programs the session keeps, at most.
ONNX_IRON_EXPORT void onnx_iron_request_program_cache(void* request, size_t bytes);

// Claims one group of nodes, by their positions in the description.
ONNX_IRON_EXPORT void onnx_iron_request_claim(void* request, const size_t* nodes, size_t count);

// Declares the type of an output of the subgraph; before any value is placed in it.
ONNX_IRON_EXPORT bool onnx_iron_program_output(void* request, size_t index, int32_t dtype,
                                               int32_t rank, const int64_t* shape);

// Bytes that the program keeps; returns the constant's index.
ONNX_IRON_EXPORT int32_t onnx_iron_program_constant(void* request, const void* data, size_t bytes);

// place: 0 input `index`, 1 output `index`, 2 the arena, 3 constant `index`; each at a byte offset.
// The name is for errors, and empty for a value that the model does not know. Returns the value's
// number.
ONNX_IRON_EXPORT int32_t onnx_iron_program_value(void* request, const char* name, int32_t dtype,
                                                 int32_t rank, const int64_t* shape, int32_t place,
                                                 size_t index, size_t offset);

// Steps run in the order in which they are added. -1 stands for an omitted input.
ONNX_IRON_EXPORT bool onnx_iron_program_step(void* request, const char* name, const char* op,
                                             const int32_t* inputs, size_t input_count,
                                             const int32_t* outputs, size_t output_count,
                                             const OnnxIronAttribute* attributes,
                                             size_t attribute_count);

// Allows an input and an output to be one buffer.
ONNX_IRON_EXPORT bool onnx_iron_program_pair(void* request, size_t input, size_t output);

// Gives the program to another device, which Python runs under this number.
ONNX_IRON_EXPORT bool onnx_iron_program_device(void* request, int64_t number);

// How many programs were compiled in this process.
ONNX_IRON_EXPORT size_t onnx_iron_programs_compiled();

// How many programs for shapes that the models leave open are kept in this process.
ONNX_IRON_EXPORT size_t onnx_iron_programs_cached();

// The bytes of the memory that calls work in, in this process.
ONNX_IRON_EXPORT size_t onnx_iron_frame_bytes();

}  // extern "C"
