"""XRT's own Python module: loading it, and what its exceptions become."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onnx_iron.provider.devices.npu.errors import NpuError, NpuUnavailableError


def load_pyxrt() -> Any:
    """XRT's Python module.

    Raises:
        NpuUnavailableError: it is not there for this Python, and how to get it.
    """
    try:
        import pyxrt
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise NpuUnavailableError(
            f"XRT's Python module pyxrt does not load in Python {version} ({error}); it comes with "
            "XRT, for the distribution's own Python. `onnx-iron doctor` says what is missing"
        ) from None
    return pyxrt


@functools.cache
def directions() -> tuple[Any, Any]:
    direction = load_pyxrt().xclBOSyncDirection
    return direction.XCL_BO_SYNC_BO_TO_DEVICE, direction.XCL_BO_SYNC_BO_FROM_DEVICE


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn XRT's exceptions into ours: what was tried, and XRT's own words."""
    try:
        yield
    except NpuError:
        raise
    except RuntimeError as error:
        raise NpuError(f"NPU: {what} failed: {error}") from None
