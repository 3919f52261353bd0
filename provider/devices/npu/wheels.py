"""Where mlir-aie and Peano are on this machine, and whether they are releases that designs build
with.

The wheel ``mlir_aie`` puts everything into a folder of that name: commands into ``bin``, headers
into ``include``, and the package ``aie`` into ``python``, which a ``.pth`` file adds to the path.
``aie`` has no ``__init__``, so it has no file of its own. The wheel ``llvm-aie`` is a folder of
that name, with the compiler's usual layout.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnx_iron.kernels.aie.build import Generation
from onnx_iron.kernels.designs.iron import RELEASES

# The first nightly of Peano that a release of mlir-aie was made with, and the versions of LLVM.
_PEANO_FIRST, _PEANO_LLVM = 20260623, (21, 22)
# The one that is known to have the float products of AIE2 (llvm-aie's change 1249): before it, a
# kernel that multiplies floats does not link for AIE2.
_PEANO_AIE2 = 20260902

_MLIR_AIE_PAGE = "https://github.com/Xilinx/mlir-aie/releases/expanded_assets/v{release}"
_PEANO_PAGE = "https://github.com/Xilinx/llvm-aie/releases/expanded_assets/nightly"
_PEANO_TESTED = "22.0.0.2026090701+3e93bf7b"

HOW = (
    f"pip install mlir_aie=={RELEASES[1]} -f {_MLIR_AIE_PAGE.format(release=RELEASES[1])} && "
    f"pip install llvm-aie -f {_PEANO_PAGE}"
)


@dataclass(frozen=True)
class MlirAie:
    """An installed mlir-aie; ``release`` is empty where it was built, not installed."""

    aiecc: Path
    headers: Path
    release: str


@dataclass(frozen=True)
class Peano:
    """An installed Peano; ``version`` is empty where it was built, not installed."""

    folder: Path
    version: str

    @property
    def compiler(self) -> Path:
        return self.folder / "bin" / "clang++"


def find_mlir_aie() -> MlirAie | None:
    """The mlir-aie whose package Python would import, with its own commands and headers.

    AIECC_PATH names another aiecc, as it does for mlir-aie itself.
    """
    spec = importlib.util.find_spec("aie")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        root = Path(place).resolve().parents[1]
        named = os.environ.get("AIECC_PATH")
        found = [Path(named)] if named else [root / "bin" / "aiecc"]
        if on_path := shutil.which("aiecc"):
            found.append(Path(on_path))
        aiecc = next((path for path in found if path.is_file()), None)
        if aiecc is not None and (root / "include").is_dir():
            return MlirAie(aiecc, root / "include", _version_beside(root, "mlir_aie"))
    return None


def find_peano() -> Peano | None:
    """The Peano that PEANO_INSTALL_DIR names, else the one beside mlir-aie, else the wheel's."""
    for folder in _peano_places():
        found = Peano(folder, _version_beside(folder, "llvm_aie"))
        if found.compiler.is_file():
            return found
    return None


def _peano_places() -> Iterator[Path]:
    if named := os.environ.get("PEANO_INSTALL_DIR"):
        yield Path(named)
    if (spec := importlib.util.find_spec("aie")) is not None:
        for place in spec.submodule_search_locations or ():
            root = Path(place).resolve().parents[1]
            yield from (root / "peano", root.parent / "peano", root.parent / "llvm-aie")
    yield Path(sysconfig.get_path("platlib")) / "llvm-aie"
    yield from (Path(entry) / "llvm-aie" for entry in sys.path if entry)


def _version_beside(folder: Path, distribution: str) -> str:
    """The version by which pip installed a folder; empty where it did not."""
    for path in sorted(folder.parent.glob(f"{distribution}-*.dist-info")):
        return path.name.removeprefix(f"{distribution}-").removesuffix(".dist-info")
    return ""


def mismatch(mlir_aie: MlirAie, peano: Peano, generation: Generation) -> str:
    """What is wrong with this pair for a generation of cores; empty where nothing is.

    What was built from source has no version, and is taken as it is.
    """
    pair = f"mlir-aie {mlir_aie.release or 'of no release'}, Peano {peano.version or 'of none'}"
    first, last = RELEASES
    wanted = f"mlir-aie {first} to {last} with Peano {_PEANO_TESTED} or near"
    numbers = _numbers(mlir_aie.release)
    if numbers and not _numbers(first) <= numbers <= _numbers(last):
        return f"found {pair}; designs are written for {wanted}"
    if not peano.version:
        return ""
    built = re.fullmatch(r"(\d+)\.\d+\.\d+\.(\d{8})\d*(\+\w+)?", peano.version)
    llvm, day = (int(built[1]), int(built[2])) if built else (0, 0)
    if llvm not in _PEANO_LLVM or day < _PEANO_FIRST:
        return f"found {pair}; designs are written for {wanted}"
    if generation is Generation.AIE2 and day < _PEANO_AIE2:
        return (
            f"found {pair}: a Peano of before {_PEANO_AIE2} can't link float products for "
            f"{generation} (npu1); it takes {wanted}"
        )
    return ""


def _numbers(release: str) -> tuple[int, ...]:
    """The release's numbers: a development version counts as the release that it comes before."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", release)
    return tuple(map(int, found.groups())) if found else ()
