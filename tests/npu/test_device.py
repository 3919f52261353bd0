"""The whole way on the simulated NPU: InferenceSession, provider, pyxrt, XRT, driver, designs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from design_compiler import COMPILER
from npu_models import CHUNK, WIDTH, build_for, export_short_conv, export_small_llama

import onnx_iron
from onnx_iron.dtypes import BFLOAT16, Array, Spec
from onnx_iron.kernels.designs import Target
from onnx_iron.provider.devices.npu.arrays import NPU, weight_buffer
from onnx_iron.provider.devices.npu.build import plans_of

BF16_NUMBER = 16
# One bfloat16 step of values up to 8: RMSNorm and the products may round the other way.
CONV_TOLERANCE = 2.0**-5
# Angles in bfloat16 instead of float32, and two layers of roundings, on logits up to 4.
LLAMA_TOLERANCE = 0.1


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory, target: str) -> Path:
    folder = export_short_conv(tmp_path_factory.mktemp("conv"))
    build_for(folder, target)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory, target: str) -> Path:
    folder = export_small_llama(tmp_path_factory.mktemp("llama"))
    build_for(folder, target)
    return folder


def rows(count: int, seed: int = 1) -> Array:
    numbers = np.random.default_rng(seed).standard_normal((count, WIDTH))
    return numbers.astype(ml_dtypes.bfloat16)


def wide(array: Array) -> Array:
    return array.astype(np.float32)


def differences(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in after}


# -- results --------------------------------------------------------------------------------


def test_a_short_convolution_equals_the_cpu(driver: Any, conv: Path) -> None:
    npu = onnx_iron.Session(conv, device="npu")
    report = npu.placement()
    for role in ("prefill", "decode"):
        devices = {row.device for row in report[role].rows}
        assert devices == {"npu"}, str(report[role])
    cpu = onnx_iron.Session(conv, device="cpu")
    assert {row.device for row in cpu.placement()["decode"].rows} == {"cpu"}
    auto = onnx_iron.Session(conv)
    assert {row.device for row in auto.placement()["decode"].rows} == {"npu"}, "auto takes it"
    assert npu.placement()["decode"] == report["decode"], "another session's is another report"
    x = rows(3 * CHUNK + 5)
    made, expected = (wide(s.prefill(x=x)["output"]) for s in (npu, cpu))
    assert made.shape == expected.shape == (len(x), WIDTH)
    np.testing.assert_allclose(made, expected, atol=CONV_TOLERANCE)
    for step in range(100):
        one = rows(1, seed=step)
        made, expected = (wide(s.decode(x=one)["output"]) for s in (npu, cpu))
        np.testing.assert_allclose(made, expected, atol=CONV_TOLERANCE)
    # The state holds products of two projections, each rounded.
    made, expected = (wide(s.state("conv")) for s in (npu, cpu))
    np.testing.assert_allclose(made, expected, rtol=2.0**-6, atol=2.0**-6)


def test_a_small_llama_equals_the_cpu(driver: Any, llama: Path) -> None:
    npu = onnx_iron.Session(llama, device="npu")
    assert {row.device for row in npu.placement()["decode"].rows} == {"npu", "cpu"}
    cpu = onnx_iron.Session(llama, device="cpu")
    ids = np.random.default_rng(3).integers(0, 512, 2 * CHUNK + 7).astype(np.int32)
    made, expected = (s.prefill(input_ids=ids)["logits"] for s in (npu, cpu))
    np.testing.assert_allclose(made, expected, atol=LLAMA_TOLERANCE)
    for step in range(100):
        token = np.array([step * 5 % 512], np.int32)
        made, expected = (s.decode(input_ids=token)["logits"] for s in (npu, cpu))
        np.testing.assert_allclose(made, expected, atol=LLAMA_TOLERANCE)
    assert npu.position == cpu.position == len(ids) + 100
    for name in cpu.states:
        np.testing.assert_allclose(
            wide(npu.state(name)), wide(cpu.state(name)), atol=LLAMA_TOLERANCE
        )


def test_float32_at_the_border_is_cast_by_the_host(
    driver: Any, tmp_path: Path, target: str
) -> None:
    folder = export_short_conv(tmp_path, io_dtype=np.float32, state_dtype=np.float32)
    build_for(folder, target)
    npu = onnx_iron.Session(folder, device="npu")
    placed = npu.placement()["decode"]
    assert {(row.op_type, row.device) for row in placed.rows} >= {("Cast", "cpu"), ("GEMV", "npu")}
    cpu = onnx_iron.Session(folder, device="cpu")
    x = rows(40).astype(np.float32)
    made, expected = (s.prefill(x=x)["output"] for s in (npu, cpu))
    np.testing.assert_allclose(made, expected, atol=CONV_TOLERANCE)
    for step in range(10):
        one = rows(1, seed=step).astype(np.float32)
        made, expected = (s.decode(x=one)["output"] for s in (npu, cpu))
        np.testing.assert_allclose(made, expected, atol=CONV_TOLERANCE)
    made, expected = npu.state("conv"), cpu.state("conv")
    np.testing.assert_allclose(made, expected, rtol=2.0**-6, atol=2.0**-6)


# -- what goes over to the NPU --------------------------------------------------------------


def test_weights_go_over_once_and_states_stay(driver: Any, conv: Path) -> None:
    session = onnx_iron.Session(conv, device="npu")
    session.decode(x=rows(1))
    before = driver.counters()
    for step in range(100):
        session.decode(x=rows(1, seed=step))
    counted = differences(before, driver.counters())
    assert counted["submissions"] == 100, "one submission for each call of the one subgraph"
    assert counted["runs"] == 100 * 3
    assert counted["bytes_to_device"] == 100 * WIDTH * 2, "the input, and nothing else"
    assert counted["bytes_from_device"] == 100 * WIDTH * 2, "the output, and nothing else"
    assert counted["buffers_made"] == 0
    session.state("conv")
    assert differences(before, driver.counters())["bytes_from_device"] >= (100 + 2) * WIDTH * 2


def test_models_that_share_weights_share_their_buffers(driver: Any, llama: Path) -> None:
    before = driver.counters()["bytes_to_device"]
    session = onnx_iron.Session(llama, device="npu")
    session.prefill(input_ids=np.arange(CHUNK, dtype=np.int32))
    prefill = driver.counters()["bytes_to_device"] - before
    session.decode(input_ids=np.array([1], np.int32))
    decode = driver.counters()["bytes_to_device"] - before - prefill
    weights = (llama / "weights.bin").stat().st_size
    assert prefill > 0.9 * weights
    assert decode < 0.2 * weights


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_call_of_a_llama_is_one_run_list(
    driver: Any, llama: Path, target: str, role: str
) -> None:
    session = onnx_iron.Session(llama / f"{role}.onnx", device="npu")
    count = {"prefill": CHUNK, "decode": 1}[role]
    session.run({"input_ids": np.arange(count, dtype=np.int32)})
    before = driver.counters()
    for step in range(5):
        session.run({"input_ids": np.arange(step, step + count, dtype=np.int32)})
    counted = differences(before, driver.counters())
    (plan,) = plans_of(llama / f"{role}.onnx", Target(target), COMPILER)
    assert sum(segment.on_npu for segment in plan.segments) == 1
    assert counted["runs"] == 5 * plan.runs
    # XRT sends a run list in packets of 24 runs.
    assert counted["submissions"] == 5 * -(-plan.runs // 24)
    weights = sum(
        plan.lowering.specs[name].bytes
        for name in plan.inputs
        if plan.homes[name].place.value == "constant"
    )
    # Instructions go anew where a position is in them; the simulator's hold whole designs.
    assert counted["bytes_to_device"] < weights // 5
    assert counted["buffers_made"] < 5 * (plan.runs + 1), "XRT's own packets at the most"


# -- states ---------------------------------------------------------------------------------


def test_states_are_saved_restored_and_reset(driver: Any, conv: Path, tmp_path: Path) -> None:
    npu, cpu = (onnx_iron.Session(conv, device=device) for device in ("npu", "cpu"))
    x = rows(20)
    for session in (npu, cpu):
        session.prefill(x=x)
    npu.save(tmp_path / "states.npz")
    after = wide(npu.decode(x=x[:1])["output"])
    cpu.restore(tmp_path / "states.npz")
    np.testing.assert_allclose(wide(cpu.decode(x=x[:1])["output"]), after, atol=CONV_TOLERANCE)
    npu.restore(tmp_path / "states.npz")
    np.testing.assert_array_equal(wide(npu.decode(x=x[:1])["output"]), after)
    npu.reset()
    cpu.reset()
    made, expected = (wide(s.decode(x=x[:1])["output"]) for s in (npu, cpu))
    np.testing.assert_allclose(made, expected, atol=CONV_TOLERANCE)


class Bound:
    """A decode model driven by IOBinding, the state in memory of the caller's choice."""

    def __init__(self, path: Path, device: str, state: Array, after: Array | None = None) -> None:
        onnx_iron.register()
        self.session = onnxruntime.InferenceSession(
            str(path / "decode.onnx"),
            providers=["IronExecutionProvider", "CPUExecutionProvider"],
            provider_options=[{"device": device}, {}],
        )
        self.x, self.y = np.zeros((1, WIDTH), BFLOAT16), np.zeros((1, WIDTH), BFLOAT16)
        self.binding = self.session.io_binding()
        self._bind(self.binding.bind_input, "x", self.x)
        self._bind(self.binding.bind_output, "output", self.y)
        self._bind(self.binding.bind_input, "past.conv", state)
        self._bind(self.binding.bind_output, "present.conv", state if after is None else after)

    @staticmethod
    def _bind(bind: Callable[..., None], name: str, array: Array) -> None:
        bind(name, "cpu", 0, BF16_NUMBER, list(array.shape), array.ctypes.data)

    def __call__(self, x: Array) -> Array:
        self.x[...] = x
        self.session.run_with_iobinding(self.binding)
        return wide(self.y.copy())


