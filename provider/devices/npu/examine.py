"""What running on the NPU needs, looked at piece by piece: the command ``onnx-iron doctor``."""

from __future__ import annotations

import ctypes.util
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from onnx_iron.kernels.designs import Target
from onnx_iron.provider.devices.npu.artifacts import artifacts_folder
from onnx_iron.provider.devices.npu.errors import NpuError
from onnx_iron.provider.devices.npu.image import TARGETS
from onnx_iron.provider.devices.npu.targets import PCI_DEVICES
from onnx_iron.provider.devices.npu.toolchain import (
    Aiecc,
    ToolchainError,
    design_compiler,
    find_toolchain,
)
from onnx_iron.provider.devices.npu.xrt import open_device
from onnx_iron.provider.devices.npu.xrt_module import load_pyxrt
from onnx_iron.provider.library import get_library_path

# PCI devices of the NPUs that are known.
_VENDOR = "0x1022"
_DEVICES = {f"{number:#06x}": target for number, target in PCI_DEVICES.items()}
# The driver pins 64 MiB for itself, and then every buffer.
_LEAST_PINNED = 1 << 30
_ONNXRUNTIME = (1, 24)


@dataclass(frozen=True)
class Finding:
    """What was looked at, whether it is as it should be, and what to do where it isn't.

    Attributes:
        needed: without it nothing runs on the NPU.
    """

    what: str
    good: bool
    found: str
    remedy: str = ""
    needed: bool = True

    def __str__(self) -> str:
        mark = "ok" if self.good else "MISSING" if self.needed else "note"
        remedy = f"\n{'':28}{self.remedy}" if self.remedy and not self.good else ""
        return f"{mark:8}{self.what:20}{self.found}{remedy}"


def examine(root: Path) -> Iterator[Finding]:
    """Everything that is looked at, with ``root`` for the root of the file system."""
    device = find_device(root)
    yield npu(device)
    yield driver(root)
    yield firmware(device)
    yield node(root)
    yield memory_limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])
    yield xrt()
    yield pyxrt()
    yield guarded("device in XRT", device_of_xrt)
    yield runtime()
    yield guarded("native library", library)
    yield kernels()
    yield toolchain()


def guarded(what: str, look: Callable[[], Finding]) -> Finding:
    """A finding, or what kept it from being made."""
    try:
        return look()
    except (ImportError, NpuError, OSError) as error:
        return Finding(what, False, str(error))


def find_device(root: Path) -> Path | None:
    """The NPU's folder in sysfs."""
    for path in sorted((root / "sys/bus/pci/devices").glob("*")):
        if read(path / "vendor") == _VENDOR and read(path / "device") in _DEVICES:
            return path
    return None


def read(path: Path) -> str:
    """A sysfs attribute; empty where it can't be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def npu(device: Path | None) -> Finding:
    """Whether the machine has one."""
    if device is None:
        return Finding(
            "NPU",
            False,
            "no PCI device of a known NPU",
            "NPUs are in AMD's Ryzen 7040, 8040 and AI 300; the firmware setup may have it off",
        )
    target = TARGETS[_DEVICES[read(device / "device")]]
    name = read(device / "vbnv") or target.machines
    return Finding("NPU", True, f"{name} at {device.name}, target {target.name}")


def driver(root: Path) -> Finding:
    """The kernel's driver."""
    version = read(root / "sys/module/amdxdna/version")
    bound = (root / "sys/bus/pci/drivers/amdxdna").is_dir()
    return Finding(
        "driver",
        bound,
        f"amdxdna {version}".strip() if bound else "amdxdna is not loaded",
        "it is part of Linux since 6.14: `modprobe amdxdna`, or a newer kernel",
    )


def firmware(device: Path | None) -> Finding:
    """The NPU's firmware, as the driver reports it."""
    version = read(device / "fw_version") if device is not None else ""
    return Finding(
        "firmware",
        bool(version),
        version or "no version is reported",
        "the driver refuses a firmware that is missing or too old: `dmesg | grep amdxdna` says so; "
        "update the package linux-firmware (its folder amdnpu)",
    )


