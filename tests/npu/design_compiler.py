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
from onnx_iron.provider.devices.npu.artifacts import Artifact, write

# Both files begin with this and the configuration's digest. What the instructions go on with is
# one design, the buffers of the run that are its own, and, when a run is prepared, the per-call
# values; the instructions of a run begin once and have such a part for each of its designs.
MAGIC = b"onnx_iron.sim.2\0"
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
        write(made.instructions, head + struct.pack(f"<{len(numbers)}Q", *numbers) + design)
        write(made.pdi, head)

    def words(self, made: Artifact, instructions: bytes, values: Mapping[str, int]) -> bytes:
        """The values behind the instructions."""
        return instructions + struct.pack(f"<{len(values)}i", *values.values())

    def join(self, parts: Sequence[tuple[bytes, Sequence[int]]]) -> bytes:
        """Each design with the numbers of its buffers before it, and all before that how long."""
        (head,) = {words[:_HEAD] for words, _ in parts}
        joined = head + struct.pack("<Q", len(parts))
        for words, numbers in parts:
            part = struct.pack(f"<{len(numbers)}Q", *numbers) + words[_HEAD:]
            joined += struct.pack("<2Q", len(part), len(numbers)) + part
        return joined + bytes(-len(joined) % 4)


COMPILER = AsTheyAre()
