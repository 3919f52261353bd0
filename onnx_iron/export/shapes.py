"""Output shapes of an operator where some of the inputs' dimensions are not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

# A dimension: known, known by a name alone, or not at all; a shape of unknown rank is None.
OpenDim: TypeAlias = int | str | None
OpenShape: TypeAlias = tuple[OpenDim, ...] | None

# Of an input whose rank is not known, these are tried.
_RANKS = range(5)
# Beyond so many ways to read a shape rule nothing is said about an output's shape.
_LIMIT = 4096


class _Choices:
    """Answers to what a shape rule asks about unknown dimensions, every combination in turn."""

    def __init__(self) -> None:
        self._taken: list[bool] = []
        self._at = 0

    def ask(self) -> bool:
        if self._at == len(self._taken):
            self._taken.append(True)
        self._at += 1
        return self._taken[self._at - 1]

    def next(self) -> bool:
        """Turn to the next combination; False after the last."""
        del self._taken[self._at :]
        self._at = 0
        while self._taken and not self._taken[-1]:
            self._taken.pop()
        if self._taken:
            self._taken[-1] = False
        return bool(self._taken)


class _Dim(int):
    """A dimension that is not known: each comparison is a choice, and an equality is kept."""

    choices: _Choices
    label: str | None
    known: int | _Dim | None

    @classmethod
    def of(cls, choices: _Choices, label: str | None = None) -> _Dim:
        made = cls(-1)
        made.choices, made.label, made.known = choices, label, None
        return made

    def settled(self) -> int | _Dim:
        """What this dimension was found to be so far: a number, or the unknown it equals."""
        found: int | _Dim = self
        while isinstance(found, _Dim) and found.known is not None:
            found = found.known
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int):
            return False
        mine, theirs = self.settled(), _settled(other)
        if mine is theirs:
            return True
        if not isinstance(mine, _Dim) and not isinstance(theirs, _Dim):
            return bool(mine == theirs)
        if not self.choices.ask():
            return False
        if isinstance(mine, _Dim):
            mine.known = theirs
        else:
            assert isinstance(theirs, _Dim)
            theirs.known = mine
        return True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        return self != 0

    def __repr__(self) -> str:
        found = self.settled()
        return (found.label or "?") if isinstance(found, _Dim) else str(found)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)


def _settled(dim: int) -> Any:
    return dim.settled() if isinstance(dim, _Dim) else dim


def _asking(name: str) -> Callable[[_Dim, int], Any]:
    exact = getattr(int, name)

    def compare(self: _Dim, other: int) -> Any:
        mine, theirs = self.settled(), _settled(other)
        if isinstance(mine, _Dim) or isinstance(theirs, _Dim):
            return self.choices.ask()
        return exact(mine, theirs)

    return compare


def _computing(name: str) -> Callable[[_Dim, int], Any]:
    exact = getattr(int, name)

    def compute(self: _Dim, other: int) -> Any:
        mine, theirs = self.settled(), _settled(other)
        if isinstance(mine, _Dim) or isinstance(theirs, _Dim):
            return _Dim.of(self.choices)
        return exact(mine, theirs)

    return compute


for _name in ("lt", "le", "gt", "ge"):
    setattr(_Dim, f"__{_name}__", _asking(f"__{_name}__"))
for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(_Dim, f"__{_name}__", _computing(f"__{_name}__"))
    setattr(_Dim, f"__r{_name}__", _computing(f"__r{_name}__"))


def open_shapes(
    rule: Callable[[Sequence[tuple[int, ...] | None]], Sequence[tuple[int, ...]]],
    given: Sequence[OpenShape],
    omitted: Sequence[bool],
) -> list[OpenShape] | None:
    """What all sizes of the unknown dimensions that the rule takes have in common.

    Args:
        rule: the outputs' shapes from the inputs' (None where one is omitted).
        given: the inputs' shapes.
        omitted: which of them are not given at all.

    Returns:
        The outputs' shapes; None where the rule asks too much.

    Raises:
        ValueError: no sizes fit.
    """
    common: list[OpenShape] | None = None
    refused: ValueError | None = None
    for count, found in enumerate(_readings(rule, given, omitted)):
        if count == _LIMIT:
            return None
        if isinstance(found, ValueError):
            refused = refused or found
        elif common is None:
            common = found
        else:
            common = [_common(one, other) for one, other in zip(common, found, strict=True)]
    if common is None:
        raise refused or ValueError("no shape fits")
    return common


def _readings(
    rule: Callable[[Sequence[tuple[int, ...] | None]], Sequence[tuple[int, ...]]],
    given: Sequence[OpenShape],
    omitted: Sequence[bool],
) -> Iterator[list[OpenShape] | ValueError]:
    """The result of the rule for every way that its questions may be answered."""
    for shapes in _ranked(list(given), omitted):
        choices = _Choices()
        more = True
        while more:
            labels: dict[str, _Dim] = {}
            try:
                made = rule([_dims(shape, choices, labels) for shape in shapes])
                yield [tuple(_told(dim) for dim in shape) for shape in made]
            except ValueError as error:
                yield ValueError(str(error))
            more = choices.next()


def _ranked(shapes: list[OpenShape], omitted: Sequence[bool]) -> Iterator[list[OpenShape]]:
    """The shapes with each unknown rank in turn."""
    for index, shape in enumerate(shapes):
        if shape is None and not omitted[index]:
            for rank in _RANKS:
                filled: OpenShape = (None,) * rank
                yield from _ranked([*shapes[:index], filled, *shapes[index + 1 :]], omitted)
            return
    yield shapes


def _dims(shape: OpenShape, choices: _Choices, labels: dict[str, _Dim]) -> tuple[int, ...] | None:
    if shape is None:
        return None
    return tuple(
        dim
        if isinstance(dim, int)
        else labels.setdefault(dim, _Dim.of(choices, dim))
        if isinstance(dim, str)
        else _Dim.of(choices)
        for dim in shape
    )


def _told(dim: int) -> OpenDim:
    found = _settled(dim)
    return found.label if isinstance(found, _Dim) else int(found)


def _common(one: OpenShape, other: OpenShape) -> OpenShape:
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))
