"""What the NPU would be given, planned without one: segments, states, refusals, artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from design_compiler import COMPILER, MAGIC
from npu_models import build_for, export_short_conv, export_small_llama

from onnx_iron.dtypes import BFLOAT16, FLOAT32, INT32, INT64, Spec
from onnx_iron.kernels.designs import Target
from onnx_iron.kernels.designs.decode_attention import Parts
from onnx_iron.operators.arithmetic import Add, Div
from onnx_iron.operators.attention import Attention
from onnx_iron.provider.devices.npu.artifacts import Artifact, images, with_numbers
from onnx_iron.provider.devices.npu.attention import attention_parts
from onnx_iron.provider.devices.npu.build import plans_of
from onnx_iron.provider.devices.npu.errors import NpuUnavailableError
from onnx_iron.provider.devices.npu.image import MOST_DESIGNS
from onnx_iron.provider.devices.npu.limits import within_watchdog
from onnx_iron.provider.devices.npu.targets import pci_device, target_of
from onnx_iron.provider.devices.npu.work import Place, Plan, Work
from onnx_iron.provider.lowering import KernelCall, Lowering

DEVICES = list(Target)


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_short_conv(tmp_path_factory.mktemp("conv"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_small_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ONNX_IRON_CACHE", str(tmp_path / "cache"))
    from onnx_iron.provider.devices.npu.artifacts import artifact

    artifact.cache_clear()
    return tmp_path / "cache"


def planned(path: Path, device: Target = Target.NPU2) -> Plan:
    (plan,) = plans_of(path, device, COMPILER)
    return plan


def segments(plan: Plan) -> list[tuple[str, list[str]]]:
    return [
        ("npu" if segment.on_npu else "host", [name(work) for work in segment.work])
        for segment in plan.segments
    ]


def name(work: Work) -> str:
    """The operators that a step is, in order."""
    return "+".join(part.op.name for part in work.parts)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_short_convolution_is_one_segment(conv: Path, device: Target, role: str) -> None:
    plan = planned(conv / f"{role}.onnx", device)
    ((where, ops),) = segments(plan)
    assert where == "npu"
    if role == "prefill":
        others = ["Mul", "CausalConv1d", "Mul", "Add"]
        assert sorted(ops) == sorted(["RMSNorm", *["GEMM"] * 4, *others])
    else:
        assert ops == ["RMSNorm+GEMV+GEMV+GEMV", "Mul", "CausalConv1d", "Mul+GEMV+Add"]
    # The filter replaces its state: nothing of it is updated in place.
    assert not plan.updates
    assert len(plan.pairs) >= 1


def test_what_has_one_configuration_is_one_run(conv: Path, llama: Path) -> None:
    (segment,) = planned(conv / "decode.onnx").segments
    runs = [[name(work) for work in run.work] for run in segment.runs]
    assert runs == [["RMSNorm+GEMV+GEMV+GEMV", "Mul"], ["CausalConv1d"], ["Mul+GEMV+Add"]]
    segment = planned(llama / "decode.onnx").segments[1]
    assert [len(run.work) for run in segment.runs] == [1, 17], "the embedding, and all the rest"
    assert segment.runs[1].artifact.design.name == "decode"


def test_the_weights_of_one_operand_lie_side_by_side_for_both_roles(llama: Path) -> None:
    plans = [planned(llama / f"{role}.onnx") for role in ("prefill", "decode")]
    joined = [
        sorted([plan.inputs[n] for n in numbers] for numbers in plan.joined.values())
        for plan in plans
    ]
    assert joined[0] == joined[1], "so prefill and decode share them"
    assert [len(names) for names in joined[0]] == [2, 3] * 2
    assert [name.split(".")[3] for name in joined[0][1]] == ["k_proj", "q_proj", "v_proj"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_chunk_of_a_llama_is_one_segment_too(llama: Path, device: Target) -> None:
    plan = planned(llama / "prefill.onnx", device)
    assert [where for where, _ in segments(plan)] == ["host", "npu", "host"]
    # The last valid row is taken as a row, though the model takes it from the flattened matrix.
    assert "Div" in segments(plan)[0][1]
    assert "Narrow" in segments(plan)[1][1]


@pytest.mark.parametrize("device", DEVICES)
def test_a_llama_decodes_in_one_segment_between_the_hosts(llama: Path, device: Target) -> None:
    plan = planned(llama / "decode.onnx", device)
    assert [where for where, _ in segments(plan)] == ["host", "npu", "host"]
    angles, *counts = segments(plan)[0][1][:2], *segments(plan)[0][1][2:]
    assert angles == ["Narrow", "Cast"], "the angles, in bfloat16 for the kernel"
    assert counts == ["Add", "Div", "Add"], "how much of the caches is filled, once for all layers"
    assert segments(plan)[2][1] == ["Cast"], "the logits"
    assert len(plan.updates) == 4, "keys and values of two layers, in place"


def test_arena_places_do_not_overlap_while_they_live(llama: Path) -> None:
    plan = planned(llama / "prefill.onnx")
    work = plan.work
    spans: dict[str, tuple[int, int, int, int]] = {}
    for position, item in enumerate(work):
        for name in (*item.step.inputs, *item.step.outputs):
            if name is None:
                continue
            root = plan.lowering.resolve(name)[0]
            home = plan.homes[root]
            if home.place is Place.ARENA:
                end = home.offset + plan.lowering.specs[root].bytes
                first = spans.get(root, (position,))[0]
                spans[root] = first, position, home.offset, end
                assert end <= plan.arena_bytes
    alive = list(spans.values())
    for i, (first, last, begin, end) in enumerate(alive):
        for other_first, other_last, other_begin, other_end in alive[i + 1 :]:
            together = first <= other_last and other_first <= last
            assert not (together and begin < other_end and other_begin < end)


def test_refused_steps_say_why_and_stay_with_the_host(tmp_path: Path) -> None:
    odd = planned(export_short_conv(tmp_path / "odd", width=72) / "decode.onnx")
    reasons = {work.step.op.name: work.reason for work in odd.work if not work.on_npu}
    assert "no multiple of 32 lanes" in reasons["RMSNorm"]
    assert "K 72 is no multiple of 32" in reasons["GEMV"]
    plain = export_short_conv(tmp_path / "plain", dtype=np.dtype(np.float32))
    assert not any(work.on_npu for work in planned(plain / "decode.onnx").work)


def test_artifacts_are_built_once_and_named_by_content(conv: Path, cache: Path) -> None:
    plan = planned(conv / "decode.onnx")
    made = {work.artifact.key: work.artifact for work in plan.work if work.artifact is not None}
    assert len(made) == 4, "a product of three, a gate, a filter, and a gate with product and sum"
    assert len({artifact.pdi for artifact in made.values()}) == 2, "the filter's, and all others'"
    assert not any(artifact.built for artifact in made.values())
    again = {work.artifact.key for work in planned(conv / "decode.onnx").work if work.artifact}
    assert again == set(made)
    other = {work.artifact.key for work in planned(conv / "prefill.onnx").work if work.artifact}
    assert not other & set(made), "other shapes are other designs"


def test_an_image_takes_so_many_designs_and_no_more() -> None:
    def artifact(number: int) -> Any:
        return Artifact(str(number), str(number), None, Path(), COMPILER)  # type: ignore[arg-type]

    many = [artifact(n % 70) for n in range(200)]
    groups = images(many)
    assert [len(group) for group in groups] == [MOST_DESIGNS, MOST_DESIGNS, 70 - 2 * MOST_DESIGNS]
    assert [made.key for group in groups for made in group] == [str(n) for n in range(70)]


def test_simulated_instructions_carry_the_values(llama: Path, cache: Path) -> None:
    plan = planned(llama / "decode.onnx")
    scatter = next(work for work in plan.work if name(work) == "RoPE+SliceScatter")
    assert scatter.artifact is not None
    COMPILER.build(scatter.artifact)
    words = scatter.artifact.words({"start": 7})
    assert words.startswith(MAGIC)
    assert words[-4:] == (7).to_bytes(4, "little")


def test_numbers_of_a_call_are_written_into_the_instructions_of_a_run(
    llama: Path, cache: Path
) -> None:
    run = planned(llama / "decode.onnx").segments[1].runs[1]
    for work in run.work:
        assert work.artifact is not None
        COMPILER.build(work.artifact)
    names = [value for work in run.work for value in work.values]
    assert sorted(set(names)) == ["rounds", "start"]
    before, after = ([7 + add if n == "start" else 1 + add for n in names] for add in (0, 1))
    instructions = run.instructions(before)
    places = [place for place, _ in run.numbers(after)]
    assert len(set(places)) == len(names)
    assert with_numbers(instructions, run.numbers(after)) == run.instructions(after)
    pairs = enumerate(zip(instructions, run.instructions(after), strict=True))
    differing = [at for at, (one, other) in pairs if one != other]
    assert len(differing) == len(places)
    assert all(any(place <= at < place + 4 for place in places) for at in differing)


@pytest.mark.parametrize("device", DEVICES)
def test_a_call_counts_the_filled_rounds_of_its_caches(llama: Path, device: Target) -> None:
    plan = planned(llama / "decode.onnx", device)
    gathering = [w for w in plan.work if w.artifact and w.artifact.design.counted_values()]
    assert len(gathering) == 2, "one a layer"
    seen, rounds = {(w.operands[1], w.operands[2]) for w in gathering}.pop()
    assert {w.values["rounds"] for w in gathering} == {(rounds, 0)}
    parts = Parts(device.columns, 4, 2, 32, 192)
    attention = next(part for work in gathering for part in work.parts)
    for position in (0, parts.every - 1, parts.every, 191):
        known = dict(plan.lowering.literals)
        known[str(attention.inputs[3])] = np.array(position, np.int32)
        for work in plan.work:
            if isinstance(work.step.op, Add | Div) and all(n in known for n in work.step.inputs):
                given = [known[str(name)] for name in work.step.inputs]
                known[work.step.outputs[0]] = work.step.op.reference(*given)
        assert int(known[seen]) == position + 1
        assert int(known[rounds]) == position // parts.every + 1


@pytest.mark.parametrize(
    ("changes", "attributes", "taken"),
    [
        ({}, {}, True),
        ({"position": None}, {"is_causal": False}, True),
        ({"position": None, "kv_rows": Spec((), INT32)}, {"is_causal": False}, True),
        ({}, {"scale": 0.5}, True),
        ({"kv_rows": Spec((), INT32)}, {}, False),
        ({}, {"softcap": 2.0}, False),
        ({}, {"window": 8}, False),
        ({"mask": Spec((1, 256), np.dtype(bool))}, {}, False),
        ({"bias": Spec((1, 256), BFLOAT16)}, {}, False),
        ({"alibi": Spec((4,), BFLOAT16)}, {}, False),
        ({"sinks": Spec((4,), BFLOAT16)}, {}, False),
        ({"query": Spec((2, 4, 64), BFLOAT16)}, {}, False),
        ({"query": Spec((1, 4, 64), FLOAT32)}, {}, False),
        ({"value": Spec((256, 2, 32), BFLOAT16)}, {}, False),
        ({"position": Spec((), INT64)}, {}, False),
        (
            {
                "query": Spec((1, 1, 4, 64), BFLOAT16),
                **dict.fromkeys(("key", "value"), Spec((1, 256, 2, 64), BFLOAT16)),
            },
            {},
            False,
        ),
    ],
)
def test_attention_in_parts_is_a_decoders_without_what_the_kernel_has_not(
    changes: dict[str, Any], attributes: dict[str, Any], taken: bool
) -> None:
    given = {
        "query": Spec((1, 4, 64), BFLOAT16),
        "key": Spec((256, 2, 64), BFLOAT16),
        "value": Spec((256, 2, 64), BFLOAT16),
        "position": Spec((), INT32),
        **changes,
    }
    op = Attention(**{"is_causal": True, **attributes})
    names = [slot.name if given.get(slot.name) else None for slot in op.inputs]
    lowering = Lowering(specs={name: spec for name, spec in given.items() if spec})
    step = KernelCall("attention", op, names, ["y"])
    found = attention_parts(step, lowering, Target.NPU2)
    assert found == (Parts(8, 4, 2, 64, 256) if taken else None)


def test_an_attention_that_is_no_decoders_keeps_its_own_design(llama: Path) -> None:
    plan = planned(llama / "prefill.onnx")
    names = {w.artifact.design.name for w in plan.work if w.artifact and name(w) == "Attention"}
    assert names == {"attention"}
    # Nor one of a cache that is no whole number of rounds.
    short = export_small_llama(llama.parent / "short", context=100)
    plan = planned(short / "decode.onnx")
    assert [name(w) for w in plan.work].count("Attention") == 2
    assert not any(w.artifact and w.artifact.design.counted_values() for w in plan.work)


def test_build_needs_xclbinutil_or_says_so(conv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_iron.provider.devices.npu import image

    monkeypatch.setattr(image, "find_tool", lambda: None)
    with pytest.raises(FileNotFoundError, match="xclbinutil is not installed; it comes with XRT"):
        build_for(conv, "npu2")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("NPU Phoenix", "npu1"),
        ("NPU Hawk Point", "npu1"),
        ("RyzenAI-npu1", "npu1"),
        ("NPU Strix", "npu2"),
        ("NPU Strix Halo", "npu2"),
        ("NPU Krackan 1", "npu2"),
        ("RyzenAI-npu4", "npu2"),
        ("RyzenAI-npu5", "npu2"),
        ("RyzenAI-npu6", "npu2"),
    ],
)
def test_a_generation_is_known_by_the_names_that_drivers_give(name: str, target: str) -> None:
    assert target_of(name).name == target


@pytest.mark.parametrize("name", ["", "NPU", "RyzenAI-npu4", "NPU Medusa"])
def test_a_generation_is_known_by_its_pci_device(name: str) -> None:
    assert target_of(name, 0x17F0).name == "npu2"
    for device in (0x1502, 0x17F1, 0x1B0A):
        if device != 0x1502 or name == "RyzenAI-npu4":
            with pytest.raises(
                NpuUnavailableError, match=f"'{name}' .PCI device {device:#06x}. is"
            ):
                target_of(name, device)


def test_a_pci_device_is_read_where_linux_says_it(tmp_path: Path) -> None:
    from simulator import sysfs

    sysfs.build(tmp_path / "sys", "npu1")
    assert pci_device(sysfs.BDF, tmp_path) == 0x1502
    assert pci_device("0000:00:00.0", tmp_path) is None


@pytest.mark.parametrize("name", ["", "NPU", "RyzenAI-npu3", "RyzenAI-npu7", "NPU Medusa"])
def test_a_device_of_another_name_is_refused(name: str) -> None:
    with pytest.raises(NpuUnavailableError, match=f"the device '{name}' is none of the NPUs"):
        target_of(name)


def test_runs_are_cut_into_lists_that_the_watchdog_lets_end() -> None:
    def lists(*seconds: float) -> list[int]:
        return [len(part) for part in within_watchdog(seconds, lambda took: took)]

    assert lists() == []
    assert lists(*[0.01] * 1000) == [1000], "each command of 24 runs has its own time"
    assert lists(0.9, 0.9, 0.2, 0.2) == [1, 1, 2]
    assert lists(*[0.1] * 25) == [10, 10, 5]
    assert lists(*[0.04] * 24, 0.9) == [25], "the last begins a command"


def test_what_is_built_is_what_a_session_asks_for(conv: Path, llama: Path, cache: Path) -> None:
    """A session plans with what is built alone, where a build plans with all that could be."""
    from onnx_iron.provider.devices.npu.plan import make_plan

    for path in (conv / "decode.onnx", llama / "decode.onnx"):
        wanted = planned(path)
        for work in wanted.work:
            if work.artifact is not None:
                COMPILER.build(work.artifact)
        (subgraph,) = subgraphs_of(path)
        found = make_plan(subgraph, Target.NPU2, COMPILER, any_artifact=False)
        assert segments(found) == segments(wanted)


def subgraphs_of(path: Path) -> list[Any]:
    """What the provider would compile of a model."""
    import onnxruntime

    from onnx_iron.provider.devices.sinks import sink
    from onnx_iron.provider.options import SINK
    from onnx_iron.provider.registration import EP_NAME, register

    register()
    with sink() as (name, subgraphs):
        onnxruntime.InferenceSession(
            str(path),
            providers=[EP_NAME, "CPUExecutionProvider"],
            provider_options=[{"device": "cpu", SINK: name}, {}],
        )
    return list(subgraphs)
