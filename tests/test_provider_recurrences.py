"""ONNX's and com.microsoft's operators with a carried state, on our kernels."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from provider_models import BF16, DTYPES, iron, rand, spec, stock

import onnx_iron

MICROSOFT = "com.microsoft"
Array = Any


@dataclass(frozen=True)
class Recurrence:
    """A node: its inputs in order, None where omitted, and its attributes."""

    op: str
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""

    def __str__(self) -> str:
        shapes = " ".join("-" if x is None else "x".join(map(str, x.shape)) for x in self.inputs)
        return f"{self.domain or 'onnx'} {self.op} {shapes} {self.attributes}"

    def given(self, dtype: Any, state_dtype: Any) -> dict[str, Array]:
        return {
            f"x{i}": x.astype(state_dtype if i == 3 else dtype)
            for i, x in enumerate(self.inputs)
            if x is not None
        }

    def model(self, dtype: Any, state_dtype: Any) -> Any:
        given = self.given(dtype, state_dtype)
        names = [f"x{i}" if x is not None else "" for i, x in enumerate(self.inputs)]
        kinds = {"y": dtype, "after": state_dtype}
        node = helper.make_node(
            self.op, names, list(kinds), name="n", domain=self.domain, **self.attributes
        )
        outputs = [
            helper.make_tensor_value_info(name, DTYPES[np.dtype(kind)], rank)
            for (name, kind), rank in zip(kinds.items(), self.ranks(), strict=True)
        ]
        graph = helper.make_graph(
            [node], "graph", [spec(n, a.shape, a.dtype) for n, a in given.items()], outputs
        )
        opsets = [helper.make_opsetid("", 27), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=12)

    def ranks(self) -> tuple[list[str], list[str]]:
        x = self.inputs[0]
        assert x is not None
        # The convolution's state has its input's axes, linear attention's one more.
        return list("abcd")[: x.ndim], list("pqrs")[: x.ndim + (self.op == "LinearAttention")]


def conv(
    batch: int, channels: int, length: int, taps: int, *, given: str, **attributes: Any
) -> tuple[Array | None, ...]:
    """A filter's operands; ``given`` has b for a bias and s for a state."""
    rows = (taps - 1) * attributes.get("dilation", 1)
    shapes = (batch, channels, length), (batch, channels, rows)
    x, state = (rand(*s, seed=i) for i, s in enumerate(shapes))
    if attributes.get("channels_last"):
        x, state = x.transpose(0, 2, 1).copy(), state.transpose(0, 2, 1).copy()
    bias = rand(channels, seed=3) if "b" in given else None
    return x, rand(channels, 1, taps, seed=2), bias, state if "s" in given else None


def attention(
    rule: str, *, state: bool = True, decays: int = 1, rates: int = 2, groups: int = 2
) -> Recurrence:
    """Linear attention of two key heads, 6 wide, over values 5 wide."""
    batch, length, heads, width, values = 2, 4, 2, 6, 5
    keys = rand(batch, length, heads, width, seed=1)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    inputs = (
        rand(batch, length, groups * heads * width),
        keys.reshape(batch, length, -1),
        rand(batch, length, heads * values, seed=2),
        rand(batch, heads, width, values, seed=3) if state else None,
        -np.abs(rand(batch, length, heads * decays, seed=4)) if "gated" in rule else None,
        1 / (1 + np.exp(rand(batch, length, rates, seed=5))) if "delta" in rule else None,
    )
    attributes = {"q_num_heads": groups * heads, "kv_num_heads": heads, "update_rule": rule}
    return Recurrence("LinearAttention", inputs, attributes)


CONVS = [
    Recurrence("CausalConvWithState", conv(2, 5, 7, 4, given="bs"), {"activation": "silu"}),
    Recurrence("CausalConvWithState", conv(1, 8, 1, 3, given="s"), {"activation": "swish"}),
    Recurrence("CausalConvWithState", conv(1, 8, 2, 4, given="b")),
    Recurrence("CausalConvWithState", conv(2, 3, 5, 2, given="")),
]
ATTENTIONS = [
    attention("linear"),
    attention("gated"),
    attention("gated", decays=6, state=False),
    attention("delta", rates=1),
    attention("gated_delta", groups=1),
    attention("gated_delta", decays=6, state=False),
]
STANDARD = [
    *CONVS,
    *ATTENTIONS,
    Recurrence(
        "LinearAttention",
        attention("delta").inputs,
        {**attention("delta").attributes, "scale": 2.0},
    ),
]
LAST = {"channels_last": 1, "dilation": 2}
OF_MICROSOFT = [
    *(Recurrence(c.op, c.inputs, c.attributes, MICROSOFT) for c in STANDARD),
    Recurrence("CausalConvWithState", conv(2, 5, 7, 3, given="bs", **LAST), LAST, MICROSOFT),
    Recurrence(
        "CausalConvWithState", conv(1, 4, 3, 3, given="s", dilation=2), {"dilation": 2}, MICROSOFT
    ),
]
# Float32 sums in another order, and an exponential of another approximation.
CLOSE = {"rtol": 2e-5, "atol": 5e-6}


