"""What more than one implementation is known to do otherwise than the operators say."""

from __future__ import annotations

from onnx_iron.conformance.implementations.base import Difference
from onnx_iron.operators.declaration import Tolerance

MASKED = Difference(
    "a value that a row does not see is multiplied by a weight of 0: NaN where it is not finite",
    subject="Attention",
    kinds=("non-finite",),
)

# Of function bodies and of onnxruntime's own operators.
ACTIVATIONS = (
    Difference(
        "1 + erf(x) and 1 + tanh(x) lose digits below zero; standard operators have no erfc",
        subject="GELU",
        tolerance=Tolerance(2, 1, "the digits lost", of_magnitude=2**-23),
    ),
    Difference(
        "exp(-x) overflows before the result is too small for float32; a sigmoid is approximated "
        "to an absolute error",
        subject="SiLU",
        tolerance=Tolerance(2, 1, "the sigmoid's absolute error", of_magnitude=2**-23),
    ),
    *(
        Difference(
            "it is approximated in float32",
            subject=name,
            tolerance=Tolerance(8, 1, "an approximation in float32"),
        )
        for name in ("Log", "Softplus")
    ),
    *(
        Difference(
            "it is approximated to an absolute error",
            subject=name,
            tolerance=Tolerance(4, 1, "an absolute error", of_magnitude=2**-23),
        )
        for name in ("Sigmoid", "Tanh")
    ),
)
