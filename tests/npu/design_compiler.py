"""The simulated NPU's artifacts: designs as they are, for the driver in ``simulator`` to interpret.

``chroot.py`` names it in ONNX_IRON_NPU_COMPILER.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping

from onnx_iron.kernels.designs import Target
from onnx_iron.kernels.designs.interpreter import encode
from onnx_iron.provider.devices.npu.artifacts import Artifact, write

# Both files begin with this and the design's digest. The design follows in the one, and in the
# other, when a run is prepared, the per-call values.
MAGIC = b"onnx_iron.sim.1\0"

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
        content = encode(made.design)
        head = MAGIC + hashlib.sha256(content).digest()
        made.folder.mkdir(parents=True, exist_ok=True)
        write(made.instructions, head)
        sizes = [buffer.size * buffer.item_bytes for buffer in made.design.buffers]
        numbers = [len(sizes), *sizes, len(content)]
        write(made.pdi, head + struct.pack(f"<{len(numbers)}Q", *numbers) + content)

    def words(self, made: Artifact, instructions: bytes, values: Mapping[str, int]) -> bytes:
        """The values behind the instructions."""
        return instructions + struct.pack(f"<{len(values)}i", *values.values())


COMPILER = AsTheyAre()
