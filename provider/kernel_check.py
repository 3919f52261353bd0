"""Asks the native library whether it has a kernel for a step."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from onnx_iron.kernels import Attribute, Operand
from onnx_iron.provider.library import library
from onnx_iron.provider.lowering import Lowering, Refused, Step
from onnx_iron.provider.specs import NUMBERS, Spec

# Name, kind (for 1 is 1.0 as a key) and value of each attribute.
Frozen: TypeAlias = tuple[tuple[str, int, Any], ...]

INT, FLOAT, STRING, INTS, OTHER = range(5)
REASON_BYTES = 1024


def encode(text: str) -> bytes:
    """A text for people, whatever bytes it has: C ends it at a NUL, so that is written out."""
    return text.replace("\0", "\\0").encode("utf-8", "surrogateescape")


def encode_exactly(text: str) -> bytes:
    """A text that decides what is computed.

    Raises:
        Refused: it has a NUL, at which C would end it.
    """
    if "\0" in text:
        raise Refused(f"{text!r} has a NUL in it")
    return text.encode("utf-8", "surrogateescape")


def shape_array(shape: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """A shape, or other integers, for C."""
    return (ctypes.c_int64 * len(shape))(*shape)


def freeze(attributes: Mapping[str, Any]) -> Frozen:
    """Attributes as a key of a table."""
    frozen: list[tuple[str, int, Any]] = []
    for name, value in attributes.items():
        if isinstance(value, int):
            frozen.append((name, INT, value))
        elif isinstance(value, float):
            frozen.append((name, FLOAT, value))
        elif isinstance(value, str):
            frozen.append((name, STRING, value))
        elif value is None:  # a tensor or a graph
            frozen.append((name, OTHER, value))
        else:
            frozen.append((name, INTS, tuple(value)))
    return tuple(frozen)


def attribute_array(attributes: Frozen) -> ctypes.Array[Attribute]:
    """A node's attributes for C."""
    array = (Attribute * len(attributes))()
    for slot, (name, kind, value) in zip(array, attributes, strict=True):
        slot.name, slot.kind = encode_exactly(name), kind
        if kind == STRING:
            slot.text = encode_exactly(value)
        elif kind == FLOAT:
            slot.real = value
        elif kind == INT:
            slot.integer = value
        elif kind == INTS:
            numbers = shape_array(value)
            slot.count = len(value)
            slot.integers = ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64))
            slot._numbers = numbers  # lives as long as the array
    return array


def operand_array(specs: Sequence[Spec | None]) -> ctypes.Array[Operand]:
    """A node's operands for C."""
    array = (Operand * len(specs))()
    for slot, spec in zip(array, specs, strict=True):
        if spec is not None:
            numbers = shape_array(spec.shape)
            slot.dtype, slot.rank = NUMBERS[spec.dtype], len(spec.shape)
            slot.shape = ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64))
            slot._numbers = numbers
    return array


@functools.lru_cache(maxsize=4096)
def refusal(
    op: str,
    inputs: tuple[Spec | None, ...],
    outputs: tuple[Spec | None, ...],
    attributes: Frozen,
) -> str:
    """Why there is no kernel for a node; empty where there is one."""
    reason = ctypes.create_string_buffer(REASON_BYTES)
    given, made, named = operand_array(inputs), operand_array(outputs), attribute_array(attributes)
    kernel = ctypes.c_void_p()
    if library().onnx_iron_kernel_create(
        *(encode_exactly(op), given, len(given), made, len(made), named, len(named)),
        *(ctypes.byref(kernel), reason, REASON_BYTES),
    ):
        return reason.value.decode("utf-8", "replace")
    library().onnx_iron_kernel_destroy(kernel)
    return ""


def check_step(step: Step, lowering: Lowering) -> None:
    """Refuse a step that has no kernel.

    Raises:
        Refused: what the kernel says.
    """
    unknown = [name for name in step.inputs if name is not None and name not in lowering.specs]
    if unknown:
        raise Refused(f"dtype or rank of '{unknown[0]}' is not known, or no kernel has it")
    inputs = tuple(None if name is None else lowering.specs[name] for name in step.inputs)
    outputs = tuple(lowering.specs[name] for name in step.outputs)
    reason = refusal(step.op, inputs, outputs, freeze(step.attributes))
    if reason:
        raise Refused(reason)
