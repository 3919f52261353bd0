"""pytest's options for ``pytest --pyargs onnx_iron.conformance``; it is a plugin of pytest's."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """As ``onnx-iron conformance`` has them."""
    group = parser.getgroup("onnx-iron conformance")
    group.addoption("--ep-library", type=Path, help="a plug-in execution provider's library")
    group.addoption("--ep-name", help="the provider's name, in that library or in onnxruntime")
    group.addoption(
        "--ep-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the provider; may be given again",
    )
    group.addoption(
        "--iron-implementation",
        action="append",
        default=[],
        metavar="TEXT",
        help="without a provider: the implementations whose name holds TEXT (default: all)",
    )
