"""The CPU kernels' loops for each instruction set."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cpu_kernels import (
    CASES,
    EPS,
    assert_same_bits,
    wide,
)

from onnx_iron.kernels import cpu_path

FORCED = "ONNX_IRON_CPU"
HERE = Path(__file__).parent
MODULES = sorted(str(p) for p in HERE.glob("test_cpu_*.py") if p.name != Path(__file__).name)
# Every path up to the one that this CPU takes by itself.
PATHS = ["portable", "avx2", "avx512", "avx512bf16"]
PATHS = PATHS[: PATHS.index(cpu_path()) + 1]


def python(path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python whose kernels take the loops of `path`."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, FORCED: path, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[np.ndarray]]]:
    """What every case of every kernel gives on each path."""
    found = {}
    for path in PATHS:
        file = tmp_path_factory.mktemp(path) / "results"
        script = (
            "import pathlib, pickle; from cpu_kernels import CASES; "
            f"pathlib.Path({str(file)!r}).write_bytes(pickle.dumps([c.run() for c in CASES]))"
        )
        done = python(path, "-c", script)
        assert done.returncode == 0, done.stderr
        found[path] = pickle.loads(file.read_bytes())
    return found


@pytest.mark.skipif(FORCED in os.environ, reason="this run has the loops of one path alone")
@pytest.mark.parametrize("path", PATHS[:-1])
def test_all_tests_of_kernels_hold_on_the_other_paths_too(path: str) -> None:
    done = python(path, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *MODULES)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.skipif(FORCED in os.environ or "avx512" not in PATHS, reason="no AVX-512 to compare")
@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(case) for case in CASES])
def test_wider_vectors_change_no_bit_of_any_kernel(
    index: int, results: dict[str, list[list[np.ndarray]]]
) -> None:
    for path in PATHS[2:]:
        for narrow_, wider in zip(results["avx2"][index], results[path][index], strict=True):
            assert_same_bits(wider, narrow_)


@pytest.mark.skipif(FORCED in os.environ or "avx2" not in PATHS, reason="no AVX2 to compare")
@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(case) for case in CASES])
def test_the_portable_loops_differ_by_the_rounding_of_a_fused_product(
    index: int, results: dict[str, list[list[np.ndarray]]]
) -> None:
    for portable, fused in zip(results["portable"][index], results["avx2"][index], strict=True):
        assert portable.dtype == fused.dtype
        if portable.dtype not in EPS:
            assert_same_bits(portable, fused)
            continue
        # Where terms cancel, a sum is as exact as its largest terms, of which these are many.
        scale = np.abs(wide(fused)).max()
        rounding = 2 * EPS[portable.dtype]
        np.testing.assert_allclose(
            wide(portable), wide(fused), rtol=2 * rounding, atol=scale * 3e-7
        )


@pytest.mark.parametrize("path", PATHS)
def test_the_environment_names_a_path(path: str) -> None:
    script = "from onnx_iron.kernels import cpu_path; print(cpu_path())"
    assert python(path, "-c", script).stdout.strip() == path


def test_an_unknown_path_is_refused_by_every_kernel_with_those_that_there_are() -> None:
    script = """
import numpy as np
from onnx_iron.kernels import run_kernel
try:
    run_kernel("Neg", [np.zeros(3, np.float32)], [((3,), np.float32)])
except ValueError as error:
    print(error)
"""
    said = python("avx3", "-c", script).stdout
    assert "the environment variable ONNX_IRON_CPU is 'avx3', expected one of" in said
    assert all(path in said for path in PATHS)