def test_plain_memory_is_copied_at_each_call(driver: Any, conv: Path) -> None:
    npu_state, cpu_state = (np.zeros((2, WIDTH), BFLOAT16) for _ in range(2))
    npu, cpu = Bound(conv, "npu", npu_state), Bound(conv, "cpu", cpu_state)
    for step in range(20):
        x = rows(1, seed=step)
        np.testing.assert_allclose(npu(x), cpu(x), atol=CONV_TOLERANCE)
        np.testing.assert_allclose(wide(npu_state), wide(cpu_state), rtol=2.0**-6, atol=2.0**-6)
    # The host writes to the state: the next call sees it.
    npu_state[...] = cpu_state[...] = 1
    np.testing.assert_allclose(npu(rows(1)), cpu(rows(1)), atol=CONV_TOLERANCE)


def test_shared_memory_is_fetched_when_asked(driver: Any, conv: Path) -> None:
    shared = NPU.array(Spec((2, WIDTH), BFLOAT16))
    plain = np.zeros((2, WIDTH), BFLOAT16)
    npu, cpu = Bound(conv, "npu", shared), Bound(conv, "cpu", plain)
    for step in range(5):
        x = rows(1, seed=step)
        np.testing.assert_allclose(npu(x), cpu(x), atol=CONV_TOLERANCE)
    NPU.fetch(shared)
    np.testing.assert_allclose(wide(shared), wide(plain), rtol=2.0**-6, atol=2.0**-6)
    shared[...] = plain[...] = 2
    NPU.touch(shared)
    np.testing.assert_allclose(npu(rows(1)), cpu(rows(1)), atol=CONV_TOLERANCE)


