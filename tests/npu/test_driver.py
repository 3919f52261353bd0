"""The simulated driver under the unmodified XRT: designs run, faults show as XRT reports them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from design_compiler import COMPILER

from onnx_iron.dtypes import BFLOAT16
from onnx_iron.kernels.designs import Design, Target, design_for
from onnx_iron.operators.arithmetic import Add
from onnx_iron.operators.slice_scatter import SliceScatter
from onnx_iron.provider.devices.npu import artifacts, conduit, limits
from onnx_iron.provider.devices.npu import image as images
from onnx_iron.provider.devices.npu.errors import ContextLostError, NpuError, NpuTimeoutError
from onnx_iron.provider.devices.npu.image import Part, build_image
from onnx_iron.provider.devices.npu.run_list import RunList
from onnx_iron.provider.devices.npu.xrt import Buffer, Context, Device, open_device

SHAPE = (4, 256)


def design(op: Any, *specs: Any) -> Design:
    made = design_for(op, specs, Target(open_device().target.name))
    assert isinstance(made, Design), made
    return made


@pytest.fixture
def device(driver: Any) -> Iterator[Device]:
    opened = open_device()
    yield opened
    with opened._changed:
        while opened._evict():
            pass


def built(made: Design) -> artifacts.Artifact:
    found = artifacts.artifact(made, COMPILER)
    COMPILER.build(found)
    return found


class Bench:
    """An Add in a context, with its buffers."""

    def __init__(self, device: Device, context: Context, made: artifacts.Artifact) -> None:
        self.runs: RunList = context.run_list()
        self.a, self.b, self.y = (device.buffer(2 * 4 * 256) for _ in range(3))
        name = artifacts.kernel_name(made)
        instructions = context.instructions(name, made.alone({}), shared=True)
        self.runs.add(
            context.kernel(name), instructions, [x.part() for x in (self.a, self.b, self.y)]
        )

    def fill(self, value: float) -> None:
        for buffer in (self.a, self.b):
            view(buffer)[:] = value
            buffer.to_device()


def view(buffer: Buffer) -> Any:
    return buffer.bytes.view(BFLOAT16)


def test_a_design_runs_where_everything_is_synced(driver: Any, device: Device) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    with device.context(artifacts.image([made], device.target)) as context:
        bench = Bench(device, context, made)
        bench.fill(1.5)
        before = driver.counters()
        bench.runs.run(1000)
        assert not view(bench.y).any(), "nothing comes back without a sync"
        bench.y.from_device()
        assert (view(bench.y) == 3).all()
        view(bench.a)[:] = 7
        bench.runs.run(1000)
        bench.y.from_device()
        assert (view(bench.y) == 3).all(), "nothing goes there without a sync"
        after = driver.counters()
    assert after["submissions"] - before["submissions"] == 2
    assert after["bytes_to_device"] == before["bytes_to_device"]
    assert after["bytes_from_device"] - before["bytes_from_device"] == 2 * bench.y.size


def test_a_run_list_is_one_submission_for_every_24_runs(driver: Any, device: Device) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    name = artifacts.kernel_name(made)
    with device.context(artifacts.image([made], device.target)) as context:
        bench = Bench(device, context, made)
        instructions = context.instructions(name, made.alone({}), shared=True)
        # y = y + b, fifty times: they run one after the other.
        runs = context.run_list()
        for _ in range(50):
            runs.add(
                context.kernel(name), instructions, [x.part() for x in (bench.y, bench.b, bench.y)]
            )
        bench.fill(1)
        before = driver.counters()
        runs.run(1000)
        after = driver.counters()
        bench.y.from_device()
    assert (view(bench.y) == 50).all()
    assert after["runs"] - before["runs"] == 50
    assert after["submissions"] - before["submissions"] == 3


def test_values_go_into_the_instructions(driver: Any, device: Device) -> None:
    scatter = SliceScatter.from_attributes({"axis": 0})
    made = built(
        design(scatter, ((8, 64), BFLOAT16), ((2, 64), BFLOAT16), ((), np.dtype(np.int32)))
    )
    name = artifacts.kernel_name(made)
    with device.context(artifacts.image([made], device.target)) as context:
        src, y = device.buffer(2 * 2 * 64), device.buffer(2 * 8 * 64)
        view(src)[:] = 1
        src.to_device()
        for start in (0, 5):
            runs = context.run_list()
            words = made.alone({"start": start})
            instructions = context.instructions(name, words, shared=False)
            runs.add(context.kernel(name), instructions, [src.part(), y.part()])
            runs.run(1000)
    y.from_device()
    written = np.flatnonzero(view(y).reshape(8, 64).any(axis=1))
    assert written.tolist() == [0, 1, 5, 6]


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("error", NpuError, "a run failed .*ERT_CMD_STATE_ERROR"),
        ("context_lost", ContextLostError, "the hardware context was lost"),
        ("submission", ContextLostError, "submitting 1 runs failed: .*No space left"),
        ("hang", NpuTimeoutError, "1 runs did not end within timeout_ms, 100"),
    ],
)
def test_a_fault_is_an_exception_of_its_kind(
    driver: Any, device: Device, fault: str, error: type[Exception], message: str
) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    path = artifacts.image([made], device.target)
    driver.fault(fault)
    with device.context(path) as context:
        bench = Bench(device, context, made)
        with pytest.raises(error, match=message):
            bench.runs.run(100)
        device.drop(context)
    with device.context(path) as context:
        bench = Bench(device, context, made)
        bench.fill(1)
        bench.runs.run(1000)
        bench.y.from_device()
    assert (view(bench.y) == 2).all()


def test_a_hang_ends_when_the_driver_gives_up(driver: Any, device: Device) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    driver.fault("hang")
    with device.context(artifacts.image([made], device.target)) as context:
        with pytest.raises(NpuTimeoutError, match=r"did not end \(.*ERT_CMD_STATE_TIMEOUT"):
            Bench(device, context, made).runs.run(0)
        device.drop(context)


def test_a_refused_buffer_says_how_big_it_was(driver: Any, device: Device) -> None:
    driver.fault("allocation")
    with pytest.raises(NpuError, match=r"a buffer of 4096 bytes .* failed: .*Cannot allocate"):
        device.buffer(4096)
    device.buffer(4096)


def test_contexts_used_longest_ago_make_room(driver: Any, device: Device, tmp_path: Path) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    limit = device.target.contexts
    part = Part("add", made.pdi, 3)
    paths = [tmp_path / f"{i}.xclbin" for i in range(limit + 3)]
    made_before = driver.counters()["contexts_made"]
    for path in paths:
        build_image([part], device.target, path)
        with device.context(path):
            pass
    counted = driver.counters()
    assert counted["contexts_made"] - made_before == limit + 3
    assert counted["contexts_live"] == limit
    with device.context(paths[-1]):
        pass
    assert driver.counters()["contexts_made"] == counted["contexts_made"], "it was still there"


def test_more_threads_than_contexts_take_turns(driver: Any, device: Device, tmp_path: Path) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    name = artifacts.kernel_name(made)
    paths = [tmp_path / f"{i}.xclbin" for i in range(device.target.contexts + 3)]
    for path in paths:
        build_image([Part(name, made.pdi, 3)], device.target, path)
    results: list[bool] = []

    def once(context: Context) -> None:
        bench = Bench(device, context, made)
        bench.fill(2)
        bench.runs.run(1000)
        bench.y.from_device()
        results.append(bool((view(bench.y) == 4).all()))

    def work(path: Path) -> None:
        for _ in range(5):
            with device.context(path) as context:
                once(context)

    threads = [threading.Thread(target=work, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [True] * 5 * len(paths)
    assert driver.counters()["contexts_live"] <= device.target.contexts


def test_a_context_that_others_hold_is_waited_for_or_refused(driver: Any, device: Device) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    driver.fault("context", times=2)
    with (
        pytest.raises(NpuError, match=r"the driver allows \d+ on this machine, for all"),
        device.context(artifacts.image([made], device.target)),
    ):
        pass


def test_an_unknown_kernel_and_foreign_instructions(driver: Any, device: Device) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    other = built(design(Add(), ((1, 64), BFLOAT16), ((1, 64), BFLOAT16)))
    with device.context(artifacts.image([made], device.target)) as context:
        with pytest.raises(NpuError, match=r"looking for the design 'nothing' .* No such kernel"):
            context.kernel("nothing")
        bench = Bench(device, context, made)
        name = artifacts.kernel_name(made)
        wrong = context.instructions(name, other.alone({}), shared=False)
        runs = context.run_list()
        runs.add(context.kernel(name), wrong, [x.part() for x in (bench.a, bench.b, bench.y)])
        with pytest.raises(NpuError, match="a run failed"):
            runs.run(1000)
        device.drop(context)


def test_an_image_with_a_design_in_other_memory_is_refused(
    driver: Any, device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Real devices run it, and it reads and writes nothing, or never ends."""
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    name = artifacts.kernel_name(made)
    monkeypatch.setattr(images, "HOST_BANK", 1)
    build_image([Part(name, made.pdi, 3)], device.target, tmp_path / "other.xclbin")
    before = driver.counters()["submissions"]
    with (
        device.context(tmp_path / "other.xclbin") as context,
        pytest.raises(NpuError, match="argument 0 of the design is in memory 1 of its image"),
    ):
        Bench(device, context, made)
    assert driver.counters()["submissions"] == before


