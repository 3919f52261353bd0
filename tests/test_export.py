"""Exporting: what a model file holds, what its weights file holds, and how both are written."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from compare import assert_same_bits
from networks import Exported, Network, numbered, random, session, traced
from onnx import TensorProto

from onnx_iron import Graph, Handle, Precision, Session, Value, Weight, export, state
from onnx_iron import functional as F
from onnx_iron.dtypes import BFLOAT16, FLOAT32, INT32, Array
from onnx_iron.export.weights import ALIGNMENT, INLINE_BYTES
from onnx_iron.graph import Trace
from onnx_iron.operators import DOMAIN
from onnx_iron.operators.causal_conv1d import CausalConv1d


class Model(Graph):
    """A little of everything: weights large and small, states, per-call values."""

    def __init__(self, dtype: Any = BFLOAT16) -> None:
        self.layers = [
            {
                "up": random(72, 32, dtype=dtype, seed=i),
                "down": Weight.of(random(32, 72, dtype=dtype, seed=10 + i)),
                "norm": random(32, dtype=dtype, seed=20 + i),
                "conv": F.conv_state(3, 32, 4, dtype),
                "taps": random(3, 32, dtype=dtype, seed=30 + i),
            }
            for i in range(2)
        ]
        self.keys = state((9, 32), dtype)

    def body(self, x: Handle, *, position: Value, rows: Value) -> dict[str, Handle]:
        if x.shape[0] > 1:
            x = x[:rows]
        for layer in self.layers:
            y = F.rms_norm(x, 32, layer["norm"])
            y = F.silu(F.linear(y, layer["up"], precision=Precision.DEFAULT))
            y = F.linear(y, layer["down"], precision=Precision.DEFAULT)
            x = x + F.causal_conv1d(y, layer["taps"], layer["conv"]) * 0.5
        self.keys[position : position + x.shape[0]] = x
        return {"y": x, "kept": self.keys.copy()}

    def versions(self, dtype: Any = BFLOAT16) -> dict[str, Any]:
        return {n: self.trace(x=((rows, 32), dtype)) for n, rows in (("prefill", 4), ("decode", 1))}


def read(path: Path) -> onnx.ModelProto:
    return onnx.load(path, load_external_data=False)


def described(model: onnx.ModelProto, key: str) -> Any:
    return json.loads({e.key: e.value for e in model.metadata_props}[key])


def interface(model: onnx.ModelProto) -> tuple[dict[str, Any], dict[str, Any]]:
    """The types of a model's inputs and outputs, by name."""
    inputs, outputs = (
        {v.name: v.type.tensor_type.elem_type for v in values}
        for values in (model.graph.input, model.graph.output)
    )
    return inputs, outputs


# -- determinism ----------------------------------------------------------------------------------

DIGESTS = """
import sys, hashlib, pathlib
sys.path.insert(0, sys.argv[1])
from test_export import Model, digests
print(digests(pathlib.Path(sys.argv[2])))
"""


def digests(folder: Path) -> list[str]:
    """The digests of all that a few exports write."""
    export(Model().versions(), folder / "both")
    export(Model().versions()["prefill"], folder / "alone.onnx", dialect="standard")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [f"{p.name} {hashlib.sha256(p.read_bytes()).hexdigest()}" for p in files]


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    seen = {str(digests(tmp_path / "here"))}
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", DIGESTS, str(Path(__file__).parent), str(tmp_path / seed)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        seen.add(run.stdout.strip())
    assert len(seen) == 1
    assert len(digests(tmp_path / "again")) == 5


# -- dtypes at the boundary -----------------------------------------------------------------------

FLOAT, BF16 = TensorProto.FLOAT, TensorProto.BFLOAT16


