"""What a target offers a design: columns, memories, and what its DMA engines can address."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from onnx_iron.kernels.aie.build import Generation

WORD = 4  # bytes: what a DMA engine addresses


class Target(StrEnum):
    """The NPUs: npu1 is Phoenix and Hawk Point, npu2 Strix and Krackan."""

    NPU1 = "npu1"
    NPU2 = "npu2"

    @property
    def generation(self) -> Generation:
        """Its cores'."""
        return {Target.NPU1: Generation.AIE2, Target.NPU2: Generation.AIE2P}[self]

    @property
    def columns(self) -> int:
        return {Target.NPU1: 4, Target.NPU2: 8}[self]

    @property
    def lanes(self) -> int:
        """bfloat16 lanes of a vector."""
        return self.generation.lanes


CORE_BYTES = 64 * 1024
STACK_BYTES = 2 * 1024
MEMORY_TILE_BYTES = 512 * 1024
CORES = 4  # of a column
MEMORY_CHANNELS = 6  # a memory tile's, as many in as out
CHANNELS = 2  # a core's DMA channels, as many in as out; a column's shim has the same

DIMENSIONS = 4
_INNER_SIZE = 1023  # of the innermost two dimensions
_REPEATS = 64  # of the outermost of four
_SHIM_STRIDE = 1 << 20  # words
_MEMORY_STRIDE = 1 << 17  # words


class UnaddressableError(Exception):
    """A pattern that no DMA engine can walk; its text says why."""


def shim_pattern(
    sizes: Sequence[int], strides: Sequence[int], item_bytes: int
) -> list[tuple[int, int]]:
    """A pattern of elements, outermost first, as the shim's DMA walks it, in words.

    Neighbouring dimensions merge where they can; a row that is too long for one is split.

    Raises:
        UnaddressableError: no split fits.
    """
    merged = _merged(sizes, strides)
    size, stride = merged[-1]
    if stride != 1 or size * item_bytes % WORD:
        raise UnaddressableError(
            f"rows of {size} elements of {item_bytes} bytes, {stride} apart: a DMA moves {WORD} "
            "bytes at a time"
        )
    words = [(size * item_bytes // WORD, 1)]
    for size, stride in reversed(merged[:-1]):
        if stride * item_bytes % WORD:
            raise UnaddressableError(
                f"a stride of {stride} elements of {item_bytes} bytes: a DMA addresses {WORD} bytes"
            )
        words.insert(0, (size, stride * item_bytes // WORD))
    if len(words) == 1:
        return words
    if words[-1][0] > _INNER_SIZE:
        inner = next(n for n in range(_INNER_SIZE, 0, -1) if words[-1][0] % n == 0)
        words[-1:] = [(words[-1][0] // inner, inner), (inner, 1)]
    _check_pattern(words, _SHIM_STRIDE, "the shim")
    return words


def counted_pattern(
    sizes: Sequence[int], strides: Sequence[int], item_bytes: int
) -> list[tuple[int, int]]:
    """The same for a pattern whose outermost size may be another at each call: a DMA counts all
    dimensions but the third from the innermost, which ends where the pattern's length is over.

    Raises:
        UnaddressableError: it cannot.
    """
    inner = shim_pattern(sizes[1:], strides[1:], item_bytes)
    if len(inner) == DIMENSIONS - 1:
        raise UnaddressableError(f"{DIMENSIONS} dimensions, of which the outermost is counted")
    words = [(sizes[0], strides[0] * item_bytes // WORD), *inner]
    _check_pattern(words, _SHIM_STRIDE, "the shim")
    return words


def memory_pattern(arrange: Sequence[tuple[int, int]], item_bytes: int) -> list[tuple[int, int]]:
    """The order in which a memory tile's DMA reads a tile: sizes and strides in words.

    Raises:
        UnaddressableError: it cannot.
    """
    size, stride = arrange[-1]
    if stride != 1 or size * item_bytes % WORD:
        raise UnaddressableError(f"runs of {size} elements of {item_bytes} bytes, {stride} apart")
    words = [(n, s * item_bytes // WORD) for n, s in arrange[:-1]]
    if any(s * item_bytes % WORD for _, s in arrange[:-1]):
        raise UnaddressableError(
            f"strides of {[s for _, s in arrange]} elements of {item_bytes} bytes"
        )
    words.append((size * item_bytes // WORD, 1))
    _check_pattern(words, _MEMORY_STRIDE, "a memory tile")
    return words


def _merged(sizes: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """The same walk without dimensions of one step, and with those that run on joined."""
    kept = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1] or [(1, 1)]
    merged = [kept[0]]
    for size, stride in kept[1:]:
        outer, outer_stride = merged[-1]
        if outer_stride == size * stride:
            merged[-1] = (outer * size, stride)
        else:
            merged.append((size, stride))
    return merged


def _check_pattern(words: Sequence[tuple[int, int]], stride_limit: int, where: str) -> None:
    if len(words) > DIMENSIONS:
        raise UnaddressableError(f"{len(words)} dimensions, of which {where} walks {DIMENSIONS}")
    for size, _ in words[-2:]:
        if size > _INNER_SIZE:
            raise UnaddressableError(
                f"{size} steps of an inner dimension, of which {where} walks {_INNER_SIZE}"
            )
    if len(words) == DIMENSIONS and words[0][0] > _REPEATS:
        raise UnaddressableError(
            f"{words[0][0]} repeats of a pattern, of which {where} does {_REPEATS}"
        )
    for _, stride in words:
        if stride > stride_limit:
            raise UnaddressableError(
                f"a stride of {stride} words, of which {where} takes {stride_limit}"
            )
