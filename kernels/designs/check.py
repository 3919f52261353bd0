"""Whether a design fits its target: memories, channels, and what the DMA engines can address."""

from __future__ import annotations

from onnx_iron.kernels.designs.design import Design, Direction, Index, Refusal, Stream, Term
from onnx_iron.kernels.designs.target import (
    CHANNELS,
    CORE_BYTES,
    CORES,
    MEMORY_CHANNELS,
    MEMORY_TILE_BYTES,
    STACK_BYTES,
    WORD,
    UnaddressableError,
    counted_pattern,
    memory_pattern,
    shim_pattern,
)

_ALIGNMENT = 64


def checked(design: Design) -> Design | Refusal:
    """The design, or a refusal where it does not fit its target."""
    reason = (
        _structure(design) or _core_memory(design) or _memory_tiles(design) or _addresses(design)
    )
    return design if reason is None else Refusal(f"{design.name}: {reason}")


def core_bytes(design: Design) -> int:
    """What a core's tiles, locals and stack take."""
    tiles = sum(_in_a_core(s) for s in _core_streams(design))
    return STACK_BYTES + tiles + sum(_aligned(local.bytes) for local in design.locals)


def memory_tile_bytes(design: Design) -> int:
    """What a column's memory tile holds."""
    return sum(
        _aligned(design.parts(s) * _tile_bytes(s)) * s.depth
        for s in design.streams
        if passes_memory_tile(design, s)
    )