def test_outputs_that_share_memory_are_refused_as_on_the_cpu(driver: Any, conv: Path) -> None:
    for device in ("cpu", "npu"):
        bound = Bound(conv, device, np.zeros((2, WIDTH), BFLOAT16))
        room = np.zeros((2, WIDTH), BFLOAT16)
        bound._bind(bound.binding.bind_output, "output", room[:1])
        bound._bind(bound.binding.bind_output, "present.conv", room)
        with pytest.raises(Exception, match="outputs 0 and 1 share memory; bind each to a buffer"):
            bound(rows(1))


def test_a_state_may_go_to_other_memory(driver: Any, conv: Path) -> None:
    spec = Spec((2, WIDTH), BFLOAT16)
    one, other = NPU.array(spec), NPU.array(spec)
    plain, after = np.zeros((2, WIDTH), BFLOAT16), np.zeros((2, WIDTH), BFLOAT16)
    npu, cpu = Bound(conv, "npu", one, other), Bound(conv, "cpu", plain, after)
    for step in range(3):
        x = rows(1, seed=step)
        np.testing.assert_allclose(npu(x), cpu(x), atol=CONV_TOLERANCE)
        for array in (one, other):
            NPU.fetch(array)
        np.testing.assert_array_equal(wide(one), wide(plain))
        np.testing.assert_allclose(wide(other), wide(after), rtol=2.0**-6, atol=2.0**-6)


def test_weights_share_a_buffer_where_all_of_their_bytes_are_the_same(driver: Any) -> None:
    """Those of one size that differ in their last byte alone have one each."""
    content = np.random.default_rng(0).integers(0, 256, 10_000).astype(np.uint8)
    other = content.copy()
    other[-1] ^= 1
    one, again, two = (weight_buffer(array) for array in (content, content.copy(), other))
    assert again is one
    assert two is not one
    np.testing.assert_array_equal(one.bytes, content)
    np.testing.assert_array_equal(two.bytes, other)


# -- threads and lifetimes ------------------------------------------------------------------


