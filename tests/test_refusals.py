"""What a body, and the calls of a graph, are refused, each by its message."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
import pytest
from networks import Network, numbered, random, traced

from onnx_iron import Graph, Handle, Value, Weight, state
from onnx_iron import functional as F
from onnx_iron.dtypes import BFLOAT16, FLOAT32
from onnx_iron.graph.reference import run_reference
from onnx_iron.operators import OPERATORS

Copy, GEMV, GEMM = (OPERATORS[name] for name in ("Copy", "GEMV", "GEMM"))


REFUSED: list[tuple[Callable[[Any, Handle, Value], Any], type[Exception], str]] = [
    # returns
    (lambda g, x, n: None, TypeError, "returns None as output"),
    (lambda g, x, n: (x + 0, 3), TypeError, "returns 3 as output_1"),
    (lambda g, x, n: (), TypeError, "returns nothing; return the handles it computed"),
    (lambda g, x, n: {"x": x + 0}, ValueError, "an output named 'x'; it must be a name that no"),
    (lambda g, x, n: {"n": x + 0}, ValueError, "an output named 'n'"),
    (lambda g, x, n: {3: x + 0}, ValueError, "an output named 3"),
    # writes
    (lambda g, x, n: x.__setitem__(..., x), TypeError, "x can't be written: only a state can, and"),
    (lambda g, x, n: x.__setitem__(0, x[1]), TypeError, "base is the input x"),
    (lambda g, x, n: (x + 0).__setitem__(..., x), TypeError, "the intermediate add"),
    (lambda g, x, n: g.w.__setitem__(..., x), TypeError, "w can't be written: .* the weight w"),
    (lambda g, x, n: Copy.step(x, x + 0), TypeError, "add can't be written"),
    (lambda g, x, n: Copy.step(x, np.zeros(3)), TypeError, "Copy.step.* it must be a state or a"),
    (lambda g, x, n: Copy.step(x, g.kept, x), TypeError, "Copy takes 1 operands, not 3"),
    (lambda g, x, n: g.kept.__setitem__(0, x), ValueError, r"kept.* is \(8,\).* x is \(4, 8\)"),
    (lambda g, x, n: g.small.__setitem__(..., x), TypeError, "small is bfloat16; a float32 source"),
    (lambda g, x, n: g.kept.__setitem__(..., "x"), TypeError, "'x' is no operand; use a handle"),
    # states
    (
        lambda g, x, n: state((4, 8), FLOAT32) + x,
        ValueError,
        r"<State \(4, 8\) float32> is not held by the graph: make it in __init__ and keep it in an",
    ),
    (lambda g, x, n: g._hidden + x, ValueError, "without a leading underscore, whose path is its"),
    # dtypes
    (lambda g, x, n: x + g.small, TypeError, "Add.b is bfloat16, the other operands are float32"),
    (lambda g, x, n: g.small + x, TypeError, "Add.b is float32, the other operands are bfloat16"),
    (lambda g, x, n: x + np.ones(8), TypeError, "dtype float64 is none of float32, .*astype"),
    (
        lambda g, x, n: x + np.ones(8, np.int32),
        TypeError,
        "Add.b is int32, the other operands",
    ),
    (lambda g, x, n: F.embedding(x, g.w), TypeError, "Embedding.ids is float32; it must be int32"),
    (lambda g, x, n: F.embedding(1.5, g.w), TypeError, "1.5 is no operand"),
    (lambda g, x, n: F.silu(2.0), TypeError, "2.0 is no operand"),
    (lambda g, x, n: x + None, TypeError, "unsupported operand"),
    (lambda g, x, n: x + "1", TypeError, "unsupported operand"),
    (lambda g, x, n: x + True, TypeError, "unsupported operand"),
    (lambda g, x, n: x + np.True_, TypeError, "operand"),
    (lambda g, x, n: x + n, TypeError, "Add: n is a per-call value, an integer, and the other"),
    (lambda g, x, n: x @ 2.0, TypeError, "unsupported operand"),
    (lambda g, x, n: x.reshape(n, 8), TypeError, r"n is a per-call value.*it has no int\(\)"),
    (lambda g, x, n: np.ones(8)[:n], TypeError, r"a state or a Weight \(Weight.of\(array\) makes"),
    # handles hold no elements
    (lambda g, x, n: x + 0 if x else x, TypeError, "x has no truth value: its elements are not"),
    (lambda g, x, n: list(x), TypeError, "x is not iterable; index it with integers"),
    (lambda g, x, n: float(x), TypeError, "x has no float.*: its elements are not known yet"),
    # rows
    (lambda g, x, n: x[0] @ x[1], ValueError, r"@ of \(8,\) and \(8,\)"),
    # keywords
    (
        lambda g, x, n: GEMV.step(g.w, x[0], tile=3),
        TypeError,
        "GEMV takes no 'tile'; it takes .*'num",
    ),
    (
        lambda g, x, n: F.linear(x[0], g.w, precision="high", tile=3),
        TypeError,
        "GEMV takes no 'tile'",
    ),
    (
        lambda g, x, n: GEMV.step(g.w, x[0], num_aie_columns=0),
        ValueError,
        "GEMV: num_aie_columns is 0; it must be a positive integer",
    ),
    (lambda g, x, n: GEMM.step(x, g.w, num_aie_columns=2), TypeError, "takes no 'num_aie_columns'"),
    (lambda g, x, n: GEMM.step(x, g.w, precision="best"), ValueError, "GEMM.precision is 'best'"),
    (lambda g, x, n: GEMM.step(x, g.w, b_col_maj="yes"), TypeError, "GEMM.b_col_maj is 'yes'"),
    (lambda g, x, n: GEMM.step(x, g.w, a=x), TypeError, "GEMM.a is given twice"),
    (lambda g, x, n: GEMM.step(x), ValueError, "GEMM.b is missing"),
    (
        lambda g, x, n: OPERATORS["Narrow"].step(x, 0.5, length=2),
        TypeError,
        "Narrow.start is 0.5; it must be a per-call value or an integer",
    ),
    (
        lambda g, x, n: OPERATORS["ProjectionGEMM"].step(
            x, g.w, b_col_maj=True, epilogue_modes=("gelu", "silu")
        ),
        ValueError,
        "ProjectionGEMM.epilogue_modes is .* it holds one mode",
    ),
]


@pytest.mark.parametrize(
    ("use", "error", "message"), [pytest.param(*r, id=f"{i} {r[2]}") for i, r in enumerate(REFUSED)]
)
def test_a_body_is_refused_what_it_cannot_do(
    use: Callable[[Any, Handle, Value], Any], error: type[Exception], message: str
) -> None:
    parts = {"w": Weight.of(random(4, 8)), "kept": state((4, 8), FLOAT32)}
    parts |= {"small": state((4, 8), BFLOAT16), "_hidden": state((4, 8), FLOAT32)}
    with pytest.raises(error, match=message):
        traced(lambda self, x, *, n: use(self, x, n), **parts)


def test_a_handle_of_another_trace_is_refused() -> None:
    kept: dict[str, Handle] = {}

    def keep(self: Any, x: Handle) -> Handle:
        kept.update(x=x, y=x + 1, kept=self.kept[...])
        return x + 0

    traced(keep, kept=state((4, 8), FLOAT32))
    uses: list[Callable[[Handle], Any]] = [
        lambda x: x + kept["x"],
        lambda x: kept["y"] * 2,
        lambda x: kept["y"].copy(),
        lambda x: kept["kept"].__setitem__(..., x),
        lambda x: kept["kept"].__setitem__(0, 0),
        lambda x: kept["y"],
        lambda x: {"z": kept["y"].reshape(32)},
    ]
    for use in uses:
        body = MethodType(lambda use, self, x: use(x), use)
        with pytest.raises(ValueError, match=r"(belongs to|of) another trace"):
            traced(body)
    with pytest.raises(
        RuntimeError, match=r"Add.step\(\) is computed with inside of a graph's body"
    ):
        kept["y"] + 1
    with pytest.raises(
        RuntimeError, match="a write is computed with inside of a graph's body only"
    ):
        kept["kept"][...] = 0


def test_states_and_weights_are_computed_with_inside_of_a_body_only() -> None:
    with pytest.raises(
        RuntimeError, match="a state is computed with inside of a graph's body only"
    ):
        state((2,)) + 1
    with pytest.raises(RuntimeError, match="a weight is computed with inside of"):
        Weight.of(random(2))[0]
    with pytest.raises(RuntimeError, match=r"SiLU.step\(\) is computed with inside of"):
        F.silu(random(2))


def test_a_body_that_fails_leaves_no_trace_behind() -> None:
    with pytest.raises(ZeroDivisionError):
        traced(lambda self, x: 1 // 0)
    with pytest.raises(RuntimeError):
        state((2,)) + 1


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({}, TypeError, r"trace\(\): the body takes the inputs \['x', 'y'\]; .* for \[\]"),
        ({"x": (2,)}, TypeError, r"shapes were given for \['x'\]"),
        ({"x": (2,), "y": (2,), "n": (2,)}, TypeError, r"given for \['n', 'x', 'y'\]"),
        ({"x": (0,), "y": (2,)}, ValueError, r"input x: shape \(0,\) must be positive integers"),
        ({"x": (2, -1), "y": (2,)}, ValueError, r"input x: shape \(2, -1\) must be positive"),
        ({"x": (2, 1.5), "y": (2,)}, ValueError, r"shape \(2, 1.5\) must be positive integers"),
        ({"x": 2, "y": (2,)}, TypeError, r"input x is 2; it must be a shape, or \(shape, dtype\)"),
        ({"x": ((2,), "float64"), "y": (2,)}, TypeError, "dtype float64 is none of float32, bf"),
        ({"x": ((2,), "colour"), "y": (2,)}, TypeError, "dtype colour is none of"),
    ],
)
def test_wrong_arguments_of_trace_are_refused(
    inputs: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Network(lambda self, x, y, *, n: x + y).trace(**inputs)


@pytest.mark.parametrize(
    ("inputs", "values", "error", "message"),
    [
        ((), {"n": 1}, TypeError, r"takes the inputs \['x'\] and the values \['n'\]; 0 inputs"),
        ((numbered(2),), {}, TypeError, r"1 inputs and \[\] were given"),
        ((numbered(2),), {"n": 1, "m": 2}, TypeError, r"\['m', 'n'\] were given"),
        ((numbered(2),), {"n": 1.0}, TypeError, r"reference\(\): n is 1.0; it must be an integer"),
        ((numbered(2),), {"n": True}, TypeError, "n is True; it must be an integer"),
        ((np.zeros(2),), {"n": 1}, TypeError, "dtype float64 is none of"),
        ((numbered(2),), {"n": 3}, ValueError, "n is 3, expected 0..2"),
    ],
)
def test_wrong_arguments_of_reference_are_refused(
    inputs: Any, values: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Network(lambda self, x, *, n: x[:n] + 0).reference(*inputs, **values)


def test_a_body_names_its_parameters_one_by_one() -> None:
    with pytest.raises(TypeError, match=r"Network.body names its parameters one by one; \*x can't"):
        Network(lambda self, *x: x[0]).trace(x=(2,))
    with pytest.raises(NotImplementedError, match="Graph has no body"):
        Graph().reference()


def test_a_state_s_shape_and_dtype_are_checked_as_it_is_made() -> None:
    with pytest.raises(ValueError, match=r"state\(\): shape \(2, -1\) has a negative dimension"):
        state((2, -1))
    with pytest.raises(TypeError, match="dtype float16 is none of"):
        state((2,), np.float16)
    with pytest.raises(
        ValueError, match=r"conv_state\(\): kernel_size is 0; it must be at least 1"
    ):
        F.conv_state(0, 8)
    with pytest.raises(ValueError, match=r"conv_state\(\): chunk is 0"):
        F.conv_state(3, 8, 0)


def test_an_input_of_a_call_is_checked_by_name() -> None:
    trace = traced(lambda self, x: x + 0)
    with pytest.raises(ValueError, match=r"input x is \(2,\) float32, traced as \(4, 8\) float32"):
        run_reference(trace, {"x": numbered(2)}, {}, {})
