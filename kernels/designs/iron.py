"""mlir-aie's IRON API, as the release that is installed has it.

Releases from 1.4.0 on write a runtime as a function over its buffers, which is what designs are
lowered to. They differ in how the order of a tile on its way is said: as pairs of sizes and strides
(``dims_to_stream``), and later as an access pattern (``to_stream``). Transfers take an access
pattern in all of them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_iron.dtypes import as_dtype
from onnx_iron.kernels.designs.design import Stream
from onnx_iron.kernels.designs.target import Target

# The first release with this API, and the last one that it was compared with.
RELEASES = ("1.4.0", "1.4.5")

_DISTRIBUTION = "mlir_aie"
_MODULES = {
    "iron": "aie.iron",
    "devices": "aie.iron.device",
    "flow": "aie.iron.controlflow",
    "patterns": "aie.helpers.taplib",
    "arith": "aie.dialects.arith",
    "types": "aie.extras.types",
}


def installed_release() -> str | None:
    """The release of mlir-aie that is installed; None where there is none."""
    try:
        return importlib.metadata.version(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


class Iron:
    """The parts of the API that a lowering names.

    Raises:
        ImportError: mlir-aie is not installed, or a release whose API is another.
    """

    def __init__(self) -> None:
        first, last = RELEASES
        try:
            found = {name: importlib.import_module(path) for name, path in _MODULES.items()}
        except ImportError as missing:
            raise ImportError(
                f"designs are built with mlir-aie {first} to {last}, which is not installed: "
                f"{missing}"
            ) from missing
        self.iron: Any = found["iron"]
        self.flow: Any = found["flow"]
        self.arith: Any = found["arith"]
        self.types: Any = found["types"]
        self._devices: Any = found["devices"]
        self._patterns: Any = found["patterns"]
        fifo = inspect.signature(self.iron.ObjectFifo).parameters
        runtime = list(inspect.signature(self.iron.Runtime).parameters)
        self._order = next((name for name in ("to_stream", "dims_to_stream") if name in fifo), None)
        if self._order is None or runtime[:2] != ["seq_fn", "fn_args"]:
            raise ImportError(
                f"mlir-aie {installed_release() or 'of an unknown release'} has another IRON API "
                f"than {first} to {last}, for which designs are written: its ObjectFifo takes "
                f"{', '.join(fifo)}, its Runtime {', '.join(runtime)}. Install one of these"
            )

    def device(self, target: Target) -> Any:
        """A target's whole array."""
        return {Target.NPU1: self._devices.NPU1, Target.NPU2: self._devices.NPU2}[target]()

    def tile(self, column: int, row: int) -> Any:
        """A place in the array. Endpoints that name none are put where the first room is, and the
        shims of a design that uses all columns are then too few.
        """
        return self._devices.Tile(column, row)

    def pattern(self, size: int, offset: int, sizes: Sequence[int], strides: Sequence[int]) -> Any:
        """A walk over a flat buffer of ``size`` elements, the outermost dimension first."""
        return self._patterns.TensorAccessPattern((size,), offset, list(sizes), list(strides))

    def order(self, size: int, arrange: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """The arguments of a fifo whose tiles of ``size`` elements are read in another order."""
        if not arrange:
            return {}
        if self._order == "dims_to_stream":
            return {"dims_to_stream": list(arrange)}
        sizes, strides = zip(*arrange, strict=True)
        return {"to_stream": self.pattern(size, 0, sizes, strides)}


def array_type(size: int, dtype: str) -> Any:
    """A flat array's type, as IRON writes it."""
    return np.ndarray[(size,), np.dtype[as_dtype(dtype).type]]  # type: ignore[misc]


def tile_type(stream: Stream) -> Any:
    """The type of what a fifo moves at a time."""
    return array_type(stream.chunk or stream.size, stream.dtype)


def place_of(stream: Stream) -> str:
    """The name of the buffer that a core puts a stream's chunks into."""
    return f"all_of_{stream.name}"
