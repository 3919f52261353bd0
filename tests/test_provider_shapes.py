"""Models with open dimensions, called with many shapes in turn: each call gives what stock
onnxruntime gives, and few of the shapes are planned anew.
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper
from provider_models import groups, iron, model, node, spec
from torch.nn import functional as TF

from onnx_iron.dtypes import Array
from onnx_iron.provider import foresight, subgraph
from onnx_iron.provider.symbols import EQUAL, Numbers


class Transformer(torch.nn.Module):
    """Two layers, attention written out, positions cut to the length."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = torch.nn.Parameter(torch.randn(64, 32))
        self.into = torch.nn.ModuleList(torch.nn.Linear(32, 96) for _ in range(2))
        self.out = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(2))
        self.norm = torch.nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        x = x + self.positions[:t]
        for into, out in zip(self.into, self.out, strict=True):
            q, k, v = into(self.norm(x)).reshape(b, t, 3, 4, 8).permute(2, 0, 3, 1, 4)
            a = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
            x = x + out((a @ v).transpose(1, 2).reshape(b, t, 32))
        return x


class Grouped(torch.nn.Module):
    """GroupNorm as it is exported: reshapes by what Shape gives, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.GroupNorm(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        y = self.norm(x.reshape(b, t * 4, 8).transpose(1, 2))
        return TF.silu(y).flatten(1)


class Pieces(torch.nn.Module):
    """Halves, last rows, sums with a row of itself, and a concatenation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        last = x[:, -1:]
        half = x[:, : (t + 1) // 2]
        flat = torch.cat([half * 2, last + x], 1).reshape(b, -1)
        return torch.sigmoid(flat) + x.sum(-1).mean(-1, keepdim=True)


def exported(module: torch.nn.Module) -> bytes:
    """The module as ONNX, batch and length open."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            (torch.randn(2, 7, 32),),
            buffer,
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "b", 1: "t"}},
        )
    return buffer.getvalue()


def shapes(seed: int, count: int) -> list[tuple[int, int]]:
    """Batches and lengths, ones and repeats among them."""
    rng = np.random.default_rng(seed)
    drawn = [(int(rng.integers(1, 6)), int(rng.integers(1, 60))) for _ in range(count)]
    return [(1, 1), (1, 2), (2, 1), *drawn, (1, 1), drawn[0], (5, 64)]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes that subgraphs were planned for, as the test goes on."""
    seen: list[Any] = []
    inner: Callable[..., Any] = subgraph.lower_subgraph

    def counted(graph: Any, given: Any, general: bool = False) -> Any:
        seen.append(given)
        return inner(graph, given, general)

    for module in (subgraph, foresight):  # at a call, and before there is one
        monkeypatch.setattr(module, "lower_subgraph", counted)
    return seen


@pytest.mark.parametrize("module", [Transformer, Grouped, Pieces])
@pytest.mark.parametrize("level", ["all", "none"])
def test_every_shape_gives_what_stock_onnxruntime_gives(
    module: type[torch.nn.Module],
    level: str,
    planned: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch.manual_seed(0)
    model = exported(module())
    caplog.set_level(logging.DEBUG, "onnx_iron")
    options = ort.SessionOptions()
    if level == "none":
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    stock = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    ours = iron(model)
    calls = shapes(3, 40)
    for b, t in calls:
        x = np.random.default_rng(b * 100 + t).standard_normal((b, t, 32)).astype(np.float32)
        wanted: Array = stock.run(None, {"x": x})[0]
        given: Array = ours.run(None, {"x": x})[0]
        assert given.shape == wanted.shape, (b, t)
        np.testing.assert_allclose(given, wanted, rtol=2e-5, atol=2e-5, err_msg=str((b, t)))
    assert planned, "nothing was compiled for the shapes of a call"
    assert len(planned) <= 8, f"{len(planned)} plans for {len(calls)} calls"
    assert not [r for r in caplog.records if "planned for its shapes alone" in r.getMessage()]


def test_a_split_into_parts_of_an_open_length_is_planned_once(planned: list[Any]) -> None:
    """The last part is the shorter one, so a part is the quotient rounded up."""
    serialized = model(
        [node("Split", "x", "a b c", num_outputs=3, axis=0)],
        [spec("x", ("t", 3))],
        [spec(name, ("n", 3)) for name in "abc"],
    )
    stock = ort.InferenceSession(serialized, providers=["CPUExecutionProvider"])
    ours = iron(serialized)
    for t in (9, 8, 7, 13, 14, 5, 3):
        x = np.arange(3 * t, dtype=np.float32).reshape(t, 3)
        for given, wanted in zip(ours.run(None, {"x": x}), stock.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(given, wanted, err_msg=str(t))
    assert len(planned) == 1


def test_a_plan_for_many_rows_is_one_for_a_single_row_and_for_none_before(
    planned: list[Any],
) -> None:
    """Queries over a cache that grows: batch, rows and earlier rows of 1, and none earlier."""
    serialized = model(
        [
            node("Concat", "past new", "keys", axis=2),
            node("Transpose", "keys", "turned", perm=[0, 1, 3, 2]),
            node("MatMul", "q turned", "scores"),
            node("Add", "scores bias", "biased"),
            node("Transpose", "biased", "y", perm=[0, 2, 1, 3]),
        ],
        [
            spec("past", ("b", 2, "p", 8)),
            spec("new", ("b", 2, "t", 8)),
            spec("q", ("b", 2, "t", 8)),
            spec("bias", ("b", 1, "t", "s")),
        ],
        [spec("y", ("b", "t", 2, "s"))],
    )
    stock = ort.InferenceSession(serialized, providers=["CPUExecutionProvider"])
    ours = iron(serialized)
    for b, p, t in ((3, 4, 5), (1, 4, 5), (1, 1, 1), (2, 0, 3), (1, 0, 1), (4, 9, 1), (2, 1, 2)):
        given = {
            name: np.random.default_rng(b).standard_normal(shape, np.float32)
            for name, shape in (
                ("past", (b, 2, p, 8)),
                ("new", (b, 2, t, 8)),
                ("q", (b, 2, t, 8)),
                ("bias", (b, 1, t, p + t)),
            )
        }
        (result,), (wanted,) = ours.run(None, given), stock.run(None, given)
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5, err_msg=str((b, p, t)))
    # At the opening: all rows turn out to be earlier and new ones at the first attempt.
    assert len(planned) == 2


def test_a_session_is_planned_before_its_first_call(planned: list[Any]) -> None:
    torch.manual_seed(0)
    session = iron(exported(Transformer()))
    opened = len(planned)
    assert opened == 1
    for b, t in shapes(5, 10):
        session.run(None, {"x": np.ones((b, t, 32), np.float32)})
    # Of the positions all 64 are taken only where there are so many rows.
    assert len(planned) <= opened + 1


def test_a_session_whose_sizes_cannot_be_invented_is_planned_at_a_call(planned: list[Any]) -> None:
    """Any invented length of the first input has to be a sum of products of the others'."""
    serialized = model(
        [
            node("Concat", "a b", "ab", axis=0),
            node("Concat", "ab ab", "all", axis=0),
            node("Add", "x all", "y"),
        ],
        [spec("a", ("n", 3)), spec("b", ("m", 3)), spec("x", (None, None))],
        [spec("y", (None, None))],
    )
    session = iron(serialized)
    a, b, x = (np.full((rows, 3), rows, np.float32) for rows in (2, 3, 10))
    (given,) = session.run(None, {"a": a, "b": b, "x": x})
    np.testing.assert_array_equal(given, x + np.concatenate([a, b, a, b]))
    (given,) = session.run(None, {"a": a, "b": b, "x": x[:1]})
    np.testing.assert_array_equal(given, x[:1] + np.concatenate([a, b, a, b]))


@pytest.mark.parametrize("dims", [("p", "q"), (3, 4)])
def test_a_tensor_of_another_rank_than_the_model_says_has_a_program_of_its_own(
    dims: tuple[int | str, ...],
) -> None:
    graph = helper.make_graph(
        [node("Reshape", "x s", "r"), node("Neg", "r", "y")],
        "ranks",
        [spec("x", ("n",)), spec("s", ("k",), np.int64)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        value_info=[spec("r", dims)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = iron(made.SerializeToString())
    x = np.arange(12, dtype=np.float32)
    for shape in ((3, 4), (4, 3), (12,), (2, 2, 3), (3, 4, 1), (3, 4), (12,)):
        given = session.run(None, {"x": x, "s": np.array(shape)})[0]
        np.testing.assert_array_equal(given, -x.reshape(shape))


def test_the_same_dimensions_in_other_ranks_have_a_program_of_their_own() -> None:
    nodes = [
        *(node("Reshape", f"{x} {x}_shape", f"{x}_turned") for x in "ab"),
        *(node("Neg", f"{x}_turned", f"{x}_less") for x in "ab"),
        *(node("Reshape", f"{x}_less flat", f"{x}_flat") for x in "ab"),
        node("Concat", "a_flat b_flat", "y", axis=0),
    ]
    flat = helper.make_tensor("flat", TensorProto.INT64, [1], [-1])
    inputs = [spec(x, (f"of_{x}",)) for x in "ab"]
    inputs += [spec(f"{x}_shape", (f"rank_{x}",), np.int64) for x in "ab"]
    made = onnx.load_from_string(model(nodes, inputs, [spec("y", ("all",))], [flat]))
    made.graph.value_info.extend(spec(f"{x}_turned", ("p", "q")) for x in "ab")
    session = iron(made.SerializeToString())
    assert groups(session) == [["a_flat", "a_less", "b_flat", "b_less", "y"]]
    for shapes in (((2, 2), (2,)), ((2,), (2, 2)), ((2, 2, 2), ()), ((2, 2), (2,))):
        a, b = (np.arange(1, 1 + math.prod(shape), dtype=np.float32) for shape in shapes)
        given = {"a": a, "b": b}
        given |= {
            f"{x}_shape": np.array(shape, np.int64) for x, shape in zip("ab", shapes, strict=True)
        }
        np.testing.assert_array_equal(session.run(None, given)[0], -np.concatenate([a, b]))


@pytest.mark.parametrize("use", [int, hash, range, lambda n: "abcdefghi"[n]])
def test_a_plan_that_took_a_dimension_for_its_number_is_for_that_number_alone(use: Any) -> None:
    numbers = Numbers()
    five = numbers.dim(5, 0, 1)
    use(five)
    assert numbers.answers == {(EQUAL, numbers.row(five), numbers.row(5)): True}
