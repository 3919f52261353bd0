"""Which generation of the NPU a device is: by its PCI id, and by the name that its driver gives."""

from __future__ import annotations

import re
from pathlib import Path

from onnx_iron.provider.devices.npu.errors import NpuUnavailableError
from onnx_iron.provider.devices.npu.image import TARGETS, Target

# PCI devices of AMD's that there are kernels for, as the driver's table has them. The driver knows
# more (0x17f1 and on): their cores are of a later generation.
PCI_DEVICES = {0x1502: "npu1", 0x17F0: "npu2"}

# Words of the names that drivers give their devices. AMD's own driver says "NPU Phoenix", "NPU
# Strix", "NPU Strix Halo", "NPU Krackan 1"; Linux's "RyzenAI-npu1", where the number is the
# driver's, not ours, and the firmware's name from 2026 on.
_WORDS = {
    "npu1": ("phoenix", "hawk", "npu1"),
    "npu2": ("strix", "krackan", "npu2", "npu4", "npu5", "npu6"),
}


def pci_device(address: str, root: Path = Path("/")) -> int | None:
    """The PCI device number behind an address of the bus; None where Linux does not say."""
    try:
        text = (root / "sys/bus/pci/devices" / address / "device").read_text()
        return int(text, 16)
    except (OSError, ValueError):
        return None


def target_of(name: str, device: int | None = None) -> Target:
    """The generation, from the device's PCI number where that is known, else from its name.

    Raises:
        NpuUnavailableError: one that there are no kernels for, or whose number and name disagree.
    """
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    named = [target for target, known in _WORDS.items() if words & set(known)]
    found = PCI_DEVICES.get(device) if device is not None else None
    if device is None and len(named) == 1:
        found = named[0]
    if found is None or any(other != found for other in named):
        known = ", ".join(word for group in _WORDS.values() for word in group)
        number = "" if device is None else f" (PCI device {device:#06x})"
        ids = ", ".join(f"{number:#06x}" for number in PCI_DEVICES)
        raise NpuUnavailableError(
            f"the device {name!r}{number} is none of the NPUs that there are kernels for; expected "
            f"PCI device {ids}, or one of {known} in its name. Use device=cpu here"
        )
    return TARGETS[found]
