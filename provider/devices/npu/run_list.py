"""Run lists: what goes to the NPU in one submission, and how its end is waited for."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

from onnx_iron.native import library
from onnx_iron.provider.devices.npu.conduit import run_list_address
from onnx_iron.provider.devices.npu.errors import ContextLostError, NpuError, NpuTimeoutError
from onnx_iron.provider.devices.npu.image import HOST_BANK
from onnx_iron.provider.devices.npu.xrt_module import explained, load_pyxrt

# What a kernel's command begins with: the operation, and where its instructions are.
OPCODE = 3
FIRST_BUFFER = 3

_DONE, _TIMED_OUT, _FAILED, _NO_WAIT = range(4)
_REASON_BYTES = 1024


class Instructions(Protocol):
    """A buffer that the NPU reads a run's instructions from."""

    @property
    def size(self) -> int: ...

    def part(self) -> Any: ...


class RunList:
    """Runs of designs that go out together and run one after the other."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._runs: list[Any] = []
        self._arguments: list[list[Any]] = []

    def add(self, kernel: Any, instructions: Instructions, buffers: Sequence[Any]) -> None:
        """Add a run of a kernel over buffers (``Buffer.part``).

        Raises:
            NpuError: the image has an argument in other memory than buffers are in, or none.
        """
        # The upper half is the context's number, which XRT does not look at. On an NPU a run with
        # a buffer in other memory ends as if it were done, or never.
        for index in range(len(buffers)):
            with explained(f"argument {index} of {len(buffers)}"):
                group = kernel.group_id(FIRST_BUFFER + index)
            bank = group & 0xFFFF
            if bank != HOST_BANK:
                place = "not there" if bank == 0xFFFF else f"in memory {bank} of its image"
                raise NpuError(
                    f"NPU: argument {index} of the design is {place}, and {len(buffers)} buffers "
                    f"are given in memory {HOST_BANK}; build the image anew with "
                    "`onnx-iron build-kernels`"
                )
        run = load_pyxrt().run(kernel)
        run.set_arg(0, OPCODE)
        run.set_arg(1, instructions.part())
        run.set_arg(2, instructions.size // 4)
        for index, buffer in enumerate(buffers):
            run.set_arg(FIRST_BUFFER + index, buffer)
        self._handle.add(run)
        self._runs.append(run)
        self._arguments.append([instructions, *buffers])

    def change(self, run: int, buffer: int, to: Any) -> None:
        """Give a run another buffer."""
        if self._arguments[run][1 + buffer] is not to:
            self._runs[run].set_arg(FIRST_BUFFER + buffer, to)
            self._arguments[run][1 + buffer] = to

    def __len__(self) -> int:
        return len(self._runs)

    def run(self, timeout_ms: int) -> None:
        """Submit, and wait. 0 waits for ever. Other Python threads go on meanwhile.

        Raises:
            ContextLostError: the context is gone, or took no command; the runs may have run in
                part.
            NpuTimeoutError: the time is over; the runs may still be running.
            NpuError: a run failed.
        """
        try:
            self._handle.execute()
        except RuntimeError as error:
            raise ContextLostError(f"NPU: submitting {len(self)} runs failed: {error}") from None
        state, text = self._wait(timeout_ms)
        if state == _DONE:
            return
        if state == _TIMED_OUT or "TIMEOUT" in text:
            given = f" within timeout_ms, {timeout_ms}" if state == _TIMED_OUT else ""
            raise NpuTimeoutError(
                f"NPU: {len(self)} runs did not end{given}" + (f" ({text})" if text else "")
            )
        if "ABORT" in text:
            raise ContextLostError(f"NPU: the hardware context was lost ({text})")
        raise NpuError(f"NPU: a run failed ({text})")

    def _wait(self, timeout_ms: int) -> tuple[int, str]:
        """Wait for the runs; what happened, and XRT's words."""
        reason = ctypes.create_string_buffer(_REASON_BYTES)
        address = ctypes.c_void_p(run_list_address(self._handle))
        state = int(library().onnx_iron_npu_wait(address, timeout_ms, reason, _REASON_BYTES))
        if state != _NO_WAIT:
            return state, reason.value.decode("utf-8", "replace")
        # Another XRT than the ones known: its Python module waits, for as long as the driver does.
        try:
            self._handle.wait()
        except RuntimeError as error:
            return _FAILED, str(error)
        return _DONE, ""
