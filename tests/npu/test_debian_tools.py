"""What XRT's tools, as Debian ships them, read of what this project writes."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from design_cases import LOWERED, design_of
from test_decode import designed, stages_of
from test_decode_attention import HEADS, gathered_design, merging
from transactions import descriptor_words, instructions, read

from onnx_iron.kernels.designs import Target
from onnx_iron.kernels.designs.configuration import numbers
from onnx_iron.kernels.designs.decode_attention import Parts
from onnx_iron.kernels.designs.design import Design
from onnx_iron.kernels.designs.schedule import schedule
from onnx_iron.provider.devices.npu import toolchain
from onnx_iron.provider.devices.npu.image import TARGETS, Part, build_image, find_tool

needs_xclbinutil = pytest.mark.skipif(find_tool() is None, reason="needs XRT's xclbinutil")
needs_aiebu = pytest.mark.skipif(shutil.which("aiebu-dump") is None, reason="needs XRT's aiebu")

FIRST_ARGUMENTS = ["opcode", "instr", "ninstr"]


def section(image: Path, name: str) -> Any:
    """A section of an xclbin, as xclbinutil prints it."""
    tool, printed = find_tool(), image.with_name(f"{name}.json")
    assert tool is not None
    form = "RAW" if name == "EMBEDDED_METADATA" else "JSON"
    command = [tool, "--dump-section", f"{name}:{form}:{printed}", "--input", str(image)]
    subprocess.run([*command, "--quiet", "--force"], check=True, capture_output=True)
    text = printed.read_text()
    return ElementTree.fromstring(text) if form == "RAW" else json.loads(text)[name.lower()]


@needs_xclbinutil
@pytest.mark.parametrize("name", TARGETS)
def test_an_image_says_of_its_kernels_memories_and_columns_what_it_was_made_of(
    name: str, tmp_path: Path
) -> None:
    parts = []
    for number, buffers in enumerate((3, 48, 1)):
        (tmp_path / f"{number}.pdi").write_bytes(bytes([number]) * 100)
        parts.append(Part(f"kernel_{number}", tmp_path / f"{number}.pdi", buffers))
    image = tmp_path / "made.xclbin"
    build_image(parts, TARGETS[name], image)

    kernels = section(image, "EMBEDDED_METADATA").findall(".//kernel")
    assert [kernel.get("name") for kernel in kernels] == [part.kernel for part in parts]
    for number, (kernel, part) in enumerate(zip(kernels, parts, strict=True)):
        extended = kernel.find("extended-data")
        assert kernel.get("type") == "dpu"
        assert int(extended.get("dpu_kernel_id"), 0) == 0x901 + number
        arguments = kernel.findall("arg")
        buffers = [f"bo{n}" for n in range(part.buffers)]
        assert [a.get("name") for a in arguments] == [*FIRST_ARGUMENTS, *buffers]
        # A command's words: each argument begins where the one before ends.
        places = [int(a.get("offset"), 0) for a in arguments]
        assert places == [0, 8, 16, *(20 + 8 * n for n in range(part.buffers))]
        assert [int(a.get("size"), 0) for a in arguments[:3]] == [8, 8, 4]

    listed = section(image, "IP_LAYOUT")["m_ip_data"]
    assert [ip["m_name"].split(":")[0] for ip in listed] == [part.kernel for part in parts]
    assert {ip["m_type"] for ip in listed} == {"IP_PS_KERNEL"}

    memories = section(image, "MEM_TOPOLOGY")["m_mem_data"]
    assert [memory["m_tag"] for memory in memories] == ["HOST", "SRAM"]
    met = {
        (int(c["m_ip_layout_index"]), int(c["arg_index"])): memories[int(c["mem_data_index"])]
        for c in section(image, "CONNECTIVITY")["m_connection"]
    }
    for number, part in enumerate(parts):
        assert met[number, 1]["m_tag"] == "SRAM", "instructions"
        assert {met[number, 3 + n]["m_tag"] for n in range(part.buffers)} == {"HOST"}
    assert len(met) == sum(1 + part.buffers for part in parts)

    partition = section(image, "AIE_PARTITION")
    assert partition["partition"]["column_width"] == {"npu1": "4", "npu2": "8"}[name]
    assert partition["partition"]["start_columns"] == [{"npu1": "1", "npu2": "0"}[name]]
    for number, (pdi, part) in enumerate(zip(partition["PDIs"], parts, strict=True)):
        (group,) = pdi["cdo_groups"]
        assert group["dpu_kernel_ids"] == [hex(0x901 + number)]
        # The section's files are written beside it.
        written = Path(pdi["file_name"])
        found = written if written.is_file() else tmp_path / written.name
        assert found.read_bytes() == part.pdi.read_bytes()


def disassembled(content: bytes, folder: Path) -> Any:
    """What aiebu makes of a stream: assembled into an ELF file, and taken apart."""
    (folder / "made.bin").write_bytes(content)
    command = ["aiebu-asm", "-t", "aie2txn", "-c", "made.bin", "-o", "made.elf"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    command = ["aiebu-dump", "-d", "made.elf"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return read(done.stdout)


def steps(target: Target) -> list[tuple[Design, dict[str, int]]]:
    """A decoder's: attention over five rounds, what merges it, and a product after a norm."""
    parts = Parts(target.columns, *HEADS["SmolLM2-135M"], 1024)
    after = designed(stages_of("SmolLM2-135M")["query and key"], target)
    return [
        (gathered_design(parts, target), {"rounds": 5}),
        (designed(merging(parts), target), {}),
        (after, {}),
    ]


def hold(found: Any, wanted: list[tuple[Design, Mapping[str, int], list[int]]]) -> None:
    """A disassembly is the designs, one after the other, with a run's buffers for each."""
    told, walks = [], []
    for design, values, buffers in wanted:
        for column in range(len(design.columns) if design.told else 0):
            told += [n % (1 << 32) for n in numbers(design, column, values)]
        names = [buffer.name for buffer in design.buffers]
        for walk in (walk for phase in schedule(design, values) for walk in phase):
            item_bytes = design.buffer(walk.buffer).item_bytes
            words, buffer = descriptor_words(walk, item_bytes), buffers[names.index(walk.buffer)]
            walks.append((walk.column, words, buffer, walk.offset * item_bytes))
    shims = [(at >> 25, words, buffer, place) for at, words, buffer, place in found.walks]
    assert shims == walks
    # Beside what the cores are told, the queues.
    assert [word for at, word in found.written if at >> 20 & 31] == told
    assert found.awaited == len(walks)


@needs_aiebu
@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize(("op", "shapes", "values"), LOWERED, ids=[op.name for op, *_ in LOWERED])
def test_a_designs_instructions_are_disassembled_to_the_design(
    op: Any, shapes: Any, values: dict[str, int], target: Target, tmp_path: Path
) -> None:
    design = design_of(op, shapes, target)
    found = disassembled(instructions(design, values), tmp_path)
    hold(found, [(design, values, list(range(len(design.buffers))))])


@needs_aiebu
@pytest.mark.parametrize("target", Target)
def test_the_instructions_of_a_run_of_several_designs_are_theirs_in_order(
    target: Target, tmp_path: Path
) -> None:
    made, count = [], 0
    for design, values in steps(target):
        buffers = list(range(count, count + len(design.buffers)))[::-1]
        made.append((design, values, buffers))
        count += len(buffers) - 1  # the last is the next one's first
    parts = [(instructions(design, values), buffers) for design, values, buffers in made]
    hold(disassembled(toolchain.joined(parts)[0], tmp_path), made)