def node(root: Path) -> Finding:
    """The device node, and whether this user may open it."""
    nodes = sorted((root / "dev/accel").glob("accel*"))
    if not nodes:
        return Finding(
            "device node",
            False,
            "there is no /dev/accel/accel*",
            "the driver makes it when it starts",
        )
    allowed = os.access(nodes[0], os.R_OK | os.W_OK)
    return Finding(
        "device node",
        allowed,
        str(nodes[0]) if allowed else f"no permission for {nodes[0]}",
        f"`sudo usermod -aG render {os.environ.get('USER', '$USER')}`, then log in anew",
    )


def memory_limit(limit: int) -> Finding:
    """How much memory may be pinned."""
    unlimited, exempt = limit == resource.RLIM_INFINITY, os.geteuid() == 0
    found = "unlimited" if unlimited else f"{limit >> 20} MiB"
    return Finding(
        "memlock limit",
        unlimited or exempt or limit >= _LEAST_PINNED,
        f"{found}, and root is exempt" if exempt and not unlimited else found,
        "buffers are pinned: put `* - memlock unlimited` into /etc/security/limits.d/npu.conf and "
        "log in anew",
    )


def xrt() -> Finding:
    """XRT's libraries; only looked for, as XRT finds no NPU where its plug-in is loaded first."""
    names = {
        short: ctypes.util.find_library(short) for short in ("xrt_coreutil", "xrt_driver_xdna")
    }
    lacking = [f"lib{short}" for short, name in names.items() if name is None]
    return Finding(
        "XRT",
        not lacking,
        f"{' and '.join(lacking)} not found" if lacking else ", ".join(map(str, names.values())),
        "install XRT with its NPU plug-in (on Debian sid: apt install libxrt2 libxrt-npu2)",
    )


def pyxrt() -> Finding:
    """XRT's Python module, for this Python."""
    version = ".".join(map(str, sys.version_info[:2]))
    try:
        module = load_pyxrt()
    except NpuError:
        return Finding(
            "pyxrt",
            False,
            f"it does not load in Python {version}",
            "it is built for one Python, the distribution's own (on Debian sid: apt install "
            "python3-xrt): make the environment with that one and --system-site-packages. What "
            "PyPI has as xrt is another thing",
        )
    return Finding("pyxrt", True, f"{module.__file__}, Python {version}")


def device_of_xrt() -> Finding:
    """What XRT says of the NPU."""
    opened = open_device()
    info = load_pyxrt().xrt_info_device
    host = json.loads(opened.handle.get_info(info.host))
    compiler = design_compiler()
    other = "" if isinstance(compiler, Aiecc) else f", its designs by {compiler.name}"
    return Finding(
        "device in XRT", True, f"{opened.name}{other}, XRT {host.get('version', 'unknown')}"
    )


def runtime() -> Finding:
    """onnxruntime, which must know plug-in execution providers."""
    version = onnxruntime.__version__
    numbers = tuple(int(part) for part in version.split(".")[:2])
    least = ".".join(map(str, _ONNXRUNTIME))
    return Finding(
        "onnxruntime", numbers >= _ONNXRUNTIME, version, f"pip install 'onnxruntime>={least}'"
    )


def library() -> Finding:
    """onnx-iron's own native library."""
    return Finding("native library", True, get_library_path())


def kernels() -> Finding:
    """The designs in the cache."""
    counts = {
        name: len(list(artifacts_folder(name, design_compiler()).glob("*.pdi"))) for name in TARGETS
    }
    found = ", ".join(f"{count} designs for {name}" for name, count in counts.items())
    return Finding(
        "kernels built",
        any(counts.values()),
        found,
        "`onnx-iron build-kernels MODEL --target npu1|npu2` builds what a model needs",
        needed=False,
    )


def toolchain() -> Finding:
    """What compiles designs; a machine that only runs them does without."""
    good, said = True, []
    for target in Target:
        try:
            tools = find_toolchain(target)
        except ToolchainError as error:
            good, text = False, str(error)
        else:
            text = (
                f"mlir-aie {tools.mlir_aie.release} in {tools.mlir_aie.headers.parent}, "
                f"Peano {tools.peano.version} in {tools.peano.folder}"
            )
        if text not in said:
            said.append(text)
    return Finding("toolchain", good, "; ".join(said), needed=False)
