"""Functions for a graph's body, under torch.nn.functional's and torch's names.

Each records the operator steps that compute it and returns their handle; those whose first operand
is a tensor are methods of handles too. Weights are a checkpoint's ``(out, in)``, as
``torch.nn.Linear`` stores them. A handle's own operators, ``+ - * / ** @`` and comparisons, are
steps too.

The examples run inside of a body: ``x`` is a handle (4, 8), ``w`` a weight (8, 8), ``b`` one (8,),
all float32, ``n`` a per-call value.
"""

from onnx_iron.functional.activations import (
    gelu,
    relu,
    sigmoid,
    silu,
    softcap,
    softmax,
    softplus,
    squared_relu,
    swiglu,
    tanh,
)
from onnx_iron.functional.attention import scaled_dot_product_attention
from onnx_iron.functional.convolution import causal_conv1d, conv1d
from onnx_iron.functional.elementwise import (
    abs,
    clamp,
    exp,
    log,
    masked_fill,
    maximum,
    minimum,
    neg,
    one_hot,
    pow,
    rsqrt,
    sqrt,
    tensor,
    to,
    where,
)
from onnx_iron.functional.linear import embedding, linear
from onnx_iron.functional.norms import layer_norm, rms_norm
from onnx_iron.functional.recurrences import (
    gated_delta_rule,
    linear_attention,
    scan,
    selective_scan,
)
from onnx_iron.functional.reductions import amax, argmax, cumsum, max, mean, sum, topk
from onnx_iron.functional.rotary import rope, rope_angles
from onnx_iron.functional.shaping import cat, chunk, pad, split, stack
from onnx_iron.graph.conv_state import ConvState, conv_state
from onnx_iron.operators.gemm import Epilogue, Precision

__all__ = [
    "ConvState",
    "Epilogue",
    "Precision",
    "abs",
    "amax",
    "argmax",
    "cat",
    "causal_conv1d",
    "chunk",
    "clamp",
    "conv1d",
    "conv_state",
    "cumsum",
    "embedding",
    "exp",
    "gated_delta_rule",
    "gelu",
    "layer_norm",
    "linear",
    "linear_attention",
    "log",
    "masked_fill",
    "max",
    "maximum",
    "mean",
    "minimum",
    "neg",
    "one_hot",
    "pad",
    "pow",
    "relu",
    "rms_norm",
    "rope",
    "rope_angles",
    "rsqrt",
    "scaled_dot_product_attention",
    "scan",
    "selective_scan",
    "sigmoid",
    "silu",
    "softcap",
    "softmax",
    "softplus",
    "split",
    "sqrt",
    "squared_relu",
    "stack",
    "sum",
    "swiglu",
    "tanh",
    "tensor",
    "to",
    "topk",
    "where",
]
