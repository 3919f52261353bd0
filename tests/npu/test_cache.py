"""The cache of designs: what is damaged, of another kind, or made by two at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from design_compiler import COMPILER, AsTheyAre
from npu_models import WIDTH, build_for, export_short_conv

import onnx_iron
from onnx_iron.dtypes import BFLOAT16
from onnx_iron.provider.devices.npu import artifacts
from onnx_iron.provider.devices.npu.image import find_tool

needs_xclbinutil = pytest.mark.skipif(find_tool() is None, reason="needs XRT's xclbinutil")


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("ONNX_IRON_CACHE", str(tmp_path / "cache"))
    artifacts.artifact.cache_clear()
    yield tmp_path / "cache"
    artifacts.artifact.cache_clear()


def damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "half": whole[: len(whole) // 2], "other": b"x" * 999}[how])


DAMAGES = ("empty", "half", "other", "gone")


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("ending", ["pdi", "insts", "insts.sha256"])
def test_a_damaged_part_of_a_design_is_as_if_it_were_not_there(
    cache: Path, how: str, ending: str
) -> None:
    from design_cases import whole_design

    made = artifacts.artifact(whole_design(), COMPILER)
    assert not made.built
    artifacts.build(made)
    assert made.built
    words = made.words({})
    damage(made.folder / f"{made.key}.{ending}", how)
    assert not made.built
    artifacts.build(made)
    assert made.built
    assert made.words({}) == words


@needs_xclbinutil
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_image_is_made_anew(cache: Path, how: str, tmp_path: Path) -> None:
    folder = export_short_conv(tmp_path / "model")
    outcome = build_for(folder, "npu2")
    contents = [path.read_bytes() for path in outcome.images]
    damage(outcome.images[0], how)
    again = build_for(folder, "npu2")
    assert again.built == 0
    assert again.images == outcome.images
    assert [len(path.read_bytes()) for path in again.images] == [len(text) for text in contents]


@needs_xclbinutil
def test_two_processes_that_build_one_cache_build_each_design_once(
    cache: Path, tmp_path: Path
) -> None:
    folder = export_short_conv(tmp_path / "model")
    program = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from design_compiler import COMPILER, AsTheyAre
        from npu_models import build_for
        from pathlib import Path
        real = type(COMPILER).build
        def build(self, made):
            print(made.key, flush=True)
            real(self, made)
        type(COMPILER).build = build
        outcome = build_for(Path({str(folder)!r}), "npu2")
        assert not outcome.failed
        assert all(made.built for made in outcome.designs)
    """
    started = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={**os.environ, "ONNX_IRON_CACHE": str(cache)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    keys = [key for one in started for key in one.communicate(timeout=240)[0].split()]
    assert [one.returncode for one in started] == [0, 0]
    # Each design once; those of one configuration share the file that configures the array.
    assert len(keys) == len(set(keys)) >= len(list(cache.rglob("*.pdi"))) > 0


def test_designs_of_another_target_or_kernel_source_are_not_taken(
    driver: Any, cache: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = export_short_conv(tmp_path / "model") / "decode.onnx"
    build_for(folder.parent, "npu1" if target == "npu2" else "npu2")
    missing = rf"its design is not built; `onnx-iron build-kernels MODEL --target {target}`"
    with pytest.raises(Exception, match=missing):
        onnx_iron.Session(folder, device="npu")
    build_for(folder.parent, target)
    onnx_iron.Session(folder, device="npu").decode(x=np.ones((1, WIDTH), BFLOAT16))
    monkeypatch.setattr(type(COMPILER), "identity", lambda _: b"other kernels")
    artifacts.artifact.cache_clear()
    with pytest.raises(Exception, match=missing):
        onnx_iron.Session(folder, device="npu")


def test_a_session_is_not_opened_on_a_half_of_a_design(
    driver: Any, cache: Path, target: str, tmp_path: Path
) -> None:
    folder = export_short_conv(tmp_path / "model") / "decode.onnx"
    outcome = build_for(folder.parent, target)
    damage(outcome.designs[0].pdi, "half")
    with pytest.raises(Exception, match="its design is not built; `onnx-iron build-kernels"):
        onnx_iron.Session(folder, device="npu")
    again = build_for(folder.parent, target)
    # What was damaged configures the array for all designs that share it.
    assert again.built == sum(made.pdi == outcome.designs[0].pdi for made in outcome.designs)
    onnx_iron.Session(folder, device="npu").decode(x=np.ones((1, WIDTH), BFLOAT16))


class Changed(AsTheyAre):
    """The same compiler, in another release."""

    def identity(self) -> bytes:
        return b"another release"


def test_what_another_compiler_made_is_another_artifact(cache: Path) -> None:
    from design_cases import whole_design

    mine, others = (artifacts.artifact(whole_design(), c) for c in (COMPILER, Changed()))
    assert mine.folder == others.folder
    assert mine.key != others.key
    assert mine.configuration != others.configuration


@pytest.mark.parametrize("name", ["common.h", "decode.cc"])
def test_a_changed_source_of_the_kernels_makes_every_artifact_anew(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx_iron.kernels.aie as package

    hashed = artifacts.kernel_sources.__wrapped__
    copy = tmp_path / "aie"
    shutil.copytree(Path(package.__file__).parent, copy)
    monkeypatch.setattr(package, "__file__", str(copy / "__init__.py"))
    before = hashed()
    assert before == artifacts.kernel_sources()
    with (copy / name).open("a") as source:
        source.write("// changed")
    assert hashed() != before
