"""Recurrences over rows: selective scan, linear attention and a scan of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from transformers.models.mamba.modeling_mamba import mamba_selective_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from onnx_iron import Graph, Session, export, state
from onnx_iron import functional as F
from onnx_iron.dtypes import BFLOAT16

ROWS, CHANNELS, STATES = 21, 20, 6
HEADS, KEYS, VALUES = 4, 12, 10


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


class Mamba(Graph):
    """A selective scan whose rows are bounded per call, and whose state is kept."""

    bounds: ClassVar = {"x": "rows", "dt": "rows", "b": "rows", "c": "rows"}

    def __init__(self) -> None:
        self.a = -np.exp(normal(CHANNELS, STATES, seed=1))
        self.d, self.bias = normal(CHANNELS, seed=2), normal(CHANNELS, seed=3)
        self.h = state((CHANNELS, STATES), np.float32)

    def body(self, x: Any, dt: Any, b: Any, c: Any, *, rows: Any) -> Any:
        return F.selective_scan(
            x, dt, self.a, b, c, self.h, D=self.d, dt_bias=self.bias, dt_softplus=True
        )


def mamba_rows(dtype: Any = np.float32) -> dict[str, Any]:
    shapes = {"x": CHANNELS, "dt": CHANNELS, "b": STATES, "c": STATES}
    return {
        name: normal(ROWS, width, seed=10 + i).astype(dtype)
        for i, (name, width) in enumerate(shapes.items())
    }


class Delta(Graph):
    """The gated delta rule, two values a key, over a state that is kept."""

    bounds: ClassVar = dict.fromkeys(("q", "k", "v", "g", "beta"), "rows")

    def __init__(self) -> None:
        self.s = state((HEADS, KEYS, VALUES), np.float32)

    def body(self, q: Any, k: Any, v: Any, g: Any, beta: Any, *, rows: Any) -> Any:
        q, k = (F.rms_norm(x, KEYS, eps=1e-6 / KEYS) * KEYS**-0.5 for x in (q, k))
        return F.gated_delta_rule(q, k, v, g, beta, self.s)


def delta_rows(dtype: Any = np.float32) -> dict[str, Any]:
    made = {
        "q": normal(ROWS, HEADS // 2, KEYS, seed=20),
        "k": normal(ROWS, HEADS // 2, KEYS, seed=21),
        "v": normal(ROWS, HEADS, VALUES, seed=22),
        "g": -np.exp(normal(ROWS, HEADS, seed=23)),
        "beta": 1 / (1 + np.exp(normal(ROWS, HEADS, seed=24))),
    }
    return {name: x.astype(dtype) for name, x in made.items()}


def selective_scan_of_transformers() -> Any:
    graph, given = Mamba(), {name: torch.from_numpy(x) for name, x in mamba_rows().items()}
    y, h = mamba_selective_scan(
        given["x"].T[None],
        given["dt"].T[None],
        torch.from_numpy(graph.a),
        given["b"].T[None],
        given["c"].T[None],
        D=torch.from_numpy(graph.d),
        delta_bias=torch.from_numpy(graph.bias),
        delta_softplus=True,
        return_last_state=True,
    )
    return y[0].T.numpy(), h[0].numpy()


def delta_rule_of_transformers() -> Any:
    given = {name: torch.from_numpy(x)[None] for name, x in delta_rows().items()}
    y, s = torch_recurrent_gated_delta_rule(
        *(given[name] for name in ("q", "k", "v", "g", "beta")),
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    return y[0].numpy(), s[0].numpy()


KINDS = {
    "selective scan": (Mamba, mamba_rows, selective_scan_of_transformers),
    "gated delta rule": (Delta, delta_rows, delta_rule_of_transformers),
}
# Sums in float32 in another order, and a state that is rounded row by row; results are near 1.
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def opened(
    graph: Graph, given: dict[str, Any], chunk: int, folder: Path, **options: Any
) -> Session:
    """A session of chunks and single rows."""
    traces = {
        name: graph.trace(**{k: ((n, *x.shape[1:]), x.dtype) for k, x in given.items()})
        for name, n in (("prefill", chunk), ("decode", 1))
    }
    export(traces, folder, io_dtype=None)
    return Session(folder, **options)


@pytest.mark.parametrize("provider", ["iron", "stock"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_state_are_those_of_transformers(kind: str, provider: str, tmp_path: Path) -> None:
    graph, rows, reference = KINDS[kind]
    given, (expected, last) = rows(), reference()
    session = opened(graph(), given, 8, tmp_path, provider=provider)
    made = [session.prefill(**{name: x[:17] for name, x in given.items()})["output"]]
    made += [
        session.decode(**{name: x[t : t + 1] for name, x in given.items()})["output"]
        for t in range(17, ROWS)
    ]
    np.testing.assert_allclose(np.concatenate(made), expected, **CLOSE)
    np.testing.assert_allclose(session.state(next(iter(session.states))), last, **CLOSE)
    if provider == "iron":
        assert all(placement.complete for placement in session.placement().values())


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
@pytest.mark.parametrize("kind", KINDS)
def test_any_chunks_give_the_same_bits(kind: str, dtype: Any, tmp_path: Path) -> None:
    graph, rows, _ = KINDS[kind]
    given, found = rows(dtype), set()
    for chunk in (2, 7, 32):
        session = opened(graph(), given, chunk, tmp_path / str(chunk))
        y = session.prefill(**given)["output"]
        found.add((y.tobytes(), session.state(next(iter(session.states))).tobytes()))
    session = opened(graph(), given, 2, tmp_path / "one")
    y = np.concatenate(
        [
            session.decode(**{k: x[t : t + 1] for k, x in given.items()})["output"]
            for t in range(ROWS)
        ]
    )
    found.add((y.tobytes(), session.state(next(iter(session.states))).tobytes()))
    assert len(found) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_padding_never_reaches_the_state(kind: str) -> None:
    graph, rows, _ = KINDS[kind]
    given = rows()
    clean, dirty = graph(), graph()
    clean(*(x[:5] for x in given.values()))
    spoiled = {
        name: np.where(np.arange(ROWS).reshape(-1, *[1] * (x.ndim - 1)) < 5, x, np.nan)
        for name, x in given.items()
    }
    dirty(*spoiled.values(), rows=5)
    for name, kept in clean.states().items():
        np.testing.assert_array_equal(dirty.states()[name], kept)


def test_a_gate_multiplies_the_scan() -> None:
    class Gated(Graph):
        def body(self, x: Any, z: Any, b: Any) -> Any:
            a = -np.ones((CHANNELS, STATES), np.float32)
            plain = F.selective_scan(x, x, a, b, b)
            return F.selective_scan(x, x, a, b, b, z=z), plain * F.silu(z)

    x, z, b = normal(5, CHANNELS), normal(5, CHANNELS, seed=1), normal(5, STATES, seed=2)
    np.testing.assert_array_equal(*Gated()(x, z, b))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("correcting", [False, True])
def test_what_is_given_makes_the_rule(gated: bool, correcting: bool) -> None:
    given = delta_rows()

    class Rule(Graph):
        def body(self, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
            return F.linear_attention(
                q, k, v, decay=g if gated else None, beta=beta if correcting else None, scale=2.0
            )

    got = Rule()(*given.values())
    q, k = (np.repeat(given[name].astype(np.float64), 2, axis=1) for name in ("q", "k"))
    s, expected = np.zeros((HEADS, KEYS, VALUES)), []
    for t in range(ROWS):
        v = given["v"][t].astype(np.float64)
        if gated:
            s = s * np.exp(given["g"][t])[:, None, None]
        if correcting:
            v = given["beta"][t][:, None] * (v - np.einsum("hk,hkv->hv", k[t], s))
        s = s + np.einsum("hk,hv->hkv", k[t], v)
        expected.append(2.0 * np.einsum("hk,hkv->hv", q[t], s))
    largest = np.abs(expected).max()  # keys are not of length 1, so the delta rule's states grow
    np.testing.assert_allclose(got, np.stack(expected), rtol=1e-4, atol=1e-5 * largest)


def traced(body: Any, **inputs: Any) -> Any:
    made = type("Body", (Graph,), {"body": body})
    return made().trace(**{name: (shape, np.float32) for name, shape in inputs.items()})


def test_a_state_of_another_dtype_is_refused() -> None:
    class Rounded(Mamba):
        def __init__(self) -> None:
            super().__init__()
            self.h = state((CHANNELS, STATES), BFLOAT16)

    with pytest.raises(TypeError, match=r"SelectiveScan.state is bfloat16; it must be float32"):
        Rounded().trace(**{n: (x.shape, x.dtype) for n, x in mamba_rows().items()})


def test_shapes_that_do_not_fit_are_named() -> None:
    a = np.zeros((8, 3), np.float32)
    with pytest.raises(ValueError, match=r"SelectiveScan.b is \(5, 4\).* must be \(5, 3\)"):
        traced(lambda self, x, b: F.selective_scan(x, x, a, b, b), x=(5, 8), b=(5, 4))
    with pytest.raises(ValueError, match=r"SelectiveScan.a is \(8, 3\).* must be \(6, N\)"):
        traced(lambda self, x, b: F.selective_scan(x, x, a, b, b), x=(5, 6), b=(5, 3))
    with pytest.raises(ValueError, match=r"query is \(5, 8\), .*expected \(rows, heads, width\)"):
        traced(lambda self, x: F.linear_attention(x, x, x), x=(5, 8))
    with pytest.raises(ValueError, match=r"LinearAttention.key is \(5, 2, 8\).* divisor of 3"):
        traced(lambda self, q, k: F.linear_attention(q, k, k), q=(5, 3, 8), k=(5, 2, 8))
    with pytest.raises(ValueError, match=r"LinearAttention.beta is \(5, 3\).* must be \(5, 2\)"):
        traced(lambda self, q, b: F.linear_attention(q, q, q, beta=b), q=(5, 2, 8), b=(5, 3))


def test_operands_bounded_in_two_ways_are_refused() -> None:
    a = np.zeros((8, 8), np.float32)

    def body(self: Any, x: Any, *, n: Any, m: Any) -> Any:
        return F.selective_scan(x[:n], x[:m], a, x, x)

    with pytest.raises(ValueError, match="SelectiveScan: its operands are bounded by n and m"):
        traced(body, x=(5, 8))


def test_one_bounded_operand_bounds_all() -> None:
    a = np.zeros((8, 8), np.float32)

    def body(self: Any, x: Any, *, n: Any) -> Any:
        y = F.selective_scan(x, x, a, x, x[:n])
        assert str(y.valid) == "{0: Value(n)}"
        return y

    traced(body, x=(5, 8))


def test_a_call_with_too_many_rows_is_refused() -> None:
    def body(self: Any, x: Any, *, n: Any) -> Any:
        return F.linear_attention(x[:n], x, x)

    graph = type("Body", (Graph,), {"body": body})()
    with pytest.raises(ValueError, match=r"n is 6, expected 0..5"):
        graph(normal(5, 2, 8), n=6)


class Fading(Graph):
    bounds: ClassVar = {"x": "rows"}

    def __init__(self) -> None:
        self.h = state((8,), np.float32)

    def body(self, x: Any, *, rows: Any) -> Any:
        def fade(h: Any, x: Any) -> Any:
            h = F.tanh(h * 0.5 + x)
            return h, (h, h + x)

        h, (one, two) = F.scan(fade, self.h, x)
        self.h[...] = h
        return one, two


def fading_of_torch(x: Any) -> Any:
    h, rows = torch.zeros(8), []
    for row in torch.from_numpy(x):
        h = torch.tanh(h * 0.5 + row)
        rows.append((h, h + row))
    return [torch.stack(part).numpy() for part in zip(*rows, strict=True)]


@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_a_scan_of_one_s_own_goes_on_from_chunk_to_chunk(provider: str, tmp_path: Path) -> None:
    x = normal(11, 8)
    session = opened(Fading(), {"x": x}, 4, tmp_path, provider=provider)
    made = session.prefill(x=x[:10])
    last = session.decode(x=x[10:])
    for name, expected in zip(("output_0", "output_1"), fading_of_torch(x), strict=True):
        np.testing.assert_allclose(
            np.concatenate([made[name], last[name]]), expected, rtol=1e-5, atol=1e-6
        )


def test_a_scan_carries_and_takes_tuples() -> None:
    class Sums(Graph):
        def body(self, x: Any, y: Any) -> Any:
            def both(carry: Any, row: Any) -> Any:
                total, most = carry
                total, most = total + row[0] * row[1], F.maximum(most, row[0])
                return (total, most), total

            (total, most), sums = F.scan(both, (np.zeros(8, np.float32), x[0]), (x, y))
            return total, most, sums

    x, y = normal(6, 8), normal(6, 8, seed=1)
    total, most, sums = Sums()(x, y)
    np.testing.assert_allclose(sums, np.cumsum(x * y, axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(total, sums[-1])
    np.testing.assert_array_equal(most, x.max(0))


def test_a_scan_needs_rows_of_one_number() -> None:
    with pytest.raises(ValueError, match=r"xs are \[\(5, 8\), \(4, 8\)\]; expected one number"):
        traced(lambda self, x: F.scan(lambda h, r: (h, h), x[0], (x, x[:4]))[1], x=(5, 8))
