"""A model's rotary embedding, as its configuration has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnx_iron import functional as F
from onnx_iron.dtypes import Array
from onnx_iron.models.fields import Fields


@dataclass(frozen=True)
class Rope:
    """The angles of rotary position embedding. Su et al., arXiv 2104.09864.

    Attributes:
        dim: how many of a head's elements turn, an even number.
        theta: frequency i is theta ** (-2 i / dim).
        factors: what each frequency is divided by, dim / 2 numbers or one for all; None for 1.
        scaling: how else the frequencies are scaled, as :func:`functional.rope_angles` takes it.
        length: the most positions, ``max_position_embeddings``.
    """

    dim: int
    theta: float
    factors: tuple[float, ...] | float | None = None
    scaling: Mapping[str, Any] = field(default_factory=dict)
    length: int | None = None

    def angles(self, positions: int) -> Array:
        """The rows (cos0, sin0, cos1, sin1, ...) of the first positions, float32
        (positions, dim).

        A model with factors for short and for long texts takes those of its whole context, so that
        no call changes what is in its cache.
        """
        if self.factors is None:
            return F.rope_angles(
                positions, self.dim, self.theta, scaling=self.scaling, max_positions=self.length
            )
        frequencies = self.theta ** (-np.arange(0, self.dim, 2) / self.dim)
        turns = np.arange(positions)[:, None] * (frequencies / np.asarray(self.factors))
        table = np.stack([np.cos(turns), np.sin(turns)], axis=-1)
        return np.asarray(table.reshape(positions, self.dim).astype(np.float32))


# Of each scaling the numbers that it needs, and those that it may have.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": (),
    "longrope": (),
}
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "yarn": ("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
    "longrope": ("factor", "attention_factor"),
}


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
    if not isinstance(name, str) or name not in _NEEDED:
        raise part.error("rope_type", name, " or ".join(repr(each) for each in _NEEDED))
    if original is None:
        original = part.size("original_max_position_embeddings", length)
    part.idle("original_max_position_embeddings")
    if type(original) is not int or original < 1:
        raise fields.error("original_max_position_embeddings", original, "an integer of 1 or more")
    scaling: dict[str, Any] = {entry: part.positive(entry) for entry in _NEEDED[name]}
    scaling |= {e: part.positive(e) for e in _OPTIONAL.get(name, ()) if part.has(e)}
    if name == "llama3" and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        low = scaling["low_freq_factor"]
        raise part.error(
            "high_freq_factor", scaling["high_freq_factor"], f"more than low_freq_factor, {low}"
        )
    if name == "yarn":
        scaling["truncate"] = part.flag("truncate", True)
    if name == "longrope":
        for entry in ("short_factor", "long_factor"):
            scaling[entry] = _factors(part, entry, dim // 2)
    part.check_all_read()
    if name == "default":
        return Rope(dim, theta)
    scaling |= {"rope_type": name, "original_max_position_embeddings": original}
    return Rope(dim, theta, None, scaling, length)


def _turning(fields: Fields, head_dim: int, partial: float) -> int:
    dim = int(head_dim * partial)
    if partial > 1 or dim < 2 or dim % 2:
        raise fields.error(
            "partial_rotary_factor", partial, f"a part of {head_dim} elements that is even"
        )
    return dim


def _factors(part: Fields, name: str, count: int) -> list[float]:
    values = part.raw(name)
    if (
        not isinstance(values, list)
        or len(values) != count
        or any(type(v) not in (int, float) or not math.isfinite(v) or v <= 0 for v in values)
    ):
        raise part.error(name, values, f"{count} numbers above 0, one for each frequency")
    return [float(value) for value in values]
