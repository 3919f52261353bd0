"""Kernels for the NPU's cores, in C++ against aie_api, and their build for a host."""
