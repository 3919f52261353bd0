"""Attention of a decoder's one row as steps of its configuration: each column gathers a part of the
cache, and whoever reads the result merges the parts.

The key heads are over the columns as far as their number allows, and parts of the cache over the
columns of each. The keys come in one walk and then the values in one, of the filled rounds only: a
round is as many entries as are a whole number of the weight's tiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from onnx_iron.dtypes import BFLOAT16, Array
from onnx_iron.kernels.designs.check import checked
from onnx_iron.kernels.designs.decode import ALIGNED, BLOCK, CHUNK, ROOM, TILE, Prologue, in_blocks
from onnx_iron.kernels.designs.design import (
    Affine,
    Design,
    Index,
    Port,
    Refusal,
    Scalar,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.target import Target

_PADDING = 32  # floats of a head's state beside its values
_FIELDS = 16  # words that describe it to the kernel, of which it makes some
_WORDS = 2  # before them: how many entries are seen, and the rounds
_FEWEST = 3  # rounds that are worth a length of its own


@dataclass(frozen=True)
class Parts:
    """How a cache is over the columns.

    Attributes:
        columns: of the target.
        heads, groups, dim, entries: query heads, key heads, their length, and the cache's.
        across: columns that have key heads of their own.
        round: entries of a part that come together.
    """

    columns: int
    heads: int
    groups: int
    dim: int
    entries: int
    across: int = field(init=False)
    round: int = field(init=False)

    def __post_init__(self) -> None:
        across = math.gcd(self.groups, self.columns)
        width = self.groups // across * self.dim
        object.__setattr__(self, "across", across)
        object.__setattr__(self, "round", TILE // math.gcd(TILE, width))

    @property
    def parts(self) -> int:
        return self.columns // self.across

    @property
    def own_heads(self) -> int:
        """Query heads of a column."""
        return self.heads // self.across

    @property
    def width(self) -> int:
        """Elements of a column's key heads in an entry."""
        return self.groups // self.across * self.dim

    @property
    def every(self) -> int:
        """Entries of a round of all parts."""
        return self.parts * self.round

    @property
    def rounds(self) -> int:
        """Of the whole cache."""
        return self.entries // self.every

    @property
    def counted(self) -> bool:
        """Whether a call says how many rounds there are; else all are walked."""
        return self.rounds >= _FEWEST

    @property
    def head_state(self) -> int:
        """Elements of a query head's state: float32 in pairs of bfloat16."""
        return 2 * (self.dim + _PADDING)

    @property
    def state(self) -> int:
        """Elements of all parts' states."""
        return self.parts * self.heads * self.head_state

    @property
    def scores(self) -> int:
        """Of a query head, that a column keeps."""
        return -(-self.rounds * self.round // ALIGNED) * ALIGNED

    @property
    def asked(self) -> int:
        """Elements before the state: the query and what is said about it, in whole chunks."""
        wanted = self.heads * self.dim + 2 * (_WORDS + _FIELDS)
        return -(-wanted // CHUNK) * CHUNK

    def refused(self) -> str | None:
        """Why it does not go so."""
        if TILE % self.dim or self.dim % ALIGNED:
            return f"heads of {self.dim} elements, of which a tile of {TILE} is no whole number"
        if self.entries % self.every:
            return f"a cache of {self.entries} entries is no number of rounds of {self.every}"
        room = self.asked + self.own_heads * (self.head_state + 2 * self.scores)
        if room > ROOM:
            return (
                f"{self.own_heads} heads of {self.entries // self.parts} entries take {room} "
                f"elements of a core, of which it has {ROOM}"
            )
        return None

    def described(self, scale: float) -> Array:
        """What the kernel is told, as elements of its operands: (n,) that fill the last chunk."""
        state = self.asked
        words = np.zeros((self.asked - self.heads * self.dim) // 2 - _WORDS, np.int32)
        numbers = (self.own_heads, self.groups // self.across, self.dim)
        places = (state, state + self.own_heads * self.head_state, self.scores)
        words[:9] = (*numbers, np.float32(scale).view(np.int32), self.parts, self.round, *places)
        return words.view(BFLOAT16)


def gather(
    parts: Parts, ports: dict[str, Port], target: Target, rounds: Scalar | None
) -> Design | Refusal:
    """The step that gathers.

    Args:
        ports: query, key, value, seen and rounds (int32), described, states.
        rounds: the per-call value that says how many; None: all.
    """
    if reason := parts.refused():
        return Refusal(f"decode: {reason}")
    columns = range(target.columns)
    groups, across = parts.groups, parts.across
    group = tuple(c // parts.parts * parts.width for c in columns)
    entry = tuple(c % parts.parts * parts.round for c in columns)
    row = groups * parts.dim
    walks = tuple(
        Transfer(
            name,
            (parts.rounds, parts.round, parts.width),
            (parts.every * row, row, 1),
            (Term(row, Index(Affine(each=entry))), Term(1, Index(Affine(each=group)))),
            None if rounds is None else rounds.name,
        )
        for name in ("key", "value")
    )
    own = parts.own_heads * parts.head_state
    place = tuple(c % parts.parts * across * own + c // parts.parts * own for c in columns)
    tiles = 2 * parts.round * parts.width // TILE
    first = (
        Affine(tiles * parts.rounds) if rounds is None else Affine(values=((rounds.name, tiles),))
    )
    operands = [ports[name] for name in ("query", "seen", "rounds", "described")]
    described = ports["query"].size + 2 * _WORDS
    return checked(
        in_blocks(
            target,
            (*operands, ports["key"], ports["value"], ports["states"]),
            columns=((own // BLOCK, 0),) * target.columns,
            operands=tuple(Transfer(port.name, (port.size,), (1,)) for port in operands),
            weight=walks,
            result=Transfer(
                "states",
                (BLOCK,),
                (1,),
                (Term(1, Index(Affine(loops=(BLOCK,), each=place))),),
            ),
            start=(Prologue.ATTENTION, described, 0, Index(Affine(column=1))),
            tile=(described, Index(Affine(loops=(0, 1))), 1),
            finish=(0, Index(Affine(constant=parts.asked, loops=(BLOCK,))), 0),
            values=() if rounds is None else (rounds,),
            innermost=(first, Affine()),
        )
    )
