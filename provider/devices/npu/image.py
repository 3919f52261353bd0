"""Images: several compiled designs in one xclbin, so that one hardware context can run them all.

A run list belongs to one hardware context, and a context to one xclbin; so the designs of a claimed
subgraph are put into one. XRT's own ``xclbinutil`` does that, from descriptions in JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOL = "xclbinutil"

# Designs in an image: the driver takes no more compute units in a context.
MOST_DESIGNS = 32

# The memories of an image. Buffers are in the one with this number, instructions in the other.
HOST_BANK = 0
_BANKS = (("HOST", "0x10000"), ("SRAM", "0xc000"))

# Offsets of a kernel's arguments in a command; the buffers follow, 8 bytes each.
_FIRST_ARGUMENTS = (
    {"name": "opcode", "address-qualifier": "SCALAR", "type": "uint64_t", "offset": "0x00"},
    {
        "name": "instr",
        "memory-connection": "SRAM",
        "address-qualifier": "GLOBAL",
        "type": "char *",
        "offset": "0x08",
    },
    {"name": "ninstr", "address-qualifier": "SCALAR", "type": "uint32_t", "offset": "0x10"},
)
_FIRST_BUFFER = 0x14
_FIRST_KERNEL = 0x901


class ImageError(RuntimeError):
    """No image can be made of the designs, and why."""


@dataclass(frozen=True)
class Target:
    """A generation of the NPU.

    Attributes:
        name: "npu1" or "npu2".
        machines: what is sold with it.
        columns: columns of cores that a design may use.
        first_column: the number of the first one.
        contexts: hardware contexts that the driver allows at once.
    """

    name: str
    machines: str
    columns: int
    first_column: int
    contexts: int


TARGETS = {
    "npu1": Target("npu1", "Phoenix and Hawk Point (Ryzen 7040 and 8040)", 4, 1, 6),
    "npu2": Target("npu2", "Strix, Strix Halo and Krackan (Ryzen AI 300)", 8, 0, 16),
}


@dataclass(frozen=True)
class Part:
    """A compiled design on its way into an image.

    Attributes:
        kernel: what the kernel is called.
        pdi: the file that configures the array.
        buffers: how many buffers a run takes.
    """

    kernel: str
    pdi: Path
    buffers: int


def find_tool() -> str | None:
    """Where xclbinutil is: on the path, or where XRT's own installer puts it."""
    return shutil.which(TOOL) or shutil.which(TOOL, path="/opt/xilinx/xrt/bin")


def build_image(parts: Sequence[Part], target: Target, output: Path) -> None:
    """Write an xclbin with the designs, in their order.

    Raises:
        ImageError: too many designs, or what xclbinutil says.
        FileNotFoundError: xclbinutil is not installed.
    """
    if not 1 <= len(parts) <= MOST_DESIGNS:
        raise ImageError(f"an image holds 1..{MOST_DESIGNS} designs, not {len(parts)}")
    tool = find_tool()
    if tool is None:
        raise FileNotFoundError(
            f"{TOOL} is not installed; it comes with XRT (on Debian and Ubuntu: "
            "apt install libxrt-utils)"
        )
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        files = {
            "memory.json": _memory(),
            "kernels.json": _kernels(parts),
            "partition.json": _partition(parts, target),
        }
        for name, content in files.items():
            (room / name).write_text(json.dumps(content))
        for number, part in enumerate(parts):
            shutil.copyfile(part.pdi, room / f"{number}.pdi")
        made = room / "image.xclbin"
        command = [
            tool,
            *("--add-replace-section", "MEM_TOPOLOGY:JSON:memory.json"),
            *("--add-kernel", "kernels.json"),
            *("--add-replace-section", "AIE_PARTITION:JSON:partition.json"),
            *("--force", "--quiet", "--output", str(made)),
        ]
        done = subprocess.run(command, cwd=room, capture_output=True, text=True, check=False)
        if done.returncode or not made.is_file():
            raise ImageError(f"{TOOL} failed: {(done.stderr or done.stdout).strip()[-500:]}")
        output.parent.mkdir(parents=True, exist_ok=True)
        beside = output.with_name(f".{output.name}.{os.getpid()}")
        shutil.copyfile(made, beside)
        beside.replace(output)


def _memory() -> dict[str, Any]:
    return {
        "mem_topology": {
            "m_count": str(len(_BANKS)),
            "m_mem_data": [
                {
                    "m_type": "MEM_DRAM",
                    "m_used": "1",
                    "m_sizeKB": size,
                    "m_tag": tag,
                    "m_base_address": "0x4000000",
                }
                for tag, size in _BANKS
            ],
        }
    }


def _kernels(parts: Sequence[Part]) -> dict[str, Any]:
    kernels = []
    for number, part in enumerate(parts):
        arguments: list[dict[str, str]] = [dict(item) for item in _FIRST_ARGUMENTS]
        for index in range(part.buffers):
            arguments.append(
                {
                    "name": f"bo{index}",
                    "memory-connection": _BANKS[HOST_BANK][0],
                    "address-qualifier": "GLOBAL",
                    "type": "void*",
                    "offset": hex(_FIRST_BUFFER + 8 * index),
                }
            )
        kernels.append(
            {
                "name": part.kernel,
                "type": "dpu",
                "extended-data": {
                    "subtype": "DPU",
                    "functional": "0",
                    "dpu_kernel_id": hex(_FIRST_KERNEL + number),
                },
                "arguments": arguments,
                "instances": [{"name": f"{part.kernel}_0"}],
            }
        )
    return {"ps-kernels": {"kernels": kernels}}


def _partition(parts: Sequence[Part], target: Target) -> dict[str, Any]:
    # Designs are compiled for the whole array, however many of its columns they use.
    return {
        "aie_partition": {
            "name": "QoS",
            "operations_per_cycle": "2048",
            "inference_fingerprint": "23423",
            "pre_post_fingerprint": "12345",
            "partition": {
                "column_width": target.columns,
                "start_columns": [target.first_column],
            },
            "PDIs": [
                {
                    "uuid": _uuid(part),
                    "file_name": f"./{number}.pdi",
                    "cdo_groups": [
                        {
                            "name": "DPU",
                            "type": "PRIMARY",
                            "pdi_id": hex(number + 1),
                            "dpu_kernel_ids": [hex(_FIRST_KERNEL + number)],
                            "pre_cdo_groups": [hex(0xC1 + number)],
                        }
                    ],
                }
                for number, part in enumerate(parts)
            ],
        }
    }


def _uuid(part: Part) -> str:
    """An identity from the content: the same design has the same one in every image."""
    return str(uuid.UUID(bytes=hashlib.sha256(part.pdi.read_bytes()).digest()[:16]))
