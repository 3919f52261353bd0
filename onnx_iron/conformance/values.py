"""The kinds of numbers that operands are filled with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnx_iron.dtypes import Array, DType

Generator = np.random.Generator
Fill = Callable[[Generator, tuple[int, ...]], Array]

FILLS: dict[str, Fill] = {}


def fill(name: str) -> Callable[[Fill], Fill]:
    """Register a kind of values under the name that a report shows."""

    def register(function: Fill) -> Fill:
        FILLS[name] = function
        return function

    return register


@fill("normal")
def normal(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Normal numbers of deviation 1: what a network computes with."""
    return rng.standard_normal(shape)


@fill("zeros")
def zeros(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Zeros of both signs, with ones of both signs between them."""
    return rng.choice(np.array([0.0, -0.0, 0.0, 1.0, -1.0]), shape)


@fill("subnormal")
def subnormal(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Around the least normal number, 2**-126, on both sides of it."""
    return rng.standard_normal(shape) * 2.0**-127


@fill("large")
def large(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Up to 2**40: a product of two, and a sum of them, still is a float32."""
    return rng.standard_normal(shape) * 2.0**40


@fill("cancelling")
def cancelling(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Numbers near 100 of alternating signs along the last axis: sums lose most of their digits."""
    signs = np.where(np.arange(shape[-1] if shape else 1) % 2, -1.0, 1.0)
    return (100 + rng.standard_normal(shape)) * (signs if shape else 1.0)


@fill("offset")
def offset(rng: Generator, shape: tuple[int, ...]) -> Array:
    """A mean of 1000 with a deviation of 1: what a norm must take away before it squares."""
    return 1000 + rng.standard_normal(shape)


@fill("non-finite")
def non_finite(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Normal numbers, one in twelve of them NaN or infinite."""
    made = np.asarray(rng.standard_normal(shape))
    special = rng.choice(np.array([np.nan, np.inf, -np.inf]), shape)
    return np.where(rng.random(shape) < 1 / 12, special, made)


def filled(kind: str, seed: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """An operand of a kind of values, the same for one seed."""
    rng = np.random.default_rng([seed, *kind.encode()])
    with np.errstate(over="ignore"):
        return np.asarray(FILLS[kind](rng, shape), np.float32).astype(dtype)
