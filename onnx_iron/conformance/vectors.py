"""Cases in the layout of ONNX's backend tests: model.onnx and test_data_set_0/*.pb."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from onnx import TensorProto, numpy_helper

from onnx_iron.conformance.case import Case
from onnx_iron.conformance.expected import initial_states
from onnx_iron.conformance.implementations.exported import Exported, exported
from onnx_iron.dtypes import Array


def write_vectors(cases: Iterable[Case], folder: Path, dialect: str = "iron") -> int:
    """Write each case into a folder of its own, a data set for each call.

    A state's contents before a call are inputs like others, and those after it outputs.

    Returns:
        The number of cases written.

    Raises:
        FileExistsError: a case's folder is there already.
    """
    count = 0
    for case in cases:
        model = exported(case, dialect)
        place = folder / _folder_name(case.name)
        place.mkdir(parents=True)
        (place / "model.onnx").write_bytes(model.model.SerializeToString())
        before = initial_states(case, {})
        for number, (call, expected) in enumerate(zip(case.calls, case.expected, strict=True)):
            if not case.keeps_states:
                before = initial_states(case, call.inputs)
            feeds = model.feeds(call)
            feeds |= {past: before[past.removeprefix("past.")] for past in model.states}
            data = place / f"test_data_set_{number}"
            data.mkdir()
            for i, name in enumerate(model.inputs):
                _write(data / f"input_{i}.pb", name, feeds[name])
            for i, name in enumerate(model.outputs):
                _write(data / f"output_{i}.pb", name, expected[name].nearest)
            before = _after(model, before, {n: e.nearest for n, e in expected.items()})
        count += 1
    return count


def _after(
    model: Exported, before: dict[str, Array], results: dict[str, Array]
) -> dict[str, Array]:
    return {name: results.get(f"present.{name}", array) for name, array in before.items()}


def _write(path: Path, name: str, array: Array) -> None:
    tensor: TensorProto = numpy_helper.from_array(np.ascontiguousarray(array), name)
    path.write_bytes(tensor.SerializeToString())


def _folder_name(case: str) -> str:
    """A case's name in letters that every file system takes."""
    return "test_" + re.sub(r"[^A-Za-z0-9.]+", "_", case).strip("_").lower()
