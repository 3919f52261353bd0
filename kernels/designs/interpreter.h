// Runs a design on the host: its tiles through the host-compiled kernels.
//
// Every access is checked: transfers against the buffers, kernels against their tiles. Tiles and
// locals are filled with a byte before they are used, so that what nobody wrote shows.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// design: what onnx_iron.kernels.designs.interpreter.encode gives. kernels: path of the kernels'
// host library. buffers and their sizes in bytes: in the design's order, each aligned for its
// dtype. values: in the design's order. poison: the byte that fills tiles.
// Returns 0, or 1 with the reason in `error`. Outputs are then in an undefined state.
__attribute__((visibility("default"))) int onnx_iron_run_design(
    const void* design, size_t design_bytes, const char* kernels, void* const* buffers,
    const size_t* sizes, const int32_t* values, uint8_t poison, char* error, size_t error_bytes);

#ifdef __cplusplus
}
#endif
