"""The nodes of a model that is being built, its constants, and the names that are taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_iron.dtypes import Array, onnx_type


class Nodes:
    """What a model's graph holds so far, in order.

    Attributes:
        nodes: the nodes.
        initializers: weights and constants by name.
        infos: the types of values in between, by name.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.infos: dict[str, onnx.ValueInfoProto] = {}
        self._made: dict[tuple[Any, ...], str] = {}
        self._names: dict[str, int] = {}

    # -- names ------------------------------------------------------------------------------

    def reserve(self, name: str) -> None:
        """Take a name that a caller sees before any value in between does."""
        self._names.setdefault(name, 1)

    def unique(self, stem: str) -> str:
        """``stem``, with a number where a value has that name already."""
        name = stem
        while name in self._names:
            name = f"{stem}.{self._names[stem]}"
            self._names[stem] += 1
        self._names[name] = 1
        return name

    def rename(self, names: Mapping[str, str]) -> None:
        """Give values other names, wherever they are made and used."""
        for node in self.nodes:
            for used in (node.input, node.output):
                for i, name in enumerate(used):
                    used[i] = names.get(name, name)
        for name in names:
            self.infos.pop(name, None)

    # -- nodes ------------------------------------------------------------------------------

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str,
        attributes: Mapping[str, Any],
        domain: str = "",
        overload: str = "",
    ) -> None:
        """Add a node whose values are named."""
        self.nodes.append(
            helper.make_node(
                op_type,
                inputs,
                outputs,
                name,
                domain=domain,
                overload=overload or None,
                **attributes,
            )
        )

    def node(self, op_type: str, inputs: Sequence[str], stem: str, **attributes: Any) -> str:
        """Add a standard node of one output, which has the node's name."""
        name = self.unique(stem)
        self.add(op_type, inputs, [name], name, attributes)
        return name

    def foldable(self, value: str) -> bool:
        """Whether a value is made by standard nodes from constants alone."""
        producers = {output: node for node in self.nodes for output in node.output}
        seen, stack = set[str](), [value]
        while stack:
            name = stack.pop()
            node = producers.get(name)
            if name in seen or not name or name in self.initializers:
                continue
            if node is None or node.domain:
                return False
            seen.add(name)
            stack += node.input
        return True

    def once(self, key: tuple[Any, ...], make: Callable[[], str]) -> str:
        """What ``make`` made for the key the first time."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def constant(self, array: Array) -> str:
        """A small array of integers as an initializer, which has its contents as its name."""
        text = "x".join(map(str, array.reshape(-1).tolist())) or "scalar"
        name = f"constant.{array.dtype.name}.{array.ndim}d.{text}"
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def shape(self, shape: Sequence[int]) -> str:
        """A shape, as Reshape and its like take it."""
        return self.constant(np.array(shape, np.int64))

    def reshape(self, value: str, old: tuple[int, ...], new: tuple[int, ...]) -> str:
        """A value of shape ``old`` in the shape ``new``."""
        if old == new:
            return value
        target = self.shape(new)
        return self.once(
            ("Reshape", value, new),
            lambda: self.node("Reshape", [value, target], f"{value}.reshape"),
        )

    def cast(self, value: str, given: np.dtype[Any], wanted: np.dtype[Any]) -> str:
        """A value of dtype ``given`` in the dtype ``wanted``."""
        if given == wanted:
            return value
        return self.node("Cast", [value], f"{value}.{wanted.name}", to=onnx_type(wanted))

    def info(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Record a value's type."""
        self.infos[name] = helper.make_tensor_value_info(name, onnx_type(dtype), shape)
