"""The commands build-kernels, doctor and estimate, and the toolchain's seam, without an NPU."""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from design_compiler import COMPILER
from npu_models import export_short_conv
from simulator import sysfs

from onnx_iron.dtypes import BFLOAT16
from onnx_iron.kernels.designs import Design, Target, design_for
from onnx_iron.kernels.designs.interpreter import encode
from onnx_iron.operators.gemm import GEMM
from onnx_iron.provider.devices.npu import examine, toolchain
from onnx_iron.provider.devices.npu.artifacts import addresses, artifact
from onnx_iron.provider.devices.npu.image import TARGETS, Part, build_image, find_tool
from onnx_iron.provider.devices.npu.wheels import MlirAie, Peano
from onnx_iron.tools import estimate
from onnx_iron.tools.main import main


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_short_conv(tmp_path_factory.mktemp("conv"))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ONNX_IRON_CACHE", str(tmp_path / "cache"))
    artifact.cache_clear()
    return tmp_path / "cache"


needs_xclbinutil = pytest.mark.skipif(find_tool() is None, reason="needs XRT's xclbinutil")


# -- build-kernels --------------------------------------------------------------------------


@needs_xclbinutil
def test_build_kernels_builds_each_design_once(
    conv: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(toolchain.VARIABLE, "design_compiler:COMPILER")
    command = ["build-kernels", str(conv), "--target", "npu2", "--jobs", "2"]
    assert main(command) == 0
    first = capsys.readouterr()
    images = first.out.splitlines()
    assert len(images) == 2
    assert all(Path(image).is_file() for image in images)
    found = re.search(r"(\d+) distinct, of 12 runs", first.err)
    assert found
    assert main(command) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert f"were there │ {found[1]}" in again.err


@needs_xclbinutil
def test_without_the_toolchain_the_message_says_what_to_install(
    conv: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(toolchain.VARIABLE, raising=False)
    assert main(["build-kernels", str(conv), "--target", "npu1"]) == 1
    text = capsys.readouterr().err
    assert "mlir-aie 1.4.0" in text
    assert "Peano" in text
    assert "install them with pip here, then run the command again" in text


def test_a_model_that_is_not_there(tmp_path: Path, capsys: Any) -> None:
    assert main(["build-kernels", str(tmp_path / "no.onnx"), "--target", "npu2"]) == 1
    assert "no.onnx is not there" in capsys.readouterr().err


# -- estimate -------------------------------------------------------------------------------


def test_estimate_counts_and_predicts(conv: Path, capsys: Any) -> None:
    assert main(["estimate", str(conv / "decode.onnx"), "--target", "npu2"]) == 0
    text = capsys.readouterr().out
    # The filter between two runs of the steps that share a configuration.
    assert "steps: 4, in 3 runs; switches of configuration: 3" in text
    assert "a dispatch a run:           3 submissions" in text
    assert "a run list a subgraph:      1 submissions" in text
    assert "Nothing here was measured on an NPU" in text
    assert "50 GB/s (assumed)" in text


def test_estimated_times_are_what_the_costs_add_up_to(conv: Path) -> None:
    from onnx_iron.provider.devices.npu.build import plans_of

    plans = plans_of(conv / "decode.onnx", Target.NPU2, COMPILER)
    made = estimate.estimate(plans, 14.7e12, 50e9)
    total = made.total
    assert (total.runs, made.steps, made.switches) == (3, 4, 3)
    assert total.designs == 4
    within = total.busy_us + 3 * 39 + 10.5  # one step after another in a run
    assert made.each_us == pytest.approx(3 * 52.5 + within)
    assert made.list_us == pytest.approx(3 * estimate.in_list_us(3) + within)
    products = made.lines["RMSNorm+GEMV"]
    assert products.flops > 3 * 2 * 128 * 128
    # Three weights, the operand and the norm's weight, which fill a chunk, and the results.
    assert products.bytes == 2 * (3 * 128 * 128 + 256 + 3 * 128)


def test_an_estimate_for_machines_adds_up(conv: Path, capsys: Any) -> None:
    assert main(["estimate", str(conv), "--target", "npu1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["target"] == "npu1"
    assert "arXiv" in " ".join(printed["assumed"])
    assert set(printed["calls"]) == {"prefill.onnx", "decode.onnx"}
    for call in printed["calls"].values():
        total = call["total"]
        assert total["dma_us"] + total["compute_us"] == pytest.approx(total["busy_us"])
        parts = ("dispatch_us", "switch_us", "busy_us")
        assert sum(total[part] for part in parts) == pytest.approx(call["list_us"])


def test_a_large_product_is_estimated_above_five_tflops() -> None:
    spec = ((2048, 2048), np.dtype(BFLOAT16))
    design = design_for(GEMM(b_col_maj=True), [spec, spec], Target.NPU2)
    assert isinstance(design, Design)
    moved = estimate.traffic(design)
    # Of a, of b and of the result, by a core's 64 x 64 and the array's 256 x 512.
    assert moved.bytes == 2 * 2048 * 2048 * (2048 // 512 + 2048 // 256 + 1)
    assert moved.busiest == 2 * 2048 * 2048 * 8 // 8
    seconds = max(
        2 * 2048**3 / estimate.FLOPS["npu2"],
        moved.bytes / estimate.BANDWIDTH,
        moved.busiest / estimate.CHANNEL["npu2"],
    )
    assert 2 * 2048**3 / (seconds + moved.phases * estimate.PHASE_US / 1e6) > 5e12


def test_an_estimate_is_drawn(conv: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "time.png"
    assert main(["estimate", str(conv), "--target", "npu2", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_picture_says_what_to_install(
    conv: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "onnx_iron.tools.estimate_picture", raising=False)
    path = tmp_path / "time.png"
    assert main(["estimate", str(conv), "--target", "npu2", "--plot", str(path)]) != 0
    assert "pip install 'onnx-iron[plot]'" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize(("runs", "expected"), [(1, 56), (8, 33), (100, 33), (4.5, 44.5)])
def test_a_run_in_a_list_costs_less(runs: int, expected: float) -> None:
    assert estimate.in_list_us(runs) == pytest.approx(expected)


def test_a_bandwidth_is_a_number(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["estimate", "model.onnx", "--target", "npu2", "--bandwidth", "-1"])
    assert "'-1' is not a number above 0" in capsys.readouterr().err


# -- doctor ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["npu1", "npu2"])
def test_doctor_sees_the_machine(tmp_path: Path, target: str) -> None:
    sysfs.build(tmp_path / "sys", target)
    (tmp_path / "dev/accel").mkdir(parents=True)
    (tmp_path / "dev/accel/accel0").write_bytes(b"")
    device = examine.find_device(tmp_path)
    assert f"target {target}" in examine.npu(device).found
    assert examine.driver(tmp_path).good
    assert examine.firmware(device).found == "1.1.2.65"
    assert examine.node(tmp_path).good


def test_doctor_says_what_is_missing(tmp_path: Path) -> None:
    found = {finding.what: finding for finding in list(examine.examine(tmp_path))[:4]}
    assert not any(finding.good for finding in found.values())
    assert "modprobe amdxdna" in str(found["driver"])
    assert "linux-firmware" in str(found["firmware"])
    assert str(found["NPU"]).startswith("MISSING NPU")


def test_a_driver_that_refused_the_firmware(tmp_path: Path) -> None:
    sysfs.build(tmp_path / "sys", "npu2")
    device = examine.find_device(tmp_path)
    assert device is not None
    (device / "fw_version").unlink()
    found = examine.firmware(device)
    assert not found.good
    assert "dmesg | grep amdxdna" in str(found)


@pytest.mark.parametrize(("limit", "good"), [(-1, True), (8 << 20, False), (2 << 30, True)])
def test_the_memlock_limit(monkeypatch: pytest.MonkeyPatch, limit: int, good: bool) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert examine.memory_limit(limit).good is good
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert examine.memory_limit(limit).good


def test_a_user_without_permission_is_told_the_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "dev/accel").mkdir(parents=True)
    (tmp_path / "dev/accel/accel0").write_bytes(b"")
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = examine.node(tmp_path)
    assert not found.good
    assert "usermod -aG render" in found.remedy


@pytest.mark.skipif("NPU_DRIVER_TARGET" in os.environ, reason="there is an NPU here")
def test_doctor_fails_where_there_is_no_npu(capsys: Any) -> None:
    assert main(["doctor"]) == 1
    printed = capsys.readouterr()
    assert "onnxruntime" in printed.out
    assert "the NPU can't be used" in printed.err


@pytest.mark.skipif("NPU_DRIVER_TARGET" not in os.environ, reason="there is no NPU here")
def test_doctor_is_content_with_the_simulated_npu(capsys: Any) -> None:
    assert main(["doctor"]) == 0
    assert "its designs by simulator, XRT" in capsys.readouterr().out


# -- the toolchain's seam -------------------------------------------------------------------


def a_design() -> Design:
    import numpy as np

    from onnx_iron.dtypes import BFLOAT16
    from onnx_iron.operators.slice_scatter import SliceScatter

    op = SliceScatter.from_attributes({"axis": 0})
    specs = (((64, 128), BFLOAT16), ((4, 128), BFLOAT16), ((), np.dtype(np.int32)))
    made = design_for(op, specs, Target.NPU2)
    assert isinstance(made, Design)
    return made


def instructions(places: list[tuple[int, int]]) -> bytes:
    """A stream with address patches as mlir-aie writes them, and other words around."""
    words = [0x06030100, 0x104, len(places), 0]
    for number, offset in places:
        words += [1, 0, 0x1D000, 48, *range(100, 108)]
        words += [0x81, 48, 0, 0, 0, 0, 0x1D004, 0, number, 0, offset, 0]
    return struct.pack(f"<{len(words)}I", *words)


def test_addresses_are_found_in_the_instructions() -> None:
    made = a_design()
    expected = addresses(made, {"start": 0})
    places = toolchain.find_places(instructions(expected), made, {"start": 0})
    assert len(places) == len(expected)
    moved = addresses(made, {"start": 5})
    stream = bytearray(instructions(expected))
    for place, (_, offset) in zip(places, moved, strict=True):
        struct.pack_into("<I", stream, place, offset)
    assert bytes(stream) == instructions(moved)


def test_an_address_is_the_bytes_from_its_buffers_begin() -> None:
    """A row is 128 bfloat16 numbers, so five rows on are 5 * 256 bytes on."""
    made = a_design()
    first, moved = (addresses(made, {"start": start}) for start in (0, 5))
    names = [made.buffers[number].name for number, _ in first]
    assert [made.buffers[number].name for number, _ in moved] == names
    apart = [after - before for (_, before), (_, after) in zip(first, moved, strict=True)]
    assert apart == [5 * 256 if name == "y" else 0 for name in names]
    assert set(names) == {"src", "y"}


def test_instructions_in_another_order_are_refused() -> None:
    made = a_design()
    other = addresses(made, {"start": 1})
    with pytest.raises(toolchain.ToolchainError, match="orders transfers in another way"):
        toolchain.find_places(instructions(other), made, {"start": 0})


@needs_xclbinutil
def test_a_pdi_comes_out_of_an_xclbin_as_it_went_in(tmp_path: Path) -> None:
    (tmp_path / "one.pdi").write_bytes(encode(a_design()))
    tool = find_tool()
    assert tool is not None
    part = Part("copy", tmp_path / "one.pdi", 2)
    build_image([part], TARGETS["npu2"], tmp_path / "out" / "one.xclbin")
    found = toolchain.extract_pdi(tmp_path / "out" / "one.xclbin", tool)
    assert found.read_bytes() == encode(a_design())
    other = Part("other", tmp_path / "one.pdi", 2)
    build_image([part, other], TARGETS["npu2"], tmp_path / "out" / "two.xclbin")
    with pytest.raises(toolchain.ToolchainError, match="holds 2 PDIs, expected one"):
        toolchain.extract_pdi(tmp_path / "out" / "two.xclbin", tool)


@needs_xclbinutil
def test_a_design_goes_through_the_toolchain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With an aiecc that only hands out files: what is asked of it, and what is kept."""
    made = artifact(a_design(), toolchain.AIECC)
    (tmp_path / "one.pdi").write_bytes(b"configuration")
    image = tmp_path / "handed.xclbin"
    build_image([Part("MLIR_AIE", tmp_path / "one.pdi", 2)], TARGETS["npu2"], image)
    (tmp_path / "handed.insts").write_bytes(instructions(addresses(made.design, {"start": 0})))
    aiecc = tmp_path / "aiecc"
    script = f"""#!{sys.executable}
        import shutil, sys
        given = dict(a.partition("=")[::2] for a in sys.argv[2:])
        assert open(sys.argv[1]).read() == "module of start=0"
        assert set(given) == {{"--peano", "--xchesscc", "--xbridge", "--get-xclbin",
                               "--xclbin-name", "--get-npu-insts", "--npu-insts-name"}}, given
        assert given["--xchesscc"] == given["--xbridge"] == "false"
        shutil.copyfile({str(image)!r}, given["--xclbin-name"])
        shutil.copyfile({str(tmp_path / "handed.insts")!r}, given["--npu-insts-name"])
    """
    aiecc.write_text(textwrap.dedent(script.replace("#!", "        #!", 1)).strip() + "\n")
    aiecc.chmod(0o755)
    monkeypatch.setattr(toolchain, "lower", lambda _, values: f"module of start={values['start']}")
    tool = find_tool()
    assert tool is not None
    tools = toolchain.Toolchain(
        MlirAie(aiecc, tmp_path / "include", ""), Peano(tmp_path / "peano", ""), tool
    )
    assert not made.built
    toolchain.build(made, tools)
    assert made.built
    assert made.pdi.read_bytes() == b"configuration"
    assert made.words({"start": 9}) == instructions(addresses(made.design, {"start": 9}))
    aiecc.write_text("#!/bin/sh\necho error: no route >&2\nexit 1\n")
    with pytest.raises(toolchain.ToolchainError, match="error: no route"):
        toolchain.build(made, tools)


def test_kernels_are_compiled_for_the_cores(tmp_path: Path) -> None:
    from onnx_iron.dtypes import BFLOAT16
    from onnx_iron.operators.silu import SiLU

    made = design_for(SiLU(), (((4, 64), BFLOAT16),), Target.NPU1)
    assert isinstance(made, Design)
    compiler = tmp_path / "peano" / "bin" / "clang++"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(
        f"#!{sys.executable}\nimport sys\nopen('log', 'w').write(' '.join(sys.argv[1:]))\n"
    )
    compiler.chmod(0o755)
    tools = toolchain.Toolchain(
        MlirAie(tmp_path / "aiecc", tmp_path / "include", ""), Peano(tmp_path / "peano", ""), "no"
    )
    toolchain.compile_kernels(made, tools, tmp_path)
    log = (tmp_path / "log").read_text()
    assert "silu.cc -c -std=c++20 -O2 -DNDEBUG -D__AIE_API_AIE_ADF_HPP__" in log
    assert "--target=aie2-none-unknown-elf -o silu.o" in log
    compiler.write_text("#!/bin/sh\necho no such header >&2\nexit 3\n")
    with pytest.raises(toolchain.ToolchainError, match="exit code 3:\nno such header"):
        toolchain.compile_kernels(made, tools, tmp_path)
