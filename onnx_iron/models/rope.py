"""A model's rotary embedding: which frequencies, and the table of angles that a graph reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.models.fields import Fields

Factors = tuple[float, ...] | float


@dataclass(frozen=True)
class Rope:
    """The angles of rotary position embedding. Su et al., arXiv 2104.09864.

    Attributes:
        dim: how many of a head's elements turn, an even number.
        theta: frequency i is theta ** (-2 i / dim).
        factors: what each frequency is divided by, dim / 2 numbers or one for all; None for 1.
        attention_factor: what cosines and sines are multiplied by.
        long_factors: the factors of a context longer than ``original_length``; None for the same.
        original_length: the positions that the model was trained for before it was stretched.
    """

    dim: int
    theta: float
    factors: Factors | None = None
    attention_factor: float = 1.0
    long_factors: Factors | None = None
    original_length: int = 0

    def angles(self, positions: int) -> Array:
        """The rows (cos0, sin0, cos1, sin1, ...) of the first positions, float32
        (positions, dim).

        A model with factors for short and for long texts takes those of its whole context, so that
        no call changes what is in its cache.
        """
        frequencies = self.theta ** (-np.arange(0, self.dim, 2) / self.dim)
        factors = self.factors
        if self.long_factors is not None and positions > self.original_length:
            factors = self.long_factors
        if factors is not None:
            frequencies = frequencies / np.asarray(factors)
        turns = np.arange(positions)[:, None] * frequencies
        table = np.stack([np.cos(turns), np.sin(turns)], axis=-1) * self.attention_factor
        return table.reshape(positions, self.dim).astype(np.float32)


def read_rope(
    fields: Fields,
    head_dim: int,
    length: int,
    *,
    theta: float = 10000.0,
    kind: str | None = None,
    shared: bool = True,
) -> Rope:
    """Read the rotary embedding of a configuration: ``rope_parameters``, or the older
    ``rope_theta`` and ``rope_scaling``.

    Args:
        fields: the configuration.
        head_dim: a head's elements.
        length: the most positions, ``max_position_embeddings``.
        theta: where the configuration names none.
        kind: the entry of ``rope_parameters`` to read, where each kind of layer has its own.
        shared: ``rope_theta`` and ``rope_scaling`` hold for this kind of layer too.

    Raises:
        ValueError: a scaling that isn't implemented, or numbers that no model has.
    """
    if shared:
        theta = fields.positive("rope_theta", theta)
    partial = fields.positive("partial_rotary_factor", 1.0)
    original = fields.raw("original_max_position_embeddings")
    older, newer = fields.part("rope_scaling"), fields.part("rope_parameters")
    part = newer if newer is not None else older if shared else None
    if part is not None and kind is not None and part.has(kind):
        part = part.part(kind)
    if part is None:
        return Rope(_turning(fields, head_dim, partial), theta)
    theta = part.positive("rope_theta", theta)
    dim = _turning(part, head_dim, part.positive("partial_rotary_factor", partial))
    name = part.raw("rope_type", part.raw("type", "default"))
    part.idle("type")
    reader = _SCALINGS.get(name)
    if reader is None:
        raise part.error("rope_type", name, " or ".join(repr(each) for each in _SCALINGS))
    if original is None:
        original = part.size("original_max_position_embeddings", length)
    part.idle("original_max_position_embeddings")
    if type(original) is not int or original < 1:
        raise fields.error("original_max_position_embeddings", original, "an integer of 1 or more")
    rope = reader(part, Rope(dim, theta, original_length=original), length)
    part.check_all_read()
    return rope


def _turning(fields: Fields, head_dim: int, partial: float) -> int:
    dim = int(head_dim * partial)
    if partial > 1 or dim < 2 or dim % 2:
        raise fields.error(
            "partial_rotary_factor", partial, f"a part of {head_dim} elements that is even"
        )
    return dim


def _with(rope: Rope, factors: Factors | None, attention: float = 1.0) -> Rope:
    return Rope(rope.dim, rope.theta, factors, attention)


def _default(part: Fields, rope: Rope, length: int) -> Rope:
    return _with(rope, None)


def _linear(part: Fields, rope: Rope, length: int) -> Rope:
    """Chen et al., arXiv 2306.15595."""
    return _with(rope, part.positive("factor"))


def _llama3(part: Fields, rope: Rope, length: int) -> Rope:
    """Llama 3.1's: long waves are stretched, short ones stay, and those between are blended."""
    factor, low = part.positive("factor"), part.positive("low_freq_factor")
    high = part.positive("high_freq_factor")
    if high <= low:
        raise part.error("high_freq_factor", high, f"more than low_freq_factor, {low}")
    frequencies = rope.theta ** (-np.arange(0, rope.dim, 2) / rope.dim)
    turns = rope.original_length * frequencies / (2 * np.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return _with(rope, tuple(1 / ((1 - blend) / factor + blend)))


def _yarn(part: Fields, rope: Rope, length: int) -> Rope:
    """Peng et al., arXiv 2309.00071."""
    factor = part.positive("factor", length / rope.original_length)
    mscale, mscale_all = part.number("mscale", 0.0), part.number("mscale_all_dim", 0.0)
    fast, slow = part.positive("beta_fast", 32.0), part.positive("beta_slow", 1.0)

    def scale(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1 if factor > 1 else 1.0

    attention = scale(mscale) / scale(mscale_all) if mscale and mscale_all else scale(1.0)
    attention = part.positive("attention_factor", attention)

    def place(rotations: float) -> float:
        waves = rope.original_length / (rotations * 2 * math.pi)
        return rope.dim * math.log(waves) / (2 * math.log(rope.theta))

    first, last = place(fast), place(slow)
    if part.flag("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.dim - 1)
    if first == last:
        last += 0.001
    stretched = np.clip((np.arange(rope.dim // 2) - first) / (last - first), 0, 1)
    return _with(rope, tuple(1 / (stretched / factor + 1 - stretched)), attention)


def _longrope(part: Fields, rope: Rope, length: int) -> Rope:
    """Ding et al., arXiv 2402.13753."""
    factor = part.positive("factor", length / rope.original_length)
    attention = 1.0
    if factor > 1:
        attention = math.sqrt(1 + math.log(factor) / math.log(rope.original_length))
    attention = part.positive("attention_factor", attention)
    short, long = (_factors(part, name, rope.dim // 2) for name in ("short_factor", "long_factor"))
    return Rope(rope.dim, rope.theta, short, attention, long, rope.original_length)


def _factors(part: Fields, name: str, count: int) -> tuple[float, ...]:
    values = part.raw(name)
    if (
        not isinstance(values, list)
        or len(values) != count
        or any(type(v) not in (int, float) or not math.isfinite(v) or v <= 0 for v in values)
    ):
        raise part.error(name, values, f"{count} numbers above 0, one for each frequency")
    return tuple(float(value) for value in values)


_SCALINGS: dict[str, Callable[[Fields, Rope, int], Rope]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
