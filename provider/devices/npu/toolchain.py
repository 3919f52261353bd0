"""Compiling designs with AMD's open toolchain: mlir-aie's aiecc, and Peano for the kernels.

None of this can run where the project is tested: the toolchain's wheels are on no package index.
"""

from __future__ import annotations

import importlib
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx_iron.kernels.aie.build import kernel_source
from onnx_iron.kernels.designs import Design, Target
from onnx_iron.kernels.designs.configuration import counts
from onnx_iron.kernels.designs.iron import RELEASES
from onnx_iron.kernels.designs.lowering import lower
from onnx_iron.provider.devices.npu.artifacts import (
    Artifact,
    Compiler,
    addresses,
    kernel_sources,
    placed,
    write,
)
from onnx_iron.provider.devices.npu.image import TOOL, find_tool
from onnx_iron.provider.devices.npu.wheels import (
    HOW,
    MlirAie,
    Peano,
    find_mlir_aie,
    find_peano,
    mismatch,
)

# aie_api includes Vitis' adf.h unless it is told that it was included. Its headers warn, and what
# the last of the warnings is about is an error unless it is switched off; these are the ones that
# mlir-aie's own examples switch off.
_KERNEL_FLAGS = (
    *("-std=c++20", "-O2", "-DNDEBUG", "-D__AIE_API_AIE_ADF_HPP__"),
    *("-Wno-parentheses", "-Wno-attributes", "-Wno-macro-redefined", "-Wno-empty-body"),
    "-Wno-missing-template-arg-list-after-template-kw",
)

# Up to 1.4.0, aiecc compiles and links with Vitis' compiler unless told not to.
_OPEN_TOOLS = ("--xchesscc=false", "--xbridge=false")

# An instruction that puts a buffer's address into a transfer: its first word, its bytes, and which
# of its words hold the buffer's number and the bytes from the buffer's begin.
_PATCH, _PATCH_BYTES, _NUMBER_WORD, _OFFSET_WORD = 0x81, 48, 8, 10

# A stream of instructions begins with words of its own, of which these say how many instructions
# and how many bytes it has.
_HEAD_WORDS, _COUNT_WORD, _SIZE_WORD = 4, 2, 3


class ToolchainError(RuntimeError):
    """A tool is missing or failed; the message says what to do."""


@dataclass(frozen=True)
class Toolchain:
    """The tools of this machine."""

    mlir_aie: MlirAie
    peano: Peano
    xclbinutil: str


def find_toolchain(target: Target) -> Toolchain:
    """The tools of this machine, fit to build designs for a target.

    Raises:
        ToolchainError: which are missing or of another release, and how to get them.
    """
    mlir_aie, peano, xclbinutil = find_mlir_aie(), find_peano(), find_tool()
    missing = []
    if mlir_aie is None:
        missing.append(f"mlir-aie {RELEASES[0]} to {RELEASES[1]} (its package aie, and bin/aiecc)")
    if peano is None:
        missing.append("Peano (the clang++ of llvm-aie; PEANO_INSTALL_DIR may name its folder)")
    if xclbinutil is None:
        missing.append(f"{TOOL} (part of XRT; on Debian and Ubuntu: apt install libxrt-utils)")
    if mlir_aie is None or peano is None or xclbinutil is None:
        version = ".".join(map(str, sys.version_info[:2]))
        raise ToolchainError(
            f"designs are compiled with {'; '.join(missing)}: not found for this Python {version}. "
            "The wheels are on the projects' release pages, not on a package index; install them "
            f"with pip here, then run the command again: {HOW}"
        )
    if wrong := mismatch(mlir_aie, peano, target.generation):
        raise ToolchainError(f"{wrong}. {HOW}")
    return Toolchain(mlir_aie, peano, xclbinutil)


