"""Which kernels may write an output over an input."""

from __future__ import annotations

from onnx_iron.provider.lowering import KernelCall, Lowering
from onnx_iron.provider.symbols import surely_equal


def candidates(step: KernelCall, output: int, lowering: Lowering) -> list[int]:
    """The inputs whose bytes the output may take: of its size, and read by no other operand."""
    inputs = step.op.replaceable(output, len(step.inputs))
    spec = lowering.specs[step.outputs[output]]
    return [
        index
        for index in inputs
        if index < len(step.inputs)
        and (name := step.inputs[index]) is not None
        and lowering.specs[name].dtype == spec.dtype
        and surely_equal(lowering.specs[name].shape, spec.shape)
        and _reads_alone(step, index, lowering)
    ]


def _reads_alone(step: KernelCall, index: int, lowering: Lowering) -> bool:
    """Whether the other operands that share the input's bytes, if any, are the very same value,
    read element by element."""
    own = step.inputs[index]
    assert own is not None
    root, offset = lowering.resolve(own)
    for other, name in enumerate(step.inputs):
        if other == index or name is None or lowering.resolve(name)[0] != root:
            continue
        same = lowering.resolve(name)[1] == offset and lowering.specs[name] == lowering.specs[own]
        if not same or not step.op.elementwise:
            return False
    return True
