"""Instructions as aiecc writes them: designs joined to one run, and the numbers of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from test_decode_attention import HEADS, gathered_design
from transactions import HEAD_BYTES, PATCH, instructions, patch, stream, write

from onnx_iron.kernels.designs import Target
from onnx_iron.kernels.designs.decode_attention import Parts
from onnx_iron.kernels.designs.design import Design
from onnx_iron.provider.devices.npu import artifacts, toolchain
from onnx_iron.provider.devices.npu.artifacts import artifact, placed, with_numbers
from onnx_iron.provider.devices.npu.wheels import MlirAie, Peano


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
    artifacts.write(made.places, str(places).encode())
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


def test_designs_that_are_one_run_are_one_stream_with_the_runs_buffers() -> None:
    write_word = write(0x400, 7)
    # A word that a core is told may look like the begin of a patch, and is none.
    like_a_patch = write(0x404, PATCH)
    one = stream([write_word, patch(0, 64), patch(1, 0)])
    other = stream([like_a_patch, patch(1, 128), patch(0, 32)])
    joined, moved = toolchain.joined([(one, [4, 0]), (other, [5, 2])])
    # How far an instruction of each is from its place in its own stream.
    assert moved == [0, len(one) - HEAD_BYTES], (
        "an instruction's place in its own stream, and in the run's"
    )
    assert joined == stream(
        [write_word, patch(4, 64), patch(0, 0), like_a_patch, patch(2, 128), patch(5, 32)]
    )


def test_a_run_of_one_design_keeps_its_instructions() -> None:
    one = stream([patch(0, 64), patch(1, 0)])
    assert toolchain.joined([(one, [0, 1])]) == (one, [0])
