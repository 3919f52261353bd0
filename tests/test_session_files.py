"""What a session opens and restores, and what it refuses: hostile metadata, damaged files."""

from __future__ import annotations

import io
import json
import random as chance
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from networks import Network, random
from onnx import helper

import onnx_iron

PROVIDERS = pytest.mark.parametrize("provider", ["iron", "stock"])
ROW = {"x": np.ones((1, 4), np.float32)}


def body(self: Any, x: Any, *, position: Any) -> Any:
    self.cache[position] = x[0]
    return x + self.cache[0]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    state = onnx_iron.state((8, 4), np.float32)
    onnx_iron.export(Network(body, cache=state).trace(x=((1, 4), np.float32)), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def with_entry(path: Path, key: str, text: str) -> Path:
    edited = onnx.load(path, load_external_data=False)
    kept = {entry.key: entry.value for entry in edited.metadata_props}
    helper.set_model_props(edited, {**kept, key: text})
    onnx.save(edited, path)
    return path


def state_with(**changes: Any) -> str:
    item = {"name": "cache", "input": "past.cache", "output": "present.cache"}
    return json.dumps([{**item, "shape": [8, 4], "dtype": "float32", **changes}])


DEEP = "[" * 100_000
HOSTILE = [
    *((f"onnx_iron.{key}", text) for key in ("states", "values", "bounds", "limits")
      for text in (DEEP, "null", "NaN", "7", "{", '"x"', "[null]", '{"x": 1}', "9" * 5000)),
    *(("onnx_iron.states", state_with(**change)) for change in (
        {"shape": [True, 4]}, {"shape": [8.0, 4]}, {"shape": [-8, -4]}, {"shape": [2**70]},
        {"shape": "8"}, {"shape": [float("inf")]}, {"name": 3}, {"input": "absent"},
        {"input": None}, {"dtype": "float16"}, {"dtype": ["float32"]}, {"output": 5},
    )),
    ("onnx_iron.states", json.dumps(json.loads(state_with()) * 2)),
    ("onnx_iron.values", '{"absent": {"bounds": []}}'),
    ("onnx_iron.values", '{"x": {"bounds": []}}'),
    ("onnx_iron.values", '{"position": {"bounds": [{"input": "x", "axis": 2}]}}'),
    ("onnx_iron.values", '{"position": {"bounds": [{"input": "x", "axis": true}]}}'),
    ("onnx_iron.bounds", '{"output": [[0, [0, [1, "absent"]]]]}'),
    ("onnx_iron.bounds", '{"output": [[0, [0, [1, [0], 0]]]]}'),
    ("onnx_iron.bounds", '{"output": [[0, ' + "[0, [1, " * 300 + "[0]" + ", 2]]" * 300 + "]]}"),
    ("onnx_iron.context", "-1"),
    ("onnx_iron.context", "9" * 5000),
    ("onnx_iron.context", "٣"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "text"), HOSTILE)
def test_metadata_that_an_export_would_not_write_is_refused(
    model: Path, key: str, text: str
) -> None:
    with_entry(model, key, text)
    with pytest.raises(ValueError, match=r"m\.onnx: (the metadata onnx_iron|state 'cache')"):
        onnx_iron.Session(model, provider="stock")


@PROVIDERS
@pytest.mark.parametrize("shape", [(1 << 20, 1 << 20), (1 << 31, 1 << 31, 1 << 31)])
def test_an_input_declared_huge_takes_no_memory(
    model: Path, provider: str, shape: tuple[int, ...]
) -> None:
    edited = onnx.load(model, load_external_data=False)
    edited.graph.input.append(helper.make_tensor_value_info("big", 1, shape))
    onnx.save(edited, model)
    session = onnx_iron.Session(model, provider=provider)
    with pytest.raises(ValueError, match="input 'big' is missing"):
        session.run(ROW)


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def header(**changes: Any) -> Any:
    states = {"cache": ["float32", 8, 4]}
    return np.array(json.dumps({"format": "onnx_iron.states.1", "position": 1, "states": states,
                                **changes}))  # fmt: skip


def stored(head: bytes) -> bytes:
    """A file whose state is declared by ``head``."""
    file = io.BytesIO(npz(header=header()))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("state:cache.npy", head)
    return file.getvalue()


def declared(shape: str, dtype: str = "<f4") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text = text.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


CACHE = {"state:cache": np.zeros((8, 4), np.float32)}
DAMAGED: list[tuple[str, Callable[[], bytes]]] = [
    ("nothing", lambda: b""),
    ("text", lambda: b"no states"),
    ("a huge shape", lambda: stored(declared("(1099511627776, 1099511627776)"))),
    ("too few bytes", lambda: stored(declared("(8, 4)") + b"\0" * 100)),
    ("too many bytes", lambda: stored(declared("(8, 4)") + b"\0" * 200)),
    ("objects", lambda: stored(declared("(8, 4)", "|O") + b"\0" * 128)),
    ("another dtype", lambda: npz(header=header(), **{"state:cache": np.zeros((8, 4), np.int32)})),
    ("another shape", lambda: npz(header=header(), **{"state:cache": np.zeros((4, 8), "f4")})),
    ("no state", lambda: npz(header=header())),
    ("no header", lambda: npz(**CACHE)),
    ("a pickle", lambda: npz(header=np.array(None, object), **CACHE)),
    ("a deep header", lambda: npz(header=np.array(DEEP), **CACHE)),
    ("a negative position", lambda: npz(header=header(position=-1), **CACHE)),
    ("a huge position", lambda: npz(header=header(position=2**40), **CACHE)),
    ("a position of another type", lambda: npz(header=header(position=True), **CACHE)),
    ("another format", lambda: npz(header=header(format="x"), **CACHE)),
    ("no table", lambda: npz(header=header(states=[1]), **CACHE)),
]


@pytest.mark.parametrize(("what", "data"), DAMAGED, ids=[what for what, _ in DAMAGED])
def test_a_damaged_file_of_states_is_refused_and_changes_nothing(
    model: Path, what: str, data: Callable[[], bytes]
) -> None:
    session = onnx_iron.Session(model, provider="stock")
    session.run(ROW)
    before = session.state("cache")
    (model.parent / "saved").write_bytes(data())
    with pytest.raises(ValueError, match=r"saved holds no states of onnx-iron"):
        session.restore(model.parent / "saved")
    np.testing.assert_array_equal(session.state("cache"), before)
    assert session.position == 1


def test_no_byte_of_a_file_of_states_raises_another_error(model: Path) -> None:
    session = onnx_iron.Session(model, provider="stock")
    session.save(model.parent / "saved")
    whole = (model.parent / "saved").read_bytes()
    draw = chance.Random(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(draw.randrange(1, 5)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        (model.parent / "damaged").write_bytes(damaged[: draw.randrange(len(damaged))] or b"")
        (model.parent / "changed").write_bytes(damaged)
        for name in ("damaged", "changed"):
            try:
                session.restore(model.parent / name)
            except ValueError as error:
                assert name in str(error)  # noqa: PT017


@PROVIDERS
def test_a_folder_of_any_roles_is_opened_and_each_is_called_by_its_name(
    tmp_path: Path, provider: str
) -> None:
    def encode(self: Any, x: Any) -> Any:
        return x * 2

    state = onnx_iron.state((8, 4), np.float32)
    encoder = Network(encode).trace(x=((5, 4), np.float32))
    decoder = Network(body, cache=state).trace(x=((1, 4), np.float32))
    onnx_iron.export({"encoder": encoder, "decode": decoder}, tmp_path)
    session = onnx_iron.Session(tmp_path, provider=provider)
    x = random(5, 4)
    np.testing.assert_array_equal(session.call("encoder", x=x)["output"], x * 2)
    assert session.position == 0
    session.decode(**ROW)
    assert session.position == 1
    with pytest.raises(ValueError, match=r"unknown role, expected one of \['decode', 'encoder'\]"):
        session.call("encode", x=x)
    with pytest.raises(ValueError, match=r"there is no prefill\.onnx"):
        session.prefill(x=x)


def test_a_state_that_a_node_of_another_provider_reads_is_not_updated_in_place(
    model: Path,
) -> None:
    """It reads the state of before the call, after our nodes have written the next one."""
    edited = onnx.load(model)
    nodes, outputs = edited.graph.node, edited.graph.output
    read = helper.make_node("Einsum", ["past.cache", "output"], ["read"], equation="kj,ij->ik")
    nodes.append(read)
    outputs.append(helper.make_tensor_value_info("read", onnx.TensorProto.FLOAT, (1, 8)))
    onnx.save(edited, model)
    ours, stock = (onnx_iron.Session(model, provider=provider) for provider in ("iron", "stock"))
    assert not onnx_iron.placement(ours).complete
    for step in range(4):
        x = random(1, 4, seed=step)
        given, wanted = ours.decode(x=x), stock.decode(x=x)
        np.testing.assert_allclose(given["read"], wanted["read"], rtol=1e-6, atol=1e-6)


def test_registering_again_after_it_was_unregistered_works(model: Path) -> None:
    onnx_iron.register()
    onnxruntime.unregister_execution_provider_library("onnx_iron")
    onnx_iron.register()
    onnx_iron.register()
    report = onnx_iron.placement(onnx_iron.Session(model))
    assert report.complete
    assert report.rows


def test_saving_a_compiled_model_is_refused(model: Path) -> None:
    saving, optimised = onnxruntime.SessionOptions(), onnxruntime.SessionOptions()
    saving.add_session_config_entry("ep.context_enable", "1")
    saving.add_session_config_entry("ep.context_file_path", str(model.parent / "context.onnx"))
    optimised.optimized_model_filepath = str(model.parent / "optimised.onnx")
    for options, name in ((saving, "ep.context_enable"), (optimised, "optimized_model_filepath")):
        with pytest.raises(ValueError, match=f"ask for {name}, and IronExecutionProvider saves no"):
            onnx_iron.Session(model, session_options=options)
    onnx_iron.register()
    providers = ["IronExecutionProvider", "CPUExecutionProvider"]
    with pytest.raises(Exception, match="saves no compiled models"):
        onnxruntime.InferenceSession(model, saving, providers=providers)
    assert list(model.parent.glob("*.onnx")) == [model]


def test_the_package_lists_what_it_offers() -> None:
    assert set(onnx_iron.__all__) <= set(dir(onnx_iron))
    names: dict[str, Any] = {}
    exec("from onnx_iron import *", names)
    assert set(onnx_iron.__all__) <= set(names)


@pytest.mark.parametrize("content", [b"", b"junk", b"\x08\x0a"])
def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.onnx is no ONNX model"):
        onnx_iron.Session(tmp_path / "model.onnx")
