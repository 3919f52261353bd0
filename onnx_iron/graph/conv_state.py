"""What a short causal convolution carries between calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onnx_iron.dtypes import BFLOAT16
from onnx_iron.graph.handle import Tensor
from onnx_iron.graph.parts import State, state


@dataclass
class ConvState:
    """What a short causal conv carries between calls.

    Attributes:
        read: the K - 1 rows before a call's first, (K - 1, channels), or (B, K - 1, channels) of
            a batch of sequences.
        write: where the K - 1 rows ending it go; the same state as ``read``, or another.
        window: scratch (2, chunk, channels), where a call's rows are staged after those before.
        tail: scratch (K - 1, channels), where the rows to write are staged.
    """

    read: Tensor
    write: Tensor
    window: State
    tail: State

    def named_parts(self) -> Iterator[tuple[str, Any]]:
        """A state both read and written is named by this object's own path."""
        same = self.read is self.write
        yield ("" if same else "read"), self.read
        yield "write", self.write
        yield "window", self.window
        yield "tail", self.tail


def conv_state(
    kernel_size: int,
    channels: int,
    chunk: int = 1,
    dtype: Any = BFLOAT16,
    dilation: int = 1,
    *,
    batch: int | None = None,
) -> ConvState:
    """A ConvState that reads and writes one state.

    Args:
        kernel_size: K, the number of taps.
        channels: the width of the rows.
        chunk: the most rows that a bounded call filters.
        dtype: float32 or bfloat16, as the rows filtered.
        dilation: the filter's; (K - 1) * dilation rows are carried.
        batch: B, of how many sequences rows are carried; None where x is that of one, (rows,
            channels).

    Raises:
        ValueError: ``kernel_size``, ``channels``, ``chunk``, ``dilation`` or ``batch`` below 1.

    Example:
        >>> conv_state(3, 8, chunk=4, dtype=np.float32).read
        <State (2, 8) float32>
    """
    given = {"kernel_size": kernel_size, "channels": channels, "chunk": chunk, "dilation": dilation}
    given |= {} if batch is None else {"batch": batch}
    for name, number in given.items():
        if number < 1:
            raise ValueError(f"conv_state(): {name} is {number}; it must be at least 1")
    before = (kernel_size - 1) * dilation
    carried = state((*([] if batch is None else [batch]), before, channels), dtype)
    return ConvState(
        read=carried,
        write=carried,
        window=state((2, max(chunk, before), channels), dtype, scratch=True),
        tail=state((before, channels), dtype, scratch=True),
    )