class Aiecc:
    """Artifacts by mlir-aie and Peano."""

    name = "hardware"

    def identity(self) -> bytes:
        """The kernels' source."""
        return kernel_sources()

    def check(self, target: Target) -> None:
        """Look for the tools."""
        find_toolchain(target)

    def build(self, made: Artifact) -> None:
        """Compile a design."""
        build(made, find_toolchain(made.design.target))

    def numbers(self, made: Artifact, values: Mapping[str, int]) -> list[tuple[int, int]]:
        """The call's addresses and counts, where they were found."""
        return placed(made, values)

    def join(self, parts: Sequence[tuple[bytes, Sequence[int]]]) -> tuple[bytes, list[int]]:
        """One behind the other, under one header."""
        return joined(parts)


AIECC = Aiecc()

# Names another compiler than aiecc: a module and what in it is one, "module:name".
VARIABLE = "ONNX_IRON_NPU_COMPILER"


def design_compiler() -> Compiler:
    """What makes this machine's artifacts: aiecc, or what ONNX_IRON_NPU_COMPILER names."""
    named = os.environ.get(VARIABLE)
    if not named:
        return AIECC
    module, _, name = named.partition(":")
    found: Compiler = getattr(importlib.import_module(module), name)
    return found


def build(made: Artifact, tools: Toolchain) -> None:
    """Compile a design.

    Raises:
        ToolchainError: a tool failed, with its last words.
    """
    design = made.design
    values = design.possible_values()
    made.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        compile_kernels(design, tools, room)
        instructions = compiled(design, values, tools, room)
        pdi = extract_pdi(room / "design.xclbin", tools.xclbinutil).read_bytes()
        if design.values:
            places = find_places(instructions, design, values)
            if counted := design.counted_values():
                # Where counts are is seen by what differs where they are others.
                fewer = {n: v - (n in counted) for n, v in values.items()}
                others = compiled(design, fewer, tools, room)
                places += find_counts((instructions, others), design, (values, fewer))
            write(made.places, json.dumps(places).encode())
        write(made.instructions, instructions)
        write(made.pdi, pdi)


def compiled(design: Design, values: Mapping[str, int], tools: Toolchain, room: Path) -> bytes:
    """The instructions for per-call values; the xclbin is in the room.

    Raises:
        ToolchainError: IRON refuses the design, or aiecc fails.
    """
    try:
        module = lower(design, values)
    except Exception as error:  # mlir-aie's exceptions are of many kinds
        raise ToolchainError(
            f"{design.name}: mlir-aie's IRON refuses the design: {error}"
        ) from error
    (room / "design.mlir").write_text(str(module))
    command = [str(tools.mlir_aie.aiecc), "design.mlir"]
    command += [f"--peano={tools.peano.folder}", *_OPEN_TOOLS]
    command += ["--get-xclbin", "--xclbin-name=design.xclbin"]
    command += ["--get-npu-insts", "--npu-insts-name=design.insts"]
    run(command, room, design.name)
    return (room / "design.insts").read_bytes()


def compile_kernels(design: Design, tools: Toolchain, room: Path) -> None:
    """Compile the sources of a design's kernels, each to an object file of its name.

    Raises:
        ToolchainError: the compiler failed.
    """
    for source in {kernel_source(kernel) for kernel in kernels_of(design)}:
        command = [str(tools.peano.compiler), str(source), "-c"]
        command += [*_KERNEL_FLAGS, f"-I{tools.mlir_aie.headers}", f"-I{source.parent}"]
        command += [
            f"--target={design.target.generation}-none-unknown-elf",
            "-o",
            f"{source.stem}.o",
        ]
        run(command, room, source.name)


def kernels_of(design: Design) -> set[str]:
    """The names of what its cores call."""
    return {call.kernel for call in design.calls} | {s.put for s in design.streams if s.chunk}


