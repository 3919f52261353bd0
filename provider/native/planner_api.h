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

// A remark for onnxruntime's log, at its verbose level.
ONNX_IRON_EXPORT void onnx_iron_request_log(void* request, const char* text);

// How many bytes of programs the session keeps, at most.
ONNX_IRON_EXPORT void onnx_iron_request_program_cache(void* request, size_t bytes);

// Where the session's calls are recorded, and how many bytes of memory that may take. Fails the
// request where the file can't be written.
ONNX_IRON_EXPORT void onnx_iron_request_profile(void* request, const char* path, size_t bytes);

// Writes what is recorded so far for a file: 0, or 1 with a text in `error`.
ONNX_IRON_EXPORT int onnx_iron_profile_write(const char* path, char* error, size_t capacity);

// The same for all files; what can't be written is said on stderr.
ONNX_IRON_EXPORT void onnx_iron_profiles_write();

// Claims one group of nodes, by their positions in the description.
ONNX_IRON_EXPORT void onnx_iron_request_claim(void* request, const size_t* nodes, size_t count);

// The whole program, as Recipe reads it: `code` and the bytes that it mentions. A general one makes
// programs for other shapes, too; it is kept where the request is about no shapes yet.
ONNX_IRON_EXPORT bool onnx_iron_program_recipe(void* request, const int64_t* code, size_t count,
                                               const char* data, size_t bytes, bool general);

// An offset for each span, of three numbers: the first step that uses it, the last one, and its
// bytes; they are sorted by the first. False where they do not fit into memory.
ONNX_IRON_EXPORT bool onnx_iron_arena_offsets(const int64_t* spans, size_t count, int64_t* offsets);

// Gives the program to another device, which Python runs under this number.
ONNX_IRON_EXPORT bool onnx_iron_program_device(void* request, int64_t number);

// How many programs were compiled in this process.
ONNX_IRON_EXPORT size_t onnx_iron_programs_compiled();

// How many programs for shapes that the models leave open are kept in this process.
ONNX_IRON_EXPORT size_t onnx_iron_programs_cached();

// The bytes of the memory that calls work in, in this process.
ONNX_IRON_EXPORT size_t onnx_iron_frame_bytes();

}  // extern "C"