def test_several_threads_use_one_session(driver: Any, conv: Path) -> None:
    onnx_iron.register()
    session = onnxruntime.InferenceSession(
        str(conv / "decode.onnx"),
        providers=["IronExecutionProvider", "CPUExecutionProvider"],
        provider_options=[{"device": "npu"}, {}],
    )
    state = np.zeros((2, WIDTH), BFLOAT16)
    results: dict[int, Array] = {}

    def work(number: int) -> None:
        x, y = rows(1, seed=number), np.zeros((1, WIDTH), BFLOAT16)
        after = np.zeros_like(state)
        for _ in range(20):
            binding = session.io_binding()
            for bind, name, array in (
                (binding.bind_input, "x", x),
                (binding.bind_input, "past.conv", state),
                (binding.bind_output, "output", y),
                (binding.bind_output, "present.conv", after),
            ):
                bind(name, "cpu", 0, BF16_NUMBER, list(array.shape), array.ctypes.data)
            session.run_with_iobinding(binding)
            results.setdefault(number, wide(y.copy()))
            np.testing.assert_array_equal(results[number], wide(y))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len({result.tobytes() for result in results.values()}) == 4


def test_a_thousand_sessions_leave_nothing_behind(driver: Any, conv: Path) -> None:
    def once() -> None:
        session = onnx_iron.Session(conv / "decode.onnx", device="npu")
        session.decode(x=rows(1))

    for _ in range(5):
        once()
    gc.collect()
    before = driver.counters()
    for _ in range(1000):
        once()
    gc.collect()
    after = driver.counters()
    assert after["buffers_live"] <= before["buffers_live"]
    assert after["bytes_live"] <= before["bytes_live"]
    assert after["contexts_live"] == before["contexts_live"]
    assert after["files_open"] == before["files_open"]


# -- refusals -------------------------------------------------------------------------------


def test_a_design_that_is_not_built_is_named_with_the_command(
    driver: Any, tmp_path: Path, target: str
) -> None:
    folder = export_short_conv(tmp_path, width=192)
    with pytest.raises(
        Exception,
        match=r"device is 'npu' and fallback 'error', and the NPU can't run: RMSNorm '.*' and 8 "
        rf"more: its design is not built; `onnx-iron build-kernels MODEL --target {target}`",
    ):
        onnx_iron.Session(folder / "decode.onnx", device="npu")
    session = onnx_iron.Session(
        folder / "decode.onnx", device="npu", provider_options={"fallback": "cpu"}
    )
    text = str(session.placement()["model"])
    assert "its design is not built" in text
    x = np.ones((1, 192), BFLOAT16)
    cpu = onnx_iron.Session(folder / "decode.onnx", device="cpu")
    np.testing.assert_array_equal(
        wide(session.decode(x=x)["output"]), wide(cpu.decode(x=x)["output"])
    )


def test_shapes_and_dtypes_without_a_design_say_why(driver: Any, tmp_path: Path) -> None:
    odd = export_short_conv(tmp_path / "odd", width=72)
    with pytest.raises(Exception, match=r"row length 72 is no multiple of \d+ lanes"):
        onnx_iron.Session(odd / "decode.onnx", device="npu")
    plain = export_short_conv(tmp_path / "plain", dtype=np.dtype(np.float32))
    with pytest.raises(Exception, match="x is float32; the kernels take bfloat16"):
        onnx_iron.Session(plain / "decode.onnx", device="npu")
    session = onnx_iron.Session(plain / "decode.onnx", device="auto")
    assert {row.device for row in session.placement()["model"].rows} == {"cpu"}


def test_a_value_out_of_its_bounds_never_reaches_the_npu(driver: Any, conv: Path) -> None:
    onnx_iron.register()
    session = onnxruntime.InferenceSession(
        str(conv / "prefill.onnx"),
        providers=["IronExecutionProvider", "CPUExecutionProvider"],
        provider_options=[{"device": "npu"}, {}],
    )
    binding = session.io_binding()
    x, y = np.ones((CHUNK, WIDTH), BFLOAT16), np.zeros((CHUNK, WIDTH), BFLOAT16)
    state, valid = np.zeros((2, WIDTH), BFLOAT16), np.array(CHUNK + 1, np.int32)
    for bind, name, array, number in (
        (binding.bind_input, "x", x, BF16_NUMBER),
        (binding.bind_input, "past.conv", state, BF16_NUMBER),
        (binding.bind_input, "rows", valid, 6),
        (binding.bind_output, "output", y, BF16_NUMBER),
        (binding.bind_output, "present.conv", state, BF16_NUMBER),
    ):
        bind(name, "cpu", 0, number, list(array.shape), array.ctypes.data)
    before = driver.counters()
    with pytest.raises(Exception, match=r"CausalConv1d '.*': rows is 17, expected 0\.\.16"):
        session.run_with_iobinding(binding)
    assert driver.counters()["submissions"] == before["submissions"]
    valid[...] = 3
    session.run_with_iobinding(binding)
    assert wide(state).any()
