"""Building what a model needs: its distinct designs, each once, and the images with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import onnxruntime

from onnx_iron.kernels.designs import Target
from onnx_iron.provider.devices.npu.artifacts import Artifact, Compiler, build, image, images
from onnx_iron.provider.devices.npu.image import TARGETS
from onnx_iron.provider.devices.npu.plan import Plan, make_plan
from onnx_iron.provider.devices.npu.toolchain import ToolchainError
from onnx_iron.provider.devices.sinks import sink
from onnx_iron.provider.options import SINK
from onnx_iron.provider.registration import EP_NAME, register

# Told of every design that was built: how many are there, of how many, and its name.
Progress: TypeAlias = Callable[[int, int, str], None]


@dataclass
class Outcome:
    """What became of a model's designs.

    Attributes:
        designs: the distinct ones.
        built: how many were built now; the others were there.
        failed: those that could not be built, with the reason.
        images: the xclbins with them.
        refused: steps that have no design, by the reason, with how many there are.
    """

    designs: list[Artifact] = field(default_factory=list)
    built: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    images: list[Path] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)


def plans_of(model: Path, target: Target, compiler: Compiler) -> list[Plan]:
    """What a session of the model would give the NPU, if every design were there.

    Subgraphs with an open shape are not among them: only a call knows their shapes.

    Raises:
        Exception: onnxruntime's, where it can't load the model.
    """
    register()

    with sink() as (name, subgraphs):
        onnxruntime.InferenceSession(
            str(model),
            providers=[EP_NAME, "CPUExecutionProvider"],
            provider_options=[{"device": "cpu", SINK: name}, {}],
        )
    return [make_plan(one, target, compiler, any_artifact=True) for one in subgraphs]


def build_plans(
    plans: Sequence[Plan], target: Target, compiler: Compiler, jobs: int, progress: Progress
) -> Outcome:
    """Build the designs of plans that are not built, then the images.

    Raises:
        ToolchainError: a tool is missing. A design that fails is in the outcome.
        ImageError, FileNotFoundError: an image can't be made.
    """
    outcome = Outcome()
    wanted: dict[str, Artifact] = {}
    for plan in plans:
        for work in plan.work:
            if work.artifact is not None:
                wanted[work.artifact.key] = work.artifact
            elif not work.natural:
                outcome.refused[work.reason] = outcome.refused.get(work.reason, 0) + 1
    outcome.designs = list(wanted.values())
    missing = [made for made in outcome.designs if not made.built]
    done = len(outcome.designs) - len(missing)
    if missing:
        compiler.check(target)

    with ThreadPoolExecutor(jobs) as pool:
        for made, result in [(made, pool.submit(build, made)) for made in missing]:
            done += 1
            try:
                result.result()
            except ToolchainError as error:
                outcome.failed[made.key] = str(error)
                continue
            outcome.built += 1
            progress(done, len(outcome.designs), made.design.name)
    if outcome.failed:
        return outcome
    for plan in plans:
        artifacts = [work.artifact for work in plan.work if work.artifact is not None]
        for group in images(artifacts):
            outcome.images.append(image(group, TARGETS[target]))
    return outcome
