#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/c_api.h"

// What the ABI calls the type xrt::runlist: a std::type_info.
extern "C" ONNX_IRON_EXPORT const void* onnx_iron_npu_run_list_type();

// runlist: address of an xrt::runlist. timeout_ms: 0 waits for ever. Returns 0 when all runs have
// ended, 1 when the time is over, 2 with a text in `error` when XRT failed, and 3 where this XRT
// has no such function.
extern "C" ONNX_IRON_EXPORT int onnx_iron_npu_wait(const void* runlist, int64_t timeout_ms,
                                                   char* error, size_t size);
