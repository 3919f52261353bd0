"""Finding mlir-aie and Peano, in folders laid out as pip leaves them after their wheels."""

from __future__ import annotations

import importlib
import os
import site
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_iron.kernels.aie.build import Generation
from onnx_iron.kernels.designs import Target
from onnx_iron.provider.devices.npu import toolchain, wheels
from onnx_iron.provider.devices.npu.wheels import MlirAie, Peano, find_mlir_aie, find_peano

RELEASE, NIGHTLY = "1.4.3", "22.0.0.2026090701+3e93bf7b"

Install = Callable[..., Path]


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Makes a site-packages with the two wheels, and lets Python take in its .pth files."""
    for name in ("PEANO_INSTALL_DIR", "AIECC_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def install(mlir_aie: str = RELEASE, peano: str = NIGHTLY) -> Path:
        packages = tmp_path / "site-packages"
        root = packages / "mlir_aie"
        program(root / "bin" / "aiecc")
        (root / "include" / "aie_api").mkdir(parents=True)
        (root / "python" / "aie" / "iron").mkdir(parents=True)
        (root / "python" / "aie" / "iron" / "__init__.py").write_text("")
        (packages / "aie.pth").write_text("mlir_aie/python")
        (packages / f"mlir_aie-{mlir_aie}.dist-info").mkdir()
        if peano:
            program(packages / "llvm-aie" / "bin" / "clang++")
            (packages / f"llvm_aie-{peano}.dist-info").mkdir()
        site.addsitedir(str(packages))
        importlib.invalidate_caches()
        return packages

    return install


def test_the_wheels_are_found_where_pip_puts_them(install: Install) -> None:
    packages = install()
    root = packages / "mlir_aie"
    assert find_mlir_aie() == MlirAie(root / "bin" / "aiecc", root / "include", RELEASE)
    assert find_peano() == Peano(packages / "llvm-aie", NIGHTLY)


def test_a_machine_without_them_has_none(install: Install) -> None:
    assert find_mlir_aie() is None
    assert find_peano() is None


def test_a_peano_beside_mlir_aie_and_one_that_is_named_come_first(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = install() / "mlir_aie"
    program(root / "peano" / "bin" / "clang++")
    assert find_peano() == Peano(root / "peano", "")
    program(tmp_path / "own" / "bin" / "clang++")
    monkeypatch.setenv("PEANO_INSTALL_DIR", str(tmp_path / "own"))
    assert find_peano() == Peano(tmp_path / "own", "")


def test_an_aiecc_that_is_named_comes_first(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packages = install()
    monkeypatch.setenv("AIECC_PATH", str(program(tmp_path / "own" / "aiecc")))
    found = find_mlir_aie()
    assert found is not None
    assert found.aiecc == tmp_path / "own" / "aiecc"
    # Without one in its folder, the one on the path is taken.
    monkeypatch.delenv("AIECC_PATH")
    (packages / "mlir_aie" / "bin" / "aiecc").unlink()
    assert find_mlir_aie() is None
    monkeypatch.setenv("PATH", str(tmp_path / "own"))
    assert find_mlir_aie() == found


def test_a_tree_that_was_built_has_no_release(install: Install, tmp_path: Path) -> None:
    packages = install()
    (packages / f"mlir_aie-{RELEASE}.dist-info").rmdir()
    found = find_mlir_aie()
    assert found is not None
    assert found.release == ""
    assert wheels.mismatch(found, Peano(tmp_path, ""), Generation.AIE2) == ""


@pytest.mark.parametrize(
    ("mlir_aie", "peano", "generation", "wrong"),
    [
        ("1.4.0", "21.0.0.2026062301+cb664e8c", Generation.AIE2P, ""),
        ("1.4.2", "21.0.0.2026080301+c9c5ecb7", Generation.AIE2P, ""),
        ("1.4.3", NIGHTLY, Generation.AIE2, ""),
        ("1.4.5", "22.0.0.2026092401+6dc4d6dd", Generation.AIE2, ""),
        ("1.4.4.dev18+g0123abc", NIGHTLY, Generation.AIE2P, ""),
        ("1.3.2", NIGHTLY, Generation.AIE2P, "found mlir-aie 1.3.2, Peano 22"),
        ("1.5.0", NIGHTLY, Generation.AIE2P, "found mlir-aie 1.5.0, Peano 22"),
        ("0.0.1.2026050821+b37dc33", NIGHTLY, Generation.AIE2P, "found mlir-aie 0.0.1"),
        ("1.4.0", "20.0.0.2026011501+5e2bd2df", Generation.AIE2P, "Peano 20.0.0.2026011501"),
        ("1.4.0", "21.0.0.2026051201+3fbeee11", Generation.AIE2P, "Peano 21.0.0.2026051201"),
        ("1.4.2", "21.0.0.2026080301+c9c5ecb7", Generation.AIE2, "can't link float products"),
        ("1.4.3", "nightly", Generation.AIE2P, "Peano nightly"),
    ],
)
def test_other_releases_are_named_with_the_ones_that_fit(
    tmp_path: Path, mlir_aie: str, peano: str, generation: Generation, wrong: str
) -> None:
    pair = MlirAie(tmp_path, tmp_path, mlir_aie), Peano(tmp_path, peano)
    said = wheels.mismatch(*pair, generation)
    assert bool(said) is bool(wrong)
    assert wrong in said
    if said:
        assert f"mlir-aie {mlir_aie}, Peano {peano}" in said
        assert "mlir-aie 1.4.0 to 1.4.5 with Peano 22.0.0" in said


def test_the_toolchain_of_a_target(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = install("1.4.2", "21.0.0.2026080301+c9c5ecb7")
    monkeypatch.setattr(toolchain, "find_tool", lambda: "xclbinutil")
    assert toolchain.find_toolchain(Target.NPU2).peano.folder == packages / "llvm-aie"
    with pytest.raises(toolchain.ToolchainError, match=r"20260803.*float products for aie2 .npu1"):
        toolchain.find_toolchain(Target.NPU1)


def test_what_is_missing_is_named_with_the_command_that_gets_it(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(peano="")
    monkeypatch.setattr(toolchain, "find_tool", lambda: "xclbinutil")
    with pytest.raises(toolchain.ToolchainError) as caught:
        toolchain.find_toolchain(Target.NPU2)
    assert str(caught.value).startswith("designs are compiled with Peano (the clang++ of llvm-aie;")
    assert "pip install mlir_aie==1.4.5 -f https://github.com/Xilinx/" in str(caught.value)
    assert os.linesep not in str(caught.value)
