"""Moves of integers and bools: every element survives, on every runtime, whatever its size."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from networks import Exported, Network
from provider_models import iron, stock
from test_custom_ops import bare

from onnx_iron import state
from onnx_iron.dtypes import BOOL, INT32, INT64, Array

dtypes = pytest.mark.parametrize(
    "dtype", [pytest.param(d, id=d.name) for d in (INT32, INT64, BOOL)]
)


def elements(dtype: Any, *shape: int, seed: int = 0) -> Array:
    """All of the dtype's numbers, most of which no float32 has."""
    if dtype == BOOL:
        return np.random.default_rng(seed).integers(0, 2, shape).astype(BOOL)
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


class Moves(Network):
    """Copies, slices, transposes, reads and writes at a per-call place, of one dtype."""

    def __init__(self, dtype: Any) -> None:
        self.kept = state((6, 4), dtype)
        super().__init__(Moves.moved, kept=self.kept)

    def moved(self, x: Any, *, n: Any) -> Any:
        self.kept[n : n + 2] = x[1:3]
        self.kept[:, 0] = self.kept[:, 3].copy()
        return {
            "whole": x.copy(),
            "turned": x.transpose().copy(),
            "column": x[:, 1].copy(),
            "read": self.kept[n].copy(),
            "shaped": x.reshape(2, 6).copy(),
        }


def expected(x: Array, kept: Array, n: int) -> dict[str, Array]:
    """The same in numpy; writes ``kept``."""
    kept[n : n + 2] = x[1:3]
    kept[:, 0] = kept[:, 3]
    return {
        "whole": x,
        "turned": x.T,
        "column": x[:, 1],
        "read": kept[n].copy(),
        "shaped": x.reshape(2, 6),
    }


@dtypes
def test_the_reference_moves_every_element(dtype: Any) -> None:
    graph, kept = Moves(dtype), np.zeros((6, 4), dtype)
    for n in (3, 0):
        x = elements(dtype, 3, 4, seed=n)
        results, wanted = graph.reference(x, n=n), expected(x, kept, n)
        for name, array in wanted.items():
            assert results[name].dtype == dtype
            np.testing.assert_array_equal(results[name], array, err_msg=name)


def on_stock(model: Any) -> ort.InferenceSession:
    return stock(model.SerializeToString())


def on_iron(model: Any) -> ort.InferenceSession:
    return iron(model.SerializeToString())


@dtypes
@pytest.mark.parametrize("opened", [on_stock, on_iron, bare])
@pytest.mark.parametrize("dialect", ["iron", "standard"])
def test_the_exported_model_moves_every_element(dtype: Any, opened: Any, dialect: str) -> None:
    run = Exported(Moves(dtype).trace(x=((3, 4), dtype)), opened, dialect=dialect)
    kept = np.zeros((6, 4), dtype)
    for n in (3, 0):
        x = elements(dtype, 3, 4, seed=n)
        results, wanted = run(x=x, n=n), expected(x, kept, n)
        for name, array in wanted.items():
            assert results[name].dtype == dtype
            np.testing.assert_array_equal(results[name], array, err_msg=name)
        np.testing.assert_array_equal(run.states["kept"], kept)


def test_a_number_outside_of_an_integer_s_range_is_refused() -> None:
    def fill(self: Any, x: Any) -> Any:
        self.kept[...] = 2**31
        return x.copy()

    with pytest.raises(ValueError, match="2147483648 is no int32; it is out of that dtype's range"):
        Network(fill, kept=state((2,), INT32)).trace(x=((2,), INT32))
