"""What the tests of the simulated NPU share. They run in ``chroot.py run``, and skip elsewhere."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator

import numpy as np
import pytest

from onnx_iron.kernels.aie.build import Generation
from onnx_iron.kernels.aie.library import KernelLibrary, load


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/npu --npu`` also runs what needs a real NPU."""
    parser.addoption("--npu", action="store_true", help="run tests on this machine's NPU")


HOW = "runs on the simulated NPU: python tests/npu/chroot.py run -- pytest tests/npu"


class Driver:
    """The simulated driver in this process: its counters, and the faults it is told to make."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def counters(self) -> dict[str, int]:
        """Everything that it counts."""
        room = ctypes.create_string_buffer(4096)
        self._library.npu_driver_report(room, ctypes.c_size_t(len(room)))
        counted: dict[str, int] = json.loads(room.value)
        return counted

    def fault(self, name: str, *, after: int = 0, times: int = 1) -> None:
        """Of the occasions from now on, let ``after`` pass, then fail ``times``."""
        if self._library.npu_driver_fault(
            name.encode(), ctypes.c_uint64(after), ctypes.c_uint64(times)
        ):
            raise ValueError(f"the driver has no fault {name!r}")


FAULTS = ("hang", "error", "context_lost", "allocation", "context", "submission", "firmware")


@pytest.fixture(scope="session")
def target() -> str:
    """The generation of the simulated NPU."""
    if not os.environ.get("NPU_DRIVER_TARGET"):
        pytest.skip(HOW)
    return os.environ["NPU_DRIVER_TARGET"]


@pytest.fixture
def driver(target: str) -> Iterator[Driver]:
    """The driver, without faults before and after."""
    made = Driver()
    yield made
    for name in FAULTS:
        made.fault(name, times=0)


@pytest.fixture(params=list(Generation))
def kernels(request: pytest.FixtureRequest) -> KernelLibrary:
    """The AIE kernels, compiled for the host as each generation's cores have them."""
    return load(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    """Numbers, the same in every run."""
    return np.random.default_rng(7)
