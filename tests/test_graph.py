"""Tracing: the recorded steps, the names of weights and states, the bounds, the reference run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from networks import Network, numbered, random, recorded, traced

from onnx_iron import Epilogue, Handle, Precision, Value, Weight, state
from onnx_iron import functional as F
from onnx_iron.dtypes import BFLOAT16, FLOAT32, INT32
from onnx_iron.graph import Graph, Role
from onnx_iron.operators import OPERATORS

Copy, GEMV, GEMM = (OPERATORS[name] for name in ("Copy", "GEMV", "GEMM"))


# -- the steps of each function -------------------------------------------------------------------

ROWS = [((8,), "GEMV"), ((1, 8), "GEMV"), ((2, 8), None), ((64, 8), None)]


@pytest.mark.parametrize(("shape", "one_row"), ROWS)
@pytest.mark.parametrize("precision", list(Precision))
def test_linear_takes_gemv_for_a_row_and_a_gemm_at_a_precision_for_several(
    shape: tuple[int, ...], one_row: str | None, precision: Precision
) -> None:
    weight = random(5, 8)
    trace = traced(lambda self, x: F.linear(x, self.w, precision=precision), shape, w=weight)
    (step,) = trace.steps
    assert step.outputs[0].shape == (*shape[:-1], 5)
    if one_row:
        assert step.op == GEMV()
        assert [h.name for h in step.tensors()] == ["w", "x"]
    elif precision == Precision.HIGHEST:
        assert step.op == GEMM(b_col_maj=True, precision=Precision.HIGHEST)
        assert [h.name for h in step.tensors()] == ["x", "w"]
    else:
        assert step.op == OPERATORS["ProjectionGEMM"](
            b_col_maj=True, epilogue_modes=(Epilogue.NONE,), precision=precision
        )
        assert [h.name for h in step.tensors()] == ["x", "w"]


@pytest.mark.parametrize("shape", [(8,), (1, 8), (3, 8)])
def test_linear_adds_its_bias_to_every_row_of_a_reshape(shape: tuple[int, ...]) -> None:
    def body(self: Any, x: Handle) -> Handle:
        return F.linear(x, self.w, self.b, precision=Precision.HIGHEST)

    trace = traced(body, shape, w=random(5, 8), b=random(5))
    product, add = trace.steps
    assert product.op.name == ("GEMM" if shape == (3, 8) else "GEMV")
    assert add.op.name == "Add"
    rows, bias = add.tensors()
    assert rows.base is product.outputs[0]
    assert rows.shape == (shape[0] if shape == (3, 8) else 1, 5)
    assert bias.name == "b"
    assert trace.outputs["output"].shape == (*shape[:-1], 5)
    assert trace.outputs["output"].base is add.outputs[0]


def test_linear_takes_gemv_s_tunables_for_one_row_only() -> None:
    def body(self: Any, x: Handle) -> Handle:
        return F.linear(
            x, self.w, precision=Precision.DEFAULT, num_aie_columns=4, tile_size_input=2
        )

    (step,) = traced(body, (1, 8), w=random(5, 8)).steps
    assert step.tunables == {"num_aie_columns": 4, "tile_size_input": 2}
    assert "num_aie_columns" not in step.op.attributes()
    message = r"linear\(\): 2 rows take no GEMV \['num_aie_columns', 'tile_size_input'\]"
    with pytest.raises(ValueError, match=message):
        traced(body, (2, 8), w=random(5, 8))


def test_rms_norm_s_eps_is_the_dtype_s_machine_epsilon_by_default() -> None:
    def body(self: Any, x: Handle) -> Any:
        return F.rms_norm(x, (8,)), F.rms_norm(x, 8, self.w, 1e-6)

    for dtype in (FLOAT32, BFLOAT16):
        trace = Network(body, w=random(8, dtype=dtype)).trace(x=((4, 8), dtype))
        plain, weighted = trace.steps
        assert recorded(trace) == ["RMSNorm", "RMSNorm"]
        assert plain.op.attributes() == {"epsilon": float(ml_dtypes.finfo(dtype).eps)}
        assert plain.inputs[1] is None
        assert weighted.op.attributes() == {"epsilon": 1e-6}
        assert [h.name for h in weighted.tensors()] == ["x", "w"]


def test_layer_norm_s_bias_is_an_add() -> None:
    def body(self: Any, x: Handle) -> Any:
        return F.layer_norm(x, (8,)), F.layer_norm(x, (8,), self.w, self.b)

    trace = traced(body, w=random(8), b=random(8))
    assert recorded(trace) == ["LayerNorm", "LayerNorm", "Add"]
    assert trace.steps[0].op.attributes() == {"epsilon": 1e-5}
    assert [h.name for h in trace.steps[2].tensors()] == ["w", "b"]


def test_each_other_function_is_one_step() -> None:
    def body(self: Any, x: Handle) -> Any:
        heads = x.reshape(4, 2, 4)
        return (
            F.silu(x),
            F.gelu(x),
            F.gelu(x, "tanh"),
            F.softmax(x),
            F.rope(x, self.angles),
            F.rope(x, self.angles, interleaved=True),
            F.scaled_dot_product_attention(heads, self.k, self.v, is_causal=True, position=3),
            F.embedding(self.ids, self.w),
        )

    ids = np.arange(3, dtype=np.int32)
    parts = {"angles": random(4, 8), "w": random(5, 8), "ids": ids}
    trace = traced(body, k=state((6, 2, 4), FLOAT32), v=state((6, 2, 4), FLOAT32), **parts)
    assert recorded(trace) == [
        *("SiLU", "GELU", "GELU", "Softmax", "RoPE", "RoPE", "Attention", "Embedding")
    ]
    attributes = [step.op.attributes() for step in trace.steps]
    assert attributes == [
        {},
        {"approximate": "none"},
        {"approximate": "tanh"},
        {},
        {"interleaved": 0},
        {"interleaved": 1},
        {"is_causal": 1},
        {},
    ]
    assert trace.steps[6].inputs[3:5] == (3, None)


def conv(K: int = 3, chunk: int = 4, dtype: Any = FLOAT32) -> F.ConvState:  # noqa: N803
    return F.conv_state(K, 8, chunk, dtype)


def test_causal_conv1d_is_one_step_and_the_write_of_its_state() -> None:
    def chunk(self: Any, x: Handle, *, n: Value) -> Any:
        return F.causal_conv1d(x[:n], self.taps, self.conv, bias=self.b, activation="silu")

    parts = {"taps": random(3, 8), "b": random(8), "conv": conv()}
    trace = traced(chunk, **parts)
    assert recorded(trace) == ["CausalConv1d", "Copy"]
    filtered, write = trace.steps
    assert filtered.op.attributes() == {"activation": "silu", "dilation": 1}
    assert [h.name for h in filtered.tensors()] == ["x[:n]", "taps", "conv", "b"]
    assert filtered.inputs[4] == Value.named("n")
    assert next(write.tensors()) is filtered.outputs[1]
    assert write.outputs[0].role is Role.STATE
    assert write.outputs[0].name == "conv"
    assert trace.outputs["output"].valid == {0: Value.named("n")}

    trace = traced(lambda self, x: F.causal_conv1d(x, self.taps, self.conv), (1, 8), **parts)
    assert recorded(trace) == ["CausalConv1d", "Copy"]
    assert trace.steps[0].inputs[3:5] == (None, None)
    assert trace.outputs["output"].valid == {}


def test_causal_conv1d_reads_one_state_and_writes_another() -> None:
    scratch = conv()
    read, write = state((2, 8), FLOAT32), state((2, 8), FLOAT32)
    carried = F.ConvState(read, write, scratch.window, scratch.tail)
    taps = random(3, 8)
    trace = traced(lambda self, x: F.causal_conv1d(x, taps, self.c), (1, 8), c=carried)
    assert next(trace.steps[1].tensors()) is trace.steps[0].outputs[1]
    assert [h.name for h in trace.steps[0].tensors()][2] == "c.read"
    assert trace.steps[1].outputs[0].name == "c.write"


def test_its_decomposition_is_copies_multiplies_and_adds() -> None:
    decompose = OPERATORS["CausalConv1d"].decompose
    parts = {"taps": random(3, 8), "conv": conv()}

    def chunk(self: Any, x: Handle, *, n: Value) -> Any:
        return decompose(x[:n], self.taps, self.conv) + 0

    products = ["Mul", "Mul", "Add", "Mul", "Add"]
    trace = traced(chunk, **parts)
    # The rows before and the call's own; each row of the tail, then the state.
    assert recorded(trace) == ["Copy", "Copy", *products, "Copy", "Copy", "Copy", "Add"]
    trace = traced(lambda self, x: decompose(x, self.taps, self.conv), (1, 8), **parts)
    assert recorded(trace) == ["Copy", "Copy", *products, "Copy"]


def test_arithmetic_is_a_step_with_its_operands_in_order() -> None:
    def body(self: Any, x: Handle) -> Any:
        return x + 1, 1 + x, x - self.w, self.w - x, x * x, 2.0 * x, x / self.w, np.float32(1) / x

    trace = traced(body, w=random(8))
    assert recorded(trace) == ["Add", "Add", "Sub", "Sub", "Mul", "Mul", "Div", "Div"]
    names = [[h.name.split(".")[0] for h in step.tensors()] for step in trace.steps]
    assert names == [
        ["x", "constant"],
        ["constant", "x"],
        ["x", "w"],
        ["w", "x"],
        ["x", "x"],
        ["constant", "x"],
        ["x", "w"],
        ["constant", "x"],
    ]


def test_a_row_product_is_a_gemv_from_the_left_and_a_gemm_from_the_right() -> None:
    def body(self: Any, x: Handle) -> Any:
        return self.w @ x, x @ self.w.T.copy(), x.reshape(1, 8) @ self.w.T.copy()

    trace = traced(body, (8,), w=random(5, 8))
    assert recorded(trace) == ["GEMV", "GEMM", "GEMM"]
    assert trace.steps[1].op == GEMM(b_col_maj=False, precision=Precision.HIGHEST)
    assert [h.shape for h in trace.outputs.values()] == [(5,), (5,), (1, 5)]


def test_steps_are_named_after_their_weights_and_functions() -> None:
    def body(self: Any, x: Handle) -> Any:
        y = F.silu(F.silu(F.rms_norm(x, 8)))
        return F.causal_conv1d(y, self.taps, self.conv)

    trace = traced(body, (1, 8), taps=random(3, 8), conv=conv())
    assert [s.name for s in trace.steps] == ["rms_norm", "silu", "silu_1", "taps", "copy"]
    assert [h.name for h in trace.steps[3].outputs] == ["taps", "taps.new_state"]


# -- names of weights and states ------------------------------------------------------------------


class Block:
    """Called like a function, as layers often are."""

    def __init__(self, w: Any) -> None:
        self.w = w
        self.kept = state((4, 8), FLOAT32)

    def __call__(self, x: Handle) -> Handle:
        y = x * self.w
        self.kept[...] = y
        return y


@dataclass
class Pair:
    left: Any
    right: Any


def test_weights_and_states_are_named_by_attribute_path() -> None:
    def body(self: Any, x: Handle) -> Handle:
        for block in self.blocks:
            x = block(x)
        return x * self.table["first"] * self.pair.left * self.nested.inner[0].w + self.pair.right

    blocks = [Block(random(8, seed=i)) for i in range(2)]
    outer = Network(body, inner=(Block(random(8, seed=6)),))
    trace = traced(
        body,
        blocks=blocks,
        table={"first": random(8, seed=3)},
        pair=Pair(Weight.of(random(8, seed=4)), random(8, seed=5)),
        nested=outer,
    )
    assert list(trace.weights) == [
        *("blocks.0.w", "blocks.1.w", "table.first", "pair.left", "nested.inner.0.w", "pair.right")
    ]
    assert list(trace.states) == ["blocks.0.kept", "blocks.1.kept"]


def test_a_shared_object_has_the_name_of_its_first_path() -> None:
    shared = random(8)
    trace = traced(lambda self, x: x * self.a * self.b.left, a=shared, b=Pair(shared, None))
    assert list(trace.weights) == ["a"]
    block = Block(random(8))
    trace = traced(lambda self, x: self.two(self.one(x)), one=block, two=block)
    assert list(trace.weights) == ["one.w"]
    assert list(trace.states) == ["one.kept"]


def test_objects_that_hold_each_other_are_walked_once() -> None:
    one, two = Pair(random(8), None), Pair(None, None)
    one.right, two.left = two, one
    trace = traced(lambda self, x: x * self.two.left.left, one=one, two=two)
    assert list(trace.weights) == ["one.left"]


def test_two_parts_at_one_path_are_refused() -> None:
    parts = {"a": {"b.c": random(8), "b": {"c": random(8)}}}
    with pytest.raises(ValueError, match=r"two weights or states at the path 'a.b.c'; rename one"):
        traced(lambda self, x: x + 0, **parts)


def test_a_conv_state_s_parts_have_its_own_path() -> None:
    decompose = OPERATORS["CausalConv1d"].decompose

    def body(self: Any, x: Handle, *, n: Value) -> Any:
        return decompose(x[:n], self.layers[0].left, self.layers[0].right) + 0

    trace = traced(body, layers=[Pair(random(3, 8), conv())])
    names = ["layers.0.right.window", "layers.0.right", "layers.0.right.tail"]
    assert list(trace.states) == names
    assert [trace.states[n].scratch for n in names] == [True, False, True]


def test_a_part_of_a_weight_array_is_named_by_its_place() -> None:
    trace = traced(lambda self, x: x * self.w[1] + self.w[2], w=random(4, 8))
    assert list(trace.weights) == ["w[8:8]", "w[16:8]"]
    np.testing.assert_array_equal(trace.weights["w[16:8]"].load(), random(4, 8)[2])


def test_an_array_of_no_attribute_is_named_by_its_contents() -> None:
    constants = [random(8), random(8), random(8, seed=1)]
    trace = traced(lambda self, x: x * constants[0] + constants[1] - constants[2] + 2 + 2.0)
    names = list(trace.weights)
    assert len(names) == 3  # two arrays, one number
    assert all(name.startswith("constant.") for name in names)
    again = traced(lambda self, x: x / random(8) + 2, (2, 8))
    assert list(again.weights) == [names[0], names[2]]


def test_names_of_all_kinds_may_coincide() -> None:
    """A weight called as a step, an input or a per-call value is another thing."""

    def body(self: Any, x: Handle, *, n: Value) -> Any:
        y = F.silu(x * self.x + self.n)
        return F.silu(y) * self.silu + self.mul

    parts = {"x": random(8, seed=1), "n": random(8, seed=2), "silu": random(8, seed=3)}
    mul, x = random(8, seed=4), random(4, 8)

    def silu(v: Any) -> Any:
        return (v / (1 + np.exp(-v.astype(np.float64)))).astype(np.float32)

    expected = silu(silu(x * parts["x"] + parts["n"])) * parts["silu"] + mul
    result = Network(body, **parts, mul=mul).reference(x, n=1)
    np.testing.assert_array_equal(result, expected)


def test_all_versions_share_weights_and_states() -> None:
    graph = Network(
        lambda self, x: F.causal_conv1d(x, self.taps, self.conv) + 3 if x.shape[0] == 1 else x + 3,
        taps=Weight.of(random(3, 8)),
        conv=conv(),
    )
    chunk, decode = (graph.trace(x=((rows, 8), FLOAT32)) for rows in (4, 1))
    assert decode.weights["taps"] is graph.taps
    assert decode.states["conv"] is graph.conv.read
    constant = next(iter(chunk.weights))
    assert list(decode.weights) == ["taps", constant]


def test_a_weight_is_loaded_when_the_graph_runs_and_not_when_it_is_traced() -> None:
    loads = []
    weight = Weight((8,), FLOAT32, lambda: loads.append(1) or random(8))
    graph = Network(lambda self, x: x * self.w, w=weight)
    graph.trace(x=((4, 8), FLOAT32))
    assert not loads
    np.testing.assert_array_equal(graph.reference(numbered(4, 8)), numbered(4, 8) * random(8))
    assert loads == [1]


def test_a_weight_that_loads_as_something_else_is_an_error() -> None:
    for wrong in (random(9), random(8, dtype=BFLOAT16)):
        graph = Network(lambda self, x: x * self.w, w=Weight((8,), FLOAT32, lambda w=wrong: w))
        with pytest.raises(ValueError, match=r"a weight declared \(8,\) float32 loaded as"):
            graph.reference(numbered(4, 8))


# -- bounds ---------------------------------------------------------------------------------------

N = Value.named("n")


def bounds_of(body: Callable[..., Any], shape: tuple[int, ...] = (4, 8), **parts: Any) -> Any:
    trace = traced(body, shape, **parts)
    return trace.outputs["output"].valid


@pytest.mark.parametrize(
    ("body", "bounds"),
    [
        (lambda self, x, *, n: x[:n] + 1, {0: N}),
        (lambda self, x, *, n: 1 - x[:n], {0: N}),
        (lambda self, x, *, n: x[:n] * x, {0: N}),
        (lambda self, x, *, n: x[:n] + x[:n], {0: N}),
        (lambda self, x, *, n: x[:, :n] * self.row, {1: N}),
        (lambda self, x, *, n: x * self.wide[:n], {1: N}),
        (lambda self, x, *, n: F.silu(x[:n]), {0: N}),
        (lambda self, x, *, n: F.rms_norm(x[:n], 8), {0: N}),
        (lambda self, x, *, n: F.softmax(x[:n]), {0: N}),
        (lambda self, x, *, n: F.linear(x[:n], self.w, precision=Precision.HIGH), {0: N}),
        (lambda self, x, *, n: F.linear(x[:n], self.w, precision=Precision.HIGHEST), {0: N}),
        (lambda self, x, *, n: F.linear(x[:n], self.w, self.b, precision="default"), {0: N}),
        (lambda self, x, *, n: F.embedding(self.many[:n], self.w), {0: N}),
        (lambda self, x, *, n: F.rope(x[:n], self.angles), {0: N}),
        (lambda self, x, *, n: F.causal_conv1d(x[:n], self.taps, self.conv), {0: N}),
        (lambda self, x, *, n: x[:n].copy(), {0: N}),
        (lambda self, x, *, n: x[:n].transpose().copy(), {1: N}),
        (lambda self, x, *, n: x[1:3][:n] + 0, {0: N}),
        (lambda self, x, *, n: x[:n, 2:6].copy(), {0: N}),
        (lambda self, x, *, n: x[:n][:, 2:6].copy(), {0: N}),
        (lambda self, x, *, n: x[:n][n - 1].copy(), {}),
        (lambda self, x, *, n: x[:n][0] + 0, {}),
        (lambda self, x, *, n: x[:n][..., :n][:n] + 0, {0: N, 1: N}),
        (lambda self, x, *, n: (x[:n] + 0).reshape(32), {0: 8 * N}),
        (lambda self, x, *, n: (x[:n] + 0).reshape(4, 2, 4), {0: N}),
        (lambda self, x, *, n: (x[:n] + 0).reshape(8, 4), {0: 2 * N}),
        (lambda self, x, *, n: (x[: 2 * n] + 0).reshape(2, 16), {0: N}),
        (lambda self, x, *, n: (x[:n] + 0).reshape(16, 2).reshape(4, -1), {0: N}),
        (lambda self, x, *, n: (x[:, :n] + 0).reshape(4, 8), {1: N}),
        (lambda self, x, *, n: attention(self, x, keys=n), {}),
        (lambda self, x, *, n: attention(self, x, rows=n), {0: N}),
    ],
)
def test_a_bound_passes_through(body: Callable[..., Any], bounds: dict[int, Value]) -> None:
    parts = {"w": random(8, 8), "b": random(8), "row": random(8), "taps": random(3, 8)}
    parts |= {"many": Weight.of(np.arange(4, dtype=np.int32)), "wide": Weight.of(random(8))}
    parts |= {"angles": random(4, 8)}
    kept = {"conv": conv(), "k": state((6, 2, 4), FLOAT32), "v": state((6, 2, 4), FLOAT32)}
    assert bounds_of(body, **parts, **kept) == bounds


def attention(self: Any, x: Handle, rows: Value | None = None, keys: Value | None = None) -> Handle:
    query = x.reshape(4, 2, 4)
    query = query if rows is None else query[:rows]
    k = self.k if keys is None else self.k[:keys]
    return F.scaled_dot_product_attention(query, k, self.v)


def test_bounded_keys_are_the_attention_s_number_of_keys() -> None:
    def body(self: Any, x: Handle, *, n: Value) -> Handle:
        return attention(self, x, keys=n)

    trace = traced(body, k=state((6, 2, 4), FLOAT32), v=state((6, 2, 4), FLOAT32))
    assert trace.steps[0].inputs[3:5] == (None, N)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x, n, m: x[:n] + x[:m], "Add: x.*is bounded by m along axis 0, another .* by n"),
        (lambda x, n, m: F.softmax(x[:, :n]), "Softmax: .* by n along its last axis, which is"),
        (lambda x, n, m: F.rms_norm(x[:, :n], 8), "RMSNorm: .*summed over, padding and all"),
        (lambda x, n, m: x[0:1][:n] + x, "bounded by n along axis 0, whose one entry can't stand"),
        (
            lambda x, n, m: F.linear(x[:, :n], numbered(3, 8), precision="high"),
            "ProjectionGEMM: .* by n along axis 1; only the rows of the left operand may be",
        ),
        (lambda x, n, m: (x[:n] + 0).reshape(2, 16), r"reshape\(2, 16\): axis 0 is bounded by n"),
        (lambda x, n, m: (x[:, :n] + 0).reshape(32), "does not fit the new shape; reshape before"),
    ],
)
def test_a_bound_that_means_nothing_is_refused(body: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        traced(lambda self, x, *, n, m: body(x, n, m))


def test_a_write_s_bounds_agree_and_are_one() -> None:
    def differ(self: Any, x: Handle, *, n: Value, m: Value) -> Any:
        self.kept[:n] = x[:m]

    def two(self: Any, x: Handle, *, n: Value, m: Value) -> Any:
        self.kept[:n] = x[:, :m]

    kept = state((4, 8), FLOAT32)
    message = r"kept\[:n\] is bounded by n along axis 0, the source x\[:n\] by m"
    with pytest.raises(ValueError, match=message):
        traced(differ, kept=kept)
    with pytest.raises(ValueError, match=r"bounded along one axis at the most, not along \[0, 1\]"):
        traced(two, kept=kept)


# -- states between calls -------------------------------------------------------------------------


def test_the_reference_keeps_states_and_starts_each_call_with_zero_scratch() -> None:
    def body(self: Any, x: Handle) -> Any:
        self.kept[...] = self.kept + x
        self.scratch[...] = self.scratch + x
        return self.kept.copy(), self.scratch.copy()

    parts = {"kept": state((2,), FLOAT32), "scratch": state((2,), FLOAT32, scratch=True)}
    graph, x = Network(body, **parts), numbered(2)
    assert graph.reference_states() == {}
    for call in (1, 2):
        kept, scratch = graph.reference(x)
        np.testing.assert_array_equal(kept, call * x)
        np.testing.assert_array_equal(scratch, x)
    held = graph.reference_states()["kept"]
    np.testing.assert_array_equal(held, 2 * x)
    graph.reset()
    assert not held.any()
    np.testing.assert_array_equal(graph.reference(x)[0], x)
    assert graph.reference_states()["kept"] is held


def test_the_reference_returns_what_the_body_returns() -> None:
    x = numbered(2)
    assert isinstance(Network(lambda self, x: x + 0).reference(x), np.ndarray)
    assert isinstance(Network(lambda self, x: (x + 0,)).reference(x), tuple)
    assert isinstance(Network(lambda self, x: [x + 0, x + 1]).reference(x), tuple)
    assert list(Network(lambda self, x: {"output": x + 0}).reference(x)) == ["output"]
    assert list(Network(lambda self, x: {"output_0": x + 0}).reference(x)) == ["output_0"]


def test_the_reference_sees_what_was_changed_between_calls() -> None:
    graph = Network(lambda self, x: x * self.w, w=numbered(2))
    x = numbered(2)
    np.testing.assert_array_equal(graph.reference(x), x * x)
    graph.w = -numbered(2)
    np.testing.assert_array_equal(graph.reference(x), -x * x)


def test_the_reference_s_results_are_the_caller_s_own() -> None:
    def body(self: Any, x: Handle) -> Handle:
        return x.reshape(4).copy().reshape(2, 2)

    x = numbered(2, 2)
    Network(body).reference(x)[...] = 0
    np.testing.assert_array_equal(x, numbered(2, 2))


# -- roles ----------------------------------------------------------------------------------------


def test_a_handle_knows_its_role_parent_and_bounds() -> None:
    seen: dict[str, Handle] = {}

    def body(self: Any, x: Handle, *, n: Value) -> Handle:
        seen["row"], seen["column"], seen["turned"] = x[1], x[:, 1], x.transpose()
        seen["at"], seen["bounded"], seen["flat"] = x[n], x[:n], x.reshape(-1)
        seen["kept"], seen["w"] = self.kept[...], self.w[0:2]
        return x + 0

    x = traced(body, kept=state((4, 8), FLOAT32), w=Weight.of(random(4, 8))).inputs["x"]
    roles = {name: handle.role for name, handle in seen.items()}
    assert roles == {
        "row": Role.SLICE,
        "column": Role.VIEW,
        "turned": Role.VIEW,
        "at": Role.VIEW,
        "bounded": Role.INPUT,
        "flat": Role.INPUT,
        "kept": Role.STATE,
        "w": Role.SLICE,
    }
    assert all(seen[name].base is x for name in ("row", "turned", "at", "bounded", "flat"))
    assert seen["bounded"].shape == (4, 8)
    assert seen["bounded"].valid.get(0) == N
    assert seen["bounded"].valid.get(1) is None
    assert repr(seen["row"]) == "<Handle x[...] slice (8,) float32>"


def test_a_shape_alone_is_bfloat16() -> None:
    trace = Network(lambda self, x, y, z: (x + 0, y + 0, F.embedding(z, x))).trace(
        x=(2, 3), y=([4], "float32"), z=((), INT32)
    )
    specs = {name: (h.shape, h.dtype) for name, h in trace.inputs.items()}
    assert specs == {"x": ((2, 3), BFLOAT16), "y": ((4,), FLOAT32), "z": ((), INT32)}


@pytest.mark.parametrize("name", ["_sizes", "_run", "_bounded", "_rows", "_position", "_states"])
def test_a_network_may_call_its_weights_what_it_likes(name: str) -> None:
    class Net(Graph):
        def __init__(self) -> None:
            setattr(self, name, np.float32([1, 2]))

        def body(self, x: Any) -> Any:
            return x * getattr(self, name)

    x = np.float32([[3, 4]])
    np.testing.assert_array_equal(Net()(x), [[3, 8]])
    np.testing.assert_array_equal(Net().reference(x), [[3, 8]])


@pytest.mark.parametrize("name", ["states", "trace", "reset", "reference"])
def test_a_weight_may_not_take_a_methods_place(name: str) -> None:
    with pytest.raises(AttributeError, match=f"Graph.{name} is a method of every Graph; give"):
        setattr(Graph(), name, np.ones(2, np.float32))
