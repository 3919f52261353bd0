"""A network body written once: traced for sets of shapes, run on numpy, exported."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import BFLOAT16, Array, as_dtype
from onnx_iron.graph.arrays import as_array, is_array
from onnx_iron.graph.context import active
from onnx_iron.graph.handle import Handle, Role, Tensor
from onnx_iron.graph.kernels import by_kernel
from onnx_iron.graph.leading import bounded
from onnx_iron.graph.parts import State, Weight
from onnx_iron.graph.reference import Compute, by_reference, run_reference
from onnx_iron.graph.trace import Trace
from onnx_iron.graph.value import Value

# The per-call value that says where the first row stands.
POSITION = "position"


class Graph:
    """A body over weights and states.

    Weights (arrays, torch tensors, or :class:`Weight` where they are loaded late) and states are
    attributes, at any depth of lists, dicts, objects and torch modules; their paths are their
    names. A torch tensor is detached; bfloat16 keeps its bits, float16 becomes float32.

    A subclass writes ``body``: its positional parameters are the inputs, its keyword-only ones the
    per-call values. Of an input that ``bounds`` names, only so many entries are valid in a call as
    the value says, which goes through all that is computed of them; where it is traced for one
    entry, that one is. Calling a graph runs it on the CPU kernels as it is, without an export.

    Attributes:
        bounds: by input the per-call value that bounds its first axis, or a mapping of axes to
            values: ``{"x": "rows"}``, or ``{"x": {-2: "rows"}}`` where a batch may stand in front.

    Example:
        >>> class Norm(Graph):
        ...     def __init__(self, weight):
        ...         self.weight = weight
        ...
        ...     def body(self, x):
        ...         return F.rms_norm(x, (64,), self.weight)
        >>> trace = Norm(np.ones(64, np.float32)).trace(x=((4, 64), np.float32))
        >>> [step.op.name for step in trace.steps]
        ['RMSNorm']
    """

    bounds: ClassVar[Mapping[str, str | Mapping[int, str]]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a weight, a state, or whatever else the network keeps.

        Raises:
            AttributeError: the name is that of a method of every graph.
        """
        if name in _METHODS:
            raise AttributeError(
                f"{type(self).__name__}.{name} is a method of every Graph; give what it is set to "
                "another name"
            )
        super().__setattr__(name, value)

    def body(self, *inputs: Any, **values: Any) -> Any:
        """The network: handles in, handles out (one, a tuple, or a dict by output name)."""
        raise NotImplementedError

    def trace(self, body: Callable[..., Any] | None = None, /, **inputs: Any) -> Trace:
        """Run the body on handles and record its steps, for one set of input shapes.

        Args:
            body: another method of the graph, where it has several: an encoder's and a decoder's
                share the weights and states so.
            inputs: for each positional parameter of the body its ``shape`` (bfloat16) or
                ``(shape, dtype)``.

        Raises:
            TypeError: an input that is missing or unknown, or a body that returns something other
                than whole handles it computed.
        """
        body = self.body if body is None else body
        names, value_names = self.__parameters(body)
        if set(inputs) != set(names):
            raise TypeError(
                f"{type(self).__name__}.trace(): the body takes the inputs {names}; "
                f"shapes were given for {sorted(inputs)}"
            )
        trace = Trace(_by_name(self))
        handles = [trace.input(name, *_shape_spec(name, inputs[name])) for name in names]
        sizes = self.__sizes({handle.name: handle.shape for handle in handles})
        trace.most = {name: size for name, size in sizes.items() if size > 1}
        values = {
            name: Value({}, 1) if sizes.get(name) == 1 else trace.value(name)
            for name in dict.fromkeys([*value_names, *sizes])
        }
        for axis, name, place in self.__bounded({h.name: h.shape for h in handles}):
            if sizes[name] > 1:
                handles[place] = bounded(handles[place], {axis: values[name]})
            else:
                trace.single.setdefault(names[place], []).append(axis)
        token = active.set(trace)
        try:
            returned = body(*handles, **{name: values[name] for name in value_names})
            trace.outputs = _outputs(type(self).__name__, returned, trace)
        finally:
            active.reset(token)
        trace.returned = returned
        return trace

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the body on the CPU kernels, each step's result kept until the end.

        Inputs come by position or by name, per-call values by name. ``position`` may be left out:
        it is the number of rows since :meth:`reset`; and so may what ``bounds`` names: all entries
        are valid. The states are arrays that are written in place, kept for the next call
        (:meth:`states`) and cleared by ``reset``.

        Returns:
            What the body returns, as arrays.

        Raises:
            TypeError: an input or a per-call value that is missing, unknown or of another type.
            ValueError: a per-call value out of its range.
            ImportError: the native library is not there.
        """
        names, value_names = self.__parameters(self.body)
        given = dict(zip(names, inputs, strict=False))
        given |= {name: named.pop(name) for name in names if name in named and name not in given}
        if len(given) != len(names) or len(inputs) > len(names):
            raise TypeError(
                f"{type(self).__name__}(): takes the inputs {names}; {len(inputs)} by position and "
                f"{sorted(set(given) - set(names[: len(inputs)]))} by name were given"
            )
        position = self.__dict__.get("_Graph__position", 0)
        counted = POSITION in value_names
        if counted:
            position = named.setdefault(POSITION, position)
        result, rows = self.__run([given[name] for name in names], named, self.states(), by_kernel)
        if counted:
            self.__dict__["_Graph__position"] = position + rows
        return result

    def states(self) -> dict[str, Array]:
        """The states of the graph's calls by name: those that a call has used so far."""
        arrays: dict[str, Array] = self.__dict__.setdefault("_Graph__states", {})
        return arrays

    def reference(self, *inputs: Array, **values: int) -> Any:
        """Run the body on numpy arrays: float32 inside of each step, one rounding at its end.

        The states are host arrays that are written in place, kept for the next call
        (:meth:`reference_states`) and cleared by :meth:`reset`.

        Args:
            inputs: the body's inputs; their shapes and dtypes are traced.
            values: its per-call values.

        Returns:
            What the body returns, as arrays.

        Raises:
            TypeError: an input or a per-call value that is missing, unknown or of another type.
            ValueError: a per-call value out of its range.
        """
        return self.__run(inputs, values, self.reference_states(), by_reference)[0]

    def __run(
        self,
        inputs: Sequence[Any],
        values: dict[str, int],
        states: dict[str, Array],
        compute: Compute,
    ) -> tuple[Any, int]:
        """What the body gives on arrays, and how many rows of the first input are valid."""
        names, value_names = self.__parameters(self.body)
        bounds = {value for axes in self.__axes(names).values() for value in axes.values()}
        known = {*value_names, *bounds}
        if len(inputs) != len(names) or not known - bounds <= set(values) <= known:
            raise TypeError(
                f"{type(self).__name__}.reference(): takes the inputs {names} and the values "
                f"{sorted(known)}; {len(inputs)} inputs and {sorted(values)} were given"
            )
        given = [np.asarray(x if (array := as_array(x)) is None else array) for x in inputs]
        arrays = dict(zip(names, given, strict=True))
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise TypeError(
                    f"{type(self).__name__}.reference(): {name} is {value!r}; it must be an integer"
                )
        # Traced anew: the body may read what was changed since the last call.
        trace = self.trace(**{name: (a.shape, a.dtype) for name, a in arrays.items()})
        sizes = self.__sizes({name: array.shape for name, array in arrays.items()})
        numbers = sizes | {k: int(v) for k, v in values.items()}
        for name, size in sizes.items():
            if not (numbers[name] == 1 if size == 1 else 0 <= numbers[name] <= size):
                raise ValueError(
                    f"{type(self).__name__}: {name} is {numbers[name]}, expected "
                    f"{'1' if size == 1 else f'0..{size}'} (the input it bounds has {size} entries)"
                )
        outputs = run_reference(trace, arrays, numbers, states, compute)
        rows = self.__rows(trace, sizes, numbers)
        if isinstance(trace.returned, Mapping):
            return outputs, rows
        if isinstance(trace.returned, tuple | list):
            return tuple(outputs.values()), rows
        return outputs["output"], rows

    def __rows(self, trace: Trace, sizes: Mapping[str, int], numbers: Mapping[str, int]) -> int:
        """How many rows of a call are valid: what ``bounds`` says, or the bound of an input; where
        there is none, all along the axis that was bounded in a call before, else along the first.
        """
        if sizes:
            return numbers[next(iter(sizes))]
        axes: dict[str, int] = self.__dict__.setdefault("_Graph__row_axes", {})
        for name, axis, rows in trace.input_bounds():
            axes[name] = axis
            return rows.evaluate(numbers)
        first = next(iter(trace.inputs.values()), None)
        axis = axes.get(first.name, 0) if first is not None else 0
        return first.shape[axis] if first is not None and axis < first.ndim else 1

    def reference_states(self) -> dict[str, Array]:
        """The states of the reference run by name: those that a call has used so far."""
        arrays: dict[str, Array] = self.__dict__.setdefault("_Graph__reference_states", {})
        return arrays

    def reset(self) -> None:
        """Make every state of the graph's calls and of the reference run zero."""
        for array in (*self.states().values(), *self.reference_states().values()):
            array[...] = 0
        self.__dict__["_Graph__position"] = 0

    def __axes(self, names: Sequence[str]) -> dict[str, Mapping[int, str]]:
        """The values of ``bounds`` by axis, of these inputs; others are another body's."""
        return {
            name: {0: given} if isinstance(given, str) else given
            for name, given in self.bounds.items()
            if name in names
        }

    def __bounded(self, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[int, str, int]]:
        """The axes that ``bounds`` names, counted from the front: axis, value, the input's place.

        Raises:
            ValueError: an input has no such axis.
        """
        names = list(shapes)
        for name, axes in self.__axes(names).items():
            rank = len(shapes[name])
            for axis, value in axes.items():
                if not -rank <= axis < rank:
                    raise ValueError(
                        f"{type(self).__name__}.bounds: {name} is {shapes[name]}; it has no axis "
                        f"{axis}, which {value} bounds"
                    )
                yield axis % rank, value, names.index(name)

    def __sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """How many entries the axes have that each value of ``bounds`` bounds.

        Raises:
            ValueError: they differ, or an input has no such axis.
        """
        sizes: dict[str, int] = {}
        names = list(shapes)
        for axis, value, place in self.__bounded(shapes):
            shape = shapes[names[place]]
            if sizes.setdefault(value, shape[axis]) != shape[axis]:
                raise ValueError(
                    f"{type(self).__name__}.bounds: {names[place]} is {shape}; axis {axis} has "
                    f"{value} valid entries, of {sizes[value]} that it must have"
                )
        return sizes

    def __parameters(self, body: Callable[..., Any]) -> tuple[list[str], list[str]]:
        if getattr(body, "__func__", None) is Graph.body:
            raise NotImplementedError(f"{type(self).__name__} has no body: write one in the class")
        names: list[str] = []
        values: list[str] = []
        for parameter in inspect.signature(body).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(
                    f"{type(self).__name__}.body names its parameters one by one; "
                    f"*{parameter.name} can't be an input"
                )
            keyword = parameter.kind is parameter.KEYWORD_ONLY
            (values if keyword else names).append(parameter.name)
        return names, values


