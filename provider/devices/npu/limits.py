"""What the driver allows, looked at before it is asked: a submission that it would end is not made.

Read in amdxdna's sources of August 2026 (AMD's and the one on its way into Linux):

- Instructions and configurations are in the **device heap**, which a process has one of: 64 MiB,
  and since 2026 on npu2 as many as 512, where XRT asks for more. 64 are counted on. What is in it
  begins at multiples of 32 KiB.
- A context has at most 32 compute units (``image.MOST_DESIGNS``).
- The **watchdog** resets the device where nothing has ended for 2 s while commands wait
  (``timeout_in_sec``, later ``tdr_timeout_ms``, parameters of the module). XRT sends a run list in
  commands of 24 runs, so that is what has 2 s. Linux 6.14's driver gave each command 60 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from onnx_iron.dtypes import Spec
from onnx_iron.operators import Op
from onnx_iron.provider.devices.npu.errors import NpuError

if TYPE_CHECKING:
    from onnx_iron.provider.devices.npu.work import Work

HEAP_BYTES = 64 << 20
_HEAP_STEP = 32 << 10

WATCHDOG_S = 2.0
COMMAND_RUNS = 24

# Rates that a run is expected to reach at the least, a second: a tenth of those published for
# matrix products, and of those assumed for memory.
_FLOPS = {"npu1": 0.35e12, "npu2": 1.4e12}
_BYTES = 5e9
# A run's own costs, about three times those published.
_START_S = 200e-6

Run = TypeVar("Run")


class Heap:
    """What is taken of the device heap. One thread at a time uses it."""

    def __init__(self) -> None:
        self.taken = 0

    def reserve(self, size: int, what: str, make_room: Callable[[], bool]) -> int:
        """Count a buffer as taken; returns the bytes that it takes.

        Args:
            make_room: frees something; False where there is nothing to free.

        Raises:
            NpuError: there is no room.
        """
        needed = -(-size // _HEAP_STEP) * _HEAP_STEP
        while self.taken + needed > HEAP_BYTES:
            if not make_room():
                raise NpuError(
                    f"NPU: no room for {what}: {needed >> 10} KiB beside the {self.taken >> 10} in "
                    f"use, of the {HEAP_BYTES >> 10} KiB that the driver has for a process's "
                    "configurations and instructions. Take a smaller prompt chunk, or close "
                    "sessions"
                )
        self.taken += needed
        return needed


def work_seconds(work: Work, specs: Mapping[str, Spec], target: str) -> float:
    """How long a run may take, at the most that is likely: for the watchdog, not for a forecast.

    Raises:
        NpuError: longer than the driver lets a command run.
    """
    step = work.step
    assert isinstance(step.op, Op)
    shapes = {
        taken.name: specs[name].shape
        for taken, name in zip(step.op.inputs, step.inputs, strict=False)
        if name is not None
    }
    flops = step.op.flops(shapes, specs[step.outputs[0]].shape)
    moved = sum(specs[name].bytes for name in work.operands)
    seconds = _START_S + max(flops / _FLOPS[target], moved / _BYTES)
    if seconds > WATCHDOG_S:
        raise NpuError(
            f"NPU: {step.op.name} '{step.name}' may take {seconds:.1f} s in one run, and the "
            f"driver resets the device after {WATCHDOG_S:.0f} s without an end. Take a smaller "
            "prompt chunk or batch, or run it on the CPU (fallback=cpu)"
        )
    return seconds


def within_watchdog(runs: Sequence[Run], seconds: Callable[[Run], float]) -> list[list[Run]]:
    """The runs in as few lists as leave each command half of the watchdog's time."""
    lists: list[list[Run]] = []
    spent = 0.0
    for run in runs:
        took = seconds(run)
        if lists and len(lists[-1]) % COMMAND_RUNS == 0:
            spent = 0.0  # it begins a command
        if not lists or (spent and spent + took > WATCHDOG_S / 2):
            lists.append([])
            spent = 0.0
        lists[-1].append(run)
        spent += took
    return lists
