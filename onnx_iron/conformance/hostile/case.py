"""A hostile case: an original, and changes of it that one number decides; or one that was kept."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

# Entering the changes is what importing these does.
from onnx_iron.conformance.hostile import feed_changes, node_changes, value_changes  # noqa: F401
from onnx_iron.conformance.hostile.change import CHANGES, one
from onnx_iron.conformance.hostile.originals import WEIGHTS, Draft, names, original

MODEL = "model.onnx"
MOST_CHANGES = 3
# Every second call gives what its model asks for after it was changed.
_LAST = "tensors_as_declared"


@dataclass(frozen=True)
class Plan:
    """How a case is made.

    Attributes:
        seed: decides the original and what each change does.
        changes: which of its changes are made, by their place; all of them where it is None.
    """

    seed: int
    changes: tuple[int, ...] | None = None

    def __str__(self) -> str:
        only = "" if self.changes is None else f", changes {', '.join(map(str, self.changes))} only"
        return f"seed {self.seed}{only}"


@dataclass(frozen=True)
class HostileCase:
    """A draft, and in words what it is."""

    draft: Draft
    original: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.original}: {'; '.join(self.words) or 'as it is'}"


def number_of_changes(seed: int) -> int:
    """How many changes a seed has."""
    return len(_chosen(seed)[1])


def make(plan: Plan) -> HostileCase:
    """The case of a plan; the same for one seed."""
    name, chosen = _chosen(plan.seed)
    draft, words = original(name), []
    for place, change in enumerate(chosen):
        if plan.changes is not None and place not in plan.changes:
            continue
        try:
            said = CHANGES[change](np.random.default_rng([plan.seed, place]), draft)
        except UnicodeDecodeError:
            # Bytes of the file that were a text are none, and protobuf gives it to nobody.
            said = f"{change} finds no text"
        if said is not None:
            words.append(said)
    draft.ambiguous |= _stock_is_undefined(draft)
    return HostileCase(draft, name, tuple(words))


def _stock_is_undefined(draft: Draft) -> bool:
    """onnxruntime's CausalConvWithState (1.32) reads a past of no elements as if it had some."""
    # A name that is no text is there as bytes.
    names = [name for name, a in draft.feeds.items() if isinstance(name, str) and not a.size]
    empty = any(name.startswith("past.") for name in names)
    return empty and any(n.op_type == "CausalConvWithState" for n in draft.model.graph.node)


def _chosen(seed: int) -> tuple[str, Sequence[str]]:
    rng = np.random.default_rng(seed)
    kinds = sorted(CHANGES)
    chosen = [one(rng, kinds) for _ in range(int(rng.integers(1, MOST_CHANGES + 1)))]
    if rng.random() < 0.5:
        chosen.append(_LAST)
    return one(rng, names()), chosen


# -- files ----------------------------------------------------------------------------------------


def write(case: HostileCase, folder: Path) -> Path:
    """Write the model and its weights as a program would find them; returns the model's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MODEL
    path.write_bytes(case.draft.model.SerializeToString())
    if case.draft.weights:
        (folder / WEIGHTS).write_bytes(case.draft.weights)
    return path


def save(case: HostileCase, path: Path) -> None:
    """Keep a case as one small file: a zip of the model, its weights and its call's tensors."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        _add(file, "case.txt", f"{case.original}\n" + "\n".join(case.words))
        _add(file, MODEL, case.draft.model.SerializeToString())
        if case.draft.weights:
            _add(file, WEIGHTS, case.draft.weights)
        if case.draft.ambiguous:
            _add(file, "ambiguous", b"")
        for number, (name, array) in enumerate(case.draft.feeds.items()):
            tensor = numpy_helper.from_array(np.asarray(array, order="C"), name)
            _add(file, f"input_{number:03}.pb", tensor.SerializeToString())


def load(path: Path) -> HostileCase:
    """Read what ``save`` wrote. Strides are not kept: they are those of a whole array."""
    with zipfile.ZipFile(path) as file:
        held = {name: file.read(name) for name in file.namelist()}
    what, *words = held["case.txt"].decode().splitlines()
    feeds = {}
    for name in sorted(n for n in held if n.startswith("input_")):
        tensor = onnx.TensorProto.FromString(held[name])
        feeds[tensor.name] = np.array(numpy_helper.to_array(tensor))
    model = onnx.ModelProto.FromString(held[MODEL])
    draft = Draft(model, held.get(WEIGHTS, b""), feeds, "ambiguous" in held)
    return HostileCase(draft, what, tuple(words))


def _add(file: zipfile.ZipFile, name: str, content: str | bytes) -> None:
    # Of one date, so that the same case is the same file.
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    file.writestr(entry, content)