def run(case: Recurrence, dtype: Any = np.float32, state_dtype: Any = np.float32) -> list[Array]:
    """What our kernels give, all of the node on them."""
    session = iron(case.model(dtype, state_dtype).SerializeToString())
    assert onnx_iron.placement(session).complete
    values = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, DTYPES[array.dtype])
        for name, array in case.given(dtype, state_dtype).items()
    }
    made = session.run_with_ort_values(None, values)
    return [
        np.frombuffer(
            ctypes.string_at(value.data_ptr(), int(np.prod(value.shape())) * kind.itemsize), kind
        ).reshape(value.shape())
        for value, kind in zip(made, map(np.dtype, (dtype, state_dtype)), strict=True)
    ]


@pytest.mark.parametrize("case", STANDARD, ids=str)
def test_a_standard_operator_gives_what_onnx_s_reference_gives(case: Recurrence) -> None:
    model = case.model(np.float32, np.float32)
    expected = ReferenceEvaluator(model).run(None, case.given(np.float32, np.float32))
    for ours, theirs in zip(run(case), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


@pytest.mark.parametrize("case", [*STANDARD, *OF_MICROSOFT], ids=str)
def test_an_operator_gives_what_onnxruntime_gives(case: Recurrence) -> None:
    session = stock(case.model(np.float32, np.float32).SerializeToString())
    expected = session.run(None, case.given(np.float32, np.float32))
    for ours, theirs in zip(run(case), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


@pytest.mark.parametrize("state_dtype", [np.float32, BF16])
@pytest.mark.parametrize("case", STANDARD, ids=str)
def test_in_bfloat16_it_is_its_float32_rounded(case: Recurrence, state_dtype: Any) -> None:
    if case.op == "CausalConvWithState" or case.inputs[3] is None:
        state_dtype = BF16  # which is the other operands' where nothing says another
    given = case.given(BF16, state_dtype)
    wide = {name: array.astype(np.float32) for name, array in given.items()}
    expected = ReferenceEvaluator(case.model(np.float32, np.float32)).run(None, wide)
    for ours, theirs in zip(run(case, BF16, state_dtype), expected, strict=True):
        close = CLOSE if ours.dtype == np.float32 else {"rtol": 2**-8, "atol": 2**-10}
        np.testing.assert_allclose(ours.astype(np.float32), theirs, **close)


def test_a_state_goes_on_from_call_to_call() -> None:
    whole = attention("gated_delta")
    first, second = (
        Recurrence(
            whole.op,
            tuple(x if x is None or i == 3 else x[:, part] for i, x in enumerate(whole.inputs)),
            whole.attributes,
        )
        for part in (slice(0, 3), slice(3, 4))
    )
    y, state = run(first)
    going_on = Recurrence(
        second.op, (*second.inputs[:3], state, *second.inputs[4:]), second.attributes
    )
    last, after = run(going_on)
    for made, expected in zip((np.concatenate([y, last], 1), after), run(whole), strict=True):
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("case", [CONVS[0], ATTENTIONS[-2]], ids=str)
def test_a_model_of_open_dimensions_runs_for_any(case: Recurrence) -> None:
    convolves = case.op == "CausalConvWithState"
    batched = ("x0", "x3") if convolves else ("x0", "x1", "x2", "x3", "x4", "x5")
    rows_at = {"x0": 2} if convolves else {name: 1 for name in batched if name != "x3"}
    model, given = case.model(np.float32, np.float32), case.given(np.float32, np.float32)
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name in batched:
            dims[0].dim_param = "batch"
        if value.name in rows_at:
            dims[rows_at[value.name]].dim_param = "rows"
    session = iron(model.SerializeToString())
    assert onnx_iron.placement(session).complete
    for rows, batch in ((3, 2), (1, 1), (4, 2)):
        part = {name: x[:batch] if name in batched else x for name, x in given.items()}
        for name, axis in rows_at.items():
            part[name] = np.ascontiguousarray(part[name].take(range(rows), axis))
        expected = ReferenceEvaluator(model).run(None, part)
        for ours, theirs in zip(session.run(None, part), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, **CLOSE)


def without_a_kernel() -> tuple[tuple[Recurrence, str], ...]:
    wide = conv(1, 6, 4, 3, given="s", channels_last=1)
    x, weight, _, state = wide
    assert x is not None
    assert state is not None
    split = x.reshape(1, 4, 2, 3), weight, None, state.reshape(1, 2, 2, 3)
    plain = attention("linear", groups=1)
    shared = plain.inputs[0][..., :6], plain.inputs[1][..., :6], *plain.inputs[2:]
    few = {"q_num_heads": 1, "kv_num_heads": 2, "update_rule": "linear"}
    return (
        (
            Recurrence("CausalConvWithState", split, {"channels_last": 1}, MICROSOFT),
            r"its input is float32 \(1, 4, 2, 3\)",
        ),
        (
            Recurrence("LinearAttention", shared, few, MICROSOFT),
            r"q_num_heads is 1, kv_num_heads 2",
        ),
    )


@pytest.mark.parametrize(("case", "reason"), without_a_kernel(), ids=str)
def test_what_the_kernels_have_not_is_left_to_onnxruntime(case: Recurrence, reason: str) -> None:
    session = iron(case.model(np.float32, np.float32).SerializeToString())
    (row,) = onnx_iron.placement(session).rows
    assert re.fullmatch(reason, row.reason)
