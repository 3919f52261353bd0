"""The host model of the cores, and what kernels of every family keep to."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from aie_arrays import numbers
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_iron.dtypes import FLOAT32
from onnx_iron.kernels.aie import build
from onnx_iron.kernels.aie.build import Generation
from onnx_iron.kernels.aie.library import KernelLibrary, aligned, aligned_copy, load

# -- in place, and any shape --------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 6), vectors=st.integers(1, 8), seed=st.integers(0, 1 << 16))
@pytest.mark.parametrize("generation", list(Generation))
def test_a_kernel_may_write_over_its_input(
    generation: Generation, rows: int, vectors: int, seed: int
) -> None:
    kernels, n = load(generation), vectors * 32
    x = numbers(np.random.default_rng(seed), rows, n)
    for name, extra in {
        "silu_bf16": (rows * n,),
        "softmax_bf16": (rows, n),
        "rms_norm_bf16": (rows, n, 1e-5),
        "layer_norm_bf16": (rows, n, 1e-5),
    }.items():
        apart, over = aligned(x.shape), aligned_copy(x)
        kernels.call(name, x, apart, *extra)
        kernels.call(name, over, over, *extra)
        assert (apart.view(np.uint16) == over.view(np.uint16)).all()


# -- the host model -----------------------------------------------------------------------------


def test_a_row_length_that_is_no_whole_number_of_vectors_is_caught(
    kernels: KernelLibrary,
) -> None:
    x, y = aligned((3, 40)), aligned((3, 40))
    with pytest.raises(ValueError, match=r"softmax_bf16: a .* is no multiple of|a load of"):
        kernels.call("softmax_bf16", x, y, 3, 40)


def test_an_address_that_is_not_aligned_is_caught() -> None:
    x, y = aligned(72)[8:], aligned(64)
    with pytest.raises(ValueError, match="64 bytes at an address that is no multiple of 64"):
        load(Generation.AIE2P).call("silu_bf16", x, y, 64)
    with pytest.raises(ValueError, match="32 bytes at an address that is no multiple of 32"):
        load(Generation.AIE2).call("silu_bf16", x, y, 64)


def test_an_access_past_the_end_is_caught(kernels: KernelLibrary) -> None:
    with pytest.raises(ValueError, match=r"a load outside the buffers|a load of"):
        kernels.call("silu_bf16", aligned(64), aligned(128), 128)


def test_wrong_arguments_are_refused(kernels: KernelLibrary) -> None:
    x = aligned(64)
    with pytest.raises(TypeError, match="silu_bf16 takes 3 arguments, not 2"):
        kernels.call("silu_bf16", x, x)
    with pytest.raises(TypeError, match="is no array of bfloat16"):
        kernels.call("silu_bf16", x, aligned(64, FLOAT32), 64)


HOST_PROGRAM = """
#include <aie_api/aie.hpp>
#include <cstdio>
int main() {
  const auto x = aie::broadcast<float, 16>(-1.00390625f * 1.0005f);
  const auto floored = aie::accum<accfloat, 16>(x).to_vector<bfloat16>();
  aie::set_rounding(aie::rounding_mode::conv_even);
  const auto nearest = aie::accum<accfloat, 16>(x).to_vector<bfloat16>();
  std::printf("%04x %04x\\n", floored.get(0).bits(), nearest.get(0).bits());
  const auto tiny = aie::broadcast<float, 16>(0x1p-70f);
  std::printf("%g\\n", aie::mul(tiny, tiny).to_vector<float>().get(0));
  %s
}
"""


def compile_host(folder: Path, extra: str) -> subprocess.CompletedProcess[str]:
    source = folder / "program.cc"
    source.write_text(HOST_PROGRAM.replace("%s", extra))
    include = Path(build.__file__).parent / "host"
    command = ["g++", "-std=c++20", "-D__AIE_ARCH__=21", f"-I{include}", str(source)]
    command += ["-o", str(folder / "program")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_model_floors_until_told_otherwise_and_flushes_subnormals(tmp_path: Path) -> None:
    assert compile_host(tmp_path, "").returncode == 0
    ran = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["bf81", "bf81", "0"]


@pytest.mark.parametrize(
    "outside",
    [
        "aie::tanh<bfloat16>(tiny);",
        "aie::vector<float, 12> odd;",
        "bfloat16 rounded = 1.5f;",
        "aie::mmul<8, 8, 8, bfloat16, bfloat16> larger;",
    ],
)
def test_what_the_subset_leaves_out_does_not_compile(tmp_path: Path, outside: str) -> None:
    assert compile_host(tmp_path, outside).returncode != 0


def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("ONNX_IRON_CACHE", str(tmp_path))
    build.kernel_library.cache_clear()
    with pytest.raises(RuntimeError, match="'no-such-compiler' is not on PATH; install g"):
        build.kernel_library(Generation.AIE2)
    build.kernel_library.cache_clear()


def test_kernels_use_the_public_names_of_aie_api_only() -> None:
    folder = Path(build.__file__).parent
    for source in (*folder.glob("*.cc"), *folder.glob("*.h")):
        text = source.read_text()
        for private in ("aie::host", ".lane", "from_bits", ".bits()"):
            assert private not in text, source.name


def test_kernels_leave_alone_what_the_cores_do_badly() -> None:
    """aie2's abs of float32, comparisons with infinity, inverses that aie2p takes one by one."""
    folder = Path(build.__file__).parent
    for source in (*folder.glob("*.cc"), *folder.glob("*.h")):
        code = "".join(re.sub("//.*", "", line) for line in source.read_text().splitlines(True))
        for avoided in ("aie::abs(", "aie::inv(", "aie::tanh", "aie::exp2", "kInfinity)"):
            assert avoided not in code, source.name


def test_every_kernel_is_entered_once_and_named_by_dtype(kernels: KernelLibrary) -> None:
    assert all(name.endswith("_bf16") for name in kernels.signatures)
    sources = "".join(p.read_text() for p in Path(build.__file__).parent.glob("*.cc"))
    assert sources.count("ONNX_IRON_KERNEL(") == len(kernels.signatures)


def test_a_changed_header_makes_a_library_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONNX_IRON_CACHE", str(tmp_path / "cache"))
    source, header = tmp_path / "one.cc", tmp_path / "one.h"
    source.write_text(
        '#include "one.h"\nextern "C" __attribute__((visibility("default"))) '
        "int number() { return kNumber; }\n"
    )
    numbers = []
    for number in (3, 4, 3):
        header.write_text(f"inline constexpr int kNumber = {number};\n")
        made = build._build("one", [source], [header], [f"-I{tmp_path}"])
        numbers.append(ctypes.CDLL(str(made)).number())
    assert numbers == [3, 4, 3]
