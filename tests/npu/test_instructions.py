"""Instructions as aiecc writes them: designs joined to one run, and the numbers of a call."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from test_decode_attention import HEADS, gathered_design

from onnx_iron.kernels.designs import Target
from onnx_iron.kernels.designs.configuration import numbers
from onnx_iron.kernels.designs.decode_attention import Parts
from onnx_iron.kernels.designs.design import Design
from onnx_iron.kernels.designs.schedule import schedule
from onnx_iron.provider.devices.npu import toolchain
from onnx_iron.provider.devices.npu.artifacts import artifact, placed, with_numbers, write
from onnx_iron.provider.devices.npu.wheels import MlirAie, Peano

# Words of mlir-aie's transactions: an instruction's kind, and for those of a known size that.
WRITE, BLOCK, PATCH = 0x00, 0x01, 0x81


def stream(body: Sequence[Sequence[int]]) -> bytes:
    """Instructions under their header: how many there are, and how many bytes with it."""
    words = [word for instruction in body for word in instruction]
    head = [0x06030100, 0x104, len(body), 4 * (4 + len(words))]
    return struct.pack(f"<{4 + len(words)}I", *(w % (1 << 32) for w in (*head, *words)))


def instructions(design: Design, values: Mapping[str, int]) -> bytes:
    """What tells the cores their numbers and the shims their walks, in mlir-aie's order."""
    body = []
    for column in range(len(design.columns)):
        for at, word in enumerate(numbers(design, column, values)):
            body.append([WRITE, 0, column << 25 | 0x400 + 4 * at, 0, word, 24])
    names = [buffer.name for buffer in design.buffers]
    for phase in schedule(design, values):
        for walk in phase:
            item_bytes = design.buffer(walk.buffer).item_bytes
            register = walk.column << 25 | 0x1D000
            sizes, strides = walk.in_four(item_bytes)
            # Of four sizes, the second is not in a descriptor.
            shape = [walk.words(item_bytes), 0, 0, *sizes[2:], *strides[1:]]
            body.append([BLOCK, 0, register, 48, *shape])
            buffer, offset = names.index(walk.buffer), walk.offset * item_bytes
            body.append([PATCH, 48, 0, 0, 0, 0, register + 4, 0, buffer, 0, offset, 0])
    return stream(body)


@pytest.fixture(params=Target)
def design(request: pytest.FixtureRequest) -> Design:
    target: Target = request.param
    return gathered_design(Parts(target.columns, *HEADS["SmolLM2-135M"], 1024), target)


def test_a_calls_counts_and_addresses_make_one_calls_instructions_anothers(
    design: Design, tmp_path: Path
) -> None:
    most = design.possible_values()
    assert most == {"rounds": 1024 // Parts(len(design.columns), 9, 3, 64, 1024).every}
    fewer = {"rounds": most["rounds"] - 1}
    made = replace(artifact(design, toolchain.AIECC), folder=tmp_path)
    whole = instructions(design, most)
    places = toolchain.find_places(whole, design, most)
    places += toolchain.find_counts((whole, instructions(design, fewer)), design, (most, fewer))
    write(made.places, str(places).encode())
    for rounds in (1, 2, most["rounds"]):
        found = with_numbers(whole, placed(made, {"rounds": rounds}))
        assert found == instructions(design, {"rounds": rounds})


def test_instructions_that_differ_elsewhere_are_refused(design: Design) -> None:
    most = design.possible_values()
    fewer = {"rounds": most["rounds"] - 1}
    one, other = bytearray(instructions(design, most)), instructions(design, fewer)
    one[-40] ^= 1
    for wrong in ((bytes(one), other), (other, other), (other + other[-4:], other)):
        with pytest.raises(toolchain.ToolchainError, match="encodes lengths in another way"):
            toolchain.find_counts(wrong, design, (most, fewer))


def test_a_design_with_counts_is_compiled_for_two_of_them(
    design: Design, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replace(artifact(design, toolchain.AIECC), folder=tmp_path)
    asked = []

    def compiled(of: Design, values: Mapping[str, int], *_: object) -> bytes:
        asked.append(dict(values))
        return instructions(of, values)

    (tmp_path / "one.pdi").write_bytes(b"configuration")
    monkeypatch.setattr(toolchain, "compiled", compiled)
    monkeypatch.setattr(toolchain, "compile_kernels", lambda *_: None)
    monkeypatch.setattr(toolchain, "extract_pdi", lambda *_: tmp_path / "one.pdi")
    tools = toolchain.Toolchain(MlirAie(tmp_path, tmp_path, ""), Peano(tmp_path, ""), "no")
    toolchain.build(made, tools)
    most = design.possible_values()["rounds"]
    assert asked == [{"rounds": most}, {"rounds": most - 1}]
    assert made.built
    assert made.words({"rounds": 3}) == instructions(design, {"rounds": 3})


def patch(buffer: int, offset: int) -> list[int]:
    return [PATCH, 48, 0, 0, 0, 0, 0x1D004, 0, buffer, 0, offset, 0]


def test_designs_that_are_one_run_are_one_stream_with_the_runs_buffers() -> None:
    write_word = [WRITE, 0, 0x400, 0, 7, 24]
    # A word that a core is told may look like the begin of a patch, and is none.
    like_a_patch = [WRITE, 0, 0x404, 0, PATCH, 24]
    one = stream([write_word, patch(0, 64), patch(1, 0)])
    other = stream([like_a_patch, patch(1, 128), patch(0, 32)])
    joined, moved = toolchain.joined([(one, [4, 0]), (other, [5, 2])])
    assert moved == [0, len(one) - 16], "an instruction's place in its own stream, and in the run's"
    assert joined == stream(
        [write_word, patch(4, 64), patch(0, 0), like_a_patch, patch(2, 128), patch(5, 32)]
    )


def test_a_run_of_one_design_keeps_its_instructions() -> None:
    one = stream([patch(0, 64), patch(1, 0)])
    assert toolchain.joined([(one, [0, 1])]) == (one, [0])
