"""onnx's own tests of single nodes, from its package: what a provider takes, it must get right."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper

from onnx_iron.conformance.implementations.base import Declined, Implementation
from onnx_iron.conformance.implementations.sessions import CPU, SessionImplementation
from onnx_iron.conformance.runner import Outcome, Status
from onnx_iron.dtypes import Array

SUBJECT = "onnx's node tests"
# Of a test's name in reports and on the command line.
PREFIX = "onnx: "
_UNTAKEN = ("tensor(bfloat16)", "tensor(float8", "tensor(float4")


@dataclass(frozen=True)
class NodeTest:
    """A model of onnx's, the arrays of its first data set, and how far a result may be."""

    name: str
    model: onnx.ModelProto
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    rtol: float
    atol: float


@functools.cache
def node_tests() -> tuple[NodeTest, ...]:
    """All that the installed onnx package has, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, while onnx makes its expected results
        import onnx.backend.test.loader as loader

        found = loader.load_model_tests(kind="node")
    return tuple(_read(case) for case in sorted(found, key=lambda case: str(case.name)))


def run_node_tests(
    implementations: Sequence[Implementation],
    tests: Sequence[NodeTest],
    progress: Callable[[int, int, str], None] | None = None,
) -> Iterator[Outcome]:
    """An outcome of each test on each implementation that is a provider in onnxruntime."""
    for implementation in implementations:
        if isinstance(implementation, SessionImplementation) and implementation.provider != CPU:
            for done, test in enumerate(tests):
                if progress is not None:
                    progress(done, len(tests), implementation.name)
                yield judge_node_test(test, implementation)


def judge_node_test(test: NodeTest, implementation: SessionImplementation) -> Outcome:
    """Run a test. What plain onnxruntime does not pass is no fault of a provider's."""
    status, detail = Status.PASSED, ""
    try:
        session = implementation.open(test.model)
        wrong = _difference(_run(session, test), test)
    except Declined as declined:
        status, detail, wrong = Status.DECLINED, str(declined), ""
    except Exception as error:  # onnxruntime's have no common base
        wrong = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    if wrong:
        stock = _stock(test)
        status = Status.DECLINED if stock else Status.FAILED
        detail = f"plain onnxruntime does not pass it either: {stock}" if stock else wrong
    return Outcome(
        PREFIX + test.name,
        SUBJECT,
        "their own",
        implementation.name,
        status,
        detail=detail,
        arguments=implementation.arguments or f"--implementation '{implementation.name}'",
    )


def _stock(test: NodeTest) -> str:
    """Why plain onnxruntime does not pass a test; empty where it does."""
    plain = SessionImplementation("plain onnxruntime")
    try:
        return "another result" if _difference(_run(plain.open(test.model), test), test) else ""
    except Exception as error:
        return type(error).__name__


def _run(session: onnxruntime.InferenceSession, test: NodeTest) -> list[Any]:
    ports = (*session.get_inputs(), *session.get_outputs())
    if not all(isinstance(x, np.ndarray) for x in (*test.inputs, *test.outputs)):
        raise Declined("its values are no tensors")
    if any(port.type.startswith(_UNTAKEN) for port in ports):
        raise Declined("onnxruntime's Python takes no arrays of its dtype")
    names = (port.name for port in session.get_inputs())
    return list(session.run(None, dict(zip(names, test.inputs, strict=False))))


def _difference(made: Sequence[Array], test: NodeTest) -> str:
    for number, (given, wanted) in enumerate(zip(made, test.outputs, strict=True)):
        if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
            wrong = f"{given.dtype} {given.shape}, expected {wanted.dtype} {wanted.shape}"
            return f"output {number} is {wrong}"
        same = (
            np.isclose(given, wanted, rtol=test.rtol, atol=test.atol, equal_nan=True)
            if wanted.dtype.kind in "fc"
            else given == wanted
        )
        if not np.all(same):
            return f"output {number}: {int((~same).sum())} of {same.size} elements are wrong"
    return ""


def _read(case: Any) -> NodeTest:
    rtol, atol = float(case.rtol), float(case.atol)
    if case.model is not None:
        inputs, outputs = case.data_sets[0]
        made = (list(map(_plain, arrays)) for arrays in (inputs, outputs))
        return NodeTest(str(case.name), case.model, *made, rtol, atol)
    folder = Path(case.model_dir)
    data = folder / "test_data_set_0"
    model = onnx.load(folder / "model.onnx")
    ports = {"input": model.graph.input, "output": model.graph.output}
    read = (
        [_file(data / f"{kind}_{number}.pb", port) for number, port in enumerate(found)]
        for kind, found in ports.items()
    )
    return NodeTest(str(case.name), model, *read, rtol, atol)


def _file(path: Path, port: onnx.ValueInfoProto) -> Any:
    if port.type.WhichOneof("value") != "tensor_type" or not path.exists():
        return None
    return _plain(TensorProto.FromString(path.read_bytes()))


def _plain(value: Any) -> Any:
    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    return np.array(value, order="C") if isinstance(value, np.generic | np.ndarray) else value
