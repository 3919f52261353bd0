"""The models that are made hostile: ours in both dialects, torch's, and one of nested graphs."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnx_iron import functional as F
from onnx_iron.conformance.graph_cases import BLUEPRINTS, Block
from onnx_iron.dtypes import BFLOAT16, FLOAT32, FLOATS, INT32, Array, DType
from onnx_iron.export import export
from onnx_iron.graph import Trace

WEIGHTS = "model.weights"
# What torch.onnx.export made of an encoder layer of 16 channels, by either exporter, and of a gated
# short convolution whose past is an input: without names of modules and source lines.
_FROM_TORCH = Path(__file__).parent / "models"
STRIDES = ("holes", "rows backwards", "columns first")
# Of the graphs, those with states, per-call values, weights and attention between them.
_GRAPHS = (
    "decoder layer, decode",
    "decoder layer, prefill",
    "short convolution, prefill",
    "encoder layer",
    "operands that are views of one another",
    "one state, read and written several times",
    "a ring of rows at places that only a call knows",
)


@dataclass
class Draft:
    """A model and a call of it, to be changed.

    Attributes:
        model: its weights in a file beside it, ``WEIGHTS``, or inside.
        weights: that file's contents; empty where there is none.
        feeds: by input.
        ambiguous: a change gave the model two meanings, so that two runtimes may differ.
        strides: by input, how the caller holds it, one of ``STRIDES``; else as a whole array.
    """

    model: onnx.ModelProto
    weights: bytes
    feeds: dict[str, Array]
    ambiguous: bool = False
    strides: dict[str, str] = field(default_factory=dict)


def strided(how: str, array: Array) -> Array:
    """The same numbers in memory that is not in their order."""
    if not how or not array.ndim or not array.size:
        return array
    if how == "holes":
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if how == "rows backwards":
        return np.ascontiguousarray(array[::-1])[::-1]
    return np.asfortranarray(array)


class Tokens(Block):
    """Rows of a table, a product and a softmax: ids are untrusted too."""

    def build(self) -> None:
        self.table, self.out = self.weight(24, 16), self.weight(24, 16)

    def body(self, ids: Any) -> Any:
        h = F.rms_norm(F.embedding(ids, self.table), 16)
        return F.softmax(F.linear(h, self.out, precision=F.Precision.HIGHEST), dim=-1)


def names() -> list[str]:
    """The originals' names, in order."""
    return list(_originals())


def original(name: str) -> Draft:
    """A fresh copy of an original.

    Raises:
        KeyError: there is none of that name.
    """
    return copy.deepcopy(_original(name))


@functools.cache
def _original(name: str) -> Draft:
    return _originals()[name]()


@functools.cache
def _originals() -> dict[str, functools.partial[Draft]]:
    found = {}
    for graph in ("tokens", *_GRAPHS):
        for dialect in ("iron", "standard"):
            for dtype in FLOATS if dialect == "iron" else (FLOAT32,):
                name = f"{graph}, {dialect} dialect, {dtype.name}"
                found[name] = functools.partial(_ours, graph, dialect, dtype)
    for path in sorted(_FROM_TORCH.glob("*.onnx")):
        found[path.stem.replace("_", ", ", 1)] = functools.partial(_loaded, path)
    found["nested graphs"] = functools.partial(_nested)
    return found


def _ours(graph: str, dialect: str, dtype: DType) -> Draft:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(_trace(graph, dtype), path, dialect=dialect)
        model = onnx.load(path, load_external_data=False)
        kept = path.with_name(WEIGHTS)
        weights = kept.read_bytes() if kept.exists() else b""
    return Draft(model, weights, feeds_for(model))


def _trace(graph: str, dtype: DType) -> Trace:
    if graph == "tokens":
        return Tokens(dtype).trace(ids=((5,), INT32))
    blueprint = BLUEPRINTS[graph]
    specs = {name: (shape, dtype) for name, shape in blueprint.shapes.items()}
    return blueprint.graph(dtype).trace(**specs)  # type: ignore[call-arg]


def _loaded(path: Path) -> Draft:
    model = onnx.load(path)
    return Draft(model, b"", feeds_for(model))


def _nested() -> Draft:
    """If, Loop and Scan, with values of the outer graph inside."""
    info = helper.make_tensor_value_info
    inner = {
        "then": helper.make_graph(
            [helper.make_node("Mul", ["x", "w"], ["t"])], "then", [], [info("t", 1, [4, 8])]
        ),
        "else": helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["e"])], "else", [], [info("e", 1, [4, 8])]
        ),
    }
    loop = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["c2"]),
            helper.make_node("MatMul", ["h", "square"], ["h2"]),
            helper.make_node("Tanh", ["h2"], ["h3"]),
        ],
        "loop",
        [info("i", 7, []), info("c", 9, []), info("h", 1, [4, 8])],
        [info("c2", 9, []), info("h3", 1, [4, 8])],
    )
    scan = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "row"], ["sum2"]),
            helper.make_node("Identity", ["sum2"], ["seen"]),
        ],
        "scan",
        [info("sum", 1, [8]), info("row", 1, [8])],
        [info("sum2", 1, [8]), info("seen", 1, [8])],
    )
    rng = np.random.default_rng(1)
    constants: dict[str, Array] = {
        "w": rng.standard_normal(8).astype(np.float32),
        "square": (rng.standard_normal((8, 8)) / 3).astype(np.float32),
        "trips": np.array(3, np.int64),
        "zero": np.zeros(8, np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node(
                "If", ["which"], ["a"], then_branch=inner["then"], else_branch=inner["else"]
            ),
            helper.make_node("Loop", ["trips", "", "a"], ["b"], body=loop),
            helper.make_node("Scan", ["zero", "b"], ["last", "y"], body=scan, num_scan_inputs=1),
        ],
        "nested",
        [info("x", 1, [4, 8]), info("which", 9, [])],
        [info("y", 1, [4, 8]), info("last", 1, [8])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return Draft(model, b"", feeds_for(model))


def feeds_for(model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Arrays of the types that the inputs declare: normal numbers, and small integers.

    An open dimension is 3. What is declared huge is not made: dimensions are cut down to 2**16
    elements in all.
    """
    rng = np.random.default_rng(seed)
    return dict(_feeds(model, rng))


def _feeds(model: onnx.ModelProto, rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    held = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        declared = value.type.tensor_type
        if value.name in held:
            continue
        dims = [d.dim_value if d.HasField("dim_value") else 3 for d in declared.shape.dim]
        yield value.name, _numbers(rng, declared.elem_type, _cut(dims[:8]))


def _cut(dims: Sequence[int]) -> tuple[int, ...]:
    room, shape = 1 << 16, []
    for dim in dims:
        shape.append(min(max(dim, 0), room))
        room //= max(shape[-1], 1)
    return tuple(shape)


def _numbers(rng: np.random.Generator, kind: int, shape: tuple[int, ...]) -> Array:
    if kind in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16):
        dtype = BFLOAT16 if kind == TensorProto.BFLOAT16 else helper.tensor_dtype_to_np_dtype(kind)
        return np.asarray(rng.standard_normal(shape).astype(np.float32).astype(dtype))
    if kind == TensorProto.BOOL:
        return np.asarray(rng.integers(0, 2, shape).astype(np.bool_))
    try:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        return np.asarray(rng.integers(0, 3, shape).astype(dtype))
    except (KeyError, TypeError, ValueError):
        return np.zeros(shape, np.float32)