@pytest.mark.parametrize(
    ("options", "io", "states"),
    [
        ({}, FLOAT, FLOAT),
        ({"io_dtype": None}, BF16, FLOAT),
        ({"state_dtype": None}, FLOAT, BF16),
        ({"io_dtype": "bfloat16", "state_dtype": BFLOAT16}, BF16, BF16),
        ({"io_dtype": None, "state_dtype": None}, BF16, BF16),
    ],
)
def test_a_bfloat16_graph_has_the_dtypes_asked_for_at_its_boundary(
    tmp_path: Path, options: dict[str, Any], io: int, states: int
) -> None:
    export(Model().versions()["prefill"], tmp_path / "m.onnx", **options)
    model = read(tmp_path / "m.onnx")
    inputs, outputs = interface(model)
    scalars = {"position": TensorProto.INT32, "rows": TensorProto.INT32}
    carried = ["layers.0.conv", "layers.1.conv", "keys"]
    assert inputs == {"x": io, **scalars, **{f"past.{name}": states for name in carried}}
    assert outputs == {"y": io, "kept": io, **{f"present.{name}": states for name in carried}}
    kinds = {s["name"]: s["dtype"] for s in described(model, "onnx_iron.states")}
    assert set(kinds.values()) == {"float32" if states == FLOAT else "bfloat16"}
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    session(tmp_path / "m.onnx")  # loads


def test_a_float32_graph_needs_no_casts() -> None:
    model = Exported(Model(FLOAT32).versions(FLOAT32)["prefill"]).model
    assert "Cast" not in {node.op_type for node in model.graph.node}
    narrow = Exported(traced(lambda self, x: x + 1), io_dtype="bfloat16").model
    assert [n.op_type for n in narrow.graph.node] == ["Cast", "Add", "Cast"]


def test_index_inputs_keep_their_dtype() -> None:
    graph = Network(lambda self, ids: F.embedding(ids, self.w), w=random(9, 8))
    model = Exported(graph.trace(ids=((3,), INT32)), io_dtype="bfloat16").model
    assert interface(model) == ({"ids": TensorProto.INT32}, {"output": BF16})


def test_a_bfloat16_graph_gives_the_reference_s_bits_on_stock_onnxruntime() -> None:
    graph = Model()
    prefill, decode = (Exported(trace) for trace in graph.versions().values())
    x, at = random(6, 32, dtype=BFLOAT16, seed=50), 0
    for model, shape, rows in ((prefill, 4, 3), (decode, 1, 1), (prefill, 4, 2)):
        given = np.zeros((shape, 32), BFLOAT16)
        given[:rows] = x[at : at + rows]
        expected = graph.reference(given, position=at, rows=rows)
        result = model(x=given.astype(np.float32), position=at, rows=rows)
        at += rows
        np.testing.assert_allclose(  # sums in another order may round to a neighbour
            result["y"][:rows], expected["y"][:rows].astype(np.float32), rtol=2**-6, atol=2**-9
        )
        prefill.states = decode.states = model.states
    for name in ("layers.0.conv", "layers.1.conv", "keys"):
        carried = graph.reference_states()[name].astype(np.float32)
        np.testing.assert_allclose(decode.states[name], carried, rtol=2**-6, atol=2**-9)


# -- the model's own description ------------------------------------------------------------------


def test_metadata_tells_a_runtime_all_that_it_needs(tmp_path: Path) -> None:
    metadata = {"onnx_iron.context": "9", "author": "a test"}
    export(Model().versions(), tmp_path, metadata=metadata)
    model = read(tmp_path / "prefill.onnx")
    entries = {entry.key: entry.value for entry in model.metadata_props}
    assert entries.items() >= metadata.items()
    assert entries["onnx_iron.version"] == "1"
    assert described(model, "onnx_iron.states")[0] == {
        "name": "layers.0.conv",
        "input": "past.layers.0.conv",
        "output": "present.layers.0.conv",
        "shape": [2, 32],
        "dtype": "float32",
        "by_position": False,
    }
    assert described(model, "onnx_iron.values") == {
        "position": {"bounds": []},
        "rows": {"bounds": [{"input": "x", "axis": 0}]},
    }
    assert described(read(tmp_path / "decode.onnx"), "onnx_iron.values") == {
        "position": {"bounds": []}
    }
    assert model.producer_name == "onnx-iron"
    assert model.graph.name == "prefill"


def test_the_iron_dialect_needs_no_newer_runtime_than_opset_21_s() -> None:
    model = Exported(Model().versions()["prefill"]).model
    assert model.ir_version == 10
    assert {i.domain: i.version for i in model.opset_import} == {"": 21, DOMAIN: 1}
    assert all({i.version for i in f.opset_import} == {21} for f in model.functions)
    used = {(n.op_type, n.overload) for n in model.graph.node if n.domain == DOMAIN}
    assert used == {(f.name, f.overload) for f in model.functions}


