"""One case of every CPU kernel, what functions are held to, and how results are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.signal
import scipy.special

from onnx_iron.kernels import run_kernel

F32 = np.dtype(np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)
I32 = np.dtype(np.int32)
I64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
REAL = pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
# Relative size of one rounding.
EPS = {F32: 2.0**-24, BF16: 2.0**-8}


def normal(*shape: int, dtype: np.dtype = F32, seed: int = 0) -> np.ndarray:
    """Standard normal values, the same for the same arguments."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    """Exactly, as float32."""
    return x.astype(np.float32)


def narrow(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Rounded to float32, then to dtype."""
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(np.float32).astype(dtype)


def bits(x: np.ndarray) -> np.ndarray:
    """The array's bits; one pattern for all NaN."""
    words = np.ascontiguousarray(x).view(
        {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[x.itemsize]
    )
    if x.dtype in (F32, BF16):
        words = np.where(np.isnan(wide(x)), words.dtype.type(-1 % 2 ** (8 * x.itemsize)), words)
    return words


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_array_equal(bits(got), bits(expected))


def steps_apart(a: np.ndarray, b: np.ndarray) -> int:
    """The largest distance in representable numbers; NaN only equals NaN."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    np.testing.assert_array_equal(np.isnan(wide(a)), np.isnan(wide(b)))
    there = ~np.isnan(wide(a))
    half = 1 << (8 * a.itemsize - 1)

    def place(x: np.ndarray) -> np.ndarray:
        words = bits(x[there]).astype(np.int64)
        return np.where(words >= half, half - words, words)

    return int(np.abs(place(a) - place(b)).max(initial=0))


def run(
    op: str,
    inputs: Sequence[np.ndarray | None],
    shape: Sequence[int],
    dtype: np.dtype,
    threads: int = 1,
    **attributes: Any,
) -> np.ndarray:
    """An operator with one output."""
    return run_kernel(op, inputs, [(tuple(shape), dtype)], attributes, threads)[0]


def scalar(value: int) -> np.ndarray:
    return np.array(value, np.int32)


# -- formulas of functions -----------------------------------------------------------------


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    # erfc: in the lower tail 1 + erf has no digits left.
    return 0.5 * x * scipy.special.erfc(-x / math.sqrt(2))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    # (1 + tanh(u)) / 2 is logistic(2 u), which has digits left in the lower tail.
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FUNCTIONS: dict[str, tuple[str, dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = {
    "silu": ("SiLU", {}, silu),
    "gelu": ("GELU", {}, gelu),
    "gelu-none": ("GELU", {"approximate": "none"}, gelu),
    "gelu-tanh": ("GELU", {"approximate": "tanh"}, gelu_tanh),
    "sigmoid": ("Sigmoid", {}, logistic),
    "tanh": ("Tanh", {}, np.tanh),
    "exp": ("Exp", {}, np.exp),
    "erf": ("Erf", {}, scipy.special.erf),
    "relu": ("Relu", {}, lambda x: np.where(x < 0, 0.0, x)),
    "sqrt": ("Sqrt", {}, np.sqrt),
    "neg": ("Neg", {}, np.negative),
    "reciprocal": ("Reciprocal", {}, np.reciprocal),
    "abs": ("Abs", {}, np.abs),
    "log": ("Log", {}, np.log),
    "rsqrt": ("Rsqrt", {}, lambda x: 1 / np.sqrt(x)),
    "softplus": ("Softplus", {}, lambda x: np.logaddexp(0, x)),
}

ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
}


# -- one case of every kernel, and what holds for all -----------------------------------------


@dataclass
class Case:
    op: str
    inputs: Sequence[np.ndarray | None]
    outputs: Sequence[tuple[tuple[int, ...], np.dtype]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __str__(self) -> str:
        return f"{self.op}{self.label}-{self.outputs[0][1]}"

    def run(self, outputs: Sequence[Any] | None = None, threads: int = 1) -> list[np.ndarray]:
        return run_kernel(self.op, self.inputs, outputs or self.outputs, self.attributes, threads)


UNARY = sorted({op for op, _, _ in FUNCTIONS.values()})
BINARY = [*ARITHMETIC, "Pow"]


def real_cases(dtype: np.dtype) -> list[Case]:
    """Large enough for several threads, with sizes that are no multiples of anything."""

    def x(*shape: int, seed: int = 0) -> np.ndarray:
        return normal(*shape, dtype=dtype, seed=seed)

    def out(*shape: int) -> list[tuple[tuple[int, ...], np.dtype]]:
        return [(shape, dtype)]

    def codes(*shape: int) -> np.ndarray:
        return np.random.default_rng(shape).integers(0, 256, shape, np.uint8)

    rows = scalar(250)
    conv = [((301, 77), dtype), ((2, 77), dtype)]
    return [
        *(Case(op, [np.abs(x(301, 203))], out(301, 203)) for op in UNARY),
        Case("GELU", [x(301, 203)], out(301, 203), {"approximate": "tanh"}, "-tanh"),
        *(Case(op, [np.abs(x(301, 203)), x(203)], out(301, 203)) for op in BINARY),
        *(
            Case(op, [x(301, 203), x(203)], [((301, 203), BOOL)])
            for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
        ),
        Case("ArgMax", [x(301, 203)], [((301,), I64)]),
        Case("CumSum", [x(301, 203)], out(301, 203)),
        Case("ReduceMax", [x(301, 203)], out(301), {"keepdims": 0}),
        Case("TopK", [x(301, 203)], [((301, 7), dtype), ((301, 7), I64)], {"k": 7}),
        Case(
            "RotaryEmbedding",
            [x(2, 7, 43, 40), x(50, 16), x(50, 16, seed=1), np.arange(86).reshape(2, 43) % 50],
            out(2, 7, 43, 40),
            {"heads": 7, "turned": 32},
        ),
        Case("Add", [x(31, 1, 77), x(31, 43, 1)], out(31, 43, 77), {}, "-outer"),
        Case("Where", [x(301, 203) > 0, x(203), x(301, 1)], out(301, 203)),
        Case("Cast", [x(301, 203)], [((301, 203), F32 if dtype == BF16 else BF16)]),
        Case("Copy", [x(701, 403)], out(701, 403)),
        Case("Transpose", [x(301, 203)], out(203, 301), {"perm": [1, 0]}),
        Case("Concat", [x(301, 3), x(301, 200)], out(301, 203), {"axis": 1}),
        Case("Slice", [x(301, 403)], out(301, 201), {"starts": [401], "axes": [1], "steps": [-2]}),
        Case("Gather", [x(50, 203), np.arange(-50, 250) % 50], out(300, 203), {"axis": 0}),
        Case(
            "MatMulNBits",
            [x(40, 200), codes(61, 13, 8), np.abs(x(61, 13)), codes(61, 7)],
            out(40, 61),
            {"block_size": 16},
        ),
        Case(
            "GatherBlockQuantized",
            [codes(50, 256), np.arange(-50, 250) % 50, np.abs(x(50, 8)), codes(50, 8)],
            out(300, 256),
            {"block_size": 32, "bits": 8},
        ),
        Case("Embedding", [x(50, 203), np.arange(300, dtype=np.int32) % 50], out(300, 203)),
        Case("Narrow", [x(301, 203), scalar(50), rows], out(280, 203), {"length": 280}),
        Case("SliceScatter", [x(401, 203), x(301, 203, seed=1), scalar(90), rows], out(401, 203)),
        Case("Softmax", [x(301, 203)], out(301, 203)),
        Case("ReduceMean", [x(301, 203)], out(301, 1)),
        Case("ReduceSum", [x(301, 203)], out(301), {"keepdims": 0}),
        Case("RMSNorm", [x(301, 203), x(203)], out(301, 203)),
        Case("RMSNorm", [x(301, 203)], out(301, 203), {}, "-bare"),
        Case("LayerNorm", [x(301, 203), x(203)], out(301, 203)),
        Case("RMSNormalization", [x(301, 203), x(203)], out(301, 203)),
        Case("LayerNormalization", [x(301, 203), x(203), x(203, seed=1)], out(301, 203)),
        Case("RoPE", [x(906, 66), x(302, 66)], out(906, 66)),
        Case("RoPE", [x(906, 66), wide(x(302, 66))], out(906, 66), {"interleaved": 1}, "-pairs"),
        Case(
            "CausalConv1d",
            [x(301, 77), x(3, 77), x(2, 77), x(77), rows],
            conv,
            {"activation": "silu"},
        ),
        Case(
            "CausalConv1d",
            [x(1, 30001), x(3, 30001), x(2, 30001)],
            [((1, 30001), dtype), ((2, 30001), dtype)],
            {},
            "-step",
        ),
        Case(
            "SelectiveScan",
            [
                *(x(131, 77), x(131, 77, seed=1), -np.abs(normal(77, 13)), x(131, 13)),
                *(x(131, 13, seed=1), normal(77, 13, seed=1), normal(77), None, scalar(99)),
            ],
            [((131, 77), dtype), ((77, 13), F32)],
            {"dt_softplus": 1},
        ),
        Case(
            "LinearAttention",
            [
                *(x(41, 6, 20) * dtype.type(0.2), x(41, 3, 20) * dtype.type(0.2), x(41, 3, 77)),
                *(normal(3, 20, 77), -np.abs(normal(41, 3)), x(41, 3), scalar(33)),
            ],
            [((41, 6, 77), dtype), ((3, 20, 77), F32)],
        ),
        Case("GEMV", [x(301, 1203), x(1203)], out(301)),
        Case("GEMM", [x(101, 203), x(157, 203)], out(101, 157), {"b_col_maj": 1}),
        Case("GEMM", [x(101, 303), x(303, 157)], out(101, 157), {}, "-row-major"),
        Case("GEMM", [x(1, 303), x(303, 1571)], out(1, 1571), {}, "-row-major-one"),
        Case(
            "ProjectionGEMM",
            [x(101, 203), x(157, 203)],
            out(101, 157),
            {"b_col_maj": 1, "epilogue": "gelu"},
        ),
        Case("MatMul", [x(5, 1, 33, 65), x(7, 65, 41)], out(5, 7, 33, 41)),
        Case(
            "Attention",
            [x(50, 6, 20), x(401, 2, 20), x(401, 2, 12), scalar(340), scalar(400)],
            out(50, 6, 12),
            {"is_causal": 1},
        ),
        Case("Attention", [x(1, 6, 64), x(901, 2, 64), x(901, 2, 64)], out(1, 6, 64), {}, "-step"),
        *(
            Case(
                "Attention",
                [
                    *(x(2, rows, 4, 20), x(2, 200, 2, 20), x(2, 200, 2, 12), scalar(99), None),
                    *(normal(4, rows, 200) > 0, x(2, 1, rows, 200), None, normal(4)),
                ],
                out(2, rows, 4, 12),
                {"is_causal": 1, "window": 90, "softcap": 2.0},
                f"-{rows}-masked",
            )
            for rows in (2, 70)
        ),
        Case(
            "TensorScatter",
            [x(2, 3, 40, 20), x(2, 3, 7, 20), np.array([0, 33])],
            out(2, 3, 40, 20),
        ),
        Case(
            "TensorScatter",
            [x(2, 3, 33, 20), x(2, 7, 3, 20), np.array([0, 33])],
            out(2, 3, 40, 20),
            {"axis": 2, "rows_first": 1, "fresh": 1},
            "-fresh",
        ),
        Case(
            "CachePlaces",
            [np.array([39, 12], np.int32), np.array([40], np.int32)],
            [((2,), np.dtype(np.int32))] * 2 + [((2, 7), np.dtype(np.int64))],
            {"rows": 7, "past": 40, "entries": 40},
        ),
    ]


def integer_cases(dtype: np.dtype) -> list[Case]:
    a = (np.arange(60000) - 30000).astype(dtype)
    b = (np.arange(60000) % 23 - 11).astype(dtype)
    b[b == 0] = 7
    return [
        Case(op, [a, b], [(a.shape, dtype)])
        for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")
    ]


def standard_cases(dtype: np.dtype) -> list[Case]:
    """Of kernels that standard operators alone call for."""

    def x(*shape: int, seed: int = 0) -> np.ndarray:
        return normal(*shape, dtype=dtype, seed=seed)

    def out(*shape: int) -> list[tuple[tuple[int, ...], np.dtype]]:
        return [(shape, dtype)]

    kinds = ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum_exp")
    windows = {"kernel": [3], "strides": [2], "dilations": [4], "begins": [5], "ends": [3]}
    square = {"kernel": [3, 2], "strides": [1, 3], "dilations": [2, 1]}
    return [
        *(Case("Fold", [x(301, 203)], out(301), {"kind": kind}, f"-{kind}") for kind in kinds),
        Case("Fold", [np.abs(x(301, 203))], out(301), {"kind": "log_sum"}, "-log_sum"),
        Case("LogSoftmax", [x(301, 203)], out(301, 203)),
        Case("CumSum", [x(301, 203)], out(301, 203), {"exclusive": 1, "reverse": 1}, "-back"),
        *(
            Case(op, [3 * x(301, 203)], out(301, 203))
            for op in ("Floor", "Ceil", "Round", "Sign", "Sin", "Cos")
        ),
        Case("IsNaN", [np.where(x(301, 203) > 1, np.nan, x(301, 203))], [((301, 203), BOOL)]),
        Case("Expand", [x(301, 1, 7)], out(3, 301, 41, 7)),
        Case(
            "Pad",
            [x(31, 41, 53), x()],
            out(38, 40, 56),
            {"begins": [3, -2, 1], "ends": [4, 1, 2]},
        ),
        *(
            Case(
                "Pad",
                [x(31, 41, 53)],
                out(34, 41, 60),
                {"begins": [3, 0, 1], "ends": [0, 0, 6], "mode": mode},
                f"-{mode}",
            )
            for mode in ("edge", "reflect", "wrap")
        ),
        Case("Unfold", [x(3, 31, 403)], out(3, 93, 202), windows),
        Case(
            "Unfold",
            [x(2, 11, 40, 43)],
            out(2, 66, 37 * 15),
            {**square, "begins": [1, 0], "ends": [0, 1]},
            "-2d",
        ),
        Case("Trilu", [x(3, 201, 203)], out(3, 201, 203), {"diagonal": -3}),
        Case("Trilu", [x(3, 201, 203)], out(3, 201, 203), {"diagonal": 5, "upper": 0}, "-lower"),
        Case(
            "GatherElements",
            [x(30, 203), np.arange(300 * 203).reshape(300, 203) % 60 - 30],
            out(300, 203),
        ),
        Case(
            "GatherND",
            [x(3, 20, 30, 41), np.arange(3 * 700 * 2).reshape(3, 700, 2) % 20 - 10],
            out(3, 700, 41),
            {"batch_dims": 1},
        ),
    ]


def standard_integer_cases(dtype: np.dtype) -> list[Case]:
    a = (np.arange(60000) * 7919 % 30011 - 15000).astype(dtype).reshape(300, 200)
    return [
        *(
            Case("Fold", [a], [((300,), dtype)], {"kind": kind}, f"-{kind}")
            for kind in ("sum", "max", "min", "prod")
        ),
        Case("CumSum", [a], [(a.shape, dtype)], {"reverse": 1}, "-back"),
        Case("Range", [np.array(-3, dtype), np.array([7], dtype)], [((70000,), dtype)]),
    ]


def logic_cases() -> list[Case]:
    # Any byte but 0 is true.
    a = (np.arange(301 * 203) % 3).astype(np.uint8).view(BOOL).reshape(301, -1)[:, :201]
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(a[0, ::-1])
    return [
        *(Case(op, [a, b], [(a.shape, BOOL)]) for op in ("And", "Or", "Xor")),
        Case("Not", [a], [(a.shape, BOOL)]),
        *(
            Case("Fold", [a], [((301,), BOOL)], {"kind": kind}, f"-{kind}")
            for kind in ("max", "min")
        ),
    ]


CASES = [
    case
    for cases in (
        *(real_cases(F32), real_cases(BF16), integer_cases(I32), integer_cases(I64)),
        *(standard_cases(F32), standard_cases(BF16), logic_cases()),
        *(standard_integer_cases(I32), standard_integer_cases(I64)),
    )
    for case in cases
]
