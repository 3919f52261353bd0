"""What one call of a program binds, and what a segment keeps between calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_iron.dtypes import Array
from onnx_iron.provider.devices.npu.arrays import SharedMemory
from onnx_iron.provider.devices.npu.run_list import RunList
from onnx_iron.provider.devices.npu.xrt import Buffer


@dataclass
class Prepared:
    """A segment's run list in a context.

    Attributes:
        instructions, values: of the runs that have per-call values, by the run's number.
        moving: operands that may be elsewhere at each call: the run, the operand's position, its
            name.
    """

    runs: RunList
    instructions: dict[int, Buffer]
    values: dict[int, tuple[int, ...]]
    moving: list[tuple[int, int, str]]


@dataclass
class Binding:
    """One call: where its inputs and outputs are, for the host and for the NPU."""

    inputs: Sequence[int]
    outputs: Sequence[int]
    given: dict[int, Buffer]
    made: dict[int, Buffer]
    shared_inputs: dict[int, SharedMemory]
    shared_outputs: dict[int, SharedMemory]
    bounced: dict[int, Array]
