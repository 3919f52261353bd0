"""Sessions in several threads and processes: the results of one thread, and never a hang.

What could hang or end the process runs in one of its own, with a time limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_iron

COMMON = """
import multiprocessing, os, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np, onnxruntime
import onnx_iron
from onnx_iron import functional as F

class Net(onnx_iron.Graph):
    def __init__(self):
        normal = np.random.default_rng(0).standard_normal
        self.w = normal((48, 32), dtype=np.float32)
        self.v = normal((32, 48), dtype=np.float32)
        self.kept = onnx_iron.state((7, 32), np.float32)
    def body(self, x):
        h = F.silu(F.linear(x, self.w, precision=F.Precision.HIGHEST))
        y = F.rms_norm(F.linear(h, self.v, precision=F.Precision.HIGHEST) + self.kept, 32)
        self.kept[...] = y
        return {"y": y}

FOLDER = sys.argv[1]
PATH = os.path.join(FOLDER, "net.onnx")
def write(path=PATH):
    onnx_iron.export(Net().trace(x=((7, 32), np.float32)), path)
def opened(kind=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    if kind == "custom ops":
        options.register_custom_ops_library(onnx_iron.provider.get_library_path())
        return onnxruntime.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])
    onnx_iron.register()
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == "IronExecutionProvider"]
    options.add_provider_for_devices(devices[:1], {"device": "cpu"})
    return onnxruntime.InferenceSession(PATH, options)
def feeds(i):
    random = np.random.default_rng(i)
    return {n: random.standard_normal((7, 32), dtype=np.float32) for n in ("x", "past.kept")}
def call(session, i):
    return b"".join(a.tobytes() for a in session.run(None, feeds(i)))
def wanted(kind=None):
    session = opened(kind)
    return [call(session, i) for i in range(32)]
def in_threads(function, count=8):
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, range(32)))
import onnx_iron.provider
"""


def run(tmp_path: Path, script: str) -> None:
    """Run a script after COMMON in a process of its own; it must print ``ok`` last and end well."""
    file = tmp_path / "script.py"
    file.write_text(COMMON + script)
    done = subprocess.run(
        [sys.executable, str(file), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-3000:]


@pytest.mark.parametrize("kind", [None, "custom ops"])
def test_threads_give_the_bits_of_one_thread(tmp_path: Path, kind: str | None) -> None:
    """Of one session, of eight sessions, and of sessions that are opened while others run."""
    run(
        tmp_path,
        f"""
write()
right = wanted({kind!r})
one = opened({kind!r})
assert in_threads(lambda i: call(one, i)) == right, "one session"
eight = [opened({kind!r}) for _ in range(8)]
assert in_threads(lambda i: call(eight[i % 8], i)) == right, "eight sessions"
def either(i):
    return call(opened({kind!r}) if i % 4 == 0 else one, i)
assert in_threads(either) == right, "opened while others run"
print("ok")
""",
    )


def test_the_library_is_registered_anew_while_sessions_live_and_die(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
write()
right = wanted()
for cycle in range(5):
    session = opened()
    assert call(session, cycle) == right[cycle]
    del session
    onnxruntime.unregister_execution_provider_library("onnx_iron")
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda i: onnx_iron.register(), range(32)))
assert call(opened(), 3) == right[3]
print("ok")
""",
    )


@pytest.mark.parametrize("alive", [1, 8])
def test_a_process_ends_well_with_live_sessions(tmp_path: Path, alive: int) -> None:
    run(
        tmp_path,
        f"""
write()
kept = [opened() for _ in range({alive})]
stateful = onnx_iron.Session(PATH)
for session in kept:
    call(session, 0)
stateful.run({{"x": feeds(0)["x"]}})
print("ok")
""",
    )


def test_a_process_that_is_spawned_computes_the_same(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
def child(i):
    return call(opened(), i)
if __name__ == "__main__":
    write()
    right = wanted()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(child, range(4)) == right[:4]
    print("ok")
""",
    )


def test_a_forked_child_opens_a_session_of_its_own(tmp_path: Path) -> None:
    """onnxruntime's threads do not live on in a child; a session that the child opens does."""
    run(
        tmp_path,
        """
write()
right = wanted()
parent = opened()
call(parent, 0)
pid = os.fork()
if pid == 0:
    os._exit(0 if call(opened(), 1) == right[1] else 1)
assert os.waitpid(pid, 0)[1] == 0
assert call(parent, 2) == right[2]
print("ok")
""",
    )


def test_a_forked_child_may_use_the_session_that_its_parent_opened(tmp_path: Path) -> None:
    """The threads that would help are the parent's; what they don't take, the child's own does."""
    run(
        tmp_path,
        """
write()
right = wanted()
parent = opened()
call(parent, 0)
pid = os.fork()
if pid == 0:
    os._exit(0 if all(call(parent, i) == right[i] for i in range(1, 9)) else 1)
assert os.waitpid(pid, 0)[1] == 0
assert call(parent, 2) == right[2]
print("ok")
""",
    )


def test_two_processes_export_to_one_folder_while_a_third_opens_it(tmp_path: Path) -> None:
    """Of one graph: an opening gives a whole model, or finds no file in the instant in which an
    export has taken the old ones away; and no export fails."""
    run(
        tmp_path,
        """
write()
if len(sys.argv) > 2:
    for _ in range(8):
        write()
    sys.exit()
right = wanted()
command = [sys.executable, *sys.argv, "write"]
writers = [subprocess.Popen(command) for _ in range(2)]
i = 0
while any(writer.poll() is None for writer in writers) or i < 8:
    try:
        session = opened()
    except Exception as error:
        assert "exist" in str(error), error
        continue
    assert call(session, i % 32) == right[i % 32]
    i += 1
assert [writer.wait() for writer in writers] == [0, 0]
print("ok")
""",
    )


def test_calls_of_a_session_with_memory_take_turns(tmp_path: Path) -> None:
    class Counter(onnx_iron.Graph):
        def __init__(self) -> None:
            self.count = onnx_iron.state((4,), np.float32)

        def body(self, x: Any) -> Any:
            self.count[...] = self.count + x
            return self.count

    onnx_iron.export(Counter().trace(x=((4,), np.float32)), tmp_path / "counter.onnx")
    session = onnx_iron.Session(tmp_path / "counter.onnx")
    ones = np.ones(4, np.float32)

    def called(_: int) -> float:
        return float(session.run({"x": ones})["output"][0])

    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(called, range(400)))
    # Each call saw the one before it, and none saw two.
    assert sorted(counts) == list(range(1, 401))
    assert session.position == 1600  # x has four rows
    assert (session.state("count") == 400).all()
