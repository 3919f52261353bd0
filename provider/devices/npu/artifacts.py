"""Compiled designs, in a folder of the user's cache, each under a hash of what it was made from."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from onnx_iron.kernels.aie.build import cache_folder
from onnx_iron.kernels.designs.configuration import configuration, counts
from onnx_iron.kernels.designs.design import Design
from onnx_iron.kernels.designs.interpreter import encode
from onnx_iron.kernels.designs.schedule import schedule
from onnx_iron.kernels.designs.target import Target as DesignTarget
from onnx_iron.provider.devices.npu.image import MOST_DESIGNS, Part, Target, build_image

# How many hexadecimal digits of a hash name a file.
_DIGITS = 24

# Buffers of a run that is several designs.
MOST_BUFFERS = 48


class Compiler(Protocol):
    """What makes artifacts of designs.

    Attributes:
        name: the folder of its artifacts.
    """

    name: str

    def __hash__(self) -> int: ...

    def identity(self) -> bytes:
        """What an artifact depends on besides its design."""
        ...

    def check(self, target: DesignTarget) -> None:
        """Look for what it needs to build for a target.

        Raises:
            RuntimeError: something is missing.
        """
        ...

    def build(self, made: Artifact) -> None:
        """Make an artifact.

        Raises:
            RuntimeError: a tool fails, with its last words.
        """
        ...

    def numbers(self, made: Artifact, values: Mapping[str, int]) -> list[tuple[int, int]]:
        """Where in an artifact's instructions a call's values are, and the words there."""
        ...

    def join(self, parts: Sequence[tuple[bytes, Sequence[int]]]) -> tuple[bytes, list[int]]:
        """The instructions of several designs of one configuration as those of one run: of each its
        own, and which of the run's buffers each of its buffers is.

        Returns:
            The instructions, and how far each design's are from where they were.
        """
        ...


@dataclass(frozen=True)
class Artifact:
    """A compiled design.

    Attributes:
        key: the hash that names it.
        configuration: the hash that names what configures the array; designs that share it run one
            after the other without a switch, and as one run.
        design: what it was made from.
        folder: where it is, or would be.
        compiler: what makes it.
    """

    key: str
    configuration: str
    design: Design
    folder: Path
    compiler: Compiler
    # Those of the last call's values: a model's layers have the same designs and values.
    _numbers: dict[tuple[tuple[str, int], ...], list[tuple[int, int]]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def pdi(self) -> Path:
        """What configures the array."""
        return self.folder / f"{self.configuration}.pdi"

    @property
    def instructions(self) -> Path:
        """The instructions of a run, with gaps for the per-call values."""
        return self.folder / f"{self.key}.insts"

    @property
    def places(self) -> Path:
        """Where in the instructions the numbers are that depend on per-call values: addresses, and
        then counts.
        """
        return self.folder / f"{self.key}.places.json"

    @property
    def built(self) -> bool:
        """Whether all of it is there, as it was written."""
        parts = [self.pdi, self.instructions]
        if self.places.exists():
            parts.append(self.places)
        return all(map(is_whole, parts))

    def words(self, values: Mapping[str, int]) -> bytes:
        """The instructions for a call's values."""
        return with_numbers(content(self.instructions), self.numbers(values))

    def numbers(self, values: Mapping[str, int]) -> list[tuple[int, int]]:
        """Where in the instructions a call's values are, in bytes, and the words there."""
        key = tuple(values.items())
        if values and key not in self._numbers:
            self._numbers.clear()
            self._numbers[key] = self.compiler.numbers(self, values)
        return self._numbers.get(key, [])

    def alone(self, values: Mapping[str, int]) -> bytes:
        """The instructions of a run that is this design alone, its buffers in their order."""
        return self.compiler.join([(self.words(values), range(len(self.design.buffers)))])[0]


def with_numbers(words: bytes, numbers: Sequence[tuple[int, int]]) -> bytes:
    """Instructions with a call's numbers in their places."""
    changed = bytearray(words)
    for place, number in numbers:
        struct.pack_into("<I", changed, place, number)
    return bytes(changed)


def placed(made: Artifact, values: Mapping[str, int]) -> list[tuple[int, int]]:
    """A call's addresses and counts, at the places in the instructions that are kept for them."""
    numbers = [offset for _, offset in addresses(made.design, values)]
    numbers += [count % (1 << 32) for count in counts(made.design, values)]
    return list(zip(_places(made.places), numbers, strict=True))


