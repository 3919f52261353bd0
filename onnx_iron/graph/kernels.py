"""Steps computed by the CPU kernels, one after another, without a model or onnxruntime."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_iron.dtypes import INT32, Array, Spec
from onnx_iron.native import Kernel, library
from onnx_iron.operators.base import Op


def by_kernel(op: Op, operands: Sequence[Any]) -> Any:
    """A step by its operator's CPU kernel; by its reference where it has none.

    Raises:
        ValueError: a per-call value that is out of its range.
    """
    if op.name not in _names():
        return op.reference(*operands)
    arrays = [
        None if x is None else np.ascontiguousarray(x, None if isinstance(x, np.ndarray) else INT32)
        for x in operands
    ]
    # A scalar has no axis, also where it was made contiguous.
    specs = tuple(
        None if a is None else Spec(np.shape(x), a.dtype)
        for x, a in zip(operands, arrays, strict=True)
    )
    outputs = tuple(op.infer(specs))
    results: list[Array] = [np.empty(spec.shape, spec.dtype) for spec in outputs]
    _kernel(op, specs, outputs).run(
        [None if a is None else a.ctypes.data for a in arrays],
        [result.ctypes.data for result in results],
        threads=len(os.sched_getaffinity(0)),
    )
    return tuple(results)


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(library().onnx_iron_kernel_names().decode().split())


@functools.lru_cache(maxsize=4096)
def _kernel(op: Op, inputs: tuple[Spec | None, ...], outputs: tuple[Spec, ...]) -> Kernel:
    return Kernel(op.name, inputs, outputs, op.attributes())
