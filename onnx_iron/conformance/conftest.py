"""What ``pytest --pyargs onnx_iron.conformance`` holds to the cases."""

from __future__ import annotations

import pytest

from onnx_iron.conformance.implementations import implementations
from onnx_iron.conformance.implementations.base import Implementation
from onnx_iron.conformance.implementations.sessions import provider


def chosen(config: pytest.Config) -> list[Implementation]:
    """The implementations that the options name.

    Raises:
        pytest.UsageError: there are none, or an option is incomplete.
    """
    name, library = config.getoption("--ep-name"), config.getoption("--ep-library")
    pairs = [text.partition("=") for text in config.getoption("--ep-option")]
    if library is not None and name is None:
        raise pytest.UsageError("--ep-library needs --ep-name, the provider in it")
    if name is not None:
        try:
            return list(provider(name, {key: value for key, _, value in pairs}, library))
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
    texts = config.getoption("--iron-implementation")
    every = list(implementations())
    taken = [i for i in every if not texts or any(text in i.name for text in texts)]
    if not taken:
        names = "; ".join(i.name for i in every)
        raise pytest.UsageError(f"no implementation's name holds {texts}; there are: {names}")
    return taken


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each case on each implementation."""
    from onnx_iron.conformance import cases

    if {"case", "implementation"} <= set(metafunc.fixturenames):
        metafunc.parametrize("implementation", chosen(metafunc.config), ids=lambda i: i.name)
        metafunc.parametrize("case", list(cases()), ids=lambda case: case.name)
