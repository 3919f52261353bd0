"""Traces of sessions with the option ``profile``: what is in them, their bound, their file."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto
from provider_models import BF16, constant, iron, iron_node, model, node, spec

import onnx_iron
from onnx_iron import functional as F
from onnx_iron.native import NativeError, library
from onnx_iron.provider import write_profile
from onnx_iron.provider.devices import DEVICES
from onnx_iron.provider.devices.cpu import Cpu
from onnx_iron.provider.devices.device import Places
from onnx_iron.provider.devices.npu import runtime
from onnx_iron.provider.devices.npu.errors import NpuError
from onnx_iron.provider.options import FallbackWarning, Options
from onnx_iron.provider.subgraph import Subgraph

ROOT = Path(__file__).parent.parent


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def events(file: Path, category: str = "step") -> list[dict[str, Any]]:
    trace = json.loads(file.read_text())
    return [event for event in trace["traceEvents"] if event.get("cat") == category]


def head(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())["otherData"]
    return found


def three_nodes(rows: int | str = 4) -> bytes:
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Softmax", "r", "y")]
    weight = constant("w", np.full((64, 48), 0.01, np.float32))
    return model(nodes, [spec("x", (rows, 64))], [spec("y", (rows, 48))], [weight])


def run(session: ort.InferenceSession, rows: int = 4) -> None:
    session.run(None, {"x": np.ones((rows, 64), np.float32)})


def test_each_call_has_an_event_for_each_node_with_its_operator_and_name(file: Path) -> None:
    session = iron(three_nodes(), profile=str(file))
    run(session), run(session)
    write_profile(file)
    names = [row.name for row in onnx_iron.placement(session).rows]
    steps = events(file)
    assert [step["args"]["node"] for step in steps] == 2 * names == 2 * ["m", "r", "y"]
    assert [step["name"] for step in steps] == 2 * ["MatMul", "Relu", "Softmax"]
    calls = events(file, "run")
    assert [call["args"]["steps"] for call in calls] == [3, 3]
    for step in steps:
        around = calls[step["args"]["run"]]
        assert around["pid"] == step["pid"]
        assert around["args"]["group"] == step["args"]["group"]
        assert around["ts"] <= step["ts"]
        assert step["ts"] + step["dur"] <= around["ts"] + around["dur"] + 0.01
        assert step["args"]["threads"] >= 1
        assert step["args"]["cpu_path"] == head(file)["cpu_path"]


@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "float32"), (BF16, "bfloat16")])
def test_a_products_bytes_and_operations_are_those_counted_by_hand(
    file: Path, dtype: Any, name: str
) -> None:
    weight = constant("w", np.ones((64, 48), dtype))
    cast = {"to": TensorProto.BFLOAT16 if dtype is BF16 else TensorProto.FLOAT}
    nodes = [
        node("Cast", "x", "narrow", **cast),
        node("MatMul", "narrow w", "m"),
        node("Cast", "m", "y", to=TensorProto.FLOAT),
    ]
    made = model(nodes, [spec("x", (4, 64))], [spec("y", (4, 48))], [weight])
    session = iron(made, profile=str(file))
    run(session)
    write_profile(file)
    (step,) = (e for e in events(file) if e["name"] == "MatMul")
    arguments = step["args"]
    size = np.dtype(dtype).itemsize
    assert arguments["bytes"] == size * (4 * 64 + 64 * 48 + 4 * 48)
    assert arguments["flops"] == 2 * 4 * 64 * 48
    assert arguments["inputs"] == [f"{name} (4, 64)", f"{name} (64, 48)"]
    assert arguments["outputs"] == [f"{name} (4, 48)"]
    assert arguments["dtype"] == name
    nanoseconds = step["dur"] * 1000
    assert arguments["GB/s"] == pytest.approx(arguments["bytes"] / nanoseconds, abs=1e-3)
    assert arguments["GFLOP/s"] == pytest.approx(arguments["flops"] / nanoseconds, abs=1e-3)


def test_shapes_that_a_model_leaves_open_are_each_calls_own(file: Path) -> None:
    session = iron(three_nodes("rows"), profile=str(file))
    for rows in (1, 7, 300):
        run(session, rows)
    write_profile(file)
    products = [step["args"] for step in events(file) if step["name"] == "MatMul"]
    assert [p["flops"] for p in products] == [2 * rows * 64 * 48 for rows in (1, 7, 300)]
    sizes = [4 * (rows * 64 + 64 * 48 + rows * 48) for rows in (1, 7, 300)]
    assert [p["bytes"] for p in products] == sizes


class Decoder(onnx_iron.Graph):
    """What reads or writes a part of its operands: a table's rows, a cache as far as it is full."""

    def __init__(self) -> None:
        self.table = np.ones((1000, 128), np.float32)
        self.keys = onnx_iron.state((256, 1, 64), np.float32)
        self.values = onnx_iron.state((256, 1, 64), np.float32)

    def body(self, ids: Any, *, position: Any) -> Any:
        x = F.embedding(ids, self.table).reshape(1, 2, 64)
        self.keys[position] = x.reshape(1, 128)[:, :64]
        self.values[position] = x.reshape(1, 128)[:, 64:]
        return F.scaled_dot_product_attention(
            x, self.keys, self.values, is_causal=True, position=position, enable_gqa=True
        )