def passes_memory_tile(design: Design, stream: Stream) -> bool:
    """Whether its tiles stop in a memory tile: to be read in another order, or by several."""
    return bool(stream.arrange or stream.broadcast or stream.source or design.rows > 1)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _tile_bytes(stream: Stream) -> int:
    return (stream.chunk or stream.size) * (stream.bytes // stream.size)


def _in_a_core(stream: Stream) -> int:
    room = stream.room * (stream.bytes // stream.size)
    return _aligned(_tile_bytes(stream)) * stream.depth + room


def _core_streams(design: Design) -> list[Stream]:
    passed_on = {s.source for s in design.streams if s.source}
    return [s for s in design.streams if s.source is None and s.name not in passed_on]


def _structure(design: Design) -> str | None:
    if not 1 <= len(design.columns) <= design.target.columns:
        return (
            f"{len(design.columns)} columns, of which {design.target} has {design.target.columns}"
        )
    if not 1 <= design.rows <= CORES:
        return f"{design.rows} cores in a column, which has {CORES}"
    if design.told and design.rows > 1:
        return f"{design.rows} cores in a column are told their numbers, which only one can be"
    loops = len(design.columns[0])
    for stream in design.streams:
        if reason := _walks(design, stream):
            return reason
        whole = design.parts(stream) * stream.bytes
        filled = sum(t.size * design.buffer(t.buffer).item_bytes for t in stream.transfers)
        runs = any(all(trips[: stream.level]) for trips in design.columns)
        if filled != whole and (runs or stream.transfers) and not stream.whole:
            return f"{filled} bytes fill a tile {stream.name} of {whole} bytes"
        if stream.chunk and (stream.size % stream.chunk or stream.size > stream.room):
            return (
                f"stream {stream.name} of {stream.size} elements comes in chunks of {stream.chunk}"
                f", and there is room for {stream.room}"
            )
        if stream.level > loops:
            return f"stream {stream.name} follows {stream.level} loops of {loops}"
        if whole > stream.bytes and stream.direction is Direction.IN and stream.arrange:
            (size, stride), parts = stream.arrange[0], design.parts(stream)
            if size % parts or size // parts * stride != stream.size:
                return f"stream {stream.name} is arranged across the parts of several cores"
        affines = [a for t in stream.transfers for term in t.terms for a in term.index.affines()]
        if any(any(a.loops[stream.level :]) for a in affines):
            return f"stream {stream.name} depends on a loop inside its level {stream.level}"
        if stream.shared and stream.direction is Direction.OUT:
            return f"stream {stream.name} comes from cores that share it"
        if any(a.row for a in affines) and (stream.shared or not stream.broadcast):
            return f"stream {stream.name} depends on the row of cores, of which each has a part"
        if stream.broadcast:
            if not stream.shared and design.rows > len(design.columns):
                shims = len(design.columns)
                return f"stream {stream.name} goes to {design.rows} rows of cores by {shims} shims"
            if any(a.column for a in affines):
                return f"stream {stream.name} is the same for all columns and depends on the column"
            if len({trips[: stream.level] for trips in design.columns}) > 1:
                return f"stream {stream.name} is the same for columns that run it unequally often"
    for direction in Direction:
        count = sum(s.direction is direction for s in design.streams)
        if count > CHANNELS:
            return f"{count} streams {direction}, for which a core has {CHANNELS} DMA channels"
    for ways in (
        sum(1 if s.direction is Direction.IN else design.parts(s) for s in design.streams),
        sum(design.parts(s) if s.direction is Direction.IN else 1 for s in design.streams),
    ):
        if design.rows > 1 and ways > MEMORY_CHANNELS:
            return f"{ways} streams of a memory tile, which has {MEMORY_CHANNELS} channels"
    for call in design.calls:
        for argument in call.arguments:
            bounded = isinstance(argument, Index) and (argument.low or argument.high)
            if design.told and (bounded or isinstance(argument, float)):
                return f"{call.kernel} is told a number with a bound, or one that is no integer"
            if isinstance(argument, Index) and any(
                any(a.loops[call.level :]) or a.values for a in argument.affines()
            ):
                return f"an argument of {call.kernel} depends on a loop inside or on a value"
    return None


def _walks(design: Design, stream: Stream) -> str | None:
    """What is wrong with walks whose number or length is not that of the loops."""
    if stream.whole and (
        stream.direction is Direction.OUT or stream.arrange or design.parts(stream) > 1
    ):
        return f"stream {stream.name} comes as whole walks, which go out, in parts or arranged"
    if design.innermost is not None:
        if not design.told:
            return "the innermost loop runs as often as a core is told, and none is told"
        if stream.level == len(design.columns[0]) and not stream.whole:
            return f"stream {stream.name} follows the innermost loop, which a call's values count"
    for transfer in stream.transfers:
        if transfer.times is not None and not stream.whole:
            return f"stream {stream.name} has a tile whose size a call's values say"
    return None


def _core_memory(design: Design) -> str | None:
    taken = core_bytes(design)
    if taken > CORE_BYTES:
        return f"{taken} bytes of tiles, locals and stack, of which a core has {CORE_BYTES}"
    return None


def _memory_tiles(design: Design) -> str | None:
    taken = memory_tile_bytes(design)
    if taken > MEMORY_TILE_BYTES:
        return f"{taken} bytes of tiles in a memory tile, which has {MEMORY_TILE_BYTES}"
    return None


def _addresses(design: Design) -> str | None:
    for stream in design.streams:
        try:
            if stream.arrange:
                memory_pattern(stream.arrange, stream.bytes // stream.size)
            for transfer in stream.transfers:
                item_bytes = design.buffer(transfer.buffer).item_bytes
                pattern = shim_pattern if transfer.times is None else counted_pattern
                pattern(transfer.sizes, transfer.strides, item_bytes)
                if item_bytes % WORD and not all(map(_is_even, transfer.terms)):
                    raise UnaddressableError(
                        f"offsets into {transfer.buffer} that are no multiple of {WORD} bytes"
                    )
        except UnaddressableError as unaddressable:
            return f"stream {stream.name} has {unaddressable}"
    return None


def _is_even(term: Term) -> bool:
    """Whether every offset that the term can give is."""
    parts = [term.index.low or 0]
    for affine in term.index.affines():
        parts += [affine.constant, affine.column, *affine.loops, *(f for _, f in affine.values)]
    return all(part * term.stride % 2 == 0 for part in parts)