def test_more_buffers_than_a_design_has_are_refused(driver: Any, device: Device) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    with device.context(artifacts.image([made], device.target)) as context:
        name = artifacts.kernel_name(made)
        buffers = [device.buffer(2048).part() for _ in range(4)]
        instructions = context.instructions(name, made.alone({}), shared=True)
        with pytest.raises(NpuError, match="argument 3 of the design is not there, and 4 buffers"):
            context.run_list().add(context.kernel(name), instructions, buffers)


def test_instructions_have_room_in_the_drivers_heap_or_are_refused(
    driver: Any, device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    with device._changed:
        while device._evict():
            pass
    assert device._heap.taken == 0
    monkeypatch.setattr(limits, "HEAP_BYTES", 256 << 10)
    paths = [tmp_path / f"{i}.xclbin" for i in range(3)]
    for path in paths:
        build_image([Part("add", made.pdi, 3)], device.target, path)
    with device.context(paths[0]) as first:
        first.instructions("add", bytes(96 << 10), shared=False)
    with device.context(paths[1]) as second:
        # The idle one makes room for what the one in use needs.
        second.instructions("add", bytes(128 << 10), shared=False)
        assert first.closed
        with pytest.raises(NpuError, match=r"no room for the instructions of add: 128 KiB beside"):
            second.instructions("add", bytes(128 << 10), shared=False)
        with (
            pytest.raises(NpuError, match=r"of the 256 KiB that the driver has"),
            device.context(paths[2]) as third,
        ):
            third.instructions("add", bytes(96 << 10), shared=False)
    with device._changed:
        while device._evict():
            pass
    assert device._heap.taken == 0


def test_pybind11_hands_over_the_run_list_behind_pyxrts(device: Device) -> None:
    made = built(design(Add(), (SHAPE, BFLOAT16), (SHAPE, BFLOAT16)))
    with device.context(artifacts.image([made], device.target)) as context:
        handle = context.run_list()._handle
        assert callable(handle._pybind11_conduit_v1_)
        stored = ctypes.c_void_p.from_address(id(handle) + object.__basicsize__).value
        assert conduit.run_list_address(handle) == stored
        assert conduit.handed_over(handle) == stored
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(conduit, "_abis", lambda: [b"_of_another"])
            assert conduit.handed_over(handle) is None
            assert conduit.run_list_address(handle) == stored
