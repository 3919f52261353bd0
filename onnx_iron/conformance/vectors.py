"""Cases in the layout of ONNX's backend tests: model.onnx and test_data_set_0/*.pb."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from onnx import numpy_helper

from onnx_iron.conformance.case import Case
from onnx_iron.conformance.implementations.exported import exported
from onnx_iron.dtypes import Array


def write_vectors(cases: Iterable[Case], folder: Path, dialect: str = "iron") -> int:
    """Write each case into a folder of its own, a data set for each call.

    A state's contents before a call are inputs like others, and those after it outputs. The
    tolerances are in ``tolerance.txt``, since the layout has no place for them.

    Returns:
        The number of cases written.

    Raises:
        FileExistsError: a case's folder is there already.
    """
    count = 0
    for case in cases:
        model = exported(case, dialect)
        place = folder / folder_name(case)
        place.mkdir(parents=True)
        (place / "model.onnx").write_bytes(model.model.SerializeToString())
        (place / "tolerance.txt").write_text(f"{case.name}\n{case.tolerance}\n", encoding="utf-8")
        states = model.empty_states()
        for number, (call, expected) in enumerate(zip(case.calls, case.expected, strict=True)):
            results = {name: result.nearest for name, result in expected.items()}
            data = place / f"test_data_set_{number}"
            data.mkdir()
            feeds = {**model.feeds(call), **states}
            _write(data, "input", {name: feeds[name] for name in model.inputs})
            _write(data, "output", {name: results[name] for name in model.outputs})
            states = {past: results[f"present.{past.removeprefix('past.')}"] for past in states}
        count += 1
    return count


def folder_name(case: Case) -> str:
    """A case's name in letters that every file system takes."""
    plain = case.name.replace("=-", "=minus ")
    return "test_" + re.sub(r"[^A-Za-z0-9.]+", "_", plain).strip("_").lower()


def _write(folder: Path, kind: str, arrays: Mapping[str, Array]) -> None:
    for place, (name, array) in enumerate(arrays.items()):
        tensor = numpy_helper.from_array(np.asarray(array, order="C"), name)
        (folder / f"{kind}_{place}.pb").write_bytes(tensor.SerializeToString())
