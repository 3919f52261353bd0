"""What a session knows of a model from its metadata: outputs that follow the rows, and ranges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from networks import Network, random

import onnx_iron
from onnx_iron import functional as F
from onnx_iron.export.metadata import describe

PROVIDERS = pytest.mark.parametrize("provider", ["iron", "stock"])
CHUNK = 8


def opened(
    folder: Path, provider: str, body: Any, inputs: dict[str, Any], **parts: Any
) -> onnx_iron.Session:
    onnx_iron.export(Network(body, **parts).trace(**inputs), folder / "m.onnx")
    return onnx_iron.Session(folder / "m.onnx", provider=provider)


def counting(self: Any, x: Any, *, rows: Any) -> Any:
    self.calls[...] = self.calls + 1
    doubled = x[:rows] * 2
    return {
        "doubled": doubled,
        "calls": self.calls + 0,
        "part": self.calls[0:CHUNK] + 0,
        "pairs": doubled.reshape(CHUNK * 2, 2),
        "turned": doubled.transpose().copy(),
    }


@PROVIDERS
@pytest.mark.parametrize("count", [1, 7, 8, 20, 17])
def test_prefill_joins_the_outputs_that_follow_the_rows_and_no_others(
    tmp_path: Path, provider: str, count: int
) -> None:
    state = onnx_iron.state((2 * CHUNK,), np.float32)
    inputs = {"x": ((CHUNK, 4), np.float32)}
    session = opened(tmp_path, provider, counting, inputs, calls=state)
    x = random(count, 4)
    got = session.prefill(x=x)
    np.testing.assert_array_equal(got["doubled"], x * 2)
    np.testing.assert_array_equal(got["pairs"], (x * 2).reshape(-1, 2))
    np.testing.assert_array_equal(got["turned"], (x * 2).T)
    calls = -(-count // CHUNK)
    np.testing.assert_array_equal(got["calls"], np.full(2 * CHUNK, calls, np.float32))
    np.testing.assert_array_equal(got["part"], np.full(CHUNK, calls, np.float32))


@PROVIDERS
def test_an_output_that_another_value_bounds_is_the_last_chunks(
    tmp_path: Path, provider: str
) -> None:
    def body(self: Any, x: Any, *, rows: Any, few: Any) -> Any:
        return {"y": x[:rows] + 1, "first": self.table[:few] + 1}

    table = onnx_iron.Weight.of(random(CHUNK, 4, seed=1))
    session = opened(tmp_path, provider, body, {"x": ((CHUNK, 4), np.float32)}, table=table)
    x = random(2 * CHUNK, 4)
    got = session.prefill(x=x, few=3)
    np.testing.assert_array_equal(got["y"], x + 1)
    assert got["first"].shape == (CHUNK, 4)
    np.testing.assert_array_equal(got["first"][:3], random(CHUNK, 4, seed=1)[:3] + 1)


@PROVIDERS
def test_an_input_with_half_as_many_entries_is_cut_along(tmp_path: Path, provider: str) -> None:
    def body(self: Any, x: Any, z: Any, *, rows: Any) -> Any:
        return {"y": x[:rows] + 1, "half": z[: rows // 2] + 1}

    inputs = {"x": ((CHUNK, 4), np.float32), "z": ((CHUNK // 2, 4), np.float32)}
    session = opened(tmp_path, provider, body, inputs)
    x, z = random(21, 4), random(10, 4, seed=1)
    got = session.prefill(x=x, z=z)
    np.testing.assert_array_equal(got["y"], x + 1)
    np.testing.assert_array_equal(got["half"], z + 1)
    with pytest.raises(ValueError, match=r"'z' has shape \(11, 4\), expected 10 entries"):
        session.prefill(x=x, z=random(11, 4))


@PROVIDERS
def test_a_decode_model_of_other_outputs_does_not_run_the_row_that_is_left(
    tmp_path: Path, provider: str
) -> None:
    def prefill(self: Any, x: Any, *, rows: Any) -> Any:
        self.last[...] = self.last + 1
        return {"y": x[:rows] * 2, "calls": self.last + 0}

    def decode(self: Any, x: Any) -> Any:
        return {"y": x * 3}

    state = onnx_iron.state((CHUNK,), np.float32)
    first = Network(prefill, last=state).trace(x=((CHUNK, 4), np.float32))
    second = Network(decode).trace(x=((1, 4), np.float32))
    onnx_iron.export({"prefill": first, "decode": second}, tmp_path)
    session = onnx_iron.Session(tmp_path, provider=provider)
    x = random(9, 4)
    got = session.prefill(x=x)
    np.testing.assert_array_equal(got["y"], x * 2)
    np.testing.assert_array_equal(got["calls"], np.full(CHUNK, 2, np.float32))


@PROVIDERS
def test_older_exports_are_not_guessed_about(tmp_path: Path, provider: str) -> None:
    state = onnx_iron.state((2 * CHUNK,), np.float32)
    opened(tmp_path, provider, counting, {"x": ((CHUNK, 4), np.float32)}, calls=state)
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    kept = [entry for entry in model.metadata_props if entry.key != "onnx_iron.bounds"]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    onnx.save(model, tmp_path / "m.onnx")
    session = onnx_iron.Session(tmp_path / "m.onnx", provider=provider)
    assert session.prefill(x=random(CHUNK, 4))["doubled"].shape == (CHUNK, 4)
    before = session.state("calls")
    with pytest.raises(ValueError, match=r"does not say whether output .*; export the model again"):
        session.prefill(x=random(9, 4))
    np.testing.assert_array_equal(session.state("calls"), before)


def cached(self: Any, x: Any, *, position: Any) -> Any:
    for keys in self.keys:
        keys[position : position + x.shape[0]] = x
    return x + self.keys[0][position].copy() + self.keys[2][0]


@PROVIDERS
@pytest.mark.parametrize("position", [-1, 12, 2**31 - 1])
def test_a_place_past_a_cache_is_refused_by_name_before_anything_is_written(
    tmp_path: Path, provider: str, position: int
) -> None:
    keys = [onnx_iron.state((12, 4), np.float32) for _ in range(3)]
    session = opened(tmp_path, provider, cached, {"x": ((1, 4), np.float32)}, keys=keys)
    message = rf"'position' is {position}, and the state 'keys\.0' has 12 entries, expected 0\.\.11"
    with pytest.raises(ValueError, match=message):
        session.run({"x": np.ones((1, 4), np.float32), "position": position})
    for name in session.states:
        np.testing.assert_array_equal(session.state(name), 0)
    assert session.position == 0


@PROVIDERS
def test_a_prompt_too_long_for_the_cache_writes_no_chunk(tmp_path: Path, provider: str) -> None:
    def body(self: Any, x: Any, *, position: Any, rows: Any) -> Any:
        x = x[:rows]
        self.keys[position : position + CHUNK] = x
        return x + 1

    state = onnx_iron.state((20, 4), np.float32)
    session = opened(tmp_path, provider, body, {"x": ((CHUNK, 4), np.float32)}, keys=state)
    assert session.prefill(x=random(20, 4))["output"].shape == (20, 4)
    session.reset()
    with pytest.raises(
        ValueError, match=r"'position' is 16, .*'keys' has 20 entries, expected 0.."
    ):
        session.prefill(x=random(21, 4))
    np.testing.assert_array_equal(session.state("keys"), 0)
    with pytest.raises(ValueError, match=r"'rows' is 9, and the input 'x' has 8 entries"):
        session.run({"x": random(CHUNK, 4), "rows": 9})


@PROVIDERS
@pytest.mark.parametrize(
    "place",
    [lambda p: 2 * p, lambda p: 9 - 2 * p, lambda p: 3 * p - 4, lambda p: 11 - 3 * p],
    ids=["2p", "9-2p", "3p-4", "11-3p"],
)
def test_a_place_that_a_value_makes_is_taken_just_where_the_cache_has_it(
    tmp_path: Path, provider: str, place: Any
) -> None:
    def body(self: Any, x: Any, *, p: Any) -> Any:
        start = place(p)
        return self.table[start : start + 3].copy() + x

    table = random(14, 4)
    kept = onnx_iron.Weight.of(table)
    session = opened(tmp_path, provider, body, {"x": ((3, 4), np.float32)}, table=kept)
    x = random(3, 4, seed=1)
    for p in range(-8, 12):
        start = place(p)
        if 0 <= start <= 14 - 3:
            got = session.run({"x": x, "p": p})["output"]
            np.testing.assert_array_equal(got, table[start : start + 3] + x)
        else:
            with pytest.raises(ValueError, match=f"'p' is {p}, and the weight 'table' has 14"):
                session.run({"x": x, "p": p})


def test_the_metadata_of_a_value_names_the_axes_that_it_counts_itself() -> None:
    def body(self: Any, x: Any, z: Any, *, rows: Any) -> Any:
        return {"y": x[:rows] + 1, "half": z[: rows // 2] + 1}

    trace = Network(body).trace(x=((8, 4), np.float32), z=((4, 4), np.float32))
    described = json.loads(describe(trace)["onnx_iron.values"])
    assert described == {"rows": {"bounds": [{"input": "x", "axis": 0}]}}


@PROVIDERS
@pytest.mark.parametrize("wrong", [-1, 10])
def test_an_id_that_is_no_entry_is_refused(tmp_path: Path, provider: str, wrong: int) -> None:
    def body(self: Any, ids: Any) -> Any:
        return F.embedding(ids, self.table)

    session = opened(tmp_path, provider, body, {"ids": ((3,), np.int32)}, table=random(10, 4))
    with pytest.raises(ValueError, match=rf"'ids'\[1\] is {wrong}, .*'table' .* expected 0\.\.9"):
        session.run({"ids": np.array([0, wrong, 2], np.int32)})
    plain = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    with pytest.raises(Exception, match="out of data bounds"):
        plain.run(None, {"ids": np.array([0, wrong, 2], np.int32)})


def test_one_limit_is_written_once_for_all_layers(tmp_path: Path) -> None:
    keys = [onnx_iron.state((12, 4), np.float32) for _ in range(3)]
    session = opened(tmp_path, "iron", cached, {"x": ((1, 4), np.float32)}, keys=keys)
    limits = session._models["model"].limits
    assert [(str(limit.value), limit.low, limit.of) for limit in limits] == [
        ("position", 0, "state 'keys.0'")
    ]


@PROVIDERS
def test_states_of_integers_keep_every_bit(tmp_path: Path, provider: str) -> None:
    def body(self: Any, x: Any, i: Any, j: Any, *, position: Any) -> Any:
        self.ids[position] = i[0]
        self.wide[...] = j
        return x + 1

    session = opened(
        tmp_path,
        provider,
        body,
        {"x": ((1, 4), np.float32), "i": ((1,), np.int32), "j": ((2,), np.int64)},
        ids=onnx_iron.state((3,), np.int32),
        wide=onnx_iron.state((2,), np.int64),
    )
    wide = np.array([2**53 + 1, -1], np.int64)
    for number in (2**24 + 1, 7):
        session.run({"x": random(1, 4), "i": np.array([number], np.int32), "j": wide})
    session.save(tmp_path / "saved")
    session.reset()
    np.testing.assert_array_equal(session.state("ids"), 0)
    session.restore(tmp_path / "saved")
    np.testing.assert_array_equal(session.state("ids"), [2**24 + 1, 7, 0])
    np.testing.assert_array_equal(session.state("wide"), wide)
