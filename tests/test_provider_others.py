"""Operators that other exporters and onnxruntime's optimisers put into models."""

from __future__ import annotations

import numpy as np
import pytest
from other_nodes import (
    MICROSOFT,
    Array,
    Other,
    assert_bfloat16_is_its_float32_rounded,
    tables,
)
from provider_models import iron, rand, stock

import onnx_iron


def ids(*rows: list[int]) -> Array:
    return np.array(rows, np.int64)


COS, SIN = tables(16, 4)
SKIPPED = ("y", "", "", "sum")
CASES = [
    Other("SimplifiedLayerNormalization", (rand(3, 8), rand(8, seed=1)), domain=""),
    Other(
        "SimplifiedLayerNormalization",
        (rand(2, 3, 8), rand(8, seed=1)),
        attributes={"epsilon": 1e-2, "axis": 2},
        domain="",
    ),
    *(
        Other(op, (rand(2, 3, 8), rand(*skip, seed=1), rand(8, seed=2)), outputs)
        for op in ("SkipSimplifiedLayerNormalization", "SkipLayerNormalization")
        for skip in ((2, 3, 8), (1, 3, 8), (3, 8))
        for outputs in (("y",), SKIPPED)
    ),
    Other(
        "SkipSimplifiedLayerNormalization",
        (rand(2, 3, 8), rand(2, 3, 8, seed=1), rand(8, seed=2), rand(8, seed=3)),
        SKIPPED,
        {"epsilon": 1e-3},
    ),
    Other(
        "SkipLayerNormalization",
        (*(rand(2, 3, 8, seed=i) for i in range(2)), *(rand(8, seed=i) for i in range(2, 5))),
        SKIPPED,
    ),
    Other(
        "SkipLayerNormalization",
        (*(rand(2, 3, 8, seed=i) for i in range(2)), rand(8, seed=2), None, rand(8, seed=4)),
    ),
    Other("BiasGelu", (rand(3, 8), rand(8, seed=1))),
    Other("Gelu", (rand(3, 8),)),
    Other("FastGelu", (rand(3, 8),)),
    Other("FastGelu", (rand(3, 8), rand(8, seed=1))),
    Other("QuickGelu", (rand(3, 8),)),
    Other("QuickGelu", (rand(3, 8),), attributes={"alpha": 1.0}),
    *(
        Other(
            "FusedMatMul",
            (
                rand(*((6, 5) if a else (5, 6))),
                rand(*((7, 6) if b else (6, 7)), seed=1),
            ),
            attributes={"transA": a, "transB": b, "alpha": alpha},
        )
        for a in (0, 1)
        for b in (0, 1)
        for alpha in (1.0, 0.25)
    ),
    Other("FusedMatMul", (rand(2, 3, 5, 6), rand(3, 7, 6, seed=1)), attributes={"transB": 1}),
    Other("FusedMatMul", (rand(2, 5, 6), rand(7, 6, seed=1)), attributes={"transB": 1}),
    *(
        Other(
            "RotaryEmbedding",
            (rand(2, 3, 5, 8), ids([0, 1, 2, 3, 4], [7, 9, 1, 0, 15]), COS, SIN),
            attributes={"interleaved": interleaved},
        )
        for interleaved in (0, 1)
    ),
    Other("RotaryEmbedding", (rand(2, 5, 24), ids([3]).reshape(1), COS, SIN)),
    Other("RotaryEmbedding", (rand(1, 1, 24), ids([3]), COS, SIN)),
    Other(
        "RotaryEmbedding",
        (rand(2, 3, 5, 20), ids([0, 1, 2, 3, 4], [7, 9, 1, 0, 15]), COS, SIN),
        attributes={"rotary_embedding_dim": 8, "num_heads": 3},
    ),
    *(
        Other(
            "RotaryEmbedding",
            (rand(2, 3, 5, 8), COS, SIN, ids([0, 1, 2, 3, 4], [7, 9, 1, 0, 15])),
            attributes={"interleaved": interleaved},
            domain="",
        )
        for interleaved in (0, 1)
    ),
    Other(
        "RotaryEmbedding",
        (rand(2, 5, 24), *(rand(2, 5, 4, seed=i) for i in (1, 2))),
        attributes={"num_heads": 3},
        domain="",
    ),
    Other(
        "RotaryEmbedding",
        (rand(2, 3, 5, 20), COS, SIN, ids([0, 1, 2, 3, 4], [7, 9, 1, 0, 15])),
        attributes={"rotary_embedding_dim": 8},
        domain="",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_of_others_gives_what_onnxruntime_gives(case: Other) -> None:
    serialized, given = case.model(np.float32), case.given(np.float32)
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    for ours, theirs in zip(
        session.run(None, given), stock(serialized).run(None, given), strict=True
    ):
        assert ours.shape == theirs.shape
        # Sums of a few numbers in another order; FastGelu's tanh is another polynomial there.
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_bfloat16_it_is_its_float32_rounded(case: Other) -> None:
    assert_bfloat16_is_its_float32_rounded(case)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (
            Other(
                "SkipLayerNormalization",
                (rand(2, 3, 8), rand(2, 3, 8), rand(8)),
                ("y", "mean"),
            ),
            "mean and deviation are asked for",
        ),
        (
            Other(
                "FusedMatMul",
                (rand(5, 3, 6), rand(3, 6, 7)),
                attributes={"transBatchA": 1},
            ),
            "it has transBatchA",
        ),
    ],
)
def test_what_the_kernels_have_not_is_left_to_onnxruntime(case: Other, reason: str) -> None:
    session = iron(case.model(np.float32))
    (row,) = onnx_iron.placement(session).rows
    assert row.reason == reason


@pytest.mark.parametrize("domain", ["", MICROSOFT])
@pytest.mark.parametrize("position", [-1, 16])
def test_a_position_past_the_tables_is_an_error(domain: str, position: int) -> None:
    places = ids([0, 1, position])
    x = rand(1, 2, 3, 8)
    inputs = (x, COS, SIN, places) if domain == "" else (x, places, COS, SIN)
    case = Other("RotaryEmbedding", inputs, domain=domain)
    with pytest.raises(Exception, match=rf"position 2 is {position}, expected 0..15"):
        iron(case.model(np.float32)).run(None, case.given(np.float32))
