"""Rows that a graph names once: they bound all that follows from an input."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from networks import random

from onnx_iron import Graph, Session, export, state
from onnx_iron import functional as F


class Encoder(Graph):
    """Two bodies over one memory: what one writes, the other reads."""

    bounds: ClassVar = {"x": "rows"}

    def __init__(self) -> None:
        self.kept = state((9, 8), np.float32)
        self.table = random(9, 8, seed=1)

    def body(self, x: Any, *, position: Any, rows: Any) -> Any:
        placed = x + self.kept[position : position + rows] * 0
        self.kept[position : position + rows] = placed
        return placed.sum(-1)

    def decode(self, y: Any) -> Any:
        return y + self.kept[0]


def test_a_bound_goes_from_the_input_through_reductions_and_slices() -> None:
    graph, x = Encoder(), random(4, 8)
    assert graph.trace(x=((4, 8), np.float32)).outputs["output"].valid.keys() == {0}
    assert not graph.trace(x=((1, 8), np.float32)).outputs["output"].valid
    graph(x, rows=2)
    np.testing.assert_array_equal(graph.states()["kept"][:3], [*x[:2], np.zeros(8)])
    graph(x[:1])
    np.testing.assert_array_equal(graph.states()["kept"][2], x[0])
    with pytest.raises(ValueError, match=r"rows is 5, expected 0..4"):
        graph(x, rows=5)
    graph.reset()
    assert not graph.states()["kept"].any()


def test_a_bounded_axis_is_not_summed_over() -> None:
    class Sum(Graph):
        bounds: ClassVar = {"x": "rows"}

        def body(self, x: Any) -> Any:
            return F.mean(x, 0)

    with pytest.raises(ValueError, match="bounded by rows along its last axis"):
        Sum().trace(x=((4, 8), np.float32))
    np.testing.assert_allclose(Sum()(random(1, 8)), random(1, 8)[0], rtol=1e-6)


def test_roles_of_any_name_share_their_states(tmp_path: Path) -> None:
    graph, x = Encoder(), random(5, 8)
    traces = {
        "encoder": graph.trace(x=((4, 8), np.float32)),
        "decode": graph.trace(graph.decode, y=((8,), np.float32)),
    }
    export(traces, tmp_path)
    session = Session(tmp_path)
    session.call("encoder", x=x[:4], rows=3, position=0)
    np.testing.assert_array_equal(session.call("decode", y=x[4])["output"], x[4] + x[0])
