"""What computes: the CPU kernels, and single ones of them on numpy arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from onnx_iron.dtypes import Array, Spec
from onnx_iron.native import Kernel, library, library_path

__all__ = ["cpu_path", "kernel_names", "library_path", "run_kernel"]

AttributeValue: TypeAlias = "bool | int | float | str | Sequence[int]"


def kernel_names() -> list[str]:
    """The operators that have a CPU kernel, sorted."""
    return _text(library().onnx_iron_kernel_names()).split("\n")


def cpu_path() -> str:
    """What the loops are compiled for, such as ``"avx512bf16"``, ``"avx2"`` or ``"portable"``.

    The best that this CPU has, or the one that the environment variable ``ONNX_IRON_CPU`` names.

    Raises:
        ValueError: ``ONNX_IRON_CPU`` names none, or one that this CPU cannot run.
    """
    path = library().onnx_iron_cpu_path()
    if path is None:
        named = os.environ.get("ONNX_IRON_CPU")
        raise ValueError(f"ONNX_IRON_CPU is {named!r}, expected loops that this CPU runs")
    return _text(path)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def run_kernel(
    op: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[tuple[Sequence[int], npt.DTypeLike] | Array],
    attributes: Mapping[str, AttributeValue] | None = None,
    threads: int = 1,
) -> list[Array]:
    """Make an operator's kernel and run it once.

    Args:
        op: the operator, ``"RMSNorm"``.
        inputs: its operands, ml_dtypes' bfloat16 included; None for an omitted one.
        outputs: for each output its shape and dtype, or the array to write into.
        attributes: the node's attributes.
        threads: 1 runs on the caller's.

    Returns:
        The outputs.

    Raises:
        ValueError: the kernel refuses the node or the call, in its own words; or an output array is
            not contiguous.
    """
    given = [None if a is None else np.require(a, requirements=["C", "A"]) for a in inputs]
    made = [o if isinstance(o, np.ndarray) else np.empty(o[0], o[1]) for o in outputs]
    if not all(array.flags.c_contiguous and array.flags.writeable for array in made):
        raise ValueError("an output array is not contiguous and writeable")
    specs = [None if a is None else Spec(a.shape, a.dtype) for a in given]
    results = [Spec(a.shape, a.dtype) for a in made]
    with Kernel(op, specs, results, attributes or {}) as kernel:
        inputs_at = [None if a is None else a.ctypes.data for a in given]
        kernel.run(inputs_at, [a.ctypes.data for a in made], threads)
    return made