def test_what_a_step_leaves_alone_of_its_operands_is_not_counted(
    file: Path, tmp_path: Path
) -> None:
    trace = Decoder().trace(ids=((1,), np.int32))
    onnx_iron.export({"decode": trace}, tmp_path / "decoder")
    options = {"profile": str(file), "device": "cpu"}
    session = onnx_iron.Session(tmp_path / "decoder", provider_options=options)
    for _ in range(3):
        session.decode(ids=np.array([7], np.int32))
    write_profile(file)
    by_name: dict[str, list[Any]] = {}
    for step in events(file):
        by_name.setdefault(step["name"], []).append(step["args"])
    assert {a["bytes"] for a in by_name["Embedding"]} == {2 * 128 * 4}
    assert {a["bytes"] for a in by_name["SliceScatter"]} == {2 * 64 * 4}
    # A row of two heads over 1, 2, 3 keys and as many values; the position is an operand too.
    seen = [4 * (2 * 128 + 2 * keys * 64) for keys in (1, 2, 3)]
    assert [a["bytes"] - seen[i] for i, a in enumerate(by_name["Attention"])] == [4, 4, 4]
    assert [a["flops"] for a in by_name["Attention"]] == [2 * 2 * keys * 128 for keys in (1, 2, 3)]


def test_moves_compute_nothing_and_a_convolution_its_taps(file: Path) -> None:
    shapes = {"x": (8, 32), "taps": (3, 32), "state": (2, 32)}
    inputs = [spec("x", (8, 32)), spec("state", (2, 32))]
    conv = iron_node("CausalConv1d", "t taps state", "c n", shapes, activation="none")
    nodes = [node("Neg", "x", "t"), conv, node("Transpose", "c", "y", perm=[1, 0])]
    weight = constant("taps", np.ones((3, 32), np.float32))
    made = model(nodes, inputs, [spec("y", (32, 8)), spec("n", (2, 32))], [weight])
    session = iron(made, profile=str(file))
    session.run(None, {"x": np.ones((8, 32), "f"), "state": np.ones((2, 32), "f")})
    write_profile(file)
    flops = {step["name"]: step["args"]["flops"] for step in events(file)}
    assert flops == {"Neg": 8 * 32, "CausalConv1d": 2 * 3 * 8 * 32, "Transpose": 0}


def test_without_the_option_there_is_no_file(tmp_path: Path) -> None:
    session = iron(three_nodes())
    run(session)
    del session
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NativeError, match="no session records"):
        write_profile(tmp_path / "trace.json")


