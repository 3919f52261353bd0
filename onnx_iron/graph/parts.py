"""What a graph holds: the states that it keeps and the weights that it reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onnx_iron.dtypes import BFLOAT16, Array, as_dtype
from onnx_iron.graph.arrays import as_array
from onnx_iron.graph.context import current_trace
from onnx_iron.graph.handle import Handle, Tensor


class State(Tensor):
    """A tensor that is kept from call to call, zero at first; made by :func:`state`."""

    def __init__(self, shape: tuple[int, ...], dtype: Any = BFLOAT16, *, scratch: bool = False):
        self.shape = tuple(int(n) for n in shape)
        if any(n < 0 for n in self.shape):
            raise ValueError(f"state(): shape {self.shape} has a negative dimension")
        self.dtype = as_dtype(dtype)
        self.scratch = scratch

    def _handle(self) -> Handle:
        handle: Handle = current_trace("a state").lift(self)
        return handle

    def __repr__(self) -> str:
        return f"<State {self.shape} {self.dtype.name}>"


def state(shape: tuple[int, ...], dtype: Any = BFLOAT16, *, scratch: bool = False) -> State:
    """A tensor for a graph to keep from call to call, zero at first.

    A ``scratch`` state only stages data inside of one call: it is zero at the start of each, and
    does not show in an exported model.
    """
    return State(shape, dtype, scratch=scratch)


class Weight(Tensor):
    """A weight that is loaded when it is needed: a tensor of a checkpoint.

    Attributes:
        array: the elements, of a weight that is in memory.

    Args:
        shape: its shape.
        dtype: float32 or bfloat16 (or an index dtype).
        load: returns the elements, an array of just that shape and dtype. It is called anew each
            time, so that an export holds one tensor at a time.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, load: Callable[[], Array]) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = as_dtype(dtype)
        self._load = load
        self.array: Array | None = None

    @classmethod
    def of(cls, array: Any) -> Weight:
        """A weight whose elements are in memory.

        Args:
            array: an array, a torch tensor, or anything else with ``__array__``.

        Raises:
            TypeError: none of these, or of a dtype that weights don't have.
        """
        given, array = array, as_array(array)
        if array is None:
            raise TypeError(f"Weight.of(): {given!r} is no array and no tensor")
        made = cls(array.shape, array.dtype, lambda: array)
        made.array = array
        return made

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def load(self) -> Array:
        """The elements.

        Raises:
            ValueError: what was loaded has another shape or dtype than declared.
        """
        array = self._load()
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(
                f"a weight declared {self.shape} {self.dtype.name} loaded as {array.shape} "
                f"{array.dtype.name}"
            )
        return array

    def _handle(self) -> Handle:
        handle: Handle = current_trace("a weight").lift(self)
        return handle

    def __repr__(self) -> str:
        return f"<Weight {self.shape} {self.dtype.name}>"