def run(command: Sequence[str], room: Path, what: str) -> None:
    """Run a tool.

    Raises:
        ToolchainError: it failed, with its last words.
    """
    done = subprocess.run(command, cwd=room, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        tool = Path(command[0]).name
        raise ToolchainError(f"{what}: {tool} failed with exit code {done.returncode}:\n{tail}")


def extract_pdi(xclbin: Path, tool: str) -> Path:
    """The one PDI in an xclbin, as a file beside it.

    Raises:
        ToolchainError: there are several, or none.
    """
    room = xclbin.parent
    command = [tool, "--dump-section", "AIE_PARTITION:JSON:partition.json"]
    run([*command, "--force", "--quiet", "--input", xclbin.name], room, xclbin.name)
    partition = json.loads((room / "partition.json").read_text())["aie_partition"]
    names = [str(entry["file_name"]) for entry in partition["PDIs"]]
    if len(names) != 1:
        raise ToolchainError(f"{xclbin.name} holds {len(names)} PDIs, expected one")
    return room / names[0]


def joined(parts: Sequence[tuple[bytes, Sequence[int]]]) -> tuple[bytes, list[int]]:
    """Instructions of several designs as one stream: its header says how many instructions and how
    many bytes there are, and each transfer's address which of the run's buffers it is in.

    Returns:
        The stream, and how far each design's instructions are from where they were.
    """
    head = list(struct.unpack_from(f"<{_HEAD_WORDS}I", parts[0][0]))
    head[_COUNT_WORD] = 0
    body, moved = bytearray(), []
    for content, numbers in parts:
        moved.append(len(body))
        words = list(struct.unpack(f"<{len(content) // 4}I", content))
        for at in patches(words):
            words[at + _NUMBER_WORD] = numbers[words[at + _NUMBER_WORD]]
        head[_COUNT_WORD] += words[_COUNT_WORD]
        body += struct.pack(f"<{len(words) - _HEAD_WORDS}I", *words[_HEAD_WORDS:])
    head[_SIZE_WORD] = len(body) + 4 * _HEAD_WORDS
    return struct.pack(f"<{_HEAD_WORDS}I", *head) + bytes(body), moved


def patches(words: Sequence[int]) -> Iterator[int]:
    """Where the instructions are that put a buffer's address into a transfer."""
    for at in range(len(words) - _OFFSET_WORD):
        if words[at] == _PATCH and words[at + 1] == _PATCH_BYTES:
            yield at


def find_counts(
    instructions: tuple[bytes, bytes], design: Design, values: tuple[Mapping[str, int], ...]
) -> list[int]:
    """Where in the instructions the counts are that depend on per-call values (``counts``): the
    words in which the instructions for two calls' values differ.

    Raises:
        ToolchainError: they differ in other words than the design's counts.
    """
    one, other = (struct.unpack(f"<{len(each) // 4}I", each) for each in instructions)
    pairs = list(enumerate(zip(one, other, strict=False)))
    found = [(at, pair) for at, pair in pairs if pair[0] != pair[1]]
    both = [[n % (1 << 32) for n in counts(design, each)] for each in values]
    expected = list(zip(*both, strict=True))
    if len(one) != len(other) or [pair for _, pair in found] != expected:
        raise ToolchainError(
            f"{design.name}: aiecc's instructions for other counts differ in "
            f"{[pair for _, pair in found][:4]}... ({len(found)}, of {len(one)} and {len(other)} "
            f"words), the design's counts in {expected[:4]}... ({len(expected)}); this release of "
            f"mlir-aie encodes lengths in another way than {RELEASES[0]} to {RELEASES[1]}"
        )
    return [4 * at for at, _ in found]


def find_places(instructions: bytes, design: Design, values: Mapping[str, int]) -> list[int]:
    """Where in the instructions the transfers' addresses are, in the transfers' order.

    Raises:
        ToolchainError: the addresses there are not those that the design has for these values, so
            that those of other values can't be put in.
    """
    words = struct.unpack(f"<{len(instructions) // 4}I", instructions)
    places, found = [], []
    for at in patches(words):
        places.append(4 * (at + _OFFSET_WORD))
        found.append((words[at + _NUMBER_WORD], words[at + _OFFSET_WORD]))
    expected = addresses(design, values)
    if found != expected:
        raise ToolchainError(
            f"{design.name}: aiecc's instructions have the addresses {found[:4]}... "
            f"({len(found)}), the design {expected[:4]}... ({len(expected)}); this release of "
            f"mlir-aie orders transfers in another way than {RELEASES[0]} to {RELEASES[1]}"
        )
    return places
