"""The simulated NPU's artifacts: designs as they are, for the driver in ``simulator`` to interpret.

``chroot.py`` names it in ONNX_IRON_NPU_COMPILER.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping, Sequence

from onnx_iron.kernels.designs import Target
from onnx_iron.kernels.designs.configuration import configuration
from onnx_iron.kernels.designs.interpreter import encode
from onnx_iron.provider.devices.npu.artifacts import Artifact, content, write

# Both files begin with this and the configuration's digest. What the instructions go on with is
# one design, the buffers of the run that are its own, and room for the per-call values; the
# instructions of a run begin once and have such a part for each of its designs.
MAGIC = b"onnx_iron.sim.3\0"
_HEAD = len(MAGIC) + hashlib.sha256().digest_size

# Whether this process runs on the simulated NPU.
SIMULATED = "NPU_DRIVER_TARGET" in os.environ


class AsTheyAre:
    """Writes a design itself where a compiler writes what configures the array."""

    name = "simulator"

    def identity(self) -> bytes:
        """The format: the kernels are the driver's, and no part of an artifact."""
        return MAGIC

    def check(self, target: Target) -> None:
        """It needs no tools."""

    def build(self, made: Artifact) -> None:
        """Write the design."""
        design = encode(made.design)
        head = MAGIC + hashlib.sha256(configuration(made.design)).digest()
        sizes = [buffer.size * buffer.item_bytes for buffer in made.design.buffers]
        made.folder.mkdir(parents=True, exist_ok=True)
        numbers = [len(sizes), *sizes, len(design)]
        values = bytes(4 * len(made.design.values))
        write(
            made.instructions, head + struct.pack(f"<{len(numbers)}Q", *numbers) + design + values
        )
        write(made.pdi, head)

    def numbers(self, made: Artifact, values: Mapping[str, int]) -> list[tuple[int, int]]:
        """The values are behind the instructions."""
        first = len(content(made.instructions)) - 4 * len(values)
        words = (value % (1 << 32) for value in values.values())
        return [(first + 4 * at, word) for at, word in enumerate(words)]

    def join(self, parts: Sequence[tuple[bytes, Sequence[int]]]) -> tuple[bytes, list[int]]:
        """Each design with the numbers of its buffers before it, and all before that how long."""
        (head,) = {words[:_HEAD] for words, _ in parts}
        joined, moved = head + struct.pack("<Q", len(parts)), []
        for words, numbers in parts:
            part = struct.pack(f"<{len(numbers)}Q", *numbers) + words[_HEAD:]
            joined += struct.pack("<2Q", len(part), len(numbers)) + part
            moved.append(len(joined) - len(words))
        return joined + bytes(-len(joined) % 4), moved


COMPILER = AsTheyAre()