# ``body`` may be set: a network may be made of a function.
_METHODS = {name for name in vars(Graph) if not name.startswith("_")} - {"body", "bounds"}


def _by_name(graph: Graph) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name, part in named_parts(graph):
        if name in parts:
            raise ValueError(
                f"{type(graph).__name__} holds two weights or states at the path {name!r}; "
                "rename one"
            )
        parts[name] = part
    return parts


def named_parts(graph: object) -> Iterator[tuple[str, Any]]:
    """The weights and states that a graph holds, by attribute path, each once."""
    seen: set[int] = set()

    def visit(part: Any, path: str) -> Iterator[tuple[str, Any]]:
        if id(part) in seen:
            return
        if isinstance(part, State | Weight) or (is_array(part) and np.ndim(part)):
            seen.add(id(part))
            yield path, part
            return
        children = _children(part)
        if children:
            seen.add(id(part))
        for name, child in children:
            yield from visit(child, f"{path}.{name}" if path and name else path or name)

    yield from visit(graph, "")


# Where torch.nn.Module keeps its tensors and the modules inside of it.
_OF_TORCH_MODULES = ("_parameters", "_buffers", "_modules")


def _children(part: Any) -> list[tuple[str, Any]]:
    if isinstance(part, type | ModuleType | Handle | Trace):
        return []
    named = getattr(type(part), "named_parts", None)
    if named is not None:
        return list(named(part))
    if isinstance(part, Mapping):
        return [(str(key), value) for key, value in part.items()]
    if isinstance(part, list | tuple):
        return [(str(i), value) for i, value in enumerate(part)]
    if dataclasses.is_dataclass(part):
        return [(f.name, getattr(part, f.name)) for f in dataclasses.fields(part)]
    attributes = getattr(part, "__dict__", {})
    inside = [attributes.get(name) for name in _OF_TORCH_MODULES]
    if all(isinstance(found, dict) for found in inside):
        attributes = {**attributes, **{k: v for found in inside for k, v in (found or {}).items()}}
    return [(name, value) for name, value in attributes.items() if not name.startswith("_")]


