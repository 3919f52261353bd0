"""Operators of com.microsoft with weights in codes of four or eight bits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from provider_models import BF16, iron, rand, stock

import onnx_iron
from onnx_iron.kernels import run_kernel
from onnx_iron.provider.claim import decide
from onnx_iron.provider.graph import read_graph

Array = Any
DOMAIN = "com.microsoft"


@dataclass(frozen=True)
class Weight:
    """A matrix of random codes, and what it stands for."""

    rows: int
    width: int
    bits: int
    block: int
    zeros: str = "none"  # or "packed", "real"

    def __str__(self) -> str:
        return f"{self.rows}x{self.width} {self.bits} bits of {self.block} zeros {self.zeros}"

    @property
    def blocks(self) -> int:
        return -(-self.width // self.block)

    def codes(self) -> Array:
        """A code an element, whole blocks."""
        shape = (self.rows, self.blocks * self.block)
        return np.random.default_rng(self.rows).integers(0, 1 << self.bits, shape, np.uint8)

    def packed(self, codes: Array) -> Array:
        """The first of two codes of four bits in the lower half of a byte."""
        if self.bits == 8:
            return codes
        even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
        return even[:, ::2] | even[:, 1::2] << 4

    def scales(self) -> Array:
        return 0.05 + np.abs(rand(self.rows, self.blocks, seed=3)) / 20

    def zero_points(self) -> Array | None:
        """A zero point a block: integers in codes or real ones."""
        if self.zeros == "none":
            return None
        if self.zeros == "real":
            # Of few bits, which bfloat16 has too.
            return (np.round(rand(self.rows, self.blocks, seed=4) * 8) / 4 + 7).astype(np.float32)
        draw = np.random.default_rng(7).integers(0, 1 << self.bits, (self.rows, self.blocks))
        return draw.astype(np.uint8)

    def given(self) -> list[Array | None]:
        """Scales and zero points as the operators take them."""
        zeros = self.zero_points()
        if zeros is not None and zeros.dtype == np.uint8:
            zeros = self.packed(zeros)
        return [self.scales(), zeros]

    def decoded(self) -> Array:
        """In float64."""
        zeros = self.zero_points()
        middle = np.full((self.rows, self.blocks), float(1 << self.bits - 1))
        zero = middle if zeros is None else zeros.astype(np.float64)
        scale = self.scales().astype(np.float64)
        whole = (self.codes() - zero.repeat(self.block, 1)) * scale.repeat(self.block, 1)
        return whole[:, : self.width]


def product_inputs(weight: Weight) -> list[Array | None]:
    packed = weight.packed(weight.codes())
    return [packed.reshape(weight.rows, weight.blocks, -1), *weight.given()]


def model(op: str, inputs: dict[str, Array | None], dtype: int, **attributes: Any) -> bytes:
    """A node whose first input changes (for a gather the second), and the others are constants."""
    changing = "indices" if op == "GatherBlockQuantized" else "a"
    names = [name if array is not None else "" for name, array in inputs.items()]
    node = helper.make_node(op, names, ["y"], name="n", domain=DOMAIN, **attributes)
    x = inputs[changing]
    assert x is not None
    kind = dtype if changing == "a" else helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(changing, kind, x.shape)],
        [helper.make_tensor_value_info("y", dtype, None)],
        [
            numpy_helper.from_array(a, n)
            for n, a in inputs.items()
            if a is not None and n != changing
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return made


def product_model(
    weight: Weight, a: Array, bias: Array | None = None, g_idx: Array | None = None, **more: Any
) -> bytes:
    names = ("b", "scales", "zeros")
    inputs: dict[str, Array | None] = {
        "a": a,
        **dict(zip(names, product_inputs(weight), strict=True)),
    }
    inputs |= {"g_idx": g_idx, "bias": bias}
    attributes = {"K": weight.width, "N": weight.rows, "bits": weight.bits}
    attributes |= {"block_size": weight.block} | more
    return model("MatMulNBits", inputs, TensorProto.FLOAT, **attributes)


WEIGHTS = [
    *(
        Weight(37, 256, bits, block, zeros)
        for bits in (4, 8)
        for block in (16, 32, 64, 128, 256)
        for zeros in ("none", "packed")
    ),
    Weight(37, 256, 4, 32, "real"),
    Weight(19, 100, 4, 32, "packed"),  # a last block that is not whole, an odd number of them
    Weight(19, 72, 4, 16, "packed"),
    Weight(5, 1000, 4, 128),
    Weight(1, 16, 4, 16),
]


@pytest.mark.parametrize("rows", [(1,), (5,), (2, 40)], ids=str)
@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_a_product_is_onnxruntimes_and_that_of_the_decoded_weight(
    weight: Weight, rows: tuple[int, ...]
) -> None:
    a = rand(*rows, weight.width)
    serialized = product_model(weight, a)
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    (ours,) = session.run(None, {"a": a})
    (theirs,) = stock(serialized).run(None, {"a": a})
    exact = a.astype(np.float64) @ weight.decoded().T
    # A float32 sum of K products in another order.
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(weight.decoded()).T
    assert (np.abs(ours - exact) <= magnitude * 2.0**-20).all()
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * magnitude.max())


@pytest.mark.parametrize("zeros", ["none", "packed", "real"])
@pytest.mark.parametrize("bits", [4, 8])
def test_in_bfloat16_a_product_is_float64s_rounded(bits: int, zeros: str) -> None:
    weight = Weight(37, 96, bits, 32, zeros)
    codes, scales, points = product_inputs(weight)
    scales = scales.astype(BF16)
    if points is not None and points.dtype != np.uint8:
        points = points.astype(BF16)
    a = rand(70, 96).astype(BF16)
    decoded = weight.decoded() * (scales.astype(np.float64) / weight.scales()).repeat(32, 1)
    exact = a.astype(np.float64) @ decoded.T
    inputs = [a, codes, scales] + ([] if points is None else [points])
    attributes = {"bits": bits, "block_size": 32}
    (got,) = run_kernel("MatMulNBits", inputs, [((70, 37), BF16)], attributes)
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(decoded).T
    bound = np.abs(exact) * 2.0**-8 + magnitude * 2.0**-20
    assert (np.abs(got.astype(np.float64) - exact) <= bound).all()


def test_a_row_of_a_product_does_not_depend_on_the_others() -> None:
    weight = Weight(83, 1600, 4, 32, "packed")
    inputs, attributes = product_inputs(weight), {"bits": 4, "block_size": 32}
    a = rand(100, 1600)
    (whole,) = run_kernel("MatMulNBits", [a, *inputs], [((100, 83), np.float32)], attributes, 3)
    for row in (0, 1, 50, 99):
        alone = run_kernel("MatMulNBits", [a[row], *inputs], [((83,), np.float32)], attributes)
        np.testing.assert_array_equal(alone[0], whole[row])


def test_a_bias_is_added_and_the_accuracy_is_no_less_than_asked() -> None:
    weight, bias = Weight(37, 64, 4, 32), rand(37, seed=9)
    a = rand(3, 64)
    session = iron(product_model(weight, a, bias, accuracy_level=1))
    assert onnx_iron.placement(session).complete
    exact = a.astype(np.float64) @ weight.decoded().T + bias
    np.testing.assert_allclose(session.run(None, {"a": a})[0], exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("bits", "level", "rows", "taken"),
    [
        (4, 0, 1024, False),
        (8, 4, 1024, False),
        (8, 0, 1024, True),
        (4, 0, 64, True),
        (4, 4, 64, False),
    ],
)
def test_what_onnxruntime_does_faster_is_left_to_it(
    bits: int, level: int, rows: int, taken: bool
) -> None:
    weight, a = Weight(rows, 128, bits, 32), rand(3, 128)
    session = iron(product_model(weight, a, accuracy_level=level))
    (row,) = onnx_iron.placement(session).rows
    assert taken == (not row.reason)
    assert taken or "onnxruntime's own kernel is faster" in row.reason


def test_no_rows_give_none() -> None:
    weight = Weight(37, 64, 4, 32)
    a = np.zeros((0, 64), np.float32)
    (got,) = iron(product_model(weight, a)).run(None, {"a": a})
    assert got.shape == (0, 37)


@pytest.mark.parametrize(
    ("weight", "more", "reason"),
    [
        (Weight(8, 64, 4, 32), {"g_idx": np.zeros(64, np.int32)}, "g_idx, an order of K"),
        (Weight(8, 64, 4, 32), {"bits": 2}, "its codes have 2 bits; the kernel has 4 and 8"),
        (Weight(8, 64, 4, 32), {"K": 96}, "K is 96 and N 8"),
        (Weight(8, 64, 4, 32), {"block_size": 16}, r"scales has shape \(8, 2\), expected 32 el"),
        (Weight(8, 64, 4, 64), {"block_size": 32}, r"scales has shape \(8, 1\), expected 16 el"),
        (Weight(8, 64, 4, 32), {"block_size": 48}, "block_size is 48, expected a power of two"),
    ],
    ids=["order", "bits", "inner", "blocks", "scales", "odd block"],
)
def test_what_the_kernel_has_not_is_left_with_the_reason(
    weight: Weight, more: dict[str, Any], reason: str
) -> None:
    a, codes = rand(3, 64), product_inputs(weight)
    shapes = {"a": (1, a.shape), "b": (2, codes[0].shape), "scales": (1, codes[1].shape)}
    inputs = ["a", "b", "scales"]
    if "g_idx" in more:
        shapes["g_idx"] = (6, (64,))
        inputs += ["", "g_idx"]
    attributes = {"K": 64, "N": 8, "bits": 4, "block_size": 32}
    attributes |= {k: v for k, v in more.items() if k != "g_idx"}
    values = [
        {"name": n, "dtype": number, "dims": list(dims), "constant": n != "a"}
        for n, (number, dims) in {**shapes, "y": (1, (3, 8))}.items()
    ]
    node = {
        "name": "n",
        "domain": DOMAIN,
        "op_type": "MatMulNBits",
        "since_version": 1,
        "provider": "",
        "problem": "",
        "attributes": attributes,
        "inputs": inputs,
        "implicit_inputs": [],
        "outputs": ["y"],
    }
    graph = {
        "name": "g",
        "nested": False,
        "nodes": [node],
        "values": values,
        "inputs": ["a"],
        "outputs": ["y"],
    }
    (decision,) = decide(read_graph(graph))
    assert not decision.taken
    assert re.search(reason, decision.reason)


# -- gathered rows ------------------------------------------------------------------------------


def gather_model(weight: Weight, indices: Array, **more: Any) -> bytes:
    inputs = {"data": weight.packed(weight.codes()), "indices": indices}
    inputs |= dict(zip(("scales", "zeros"), weight.given(), strict=True))
    attributes = {"bits": weight.bits, "block_size": weight.block, "quantize_axis": 1} | more
    return model("GatherBlockQuantized", inputs, TensorProto.FLOAT, **attributes)


@pytest.mark.parametrize("zeros", ["none", "packed"])
@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_gathered_rows_are_onnxruntimes(bits: int, block: int, zeros: str) -> None:
    weight = Weight(37, 384, bits, block, zeros)
    indices = np.array([[0, 36, 5], [5, -1, -37]], np.int64)
    serialized = gather_model(weight, indices)
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    (ours,) = session.run(None, {"indices": indices})
    np.testing.assert_array_equal(ours, stock(serialized).run(None, {"indices": indices})[0])
    np.testing.assert_allclose(ours, weight.decoded()[indices], rtol=1e-6)


def test_a_row_that_is_not_there_is_an_error_that_says_where() -> None:
    indices = np.array([0, 37], np.int64)
    session = iron(gather_model(Weight(37, 32, 4, 32), indices))
    with pytest.raises(Exception, match=r"indices\[1\] is 37, expected -37..36"):
        session.run(None, {"indices": indices})


def test_in_bfloat16_rows_are_rounded_once() -> None:
    weight = Weight(37, 64, 4, 32, "packed")
    scales, points = weight.given()
    scales = scales.astype(BF16)
    inputs = [weight.packed(weight.codes()), np.arange(37), scales, points]
    (got,) = run_kernel(
        "GatherBlockQuantized", inputs, [((37, 64), BF16)], {"bits": 4, "block_size": 32}
    )
    exact = weight.decoded() * (scales.astype(np.float64) / weight.scales()).repeat(32, 1)
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2.0**-8)
