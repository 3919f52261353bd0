"""The part of /sys and /dev that XRT and onnxruntime read to find an NPU."""

from __future__ import annotations

import os
from pathlib import Path

BDF = "0000:c4:00.1"
# PCI device and revision, and what the driver calls the machine.
MACHINES = {"npu1": ("0x1502", "0x00", "NPU Phoenix"), "npu2": ("0x17f0", "0x11", "NPU Strix")}
# The accel node's major number, and how far the sparse file reaches that stands for its memory.
NUMBER = "261:0"
NODE_BYTES = 1 << 61


def build(root: Path, target: str) -> None:
    """Make the tree of a machine with one NPU under ``root``, which is /sys or stands for it."""
    device, revision, name = MACHINES[target]
    home = root / "devices" / "pci0000:00" / BDF
    accel = home / "accel" / "accel0"
    accel.mkdir(parents=True)
    attributes = {
        "vendor": "0x1022",
        "device": device,
        "subsystem_vendor": "0x1022",
        "subsystem_device": device,
        "revision": revision,
        "class": "0x118000",
        "device_type": "0",
        "vbnv": name,
        "fw_version": "1.1.2.65",
        "link_speed": "16.0 GT/s",
        "link_speed_max": "16.0 GT/s",
        "link_width": "16",
        "link_width_max": "16",
    }
    for attribute, value in attributes.items():
        (home / attribute).write_text(f"{value}\n")
    (accel / "dev").write_text(f"{NUMBER}\n")
    (accel / "device").symlink_to("../..")
    _link(root / "bus" / "pci" / "devices" / BDF, home)
    _link(root / "bus" / "pci" / "drivers" / "amdxdna" / BDF, home)
    _link(root / "class" / "accel" / "accel0", accel)
    _link(home / "driver", root / "bus" / "pci" / "drivers" / "amdxdna")


def build_node(path: Path) -> None:
    """Make the file that stands for the accel node: the driver maps buffers from it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(NODE_BYTES)


def _link(link: Path, to: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(to, link.parent))
