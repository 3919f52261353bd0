"""What is right and wrong about what became of a hostile case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from onnx_iron.conformance.hostile.stages import Attempt
from onnx_iron.dtypes import BFLOAT16, FLOATS, Array

# What a stage of ours may take beyond what plain onnxruntime took before it.
MOST_MEGABYTES = 512
# Sums have another order than stock's, and rounding is carried through a few layers: parts of the
# largest number. The suite's other cases hold the digits.
_FLOAT32_PART, _BFLOAT16_PART = 1e-3, 0.05
# Beyond it a square overflows, and what comes of that depends on the order.
_TAME = 1e15

# A class of ours, of onnx's or of Python's that says nothing to the one who made the call.
_INNARDS = re.compile(
    r"please report|Traceback|\b(?:Key|Index|Attribute|Assertion|UnboundLocal|Recursion|Memory|"
    r"ZeroDivision|Overflow|UnicodeDecode|UnicodeEncode|NotImplemented|Decode)Error\b|"
    r"bad_alloc|bad_cast|length_error|out_of_range|vector::_M|unknown C\+\+|NoneType|"
    r"object is not|list index|unhashable|not subscriptable|not iterable|invalid literal|"
    r"could not broadcast|sequence element|recursion depth|takes \d+ positional|"
    r"unexpected keyword|to unpack"
)
# Of onnx_iron.Session: what its documentation names, beside onnxruntime's own.
_DOCUMENTED = ("builtins.ValueError", "builtins.TypeError", "builtins.FileNotFoundError")


class Verdict(StrEnum):
    """What became of a case in a stage."""

    AGREES = "agrees"
    RUNS = "runs, stock refuses"
    REFUSED = "refused by both"
    STRICTER = "refused, stock runs"
    ENDED = "onnxruntime itself ends the process"
    FAULT = "fault"


@dataclass(frozen=True)
class Judged:
    """A stage's verdict; of a fault, and of a refusal, the words."""

    stage: str
    verdict: Verdict
    words: str = ""


def judge(stage: str, made: Attempt, stock: Attempt, ambiguous: bool) -> Judged:
    """Judge a stage of ours by itself, and by plain onnxruntime on the same case.

    Args:
        ambiguous: the model means two things; results are not compared.
    """
    fault = _fault(stage, made, stock) or ("" if ambiguous else _disagreement(stage, made, stock))
    if fault:
        return Judged(stage, Verdict.FAULT, fault)
    if made.error:
        both = bool(stock.error)
        said = f"{made.error}: {made.text}"
        return Judged(stage, Verdict.REFUSED if both else Verdict.STRICTER, said)
    return Judged(stage, Verdict.RUNS if stock.error else Verdict.AGREES)


def _fault(stage: str, made: Attempt, stock: Attempt) -> str:
    if made.unexamined:
        return f"the planner failed: {made.unexamined[0]}"
    if made.megabytes > MOST_MEGABYTES:
        return f"it took {made.megabytes:.0f} MB"
    if not made.error:
        return ""
    said = f"{made.error}: {made.text}"
    innards = _INNARDS.search(made.text)
    if innards and not (stock.error and innards[0] in stock.text):
        return f"an error that tells of the inside: {said}"
    if not made.text.strip():
        return f"an error without words: {said}"
    if stage == "session" and not (
        made.error in (*_DOCUMENTED, stock.error)
        or made.error.startswith("onnxruntime.")
        or made.text.startswith("Error in execution")  # onnxruntime's, of a call by IOBinding
    ):
        return f"an error that is not documented: {said}"
    return ""


def _disagreement(stage: str, made: Attempt, stock: Attempt) -> str:
    found = ""
    if made.results is not None and made.in_place is not None:
        found = differing(made.in_place, made.results, exact=True)
        found = found and f"states in place: {found}"
    if not found and made.results is not None and stock.results is not None and stage != "session":
        found = differing(made.results, stock.results)
    return found


def differing(made: Mapping[str, Array], wanted: Mapping[str, Array], exact: bool = False) -> str:
    """How results differ from others; empty where they do not."""
    if made.keys() != wanted.keys():
        return f"outputs {sorted(made)}, expected {sorted(wanted)}"
    for name, array in made.items():
        other = wanted[name]
        if (array.shape, array.dtype) != (other.shape, other.dtype):
            return f"{name!r} is {array.dtype} {array.shape}, expected {other.dtype} {other.shape}"
        if array.dtype not in FLOATS:
            if array.dtype.kind in "biu" and not np.array_equal(array, other):
                return f"{name!r} has other integers"
            continue
        a, b = array.astype(np.float64), other.astype(np.float64)
        if exact:
            if not np.array_equal(a, b, equal_nan=True):
                return f"{name!r} has other numbers"
            continue
        tame = np.isfinite(b) & (np.abs(b) < _TAME)
        if not tame.all():
            continue  # what overflows does so in another place
        part = _BFLOAT16_PART if array.dtype == BFLOAT16 else _FLOAT32_PART
        most = part * max(np.abs(b).max(initial=0), 1e-30)
        with np.errstate(invalid="ignore"):
            if not (np.abs(a - b) <= most).all():
                apart = np.abs(a - b).max()
                return f"{name!r} is {apart:.3g} away, {most:.3g} is allowed"
    return ""
