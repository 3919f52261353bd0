"""The NPU as a device: artifacts, buffers and submissions through XRT."""
