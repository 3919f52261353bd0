"""Rotary position embedding: turning heads, and the angles to turn them by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.functional.operand import handle_of, tensor_of
from onnx_iron.functional.shaping import cat
from onnx_iron.graph.handle import Handle
from onnx_iron.operators.rope import RoPE


def rope(x: Any, angles: Any, *, interleaved: bool = False) -> Handle:
    """``x`` turned by RoPE, a row of ``angles`` for each row or for several in a row.

    Args:
        x: (rows, head_dim), (rows, heads, head_dim), or of a batch (B, rows, heads, head_dim).
        angles: (n, turned), n dividing the rows: (cos0, sin0, cos1, sin1, ...), each row for
            rows / n consecutive rows, the same for all sequences; x's dtype or float32.
            :func:`rope_angles` makes them. Where ``turned`` is less than head_dim, the rest of
            each head stays as it is. (B, n, turned) are those of each sequence; with them x may
            be (B, rows, head_dim).
        interleaved: turn the pairs (2i, 2i + 1) rather than (i, i + turned / 2).

    Returns:
        As ``x``.

    Raises:
        ValueError: shapes that do not fit, or an odd number of elements to turn.

    Example:
        >>> F.rope(x, x[:2]).shape, F.rope(x, x[:, :4]).shape
        ((4, 8), (4, 8))
        >>> F.rope(x.reshape(2, 2, 2, 4), x[:2, :4]).shape  # two sequences, two heads
        (2, 2, 2, 4)
    """
    x, angles = handle_of("rope", "x", x), tensor_of("rope", "angles", angles)
    shape, own = x.shape, len(angles.shape) == 3
    if len(shape) == 4 or (len(shape) == 3 and not own):
        *batch, rows, heads, width = shape
        if not own and angles.shape[:-1] not in ((1,), (rows,), (rows * heads,)):
            raise ValueError(
                f"rope(): angles is {tuple(angles.shape)}; x is {shape}, (rows, heads, head_dim) "
                f"or (B, rows, heads, head_dim), so it must be ({rows}, {width}), a row of angles "
                "for each row"
            )
        x = x.reshape(*batch, rows * heads, width)
    turned = angles.shape[-1] if angles.shape else 0
    if 0 < turned < x.shape[-1]:
        part = RoPE.step(x[..., :turned], angles, interleaved=interleaved)
        return cat([part, x[..., turned:]], -1).reshape(shape)
    return RoPE.step(x, angles, interleaved=interleaved).reshape(shape)


def rope_angles(
    positions: int | Any,
    head_dim: int,
    theta: float = 10000.0,
    *,
    partial: float = 1.0,
    scaling: Mapping[str, Any] | None = None,
    max_positions: int | None = None,
) -> Array:
    """The angles by which :func:`rope` turns heads: frequency i is ``theta ** (-2 i / turned)``,
    scaled as a model's configuration says. An array, made once for all calls.

    Args:
        positions: how many positions there are, from 0 on, or the positions themselves.
        head_dim: the width of a head.
        theta: the base of the frequencies.
        partial: the part of a head that is turned (``partial_rotary_factor``).
        scaling: ``rope_scaling`` or ``rope_parameters`` of a transformers configuration: its
            ``rope_type`` is "default", "linear" (Chen et al., arXiv 2306.15595), "llama3"
            (Grattafiori et al., arXiv 2407.21783), "yarn" (Peng et al., arXiv 2309.00071) or
            "longrope" (Ding et al., arXiv 2402.13753). Its ``rope_theta`` and
            ``partial_rotary_factor`` come before the arguments.
        max_positions: ``max_position_embeddings``, for "yarn" and "longrope" where the factor is
            the ratio of it and ``original_max_position_embeddings``.

    Returns:
        (positions, turned) float32 rows (cos0, sin0, cos1, sin1, ...); yarn and longrope multiply
        them by their attention factor.

    Raises:
        ValueError: another type, a parameter that is missing, or nothing to turn.

    Example:
        >>> F.rope_angles(4, 8, scaling={"rope_type": "linear", "factor": 2.0}).shape
        (4, 8)
    """
    given = dict(scaling or {})
    theta = float(given.get("rope_theta") or theta)
    partial = float(given.get("partial_rotary_factor") or partial)
    turned = int(head_dim * partial)
    if turned < 2 or turned % 2:
        raise ValueError(
            f"rope_angles(): {turned} of a head's {head_dim} elements are turned; expected an even "
            "number, at least 2"
        )
    places = np.arange(positions) if hasattr(positions, "__index__") else np.asarray(positions)
    frequencies = theta ** (-np.arange(0, turned, 2) / turned)
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in _SCALED:
        raise ValueError(f"rope_angles(): rope_type is {kind!r}; expected one of {list(_SCALED)}")
    scaled = _Scaled(kind, given, theta, turned, int(places.max(initial=0)) + 1, max_positions)
    frequencies, factor = _SCALED[kind](scaled, frequencies)
    angles = places[:, None] * frequencies
    pairs = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * factor
    return np.asarray(pairs.reshape(len(places), turned).astype(np.float32))


class _Scaled:
    """A model's frequencies and what its configuration says about them."""

    def __init__(
        self,
        kind: str,
        given: Mapping[str, Any],
        theta: float,
        turned: int,
        length: int,
        max_positions: int | None,
    ) -> None:
        self.given, self.theta, self.turned, self.length = given, theta, turned, length
        self._kind, self._max_positions = kind, max_positions

    def number(self, name: str, otherwise: float | None = None) -> float:
        """A parameter.

        Raises:
            ValueError: it is missing, or no number.
        """
        value = self.given.get(name)
        value = otherwise if value is None else value
        if not isinstance(value, int | float):
            raise ValueError(
                f"rope_angles(): {name} is {value!r}; rope_type {self._kind!r} needs a number"
            )
        return float(value)

    def original(self) -> float:
        """The positions that the model was trained for at first."""
        return self.number("original_max_position_embeddings", self._max_positions)

    def factor(self) -> float:
        """How many times as many positions it has now."""
        otherwise = self._max_positions and self._max_positions / self.original()
        return self.number("factor", otherwise)

    def unscaled(self, frequencies: Array) -> tuple[Array, float]:
        return frequencies, 1.0

    def linear(self, frequencies: Array) -> tuple[Array, float]:
        return frequencies / self.number("factor"), 1.0

    def llama3(self, frequencies: Array) -> tuple[Array, float]:
        low, high = self.number("low_freq_factor"), self.number("high_freq_factor")
        turns = self.original() * frequencies / (2 * math.pi)
        # Of waves that turn less than `low` times all, more than `high` times none is stretched.
        kept = np.clip((turns - low) / (high - low), 0, 1)
        return frequencies * (kept + (1 - kept) / self.number("factor")), 1.0

    def yarn(self, frequencies: Array) -> tuple[Array, float]:
        factor, original = self.factor(), self.original()

        def place(turns: float) -> float:
            """The frequency that turns so often over the original positions."""
            ratio = math.log(original / (turns * 2 * math.pi)) / math.log(self.theta)
            return self.turned / 2 * ratio

        first, last = place(self.number("beta_fast", 32)), place(self.number("beta_slow", 1))
        if self.given.get("truncate", True):
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, self.turned - 1)
        last += 0.001 if first == last else 0
        stretched = np.clip((np.arange(self.turned // 2) - first) / (last - first), 0, 1)
        scaled = frequencies * (1 - stretched + stretched / factor)
        return scaled, self.number("attention_factor", self._yarn_factor(factor))

    def _yarn_factor(self, factor: float) -> float:
        def magnitude(by: float) -> float:
            return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1

        scale, all_dims = self.given.get("mscale"), self.given.get("mscale_all_dim")
        return magnitude(scale) / magnitude(all_dims) if scale and all_dims else magnitude(1)

    def longrope(self, frequencies: Array) -> tuple[Array, float]:
        original = self.original()
        long = self.length > original
        name = "long_factor" if long else "short_factor"
        factors = np.asarray(self.given.get(name, ()), np.float64)
        if factors.shape != frequencies.shape:
            raise ValueError(
                f"rope_angles(): {name} has {factors.size} numbers; expected {frequencies.size}"
            )
        factor = self.factor()
        otherwise = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
        return frequencies / factors, self.number("attention_factor", otherwise)


_SCALED = {
    "default": _Scaled.unscaled,
    "linear": _Scaled.linear,
    "llama3": _Scaled.llama3,
    "yarn": _Scaled.yarn,
    "longrope": _Scaled.longrope,
}