def test_the_standard_dialect_has_nothing_of_ours() -> None:
    model = Exported(Model().versions()["prefill"], dialect="standard").model
    assert {i.domain: i.version for i in model.opset_import} == {"": 27}
    assert not model.functions
    assert {node.domain for node in model.graph.node} == {""}
    types = {node.op_type for node in model.graph.node}
    assert {"RMSNormalization", "CausalConvWithState", "MatMul"} <= types
    assert described(model, "onnx_iron.states")


def test_the_standard_dialect_is_as_new_as_its_operators_need() -> None:
    bodies = {
        21: lambda self, x: F.gelu(F.layer_norm(x, 8)),
        23: lambda self, x: F.rms_norm(x, 8),
        24: lambda self, x: F.silu(F.rms_norm(x, 8)),
    }
    for opset, body in bodies.items():
        model = Exported(traced(body), dialect="standard").model
        assert [i.version for i in model.opset_import] == [opset]
        assert ("Swish" in {node.op_type for node in model.graph.node}) == (opset == 24)


def test_the_standard_dialect_gives_the_reference_s_results_call_by_call() -> None:
    graph = Model(FLOAT32)
    prefill, decode = (Exported(t, dialect="standard") for t in graph.versions(FLOAT32).values())
    x, at = random(6, 32, seed=50), 0
    for model, shape, rows in ((prefill, 4, 3), (decode, 1, 1), (prefill, 4, 1)):
        given = np.zeros((shape, 32), np.float32)
        given[:rows] = x[at : at + rows]
        expected = graph.reference(given, position=at, rows=rows)
        result = model(x=given, position=at, rows=rows)
        at += rows
        np.testing.assert_allclose(result["y"][:rows], expected["y"][:rows], rtol=1e-5, atol=1e-5)
        prefill.states = decode.states = model.states
    for name, carried in graph.reference_states().items():
        np.testing.assert_allclose(decode.states[name], carried, rtol=1e-5, atol=1e-5)


# -- states and values ----------------------------------------------------------------------------


def test_a_scratch_state_does_not_show() -> None:
    def body(self: Any, x: Handle, *, n: Value) -> Handle:
        y: Handle = CausalConv1d.decompose(x[:n], self.taps, self.conv)
        return y.copy()

    parts = {"taps": random(3, 8), "conv": F.conv_state(3, 8, 4, FLOAT32)}
    graph = Network(body, **parts)
    model = Exported(graph.trace(x=((4, 8), FLOAT32)))
    inputs, outputs = interface(model.model)
    assert list(inputs) == ["x", "n", "past.conv"]
    assert list(outputs) == ["output", "present.conv"]
    for seed, n in enumerate((4, 1, 3, 0, 2)):
        x = random(4, 8, seed=seed)
        assert_same_bits(model(x=x, n=n)["output"][:n], graph.reference(x, n=n)[:n])
        assert_same_bits(model.states["conv"], graph.reference_states()["conv"])


