"""Faults of the NPU: each is a clear exception or a counted fallback, and the session goes on."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from npu_models import WIDTH, build_for, export_short_conv, random

import onnx_iron
from onnx_iron.dtypes import Array
from onnx_iron.native import library
from onnx_iron.provider.options import FallbackWarning

TOLERANCE = 2.0**-5


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory, target: str) -> Path:
    folder = export_short_conv(tmp_path_factory.mktemp("conv"))
    build_for(folder, target)
    return folder / "decode.onnx"


def rows(step: int) -> Array:
    return random(1, WIDTH, seed=step) * 8


class Prompts:
    """A session of both models on the NPU, and one on the CPU that says what it should give."""

    def __init__(self, path: Path, **options: str) -> None:
        options = {"timeout_ms": "200", **options}
        self.npu = onnx_iron.Session(path, device="npu", provider_options=options)
        self.cpu = onnx_iron.Session(path, device="cpu")

    def prompt(self, seed: int, length: int = 40) -> None:
        """A prompt of three chunks, and a step after it."""
        x = random(length, WIDTH, seed=seed) * 8
        for call in ("prefill", "decode"):
            given = x if call == "prefill" else x[:1]
            made, expected = (
                getattr(session, call)(x=given)["output"].astype(np.float32)
                for session in (self.npu, self.cpu)
            )
            np.testing.assert_allclose(made, expected, atol=TOLERANCE)

    def state(self) -> tuple[int, bytes]:
        """What the next call depends on."""
        state = self.npu.state("conv")
        return self.npu.position, np.asarray(state).tobytes()


def run(session: onnx_iron.Session, step: int) -> Array:
    return session.decode(x=rows(step))["output"].astype(np.float32)


class Pair:
    """A session on the NPU, and one on the CPU that says what it should give."""

    def __init__(self, path: Path, **options: str) -> None:
        self.npu = onnx_iron.Session(path, device="npu", provider_options=options)
        self.cpu = onnx_iron.Session(path, device="cpu")
        self._step = 0

    def step(self) -> None:
        """One call of both, compared."""
        self._step += 1
        made, expected = run(self.npu, self._step), run(self.cpu, self._step)
        np.testing.assert_allclose(made, expected, atol=TOLERANCE)

    def failing_step(self, message: str) -> None:
        """A call of the first that fails; the other does not move on either."""
        with pytest.raises(Exception, match=message):
            run(self.npu, self._step + 1)


# Faults in a call, what the exception says, and how often a context is made anew.
FAILURES = [
    ("error", 1, r"NPU: a run failed \(.*ERT_CMD_STATE_ERROR"),
    ("hang", 1, r"NPU: 3 runs did not end within timeout_ms, 200"),
    ("context_lost", 2, r"NPU: the hardware context was lost .*; it was rebuilt once, and lost"),
    ("submission", 2, r"NPU: submitting 3 runs failed: .*; it was rebuilt once, and lost again"),
]


@pytest.mark.parametrize(("fault", "times", "message"), FAILURES)
def test_a_call_that_fails_is_an_exception_and_the_next_one_works(
    driver: Any, conv: Path, fault: str, times: int, message: str
) -> None:
    pair = Pair(conv, timeout_ms="200")
    pair.step()
    for _ in range(2):
        driver.fault(fault, times=times)
        pair.failing_step(message)
        # The state is as it was before the call that failed.
        for _ in range(3):
            pair.step()


def test_an_xrt_without_the_function_is_waited_for_by_pyxrt(
    driver: Any, conv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library(), "onnx_iron_npu_wait", lambda *_: 3)
    pair = Pair(conv)
    for _ in range(3):
        pair.step()
    driver.fault("error")
    pair.failing_step("NPU: a run failed")
    pair.step()


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("fault", ["error", "hang"])
def test_a_failure_in_the_middle_leaves_the_state(
    driver: Any, conv: Path, fault: str, after: int
) -> None:
    pair = Pair(conv, timeout_ms="200")
    pair.step()
    driver.fault(fault, after=after)
    pair.failing_step("NPU: ")
    for _ in range(3):
        pair.step()


@pytest.mark.parametrize("fault", ["context_lost", "submission"])
@pytest.mark.parametrize("after", [0, 2])
def test_a_lost_context_is_rebuilt_once_unseen(
    driver: Any, conv: Path, fault: str, after: int
) -> None:
    pair = Pair(conv)
    pair.step()
    made = driver.counters()["contexts_made"]
    driver.fault(fault, after=0 if fault == "submission" else after)
    for _ in range(3):
        pair.step()
    assert driver.counters()["contexts_made"] == made + 1
    assert pair.npu.placement()["model"].fallbacks == 0


@pytest.mark.parametrize(("fault", "times", "message"), FAILURES)
def test_with_fallback_cpu_a_failing_call_is_counted(
    driver: Any, conv: Path, fault: str, times: int, message: str
) -> None:
    npu = onnx_iron.Session(
        conv, device="npu", provider_options={"fallback": "cpu", "timeout_ms": "200"}
    )
    report = npu.placement()["model"]
    cpu = onnx_iron.Session(conv, device="cpu")
    del report
    for step in range(3):
        np.testing.assert_allclose(run(npu, step), run(cpu, step), atol=TOLERANCE)
    driver.fault(fault, times=times)
    with pytest.warns(FallbackWarning, match=message):
        made = run(npu, 3)
    np.testing.assert_allclose(made, run(cpu, 3), atol=TOLERANCE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        driver.fault(fault, times=times)
        np.testing.assert_allclose(run(npu, 4), run(cpu, 4), atol=TOLERANCE)
    for step in range(5, 8):
        before = driver.counters()["runs"]
        np.testing.assert_allclose(run(npu, step), run(cpu, step), atol=TOLERANCE)
        assert driver.counters()["runs"] == before + 3, "it is on the NPU again"


def test_the_placement_report_counts_fallbacks(driver: Any, conv: Path) -> None:
    npu = onnx_iron.Session(conv, device="npu", provider_options={"fallback": "cpu"})
    run(npu, 0)
    assert npu.placement()["model"].fallbacks == 0
    driver.fault("error")
    with pytest.warns(FallbackWarning):
        run(npu, 1)
    report = npu.placement()["model"]
    assert report.fallbacks == 1
    assert "a run failed" in report.fallback_reason
    assert "1 calls fell back to the CPU: NPU: a run failed" in str(report)
    assert report.to_dict()["fallbacks"]["count"] == 1


@pytest.mark.parametrize("after", [0, 3])
def test_a_refused_buffer_fails_the_session_or_the_call_that_needs_it(
    driver: Any, conv: Path, after: int
) -> None:
    driver.fault("allocation", after=after)
    with pytest.raises(Exception, match=r"NPU: .* failed: .*Cannot allocate memory"):
        run(onnx_iron.Session(conv, device="npu"), 1)
    pair = Pair(conv)
    pair.step()


def test_a_call_whose_weights_found_no_room_can_be_made_again(driver: Any, conv: Path) -> None:
    pair = Pair(conv)
    driver.fault("allocation")
    pair.failing_step("NPU: .* failed: .*Cannot allocate memory")
    for _ in range(3):
        pair.step()


def test_a_refused_context_while_others_are_open(driver: Any, conv: Path) -> None:
    from onnx_iron.provider.devices.npu.xrt import open_device

    pair = Pair(conv)
    with open_device()._changed:
        while open_device()._evict():
            pass
    driver.fault("context")
    pair.failing_step(r"NPU: a hardware context .* failed: .*; the driver allows \d+ on this")
    pair.step()


def test_a_firmware_that_makes_no_context(driver: Any, conv: Path) -> None:
    from onnx_iron.provider.devices.npu.xrt import open_device

    pair = Pair(conv)
    with open_device()._changed:
        while open_device()._evict():
            pass
    driver.fault("firmware")
    pair.failing_step(r"NPU: a hardware context .* Operation not supported; `onnx-iron doctor`")
    pair.step()


def test_a_hang_without_a_timeout_ends_when_the_driver_gives_up(driver: Any, conv: Path) -> None:
    pair = Pair(conv, timeout_ms="0")
    pair.step()
    driver.fault("hang")
    start = time.monotonic()
    pair.failing_step(r"NPU: 3 runs did not end \(.*ERT_CMD_STATE_TIMEOUT")
    assert time.monotonic() - start < 10
    pair.step()


def test_other_threads_go_on_while_the_npu_works(driver: Any, conv: Path) -> None:
    pair = Pair(conv, timeout_ms="500")
    pair.step()
    driver.fault("hang")
    counted = 0

    def fail() -> None:
        pair.failing_step("did not end")

    thread = threading.Thread(target=fail)
    thread.start()
    while thread.is_alive():
        counted += 1
        time.sleep(0.01)
    assert counted > 10, "Python's lock is not held while the NPU is waited for"
    pair.step()


def test_a_lost_context_makes_room_for_its_successor(
    driver: Any, conv: Path, target: str, tmp_path: Path
) -> None:
    """All contexts but one are in use by others."""
    from onnx_iron.provider.devices.npu.image import Part, build_image
    from onnx_iron.provider.devices.npu.xrt import open_device

    device = open_device()
    (tmp_path / "any.pdi").write_bytes(b"none")
    pair = Pair(conv)
    pair.step()
    with contextlib.ExitStack() as stack:
        for number in range(device.target.contexts - 1):
            path = tmp_path / f"{number}.xclbin"
            build_image([Part("other", tmp_path / "any.pdi", 3)], device.target, path)
            stack.enter_context(device.context(path))
        driver.fault("context_lost", after=3)
        pair.step()
        assert driver.counters()["contexts_live"] == device.target.contexts
        driver.fault("error")
        pair.failing_step("a run failed")
        pair.step()


def test_threads_that_share_a_context_survive_its_loss(driver: Any, conv: Path) -> None:
    """Four sessions have their designs in one image, so in one context; calls fail in between."""
    pairs = [
        (
            onnx_iron.Session(conv, device="npu", provider_options={"fallback": "cpu"}),
            onnx_iron.Session(conv, device="cpu"),
        )
        for _ in range(4)
    ]
    wrong: list[str] = []

    def work(npu: onnx_iron.Session, cpu: onnx_iron.Session) -> None:
        for step in range(40):
            made, expected = run(npu, step), run(cpu, step)
            if not np.allclose(made, expected, atol=TOLERANCE):
                wrong.append(f"step {step}: {np.abs(made - expected).max()}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        threads = [threading.Thread(target=work, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for fault in ("error", "context_lost", "submission", "context") * 10:
            driver.fault(fault)
            time.sleep(0.002)
        for thread in threads:
            thread.join()
    assert not wrong, wrong
    assert driver.counters()["contexts_live"] <= 16


def test_a_session_alive_at_exit_and_the_counters_of_a_process(
    driver: Any, conv: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    program = f"""
        import numpy as np, onnx_iron
        from onnx_iron.dtypes import BFLOAT16
        session = onnx_iron.Session({str(conv)!r}, device="npu")
        session.decode(x=np.ones((1, {WIDTH}), BFLOAT16))
        print("ran")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "NPU_DRIVER_REPORT": str(report)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    counted = json.loads(report.read_text())
    assert counted["runs"] == 3
    assert counted["submissions"] == 1