def test_the_file_is_written_as_the_last_session_ends_with_each_session_apart(file: Path) -> None:
    first, second = (iron(three_nodes(), profile=str(file)) for _ in range(2))
    run(first), run(second), run(second)
    del first
    gc.collect()
    assert file.read_text() == ""
    del second
    gc.collect()
    calls = [call["pid"] for call in events(file, "run")]
    assert sorted(calls.count(pid) for pid in set(calls)) == [1, 2]
    named = [e for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "M"]
    assert {e["pid"] for e in named} == set(calls)


def test_a_session_that_follows_writes_its_own_trace(file: Path) -> None:
    for calls in (3, 1):
        session = iron(three_nodes(), profile=str(file))
        for _ in range(calls):
            run(session)
        del session
        gc.collect()
        assert len(events(file, "run")) == calls


def test_several_threads_at_once_lose_no_step(file: Path) -> None:
    session = iron(three_nodes("rows"), profile=str(file))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda rows: run(session, rows), [1 + i % 5 for i in range(40)]))
    write_profile(file)
    steps = events(file)
    counts = {call["args"]["run"]: call["args"]["steps"] for call in events(file, "run")}
    assert counts == dict.fromkeys(range(40), 3)
    for number in range(40):
        found = [s["args"]["node"] for s in steps if s["args"]["run"] == number]
        assert found == ["m", "r", "y"]


def test_what_is_beyond_the_bound_is_counted_and_the_trace_says_so(file: Path) -> None:
    session = iron(three_nodes(), profile=str(file), profile_bytes="4000")
    for _ in range(100):
        run(session)
    write_profile(file)
    kept = len(events(file, "run"))
    assert 0 < kept < 4000 // (3 * 40)
    assert len(events(file)) == 3 * kept
    assert head(file)["dropped_runs"] == 100 - kept
    assert head(file)["dropped_steps"] == 3 * (100 - kept)
    said = [e["name"] for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "I"]
    assert said == [
        f"not recorded from here on: {100 - kept} runs, {3 * (100 - kept)} steps "
        "(option profile_bytes)"
    ]


def test_a_bound_of_nothing_records_nothing(file: Path) -> None:
    session = iron(three_nodes(), profile=str(file), profile_bytes="0")
    run(session)
    write_profile(file)
    assert events(file) == events(file, "run") == []
    assert head(file)["dropped_runs"] == 1


def test_a_call_that_fails_is_marked_and_has_the_steps_before(file: Path) -> None:
    nodes = [node("Neg", "x", "n"), node("Gather", "n ids", "y")]
    inputs = [spec("x", (4, 8)), spec("ids", (1,), np.int64)]
    session = iron(model(nodes, inputs, [spec("y", (1, 8))]), profile=str(file))
    x = np.ones((4, 8), np.float32)
    session.run(None, {"x": x, "ids": np.array([3])})
    with pytest.raises(Exception, match="is 9, expected"):
        session.run(None, {"x": x, "ids": np.array([9])})
    write_profile(file)
    assert [call["args"]["failed"] for call in events(file, "run")] == [False, True]
    assert [step["name"] for step in events(file)] == ["Neg", "Gather", "Neg"]


class Elsewhere(Cpu):
    """A device beside the CPU, whose program answers one call with zeros and fails the next."""

    def compile(self, request: int, subgraph: Subgraph, provider: int, options: Options) -> Places:
        places = super().compile(request, subgraph, provider, options)
        specs = [subgraph.lowering.specs[name] for name in subgraph.outputs]
        seat = runtime.Seat(cast(Any, self), provider, "cpu", [], specs)
        library().onnx_iron_program_device(request, runtime.enter(seat))
        return places

    calls = 0

    def run(self, inputs: Any, outputs: Any) -> None:
        self.calls += 1
        if self.calls > 1:
            raise NpuError("it is gone")
        ctypes.memset(outputs[0], 0, 4 * 4 * 48)

    def close(self) -> None:
        pass


