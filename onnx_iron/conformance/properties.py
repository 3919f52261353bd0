"""What holds for every graph, whatever it computes; each raises an AssertionError where not."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np

from onnx_iron.conformance.case import Case
from onnx_iron.conformance.implementations import implementations
from onnx_iron.conformance.implementations.base import Implementation, Inapplicable, Results
from onnx_iron.conformance.implementations.exported import exported
from onnx_iron.conformance.implementations.numpy_reference import NumpyReference
from onnx_iron.conformance.implementations.sessions import iron
from onnx_iron.conformance.programs import Program, same_bits
from onnx_iron.conformance.runner import Status, judge
from onnx_iron.dtypes import Array
from onnx_iron.kernels import cpu_path


def means_what_it_says(program: Program, only: str = "") -> None:
    """Every implementation of this machine gives the oracle's results.

    Args:
        program: the graph and its calls.
        only: of the implementations those whose name holds this.
    """
    case = program.case()
    try:
        for implementation in implementations():
            if only in implementation.name:
                outcome = judge(case, implementation)
                assert outcome.status is not Status.FAILED, (
                    f"{implementation.name}: {outcome.detail}"
                )
    finally:
        exported.cache_clear()


def in_place_is_copied(program: Program) -> None:
    """States that are updated in their buffers, some of them or all, have the bits of copies."""
    case = program.case()
    if not case.trace.states:
        return
    try:
        apart, *shared = iron(cpu_path())
        wanted = apart.run(case)
        for implementation in shared:
            with contextlib.suppress(Inapplicable):
                _same(implementation, case, wanted)
    finally:
        exported.cache_clear()


def chunks_do_not_matter(program: Program, cuts: Sequence[Sequence[int]]) -> None:
    """A sequence in any chunks gives the outputs and the states of one row after the other, and
    what stands in the padding reaches neither.

    Args:
        program: takes ``rows`` and ``position``, its inputs' first axis being rows.
        cuts: for each way the rows of the calls; a call's model has as many as ``program``'s.
    """
    length = sum(cuts[0])
    chunk = next(iter(program.inputs.values()))[0]
    sequence = program.with_rows(length, [{}]).arrays(0)
    runner = iron(cpu_path())[1]
    wanted = _in_chunks(program, runner, sequence, 1, [1] * length)
    for cut in cuts:
        for name, array in _in_chunks(program, runner, sequence, chunk, cut).items():
            assert same_bits(array, wanted[name]), (
                f"{name} of calls of {cut} rows has other bits than of single rows:\n{array}\n"
                f"{wanted[name]}"
            )


def a_batch_is_its_sequences(program: Program) -> None:
    """A batch of sequences gives each the outputs and the states that it has by itself, on the
    reference and on the provider.

    Args:
        program: its inputs, outputs and states have the sequences first, ``BATCH`` of them.
    """
    calls = [program.arrays(number) for number in range(len(program.calls))]
    runners: list[Implementation] = [NumpyReference(), *iron(cpu_path())[:2]]
    try:
        together = program.case()
        for runner in runners:
            with contextlib.suppress(Inapplicable):
                results = runner.run(together)
                for number in range(program.batch):
                    own = [{n: a[number : number + 1] for n, a in c.items()} for c in calls]
                    wanted = runner.run(program.of_one().case(own))
                    _is_sequence(f"{runner.name}: sequence {number}", number, results, wanted)
    finally:
        exported.cache_clear()


def _is_sequence(where: str, number: int, results: Results, wanted: Results) -> None:
    for call, (one, other) in enumerate(zip(results, wanted, strict=True)):
        assert one.keys() == other.keys(), f"{where}: {sorted(one)}, by itself {sorted(other)}"
        for name in one:
            found = one[name][number : number + 1]
            assert same_bits(found, other[name]), (
                f"{where}, call {call}, {name} has other bits in a batch than by itself:\n{found}\n"
                f"{other[name]}"
            )


def _in_chunks(
    program: Program,
    runner: Implementation,
    sequence: Mapping[str, Array],
    chunk: int,
    cut: Sequence[int],
) -> dict[str, Array]:
    """The outputs of all calls, joined, and the states after the last one."""
    begins = [sum(cut[:i]) for i in range(len(cut))]
    calls = [{"rows": n, "position": at} for n, at in zip(cut, begins, strict=True)]
    given = []
    for rows, begin in zip(cut, begins, strict=True):
        arrays = {}
        for name, array in sequence.items():
            arrays[name] = np.full((chunk, *array.shape[1:]), np.nan, array.dtype)
            arrays[name][:rows] = array[begin : begin + rows]
        given.append(arrays)
    case = program.with_rows(chunk, calls).case(given)
    try:
        results = runner.run(case) if case.trace.states else iron(cpu_path())[0].run(case)
    finally:
        exported.cache_clear()
    made = {
        name: np.concatenate([r[name][:rows] for r, rows in zip(results, cut, strict=True)])
        for name in case.trace.outputs
    }
    return made | {name: results[-1][name] for name in results[-1].keys() - made.keys()}


def _same(implementation: Implementation, case: Case, wanted: Results) -> None:
    for number, (one, other) in enumerate(zip(wanted, implementation.run(case), strict=True)):
        assert one.keys() == other.keys(), f"{implementation.name}: {sorted(other)}"
        for name in one:
            assert same_bits(one[name], other[name]), (
                f"{implementation.name}: call {number}, {name} has other bits than with states "
                f"apart:\n{other[name]}\n{one[name]}"
            )