def test_no_npu_is_an_error_or_one_warning(driver: Any, conv: Path, tmp_path: Path) -> None:
    program = f"""
        import warnings, numpy as np, onnx_iron
        from onnx_iron.dtypes import BFLOAT16
        try:
            onnx_iron.Session({str(conv)!r}, device="npu")
        except Exception as error:
            print(error)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            session = onnx_iron.Session(
                {str(conv)!r}, device="npu", provider_options={{"fallback": "cpu"}})
        print(len(caught), caught[0].message)
        print(session.placement()["model"])
        session.decode(x=np.ones((1, {WIDTH}), BFLOAT16))
        print(onnx_iron.Session({str(conv)!r}).placement()["model"])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "LD_PRELOAD": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stdout + done.stderr
    assert "device is 'npu', and there is no NPU to use: XRT finds no NPU" in lines[0]
    assert lines[1].startswith("1 device is 'npu', and there is no NPU to use: XRT finds no NPU")
    assert (
        lines[2].split()
        == lines[3].split()
        == ["9", "nodes", "on", "IronExecutionProvider", "(cpu)"]
    )


# -- a prompt of several chunks -------------------------------------------------------------


@pytest.fixture(scope="module")
def both(conv: Path) -> Path:
    return conv.parent


@pytest.mark.parametrize("fault", ["error", "hang"])
@pytest.mark.parametrize("after", [0, 9, 14, 26])
def test_a_prompt_that_fails_in_a_chunk_can_go_on_from_the_chunks_before(
    driver: Any, both: Path, fault: str, after: int
) -> None:
    """Nine runs a chunk. The position says which rows the state has; the rest is given again."""
    pair = Prompts(both)
    pair.prompt(1)
    driver.fault(fault, after=after)
    x = random(40, WIDTH, seed=2) * 8
    begin = pair.npu.position
    with pytest.raises(Exception, match="NPU: "):
        pair.npu.prefill(x=x)
    done = pair.npu.position - begin
    assert done == 16 * (after // 9)
    made = pair.npu.prefill(x=x[done:])["output"].astype(np.float32)
    expected = pair.cpu.prefill(x=x)["output"].astype(np.float32)
    np.testing.assert_allclose(made, expected[done:], atol=TOLERANCE)
    assert pair.npu.position == pair.cpu.position
    pair.prompt(3)


@pytest.mark.parametrize("after", [0, 9, 26])
def test_with_fallback_cpu_a_prompt_is_whole_whichever_chunk_fails(
    driver: Any, both: Path, after: int
) -> None:
    pair = Prompts(both, fallback="cpu")
    pair.prompt(1)
    driver.fault("error", after=after)
    with pytest.warns(FallbackWarning):
        pair.prompt(2)
    pair.prompt(3)


def test_a_device_that_is_lost_while_sessions_are_open_comes_back_to_all_of_them(
    driver: Any, both: Path
) -> None:
    pairs = [Prompts(both), Prompts(both)]
    for pair in pairs:
        pair.prompt(1)
    states = [pair.state() for pair in pairs]
    for fault in ("context_lost", "submission", "context"):
        driver.fault(fault, times=1000)
    for pair, state in zip(pairs, states, strict=True):
        for _ in range(2):
            with pytest.raises(Exception, match="NPU: "):
                pair.npu.decode(x=rows(5))
        assert pair.state() == state
    for fault in ("context_lost", "submission", "context"):
        driver.fault(fault, times=0)
    for pair in pairs:
        pair.prompt(2)


def test_a_call_of_one_session_that_fails_is_nothing_to_another(driver: Any, both: Path) -> None:
    failing, other = Prompts(both), Prompts(both)
    for pair in (failing, other):
        pair.prompt(1)
    state = other.state()
    driver.fault("error", after=2)
    with pytest.raises(Exception, match="a run failed"):
        failing.npu.decode(x=rows(2))
    assert other.state() == state
    other.prompt(2)
    failing.prompt(2)


@pytest.mark.parametrize("after", range(4))
def test_a_buffer_that_is_refused_late_leaves_the_states(
    driver: Any, both: Path, after: int
) -> None:
    """The first calls of a session make the buffers that they need."""
    pair = Prompts(both)
    driver.fault("allocation", after=after)
    x, said = random(40, WIDTH, seed=1) * 8, "Cannot allocate memory"
    try:
        pair.npu.prefill(x=x)
    except Exception as error:
        said = str(error)
    assert "Cannot allocate memory" in said
    driver.fault("allocation", times=0)
    pair.npu.reset()
    pair.prompt(1)


def test_a_list_that_the_watchdog_would_end_goes_out_in_parts(
    driver: Any, both: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_iron.provider.devices.npu import limits

    monkeypatch.setattr(limits, "WATCHDOG_S", 4 * limits._START_S)
    pair = Prompts(both)
    pair.prompt(1)
    before = driver.counters()["submissions"]
    pair.npu.decode(x=rows(1))
    assert driver.counters()["submissions"] - before > 2
    monkeypatch.setattr(limits, "WATCHDOG_S", limits._START_S / 2)
    with pytest.raises(Exception, match=r"may take 0.0 s in one run, and the driver resets"):
        Prompts(both)
