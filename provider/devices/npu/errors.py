"""What can go wrong with an NPU, by what can be done about it."""

from __future__ import annotations


class NpuError(RuntimeError):
    """The NPU, or XRT on the way to it, failed."""


class NpuUnavailableError(NpuError):
    """There is no NPU that this process can use."""


class ContextLostError(NpuError):
    """A hardware context is gone, with what was running in it."""


class NpuTimeoutError(NpuError):
    """The NPU did not end in the time that it was given."""
