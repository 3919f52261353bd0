"""Compiled designs, in a folder of the user's cache, each under a hash of what it was made from."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx_iron.kernels.aie.build import cache_folder
from onnx_iron.kernels.designs.design import Design
from onnx_iron.kernels.designs.interpreter import encode
from onnx_iron.kernels.designs.schedule import schedule
from onnx_iron.provider.npu.image import MOST_DESIGNS, Part, Target, build_image

# The simulator's artifacts begin with this and the design's digest. The design follows in the one,
# and in the other, when a run is prepared, the per-call values.
SIMULATOR_MAGIC = b"onnx_iron.sim.1\0"

# How many hexadecimal digits of a hash name a file.
_DIGITS = 24


@dataclass(frozen=True)
class Artifact:
    """A compiled design.

    Attributes:
        key: the hash that names it.
        design: what it was made from.
        folder: where it is, or would be.
        simulated: whether it is for the tests' simulated NPU.
    """

    key: str
    design: Design
    folder: Path
    simulated: bool

    @property
    def pdi(self) -> Path:
        """What configures the array."""
        return self.folder / f"{self.key}.pdi"

    @property
    def instructions(self) -> Path:
        """The instructions of a run, with gaps for the per-call values."""
        return self.folder / f"{self.key}.insts"

    @property
    def places(self) -> Path:
        """Where in the instructions the addresses are that depend on per-call values."""
        return self.folder / f"{self.key}.places.json"

    @property
    def built(self) -> bool:
        """Whether it is there."""
        return self.pdi.is_file() and self.instructions.is_file()

    def words(self, values: Mapping[str, int]) -> bytes:
        """The instructions for a call's values."""
        content = bytearray(_content(self.instructions))
        if self.simulated:
            packed = struct.pack(f"<{len(values)}i", *values.values())
            return bytes(content) + packed
        if values:
            offsets = addresses(self.design, values)
            for place, (_, offset) in zip(_places(self.places), offsets, strict=True):
                struct.pack_into("<I", content, place, offset)
        return bytes(content)


@functools.lru_cache(maxsize=512)
def _content(path: Path) -> bytes:
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
def artifact(design: Design, simulator: bool) -> Artifact:
    """The artifact of a design, built or not."""
    digest = hashlib.sha256(encode(design))
    digest.update(SIMULATOR_MAGIC if simulator else _kernel_sources())
    folder = artifacts_folder(str(design.device), simulator)
    return Artifact(digest.hexdigest()[:_DIGITS], design, folder, simulator)


def artifacts_folder(target: str, simulator: bool) -> Path:
    """Where a target's artifacts are."""
    return cache_folder() / "npu" / ("simulator" if simulator else "hardware") / target


@functools.cache
def _kernel_sources() -> bytes:
    """A hash of the kernels' source: a change of one makes every artifact anew."""
    import onnx_iron.kernels.aie as package

    digest = hashlib.sha256()
    for path in sorted(Path(package.__file__).parent.glob("*.[ch]*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def build_simulated(made: Artifact) -> None:
    """Write the simulator's artifact of a design: the design itself."""
    content = encode(made.design)
    head = SIMULATOR_MAGIC + hashlib.sha256(content).digest()
    made.folder.mkdir(parents=True, exist_ok=True)
    write(made.instructions, head)
    sizes = [buffer.size * buffer.item_bytes for buffer in made.design.buffers]
    numbers = [len(sizes), *sizes, len(content)]
    write(made.pdi, head + struct.pack(f"<{len(numbers)}Q", *numbers) + content)


def write(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees a half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)


def kernel_name(made: Artifact) -> str:
    """What a design's kernel is called in an image."""
    return f"{made.design.name}_{made.key[:8]}"


def images(artifacts: Sequence[Artifact]) -> list[list[Artifact]]:
    """The artifacts in groups that each make an image, every one once, in their order."""
    once = list({made.key: made for made in artifacts}.values())
    return [once[i : i + MOST_DESIGNS] for i in range(0, len(once), MOST_DESIGNS)]


def image(group: Sequence[Artifact], target: Target) -> Path:
    """The xclbin with a group's designs, made of the built ones if it isn't there.

    Raises:
        ImageError, FileNotFoundError: it can't be made.
    """
    names = "\n".join(made.key for made in group)
    name = hashlib.sha256(names.encode()).hexdigest()[:_DIGITS]
    path = group[0].folder / "images" / f"{name}.xclbin"
    if not path.is_file():
        parts = [Part(kernel_name(made), made.pdi, len(made.design.buffers)) for made in group]
        build_image(parts, target, path)
    return path
