"""Per-call integers: the arithmetic of Python's integers, and nothing that needs to know them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_iron import Value
from onnx_iron.graph.value import evaluate

P, Q = Value.named("p"), Value.named("q")
NUMBERS = st.integers(-(10**6), 10**6)

# Each step of an expression: what it does to a pair of an expression and Python's integer.
Step = Callable[[Any], Any]


def steps() -> st.SearchStrategy[Step]:
    number = st.integers(-50, 50)
    return st.one_of(
        number.map(lambda n: lambda x: x + n),
        number.map(lambda n: lambda x: n + x),
        number.map(lambda n: lambda x: x - n),
        number.map(lambda n: lambda x: n - x),
        number.map(lambda n: lambda x: x * n),
        number.map(lambda n: lambda x: n * x),
        st.integers(1, 50).map(lambda n: lambda x: x // n),
        st.just(lambda x: -x),
    )


def applied(chain: list[Step], start: Any) -> Any:
    for step in chain:
        start = step(start)
    return start


@given(
    st.lists(steps(), max_size=6), st.lists(steps(), max_size=6), st.booleans(), NUMBERS, NUMBERS
)
def test_an_expression_equals_python_s_integers(
    left: list[Step], right: list[Step], minus: bool, p: int, q: int
) -> None:
    values = {"p": p, "q": q}
    a, b = applied(left, P), applied(right, Q)
    expression = a - b if minus else a + b
    expected = (
        applied(left, p) - applied(right, q) if minus else applied(left, p) + applied(right, q)
    )
    assert expression.evaluate(values) == expected
    assert expression == (-b + a if minus else b + a)
    assert hash(expression) == hash(-b + a if minus else b + a)
    # What it says of itself in a message is the expression, too.
    assert eval(str(expression), {}, values) == expected
    assert set(expression.names()) <= {"p", "q"}


@given(NUMBERS, st.integers(1, 40))
def test_a_multiple_is_divided_on_its_terms(p: int, divisor: int) -> None:
    assert (P * divisor + 3 * divisor) // divisor == P + 3
    assert (P // divisor).evaluate({"p": p}) == p // divisor


def test_what_cancels_is_fixed() -> None:
    assert (P + 4 - P).fixed() == 4
    assert (P * 0 + 7).fixed() == 7
    assert (P + 4).fixed() is None
    assert list((P - P).names()) == []


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8])
def test_numpy_s_integers_are_integers(kind: Any) -> None:
    assert kind(3) + P * kind(2) - kind(1) == P * 2 + 2
    assert kind(3) * P == P * 3
    assert (P + kind(250)).evaluate({"p": 10}) == 260  # and do not wrap
    assert P // kind(4) == P // 4


def test_evaluate_takes_either_kind() -> None:
    assert evaluate(7, {}) == 7
    assert evaluate(P + 1, {"p": 7}) == 8


@pytest.mark.parametrize(
    ("use", "missing"),
    [
        (bool, "truth value"),
        (lambda v: "yes" if v else "no", "truth value"),
        (int, "int()"),
        (lambda v: list(range(9))[v], "int()"),
        (range, "int()"),
        (lambda v: v == 3, "comparison"),
        (lambda v: v != 3, "comparison"),
        (lambda v: v == np.int32(3), "comparison"),
    ],
)
def test_it_is_not_known_while_tracing(use: Callable[[Value], Any], missing: str) -> None:
    with pytest.raises(TypeError) as error:
        use(P + 1)
    assert str(error.value) == (
        f"p + 1 is a per-call value, known only when the graph runs: it has no {missing}. "
        "Use it to index, to slice or to bound an axis of a handle, a state or a Weight "
        "(Weight.of(array) makes one)"
    )


@pytest.mark.parametrize(
    "use",
    [
        lambda: P + 1.5,
        lambda: 1.5 - P,
        lambda: P - 1.5,
        lambda: P * 0.5,
        lambda: P / 2,
        lambda: 7 // P,
        lambda: P // Q,
        lambda: P // 2.0,
        lambda: P + True,
        lambda: P - True,
        lambda: P + np.array([1, 2]),
        lambda: np.array([1, 2]) * P,
        lambda: P + "1",
    ],
)
def test_only_affine_arithmetic_is_there(use: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        use()


def test_refusals_show_the_expression() -> None:
    with pytest.raises(TypeError, match=r"\(p \+ 1\) \* \(q\): a per-call value is multiplied by"):
        (P + 1) * Q
    with pytest.raises(ValueError, match=r"\(p\) // 0: the divisor must be positive"):
        P // 0
    with pytest.raises(ValueError, match=r"\(2 \* p\) // -3: the divisor must be positive"):
        P * 2 // -3


def test_expressions_read_as_written() -> None:
    assert str((P + 1) * 64) == "64 * p + 64"
    assert str(P - Q * 3 - 2) == "p - 3 * q - 2"
    assert str((P + 1) // 2 * 3) == "3 * ((p + 1) // 2)"
    assert str(P - P) == "0"
    assert repr(P) == "Value(p)"


def test_an_unlike_thing_is_not_equal() -> None:
    assert P != "p"
    assert P is not None
    assert P != None  # noqa: E711
    assert Value.named("p") == P
    assert P != Q


def test_remainders_extrema_and_comparisons_are_python_s() -> None:
    for p in range(-7, 8):
        for q in (-3, 0, 4):
            values = {"p": p, "q": q}
            assert (P % 5).evaluate(values) == p % 5
            assert ((P - Q) % 3 // 2).evaluate(values) == (p - q) % 3 // 2
            assert P.minimum(Q + 1).evaluate(values) == min(p, q + 1)
            assert P.maximum(2).evaluate(values) == max(p, 2)
            assert P.clamp(-1, Q).evaluate(values) == min(max(p, -1), q)
            for ours, held in (
                (P < Q, p < q),
                (P <= Q, p <= q),
                (P > Q, p > q),
                (P >= 2, p >= 2),
                (P < 3, p < 3),
            ):
                assert ours.evaluate(values) == held
    assert P.minimum(P + 1) == P
    assert str((P + 1).minimum(4)) == "min(p + 1, 4)"