@functools.lru_cache(maxsize=512)
def content(path: Path) -> bytes:
    """A file's bytes."""
    return path.read_bytes()


@functools.lru_cache(maxsize=512)
def _places(path: Path) -> list[int]:
    return [int(place) for place in json.loads(path.read_text())]


def addresses(design: Design, values: Mapping[str, int]) -> list[tuple[int, int]]:
    """For each transfer, in the order of the instructions, its buffer's number and the bytes from
    the buffer's begin.
    """
    numbers = {buffer.name: number for number, buffer in enumerate(design.buffers)}
    return [
        (numbers[walk.buffer], walk.offset * design.buffer(walk.buffer).item_bytes)
        for phase in schedule(design, values)
        for walk in phase
    ]


@functools.lru_cache(maxsize=4096)
def artifact(design: Design, compiler: Compiler) -> Artifact:
    """The artifact of a design, built or not."""
    identity = compiler.identity()
    key, shared = (
        hashlib.sha256(content + identity).hexdigest()[:_DIGITS]
        for content in (encode(design), configuration(design))
    )
    return Artifact(key, shared, design, artifacts_folder(str(design.target), compiler), compiler)


def artifacts_folder(target: str, compiler: Compiler) -> Path:
    """Where a target's artifacts are."""
    return cache_folder() / "npu" / compiler.name / target


@functools.cache
def kernel_sources() -> bytes:
    """A hash of the kernels' source: a change of one makes every artifact anew."""
    import onnx_iron.kernels.aie as package

    digest = hashlib.sha256()
    for path in sorted(Path(package.__file__).parent.glob("*.[ch]*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def write(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever takes a half of it for the whole."""
    _replace(path, content)
    seal(path)


def seal(path: Path) -> None:
    """Keep a hash of a file beside it, by which ``is_whole`` knows it."""
    _replace(_seal(path), hashlib.sha256(path.read_bytes()).hexdigest().encode())


def is_whole(path: Path) -> bool:
    """Whether a file is as it was sealed: a machine that stops may lose the end of one."""
    try:
        state, kept = path.stat(), _seal(path).read_bytes()
    except FileNotFoundError:
        return False
    return kept == _digest(path, state.st_mtime_ns, state.st_size)


def _seal(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


@functools.lru_cache(maxsize=4096)
def _digest(path: Path, mtime_ns: int, size: int) -> bytes:
    return hashlib.sha256(path.read_bytes()).hexdigest().encode()


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    beside.write_bytes(content)
    beside.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the only one, of all processes, who makes a file, for as long as the block runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(made: Artifact) -> None:
    """Make an artifact, if no other process has made it meanwhile.

    Raises:
        RuntimeError: a tool fails, with its last words.
    """
    with locked(made.pdi):
        if not made.built:
            made.compiler.build(made)
            made._numbers.clear()
            content.cache_clear()
            _places.cache_clear()


def kernel_name(made: Artifact) -> str:
    """What a configuration's kernel is called in an image."""
    return f"{made.design.name}_{made.configuration[:8]}"


def buffers_of(made: Artifact) -> int:
    """How many buffers a run of a configuration may have: one design's, or those of a chain."""
    return MOST_BUFFERS if made.design.told else len(made.design.buffers)


def images(artifacts: Sequence[Artifact]) -> list[list[Artifact]]:
    """One artifact of each configuration, in groups that each make an image, in their order."""
    once = list({made.configuration: made for made in artifacts}.values())
    return [once[i : i + MOST_DESIGNS] for i in range(0, len(once), MOST_DESIGNS)]


def image(group: Sequence[Artifact], target: Target) -> Path:
    """The xclbin with a group's designs, made of the built ones if it isn't there.

    Raises:
        ImageError, FileNotFoundError: it can't be made.
    """
    names = "\n".join(made.configuration for made in group)
    name = hashlib.sha256(names.encode()).hexdigest()[:_DIGITS]
    path = group[0].folder / "images" / f"{name}.xclbin"
    if is_whole(path):
        return path
    with locked(path):
        if is_whole(path):
            return path
        parts = [Part(kernel_name(made), made.pdi, buffers_of(made)) for made in group]
        build_image(parts, target, path)
        seal(path)
    return path
