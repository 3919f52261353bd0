"""Every design that there is, told to mlir-aie: to a stub that is as strict as it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import iron_stub
import numpy as np
import pytest
from design_cases import DESIGNED, LOWERED, design_of, dtype_of
from design_compiler import COMPILER
from npu_models import CHUNK, SMALL_LLAMA, export_decoder, export_short_conv

from onnx_iron.dtypes import BFLOAT16
from onnx_iron.graph import Weight
from onnx_iron.kernels.designs import Design, Target, design_for
from onnx_iron.kernels.designs.lowering import lower
from onnx_iron.models.decoder import Shape
from onnx_iron.models.families.llama import LlamaConfig
from onnx_iron.models.rope import Rope
from onnx_iron.operators import OPERATORS
from onnx_iron.operators.gemv import GEMV
from onnx_iron.provider.devices.npu.build import plans_of


def designs_of_cases(target: Target) -> Iterator[Design]:
    """Those of the operators' declared cases, and of the tests' own larger ones."""
    for name in DESIGNED:
        operator = OPERATORS[name]
        for case in operator.cases:
            op = operator(**case.attributes)
            shapes: Mapping[str, tuple[int, ...]] = {
                **case.shapes,
                **dict.fromkeys(case.values, ()),
            }
            specs = [
                (shapes[d.name], dtype_of(d.kind)) if d.name in shapes else None for d in op.inputs
            ]
            made = design_for(op, specs, target)
            if isinstance(made, Design):
                yield made
    for op, shapes, _ in LOWERED:
        yield design_of(op, shapes, target)


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("release", iron_stub.RELEASES)
def test_every_design_of_the_operators_cases_lowers(release: str, target: Target) -> None:
    lowered = set()
    for design in designs_of_cases(target):
        with iron_stub.installed(release):
            lower(design, design.possible_values())
        lowered.add(design.name)
    assert lowered >= {OPERATORS[name].stem for name in ("GEMV", "GEMM", "RMSNorm", "Attention")}


def zeros(config: LlamaConfig, name: str) -> Weight:
    """A weight of a model's widths; its values change no design."""
    heads, kv = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens": (config.vocab_size, hidden),
        "q_proj": (heads, hidden),
        "k_proj": (kv, hidden),
        "v_proj": (kv, hidden),
        "o_proj": (hidden, heads),
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
    }
    return Weight.of(np.zeros(shapes.get(name.split(".")[-2], (hidden,)), BFLOAT16))


# Widths, with one layer of them and a small vocabulary: hidden, inner, heads, their keys'.
MODELS = {
    "SmolLM2-135M": (576, 1536, 9, 3),
    "LFM2-350M": (1024, 4608, 16, 8),
    "Llama-3.2-1B": (2048, 8192, 32, 8),
}
VOCABULARIES = {"SmolLM2-135M": 49152, "LFM2-350M": 65536, "Llama-3.2-1B": 128256}


@pytest.mark.parametrize(
    "target",
    [
        Target.NPU1,
        Target.NPU2,
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_every_design_of_a_model_lowers(model: str, target: Target, tmp_path: Path) -> None:
    hidden, inner, heads, kv = MODELS[model]
    config = replace(
        SMALL_LLAMA,
        hidden_size=hidden,
        intermediate_size=inner,
        num_layers=1,
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=64,
        rope=Rope(64, 10000.0),
        context_length=1024,
    )
    export_decoder(tmp_path, config, partial(zeros, config), Shape(1024, 4 * CHUNK))
    if model.startswith("LFM2"):
        export_short_conv(tmp_path / "conv", width=hidden)
    plans = [p for path in tmp_path.rglob("*.onnx") for p in plans_of(path, target, COMPILER)]
    designs = {
        work.artifact.key: work.artifact.design
        for plan in plans
        for work in plan.work
        if work.artifact is not None
    }
    assert len(designs) > 10
    head = {"weight": (VOCABULARIES[model], hidden), "x": (hidden,)}
    for design in [*designs.values(), design_of(GEMV(), head, target)]:
        with iron_stub.installed(iron_stub.RELEASES[-1]):
            lower(design, design.possible_values())


def broken_lowering(monkeypatch: pytest.MonkeyPatch, part: str, made: Any) -> None:
    """Lower a design with a part of what the lowering names replaced."""
    from onnx_iron.kernels.designs import iron

    monkeypatch.setattr(iron.Iron, part, made)
    with iron_stub.installed(iron_stub.RELEASES[-1]):
        lower(design_of(*LOWERED[0][:2], Target.NPU2), {})


@pytest.mark.parametrize(
    ("part", "made", "message"),
    [
        ("tile", lambda *_: iron_stub.Tile(), "an end without a place"),
        ("tile", lambda _, column, row: iron_stub.Tile(0, row), "two workers on one core"),
        ("tile", lambda _, column, row: iron_stub.Tile(column + 8, row), "tile 8, 0 is no shim"),
        ("tile", lambda _, column, row: iron_stub.Tile(column, 2), "is no shim here"),
        ("device", lambda *_: "npu1", "tile 4, 0 is no shim here"),
        (
            "pattern",
            lambda _, n, at, sizes, steps: iron_stub.TensorAccessPattern((n,), n, sizes, steps),
            "offset 330 of 330",
        ),
        (
            "pattern",
            lambda _, n, at, sizes, steps: iron_stub.TensorAccessPattern((n,), 300, sizes, steps),
            r"element \d+ of a buffer of 330",
        ),
        (
            "pattern",
            lambda _, n, at, sizes, steps: iron_stub.TensorAccessPattern((n,), 0, [2], [1]),
            "1 dimensions of a shim's four",
        ),
        (
            "pattern",
            lambda _, n, at, *walk: iron_stub.TensorAccessPattern((n,), 0, [1] * 3 + [2], [1] * 4),
            "are a part of a tile|tiles at its ends",
        ),
    ],
)
def test_the_stub_refuses_what_would_not_build(
    monkeypatch: pytest.MonkeyPatch, part: str, made: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        broken_lowering(monkeypatch, part, made)


@pytest.mark.parametrize("release", iron_stub.RELEASES)
def test_the_stub_knows_no_other_releases_names(release: str) -> None:
    with iron_stub.installed(release):
        iron = importlib.import_module("aie.iron")

        tile = np.ndarray[(4,), np.dtype[np.int32]]  # type: ignore[misc]
        other = "to_stream" if release == iron_stub.RELEASES[0] else "dims_to_stream"
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{other}'"):
            iron.ObjectFifo(tile, name="a", **{other: None})
        with pytest.raises(TypeError, match="unexpected keyword argument 'placement'"):
            iron.Worker(None, placement=None)