def test_a_per_call_value_of_no_use_does_not_show() -> None:
    def body(self: Any, x: Handle, *, a: Value, b: Value, c: Value, d: Value) -> Handle:
        kept = self.kept[a]
        kept[...] = x[(b + 3) // 2]
        return x[: c - c + 2] + 0

    graph = Network(body, kept=state((4, 8), FLOAT32))
    model = Exported(graph.trace(x=((4, 8), FLOAT32)))
    assert [i.name for i in model.model.graph.input] == ["x", "a", "b", "past.kept"]
    assert list(described(model.model, "onnx_iron.values")) == ["a", "b"]
    model(x=numbered(4, 8), a=1, b=0)
    assert_same_bits(model.states["kept"][1], numbered(4, 8)[1])


def test_floor_division_is_python_s_below_zero_too() -> None:
    graph = Network(lambda self, x, *, p: x[(5 - p) // 3 * 2 + p // 2 + 4].copy())
    model, x = Exported(graph.trace(x=((40,), FLOAT32))), numbered(40)
    for p in range(-20, 21):
        place = (5 - p) // 3 * 2 + p // 2 + 4
        assert 0 <= place < 40
        assert_same_bits(model(x=x, p=p)["output"], x[place : place + 1].reshape(()))


def test_a_bound_goes_with_each_read_and_write_for_a_runtime_to_check() -> None:
    def body(self: Any, x: Handle, *, p: Value, n: Value) -> Handle:
        self.kept[p : p + 2, 1:3] = x[:n]
        return self.kept[p : p + 2].transpose()[:, :n].copy()

    model = Exported(traced(body, (2, 2), kept=state((5, 4), FLOAT32))).model
    nodes = [node for node in model.graph.node if node.domain == DOMAIN]
    assert [(node.op_type, list(node.input)[-2:]) for node in nodes] == [
        ("Narrow", ["p", "n"]),
        ("SliceScatter", ["x", nodes[1].input[2]]),  # at 1, which is known and fits
        ("SliceScatter", ["p", "n"]),
        ("Narrow", ["p", "n"]),
    ]


def test_a_state_that_is_only_read_is_only_an_input() -> None:
    model = Exported(traced(lambda self, x: x + self.kept, kept=state((8,), FLOAT32)))
    inputs, outputs = interface(model.model)
    assert list(inputs) == ["x", "past.kept"]
    assert list(outputs) == ["output"]
    assert described(model.model, "onnx_iron.states")[0]["output"] is None
    model.states["kept"] = numbered(8)
    assert_same_bits(model(x=numbered(4, 8))["output"], numbered(4, 8) + numbered(8))
    assert_same_bits(model.states["kept"], numbered(8))


def test_a_state_that_is_only_written_is_an_input_and_an_output() -> None:
    def body(self: Any, x: Handle) -> Handle:
        self.kept[...] = x  # an input itself
        self.other[...] = self.kept
        return x + 1

    model = Exported(traced(body, kept=state((4, 8), FLOAT32), other=state((4, 8), FLOAT32)))
    inputs, outputs = interface(model.model)
    assert list(inputs) == ["x", "past.kept", "past.other"]
    assert list(outputs) == ["output", "present.kept", "present.other"]
    model(x=numbered(4, 8))
    assert_same_bits(model.states["kept"], numbered(4, 8))
    assert_same_bits(model.states["other"], numbered(4, 8))


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
def test_one_tensor_may_be_an_output_twice_and_a_state(dtype: Any) -> None:
    def body(self: Any, x: Handle) -> dict[str, Handle]:
        y = x + 1
        self.kept[...] = y
        self.swapped[...], self.other[...] = self.other, self.swapped
        return {"a": y, "b": y, "flat": y.reshape(32), "again": y.reshape(4, 8)}

    parts = {n: state((4, 8), dtype) for n in ("kept", "swapped", "other")}
    model = Exported(Network(body, **parts).trace(x=((4, 8), dtype)))
    results = model(x=numbered(4, 8))
    for name in ("a", "b", "again"):
        assert_same_bits(results[name], numbered(4, 8) + 1)
    assert_same_bits(results["flat"], (numbered(4, 8) + 1).reshape(32))
    assert_same_bits(model.states["kept"], numbered(4, 8) + 1)


def test_names_of_all_kinds_may_coincide() -> None:
    """Of a weight, an input, a per-call value, a step and an output."""

    def body(self: Any, x: Handle, *, n: Value) -> dict[str, Handle]:
        y = F.silu(x[:n] * self.x + self.n)
        return {"mul": y * self.silu, "add": y + 0, "scalar": y + self.scalar}

    names = ("x", "n", "silu", "scalar")
    graph = Network(body, **{n: random(4, 999, seed=i) for i, n in enumerate(names)})
    model = Exported(graph.trace(x=((4, 999), FLOAT32)))
    x = random(4, 999, seed=9)
    expected = graph.reference(x, n=4)
    for name, result in model(x=x, n=4).items():
        np.testing.assert_allclose(result, expected[name], rtol=1e-5, atol=1e-6)


# -- the weights file -----------------------------------------------------------------------------


def external(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    return {
        t.name: {e.key: e.value for e in t.external_data}
        for t in model.graph.initializer
        if t.data_location == TensorProto.EXTERNAL
    }


def test_versions_share_one_weights_file(tmp_path: Path) -> None:
    report = export(Model().versions(), tmp_path / "deep" / "folder")
    folder = tmp_path / "deep" / "folder"
    assert report.files == [folder / n for n in ("prefill.onnx", "decode.onnx", "weights.bin")]
    assert sorted(folder.iterdir()) == sorted(report.files)
    assert report.total_bytes == sum(path.stat().st_size for path in report.files)
    prefill, decode = (external(read(path)) for path in report.files[:2])
    assert prefill == decode
    assert {entry["location"] for entry in prefill.values()} == {"weights.bin"}
    assert sorted(prefill) == [f"layers.{i}.{name}" for i in (0, 1) for name in ("down", "up")]


def test_weights_are_aligned_and_stored_as_they_are(tmp_path: Path) -> None:
    graph = Model()
    export(graph.versions()["prefill"], tmp_path / "alone.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone.onnx", "alone.weights"]
    model, data = read(tmp_path / "alone.onnx"), (tmp_path / "alone.weights").read_bytes()
    ends = [0]
    for name, entry in external(model).items():
        offset, length = int(entry["offset"]), int(entry["length"])
        assert offset % ALIGNMENT == 0
        assert offset >= ends[-1]
        ends.append(offset + length)
        _, layer, part = name.split(".")
        weight = graph.layers[int(layer)][part]
        array = weight.load() if isinstance(weight, Weight) else weight
        assert data[offset : offset + length] == array.tobytes()
    assert ends[-1] == len(data)
    small = [t for t in model.graph.initializer if t.data_location != TensorProto.EXTERNAL]
    assert all(len(t.raw_data) <= INLINE_BYTES for t in small)
    assert "layers.0.norm" in {t.name for t in small}


def test_weights_are_loaded_one_at_a_time(tmp_path: Path) -> None:
    made: list[weakref.ref[Array]] = []
    alive: list[int] = []  # after each load

    class Tracked(np.ndarray):
        """An array that can be seen to be gone."""

    def load(seed: int) -> Array:
        array = random(64, 32, dtype=BFLOAT16, seed=seed).view(Tracked)
        made.append(weakref.ref(array))
        alive.append(sum(reference() is not None for reference in made))
        return array

    weights = [Weight((64, 32), BFLOAT16, lambda i=i: load(i)) for i in range(6)]
    graph = Network(
        lambda self, x: tuple(F.linear(x, w, precision=Precision.DEFAULT) for w in self.w),
        w=weights,
    )
    versions = {n: graph.trace(x=((rows, 32), BFLOAT16)) for n, rows in (("a", 4), ("b", 1))}
    assert not made
    export(versions, tmp_path)
    assert alive == [1] * 6


def test_progress_is_told_for_each_weight(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    export(Model().versions(), tmp_path, progress=lambda *news: told.append(news))
    total = 4 * 72 * 32 * 2
    assert [done for done, _, _ in told] == [i * total // 4 for i in range(5)]
    assert {whole for _, whole, _ in told} == {total}
    assert [name for _, _, name in told] == [
        *("layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down", "weights.bin")
    ]


def test_a_weight_that_fails_to_load_leaves_the_last_export_whole(tmp_path: Path) -> None:
    export(Model().versions()["prefill"], tmp_path / "m.onnx")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def broken() -> Array:
        raise OSError("the disk is gone")

    graph = Model()
    graph.layers[1]["down"] = Weight((32, 72), BFLOAT16, broken)
    with pytest.raises(OSError, match="the disk is gone"):
        export(graph.versions()["prefill"], tmp_path / "m.onnx")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_graph_of_small_weights_has_no_weights_file(tmp_path: Path) -> None:
    report = export(traced(lambda self, x: x * self.w, w=random(8)), str(tmp_path / "m.onnx"))
    assert report.files == [tmp_path / "m.onnx"]
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_transposed_weight_is_stored_row_by_row() -> None:
    w = random(8, 999).T[:, ::2]
    graph = Network(lambda self, x: x + self.w, w=w)
    model = Exported(graph.trace(x=((999, 4), FLOAT32)))
    assert_same_bits(model(x=np.zeros((999, 4), np.float32))["output"], np.ascontiguousarray(w))


# -- errors ---------------------------------------------------------------------------------------


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    trace = traced(lambda self, x: x + 0)
    path = tmp_path / "m.onnx"
    with pytest.raises(ValueError, match=r"dialect is 'onnx'; expected 'iron' or 'standard'"):
        export(trace, path, dialect="onnx")
    with pytest.raises(ValueError, match=r"export\(\): no trace was given"):
        export({}, tmp_path)
    with pytest.raises(ValueError, match="int32 is no float dtype; expected float32 or bfloat16"):
        export(trace, path, io_dtype=np.int32)
    with pytest.raises(TypeError, match="dtype float16 is none of"):
        export(trace, path, state_dtype=np.float16)
    assert list(tmp_path.iterdir()) == []


def test_an_output_named_as_a_state_s_is_refused(tmp_path: Path) -> None:
    def body(self: Any, x: Handle) -> dict[str, Handle]:
        self.kept[...] = x
        return {"present.kept": x + 0}

    with pytest.raises(ValueError, match=r"present.kept is the name of a state's .* rename"):
        export(traced(body, kept=state((4, 8), FLOAT32)), tmp_path / "m.onnx")


def test_a_weight_and_its_transpose_are_two(tmp_path: Path) -> None:
    def turned(self: Any, x: Handle) -> Handle:
        return F.linear(x, self.w, precision=F.Precision.HIGHEST)

    square = random(8, 8)
    traces = {name: traced(turned, w=w) for name, w in (("w", square), ("t", square.T))}
    with pytest.raises(ValueError, match="have different weights named w; versions"):
        export(traces, tmp_path)


def test_versions_of_different_graphs_are_refused(tmp_path: Path) -> None:
    def multiplied(self: Any, x: Handle) -> Handle:
        return x * self.w

    def kept(self: Any, x: Handle) -> Handle:
        return x + self.kept[0]

    one, same = (traced(multiplied, w=random(8)) for _ in range(2))
    export({"one": one, "same": same}, tmp_path / "equal")  # another array of the same elements
    for other in (random(8, seed=1), random(4, 8), Weight.of(random(8, seed=2))):
        trace = traced(multiplied, w=other)
        with pytest.raises(ValueError, match="have different weights named w; versions"):
            export({"one": one, "other": trace}, tmp_path / "different")
    states = {n: traced(kept, kept=state((n, 8), FLOAT32)) for n in (2, 3)}
    with pytest.raises(ValueError, match="one and other have different states named kept"):
        export({"one": states[2], "other": states[3]}, tmp_path / "different")
    assert not (tmp_path / "different").exists()


class Recurrence(Graph):
    """``kept = x @ w.T + kept``."""

    def __init__(self, seed: int) -> None:
        self.w, self.kept = random(8, 8, seed=seed), state((1, 8), FLOAT32)

    def body(self, x: Handle) -> Handle:
        self.kept[...] = F.linear(x, self.w) + self.kept
        return self.kept.copy()


class TwoRecurrences(Graph):
    """Two graphs in one, each with weights and a state of its own."""

    def __init__(self) -> None:
        self.encoder, self.decoder = Recurrence(1), Recurrence(2)

    def encode(self, x: Handle) -> Handle:
        return self.encoder.body(x)

    def decode(self, x: Handle) -> Handle:
        return self.decoder.body(x)


def test_two_graphs_with_weights_of_one_name_are_refused_and_held_in_one_are_right(
    tmp_path: Path,
) -> None:
    shape = ((1, 8), FLOAT32)
    apart = {"encoder": Recurrence(1).trace(x=shape), "decode": Recurrence(2).trace(x=shape)}
    message = "encoder and decode have different weights named w; .*hold different graphs in one"
    with pytest.raises(ValueError, match=message):
        export(apart, tmp_path)
    both = TwoRecurrences()
    roles = {"encoder": both.encode, "decode": both.decode}
    export({role: both.trace(body, x=shape) for role, body in roles.items()}, tmp_path)
    session = Session(tmp_path, provider="stock")
    x, kept = random(1, 8), {"encoder": np.zeros((1, 8)), "decode": np.zeros((1, 8))}
    for role in ("encoder", "decode", "decode", "encoder"):
        weight = both.encoder.w if role == "encoder" else both.decoder.w
        kept[role] = kept[role] + x.astype(np.float64) @ weight.T
        np.testing.assert_allclose(session.call(role, x=x)["output"], kept[role], rtol=1e-5)


def test_two_graphs_without_a_weight_in_common_share_no_state(tmp_path: Path) -> None:
    def adds(name: str) -> Trace:
        def body(self: Any, x: Handle) -> Handle:
            self.kept[...] = x * getattr(self, name) + self.kept
            return self.kept.copy()

        return traced(body, **{name: random(4, 8), "kept": state((4, 8), FLOAT32)})

    with pytest.raises(ValueError, match="encoder and decode have different states named kept"):
        export({"encoder": adds("first"), "decode": adds("second")}, tmp_path)