def _shape_spec(name: str, spec: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """``shape`` alone is bfloat16; ``(shape, dtype)`` says which."""
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], tuple | list):
        shape, dtype = spec
    else:
        shape, dtype = spec, BFLOAT16
    if not isinstance(shape, tuple | list):
        raise TypeError(f"input {name} is {spec!r}; it must be a shape, or (shape, dtype)")
    if not all(isinstance(n, int | np.integer) and n > 0 for n in shape):
        raise ValueError(f"input {name}: shape {tuple(shape)} must be positive integers")
    return tuple(int(n) for n in shape), as_dtype(dtype)


def _outputs(graph: str, returned: Any, trace: Trace) -> dict[str, Handle]:
    if isinstance(returned, Mapping):
        outputs = dict(returned)
    elif isinstance(returned, tuple | list):
        outputs = {f"output_{i}": handle for i, handle in enumerate(returned)}
    else:
        outputs = {"output": returned}
    if not outputs:
        raise TypeError(f"{graph}.body returns nothing; return the handles it computed")
    for name, handle in outputs.items():
        if not isinstance(name, str) or not name or name in (*trace.inputs, *trace.value_names):
            raise ValueError(
                f"{graph}.body returns an output named {name!r}; it must be a name that no input "
                "or per-call value has"
            )
        if isinstance(handle, Handle) and handle.trace is not trace:
            raise ValueError(
                f"{graph}.body returns {handle.name} of another trace; a body keeps no handles"
            )
        if isinstance(handle, Handle) and handle.whole and handle.base.role is Role.INTERMEDIATE:
            continue
        if not isinstance(handle, Tensor):
            raise TypeError(f"{graph}.body returns {handle!r} as {name}; it returns handles")
        # An input, a state or a part is no result yet: what it holds now becomes one.
        outputs[name] = handle.copy()
    return outputs


__all__ = ["Graph", "Value", "named_parts"]