def test_a_call_on_another_device_is_one_event_and_has_steps_where_it_falls_back(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DEVICES, "cpu", cast(Any, Elsewhere()))
    session = iron(three_nodes(), profile=str(file), device="cpu")
    run(session)
    with pytest.warns(FallbackWarning, match="it is gone"):
        run(session)
    write_profile(file)
    calls = [(e["args"]["device"], e["args"]["steps"]) for e in events(file, "run")]
    assert calls == [("npu", 0), ("cpu", 3)]
    assert [step["args"]["run"] for step in events(file)] == [1, 1, 1]


def test_names_with_quotes_and_newlines_leave_the_trace_whole(file: Path) -> None:
    odd = 'a"b\\c\nd\té'
    made = node("Relu", "x", "y")
    made.name = odd
    session = iron(model([made], [spec("x", (1, 64))], [spec("y", (1, 64))]), profile=str(file))
    run(session, 1)
    write_profile(file)
    assert events(file)[0]["args"]["node"] == odd


# -- the file ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "option 'profile' is '', expected the path of a file"),
        ("nowhere/trace.json", "No such file or directory"),
        (".", "Is a directory"),
        ("/dev/null", "is no regular file"),
        ("pipe", "is no regular file"),
        ("model.onnx", "holds something else than a profile"),
        ("cut.json", "holds something else than a profile"),
        ("loop", "Too many levels of symbolic links"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_as_a_session_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.symlink("loop", "loop")
    Path("model.onnx").write_bytes(b"\x08\x0a other")
    Path("cut.json").write_text('{"otherData":{"producer":"onnx')
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    with pytest.raises(Exception, match="profile") as caught:
        iron(three_nodes(), profile=path)
    assert message in str(caught.value)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before


def test_the_bound_alone_and_one_that_is_no_number_are_refused(file: Path) -> None:
    with pytest.raises(Exception, match="'profile_bytes' is given without 'profile'"):
        iron(three_nodes(), profile_bytes="5")
    with pytest.raises(Exception, match="option 'profile_bytes' is '-1', expected bytes"):
        iron(three_nodes(), profile=str(file), profile_bytes="-1")
    assert not file.exists()


def other_process(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    start = "import sys; sys.path[:0] = sys.argv[1:3]; from test_profile import *\n"
    command = [sys.executable, "-c", start + code, str(ROOT), str(ROOT / "tests"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_file_that_another_process_records_in_is_refused(file: Path) -> None:
    session = iron(three_nodes(), profile=str(file))
    run(session)
    code = "iron(three_nodes(), profile=sys.argv[3])"
    refused = other_process(code, str(file))
    assert "another process records in" in refused.stderr
    del session
    gc.collect()
    assert len(events(file)) == 3


def test_a_session_that_never_ends_is_written_as_the_process_does(file: Path) -> None:
    code = """
import ctypes
session = iron(three_nodes(), profile=sys.argv[3])
ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
run(session)
if (child := os.fork()) == 0:
    run(session)
    write_profile(sys.argv[3])
    os._exit(0)
os.waitpid(child, 0)
assert Path(sys.argv[3]).read_text() == ""  # a child's calls are none of its parent's
"""
    ended = other_process(code, str(file))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(events(file)) == 3


def test_a_file_that_has_no_room_is_an_error_and_no_crash(file: Path) -> None:
    code = """
import resource
session = iron(three_nodes(), profile=sys.argv[3])
run(session)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_profile(sys.argv[3])
except ValueError as error:
    print(error)
run(session)
del session
"""
    ended = other_process(code, str(file))
    assert ended.returncode == 0, ended.stderr
    message = f"onnx-iron: the profile '{file}' can't be written: File too large"
    assert message in ended.stdout
    assert message in ended.stderr


def test_a_file_that_was_removed_is_said_on_stderr(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session = iron(three_nodes(), profile=str(file))
    run(session)
    file.unlink()
    del session
    gc.collect()
    assert f"the profile '{file}' can't be written: it was removed" in capfd.readouterr().err
    assert not file.exists()
