"""Activations, element by element, and softmax."""

from __future__ import annotations

from typing import Any

from onnx_iron.functional.operand import (
    axis_of,
    handle_of,
    method,
    tensor_of,
    with_last,
    with_last_back,
)
from onnx_iron.functional.shaping import chunk
from onnx_iron.graph.handle import Handle
from onnx_iron.operators.gelu import GELU
from onnx_iron.operators.relu import Relu
from onnx_iron.operators.sigmoid import Sigmoid
from onnx_iron.operators.silu import SiLU
from onnx_iron.operators.softmax import Softmax
from onnx_iron.operators.softplus import Softplus
from onnx_iron.operators.tanh import Tanh


@method
def relu(x: Any) -> Handle:
    """``max(x, 0)``; NaN stays. x is float32 or bfloat16, of any shape.

    Example:
        >>> F.relu(x)
        <Handle relu intermediate (4, 8) float32>
    """
    return Relu.step(tensor_of("relu", "x", x))


@method
def squared_relu(x: Any) -> Handle:
    """``relu(x) ** 2``. So et al., arXiv 2109.08668.

    Example:
        >>> F.squared_relu(x).shape
        (4, 8)
    """
    positive = relu(x)
    squared: Handle = positive * positive
    return squared


@method
def sigmoid(x: Any) -> Handle:
    """``1 / (1 + exp(-x))``.

    Example:
        >>> F.sigmoid(x).shape
        (4, 8)
    """
    return Sigmoid.step(tensor_of("sigmoid", "x", x))


@method
def tanh(x: Any) -> Handle:
    """The hyperbolic tangent.

    Example:
        >>> F.tanh(x).shape
        (4, 8)
    """
    return Tanh.step(tensor_of("tanh", "x", x))


@method
def silu(x: Any) -> Handle:
    """Apply SiLU, ``x * sigmoid(x)``, as torch's.

    Example:
        >>> F.silu(x)
        <Handle silu intermediate (4, 8) float32>
    """
    return SiLU.step(x)


@method
def gelu(x: Any, approximate: str = "none") -> Handle:
    """Apply GELU, exact by default as torch's.

    Or by its tanh approximation (``approximate="tanh"``, ``gelu_pytorch_tanh``).

    Raises:
        ValueError: ``approximate`` is neither.

    Example:
        >>> F.gelu(x, approximate="tanh").shape
        (4, 8)
    """
    return GELU.step(x, approximate=approximate)


@method
def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Handle:
    """``log(1 + exp(beta * x)) / beta``; x itself where ``beta * x`` is above ``threshold``, which
    from 20 on is the same number.

    Raises:
        ValueError: ``beta`` is not above 0, or ``threshold`` is below 20, where it would show.

    Example:
        >>> F.softplus(x).shape
        (4, 8)
    """
    if not beta > 0 or threshold < 20:
        raise ValueError(
            f"softplus(): beta is {beta} and threshold {threshold}; expected beta above 0 and a "
            "threshold of at least 20"
        )
    x = tensor_of("softplus", "x", x)
    if beta == 1:
        return Softplus.step(x)
    scaled: Handle = Softplus.step(handle_of("softplus", "x", x) * beta) / beta
    return scaled


@method
def softcap(x: Any, cap: float) -> Handle:
    """``cap * tanh(x / cap)``, which stays between -cap and cap, as Gemma 2 bounds its scores.

    Raises:
        ValueError: ``cap`` is not above 0.

    Example:
        >>> F.softcap(x, 30.0).shape
        (4, 8)
    """
    if not cap > 0:
        raise ValueError(f"softcap(): cap is {cap}; it must be above 0")
    capped: Handle = tanh(handle_of("softcap", "x", x) / cap) * cap
    return capped


def swiglu(gate: Any, up: Any = None) -> Handle:
    """``silu(gate) * up``; without ``up``, gate's last axis holds both, a half each. Shazeer, arXiv
    2002.05202.

    Raises:
        ValueError: the last axis of both has no halves.

    Example:
        >>> F.swiglu(x).shape
        (4, 4)
    """
    gate = handle_of("swiglu", "gate", gate)
    if up is None:
        if not gate.ndim or gate.shape[-1] % 2:
            raise ValueError(f"swiglu(): gate is {gate.shape}; without up it holds both in halves")
        gate, up = chunk(gate, 2, -1)
    gated: Handle = silu(gate) * up
    return gated


@method
def softmax(x: Any, dim: int = -1) -> Handle:
    """Softmax over an axis: ``exp(x - max(x)) / sum(exp(x - max(x)))``.

    Raises:
        IndexError: x has no such axis.
        ValueError: the axis is bounded: its padding would count.

    Example:
        >>> F.softmax(x, dim=0).shape
        (4, 8)
    """
    x = tensor_of("softmax", "x", x)
    axis = axis_of("softmax", x, dim) if x.shape else 0
    if axis >= len(x.shape) - 1:
        return Softmax.step(x)
    x = handle_of("softmax", "x", x)
    return with_last_back(Softmax.step(with_last(x, axis)), axis)
