"""Exports over an existing model that fail, are killed, or meet."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from networks import Network, random
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, NoSuchFile

import onnx_iron
from onnx_iron import Precision, Session, export
from onnx_iron import functional as F
from onnx_iron.dtypes import Array
from onnx_iron.export import weights as external
from onnx_iron.export.folder import staged
from onnx_iron.export.identity import EXPORT_KEY
from onnx_iron.graph import Trace
from onnx_iron.provider.weights import check_together, check_weights, load_model

X = np.ones((1, 64), np.float32)


def weight(seed: int) -> Array:
    return random(64, 64, seed=seed)


def versions(seed: int) -> dict[str, Trace]:
    graph = Network(
        lambda self, x: F.linear(x, self.w, precision=Precision.HIGHEST), w=weight(seed)
    )
    return {
        name: graph.trace(x=((rows, 64), np.float32)) for name, rows in (("a", 4), ("decode", 1))
    }


def computes(folder: Path) -> int:
    """The seed of the model that a folder holds, by what it computes in plain onnxruntime."""
    session = onnxruntime.InferenceSession(
        str(folder / "decode.onnx"), providers=["CPUExecutionProvider"]
    )
    (result,) = session.run(None, {"x": X})
    exact = [X.astype(np.float64) @ weight(seed).T for seed in (1, 2)]
    return 1 + [bool(np.allclose(result, y, atol=1e-4)) for y in exact].index(True)


def test_an_export_killed_at_any_move_leaves_one_model_whole_or_none_that_opens(
    tmp_path: Path,
) -> None:
    seen = []
    for moves in range(8):
        folder = tmp_path / str(moves)
        export(versions(1), folder)
        if (child := os.fork()) == 0:
            left, replace = [moves], Path.replace

            def dying(self: Path, target: Any, left: Any = left, replace: Any = replace) -> Any:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return replace(self, target)

            Path.replace = dying  # type: ignore[method-assign, assignment]
            export(versions(2), folder)
            os._exit(0)
        os.waitpid(child, 0)
        try:
            seen.append(computes(folder))
        except (NoSuchFile, Fail):
            seen.append(0)
        export(versions(2), folder)
        assert sorted(p.name for p in folder.iterdir()) == ["a.onnx", "decode.onnx", "weights.bin"]
        assert computes(folder) == 2
    assert seen == [1, 0, 0, 0, 0, 0, 2, 2]


def test_a_move_that_fails_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(versions(1), tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    replace = Path.replace
    for last in range(6):
        count = [0]

        def failing(self: Path, target: Any, count: Any = count, last: int = last) -> Any:
            count[0] += 1
            if count[0] == last + 1:
                raise OSError("no room")
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", failing)
        with pytest.raises(OSError, match="no room"):
            export(versions(2), tmp_path)
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_first_export_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace
    for last in range(3):
        count = [0]

        def failing(self: Path, target: Any, count: Any = count, last: int = last) -> Any:
            count[0] += 1
            if count[0] == last + 1:
                raise OSError("no room")
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", failing)
        with pytest.raises(OSError, match="no room"):
            export(versions(1), tmp_path)
        assert list(tmp_path.iterdir()) == []


def test_an_export_that_waited_holds_a_lock_that_the_next_one_meets(tmp_path: Path) -> None:
    lock = tmp_path / ".onnx-iron-export.lock"
    inside, leave = threading.Event(), threading.Event()

    def waiting() -> None:
        with staged(tmp_path):
            inside.set()
            leave.wait()

    def opened() -> int:
        return sum(
            os.path.realpath(f"/proc/self/fd/{number}") == str(lock)
            for number in os.listdir("/proc/self/fd")
        )

    waiter = threading.Thread(target=waiting)
    with staged(tmp_path):
        waiter.start()
        while opened() < 2:  # one of ours, and one that the waiter has opened
            pass
    inside.wait()
    try:
        third = os.open(lock, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(third)
    finally:
        leave.set()
        waiter.join()
    assert not lock.exists()


def test_two_exports_to_one_folder_wait_for_each_other(tmp_path: Path) -> None:
    for _ in range(4):
        runs = [threading.Thread(target=export, args=(versions(seed), tmp_path)) for seed in (1, 2)]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        assert computes(tmp_path) in (1, 2)
        check_weights(tmp_path / "decode.onnx", whole=True)
        names = sorted(p.name for p in tmp_path.iterdir())
        assert names == ["a.onnx", "decode.onnx", "weights.bin"]


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    for seed in (1, 2):
        export(versions(seed), tmp_path / str(seed))
    shutil.copy(tmp_path / "2" / "weights.bin", tmp_path / "1" / "weights.bin")
    with pytest.raises(ValueError, match=r"decode\.onnx was exported with other weights"):
        Session(tmp_path / "1" / "decode.onnx")


@pytest.mark.parametrize("place", [0, 64 * 64 * 2, 64 * 64 * 4 - 1])
def test_a_byte_that_changed_at_an_end_or_in_the_middle_of_a_weight_is_noticed(
    tmp_path: Path, place: int
) -> None:
    export(versions(1), tmp_path)
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[place] ^= 1
    (tmp_path / "weights.bin").write_bytes(data)
    with pytest.raises(ValueError, match=r"decode\.onnx was exported with other weights"):
        Session(tmp_path / "decode.onnx")


def test_another_model_that_uses_the_weights_file_is_not_left_with_new_weights(
    tmp_path: Path,
) -> None:
    export(versions(1), tmp_path)
    with pytest.raises(ValueError, match=r"a\.onnx keeps other weights in weights\.bin"):
        export({"decode": versions(2)["decode"]}, tmp_path)
    assert computes(tmp_path) == 1


@pytest.mark.parametrize("name", ["../x", "a/b", "", "..", "a\0b", "x" * 300, ".hidden", 3])
def test_a_name_that_is_no_file_s_is_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(ValueError, match="a version is named"):
        export({name: versions(1)["decode"]}, tmp_path / "in")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_trace_and_no_text_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    trace = versions(1)["decode"]
    for given in (Network(lambda self, x: x + 1), [trace], {"a": Network(lambda self, x: x + 1)}):
        with pytest.raises(TypeError, match="expected a trace"):
            export(given, tmp_path / "m.onnx")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="text that UTF-8 can write"):
        export(trace, tmp_path / "m.onnx", metadata={"a": "\ud800"})
    with pytest.raises(TypeError, match="keys and values are strings"):
        onnx_iron.export(trace, tmp_path / "m.onnx", metadata={"a": 1})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


def test_a_weight_that_exports_to_the_same_folder_is_refused(tmp_path: Path) -> None:
    export(versions(1), tmp_path)

    def load() -> Array:
        export(versions(2), tmp_path)
        return weight(1)

    graph = Network(
        lambda self, x: F.linear(x, self.w, precision=Precision.HIGHEST),
        w=onnx_iron.Weight((64, 64), np.float32, load),
    )
    with pytest.raises(RuntimeError, match=r"an export to .* that has not ended"):
        export({"decode": graph.trace(x=((1, 64), np.float32))}, tmp_path)
    assert computes(tmp_path) == 1
    export(versions(2), tmp_path)  # the folder is free again
    assert computes(tmp_path) == 2


def test_a_model_beside_an_export_that_records_none_does_no_harm(tmp_path: Path) -> None:
    export(versions(1), tmp_path)
    other = onnx.load(tmp_path / "decode.onnx", load_external_data=False)
    kept = {e.key: e.value for e in other.metadata_props if e.key != EXPORT_KEY}
    onnx.helper.set_model_props(other, kept)
    (tmp_path / "other.onnx").write_bytes(other.SerializeToString())
    check_together({file: load_model(file) for file in tmp_path.glob("*.onnx")})
    export(versions(2), tmp_path / "second")
    shutil.copy(tmp_path / "second" / "a.onnx", tmp_path / "a.onnx")
    with pytest.raises(ValueError, match="are not of one export"):
        check_together({file: load_model(file) for file in tmp_path.glob("*.onnx")})


STAGES = [
    *("place", "build_model", "write", "sampled", "identify", "check_others", "identify_export"),
    "put_in_place",
]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_export_ended_at_any_stage_leaves_the_old_model_whole(
    tmp_path: Path, stage: str, sent: signal.Signals
) -> None:
    export(versions(1), tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def ended(*given: Any, **named: Any) -> Any:
            os.kill(os.getpid(), sent)

        holds = external if hasattr(external, stage) else sys.modules["onnx_iron.export"]
        setattr(holds, stage, ended)
        try:
            export(versions(2), tmp_path)
        except KeyboardInterrupt:
            os._exit(3)
        finally:
            os._exit(4)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (3 if sent == signal.SIGINT else -sent)
    left = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.name in before}
    assert left == before
    if sent == signal.SIGINT:
        assert len(list(tmp_path.iterdir())) == len(before)
    assert computes(tmp_path) == 1
    export(versions(2), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(before)
    assert computes(tmp_path) == 2


def test_an_export_that_may_write_no_more_leaves_the_old_model_whole(tmp_path: Path) -> None:
    export(versions(1), tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for limit in (0, 1000, 8192):
        if (child := os.fork()) == 0:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                export(versions(2), tmp_path)
            except OSError:
                os._exit(3)
            finally:
                os._exit(4)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 3
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def small(seed: int) -> dict[str, Trace]:
    """Versions whose weights are in the models themselves."""
    graph = Network(lambda self, x: x * self.w, w=random(64, seed=seed))
    return {name: graph.trace(x=((rows, 64), np.float32)) for name, rows in (("a", 4), ("b", 1))}


def test_versions_without_a_weights_file_are_never_opened_half_old_and_half_new(
    tmp_path: Path,
) -> None:
    export(small(2), tmp_path / "new")
    new = {p.name: p.read_bytes() for p in (tmp_path / "new").iterdir()}
    seen = set()
    for moves in range(5):
        folder = tmp_path / str(moves)
        export(small(1), folder)
        old = {p.name: p.read_bytes() for p in folder.iterdir()}
        if (child := os.fork()) == 0:
            left, replace = [moves], Path.replace

            def dying(self: Path, target: Any, left: Any = left, replace: Any = replace) -> Any:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return replace(self, target)

            Path.replace = dying  # type: ignore[method-assign, assignment]
            export(small(2), folder)
            os._exit(0)
        os.waitpid(child, 0)
        there = {p.name: p.read_bytes() for p in folder.glob("*.onnx")}
        assert len(there) < 2 or there in (old, new)
        seen.add("old" if there == old else "new" if there == new else "neither")
    assert seen == {"old", "neither", "new"}


def test_a_weights_file_that_no_model_uses_any_more_is_removed(tmp_path: Path) -> None:
    export(versions(1)["decode"], tmp_path / "m.onnx")
    assert (tmp_path / "m.weights").exists()
    export(small(1)["a"], tmp_path / "m.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_weights_file_that_another_model_uses_or_that_is_none_stays(tmp_path: Path) -> None:
    export(versions(1), tmp_path)
    export({"a": small(1)["a"]}, tmp_path)
    assert computes(tmp_path) == 1
    (tmp_path / "m.weights").write_bytes(b"of something else")
    export(small(1)["a"], tmp_path / "m.onnx")
    assert (tmp_path / "m.weights").read_bytes() == b"of something else"
