"""The examples in docstrings run, and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest
from networks import Network, random

from onnx_iron import functional as F
from onnx_iron.graph import conv_state

TOPICS = {module.name for module in pkgutil.iter_modules(F.__path__)} - {"operand"}
MODULES = [f"{F.__name__}.{topic}" for topic in sorted(TOPICS)]
MODULES += ["onnx_iron.graph.graph", "onnx_iron.graph.conv_state"]


@pytest.mark.parametrize("name", MODULES)
def test_an_example_prints_what_it_says(name: str) -> None:
    module = importlib.import_module(name)
    weight, bias = random(8, 8), random(8)

    def body(self: Any, x: Any, *, n: Any) -> Any:
        names = {"F": F, "np": np, "x": x, "w": self.w, "b": self.b, "n": n, "conv": self.conv}
        results = doctest.testmod(module, extraglobs=names)
        assert results.attempted, f"{name} has no examples"
        assert not results.failed
        return x + 0

    state = conv_state.conv_state(3, 8, 4, np.float32)
    Network(body, w=weight, b=bias, conv=state).trace(x=((4, 8), np.float32))


def test_every_function_has_an_example() -> None:
    without = [
        name
        for name in F.__all__
        if callable(getattr(F, name))
        and not isinstance(getattr(F, name), type)
        and ">>>" not in (getattr(F, name).__doc__ or "")
    ]
    assert without == []
