"""The stateful session: chunks, positions, states kept, saved and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import onnx_iron
from onnx_iron import functional as F
from onnx_iron.dtypes import Spec
from onnx_iron.provider.states import StateSpec, merged

CHUNK, WIDTH, HEADS, CAPACITY = 8, 32, 2, 32
Array = np.ndarray[Any, Any]


class Net(onnx_iron.Graph):
    """A norm, a short convolution and attention over cached keys and values; with weights."""

    def __init__(self, dtype: Any = np.float32) -> None:
        rng = np.random.default_rng(0)

        def weight(*shape: int) -> Array:
            return (rng.standard_normal(shape) * 0.3).astype(dtype)

        self.norm = weight(WIDTH)
        self.inner = weight(WIDTH, WIDTH)
        self.taps = weight(3, WIDTH)
        self.conv = F.conv_state(3, WIDTH, chunk=CHUNK, dtype=dtype)
        self.project = [weight(WIDTH, WIDTH) for _ in range(3)]
        head = (CAPACITY, HEADS, WIDTH // HEADS)
        self.keys = onnx_iron.state(head, dtype)
        self.values = onnx_iron.state(head, dtype)

    def rows(self, x: Any, position: Any) -> Any:
        h = F.rms_norm(x, (WIDTH,), self.norm, eps=1e-5)
        h = F.linear(h, self.inner, precision=onnx_iron.Precision.HIGHEST)
        h = F.causal_conv1d(h, self.taps, self.conv, activation="silu")
        length = x.shape[0]
        q, k, v = (
            F.linear(h, w, precision=onnx_iron.Precision.HIGHEST).reshape(
                length, HEADS, WIDTH // HEADS
            )
            for w in self.project
        )
        self.keys[position : position + length] = k
        self.values[position : position + length] = v
        a = F.scaled_dot_product_attention(
            q, self.keys, self.values, is_causal=True, position=position
        )
        return x + a.reshape(length, WIDTH)


class Prefill(Net):
    def body(self, x: Any, *, position: Any, rows: Any) -> Any:
        return self.rows(x[:rows], position)


class Decode(Net):
    def body(self, x: Any, *, position: Any) -> Any:
        return self.rows(x, position)


def export(folder: Path, dtype: Any = np.float32, io_dtype: Any = np.float32) -> Path:
    """The net as a folder of a prefill and a decode model."""
    onnx_iron.export(
        {
            "prefill": Prefill(dtype).trace(x=((CHUNK, WIDTH), dtype)),
            "decode": Decode(dtype).trace(x=((1, WIDTH), dtype)),
        },
        folder,
        io_dtype=io_dtype,
        state_dtype=None,
    )
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("net"))


@pytest.fixture(params=["iron", "stock"])
def session(request: pytest.FixtureRequest, folder: Path) -> onnx_iron.Session:
    return onnx_iron.Session(folder, provider=request.param)


def rows(count: int, seed: int = 1, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(dtype)


def step_by_step(session: onnx_iron.Session, x: Array) -> Array:
    return np.concatenate([session.decode(x=x[i : i + 1])["output"] for i in range(len(x))])


def states_of(session: onnx_iron.Session) -> dict[str, Array]:
    return {name: session.state(name) for name in session.states}


def test_our_models_run_wholly_on_our_provider(folder: Path) -> None:
    placed = onnx_iron.Session(folder).placement()
    assert {role: report.complete for role, report in placed.items()} == {
        "prefill": True,
        "decode": True,
    }


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 21])
def test_chunks_give_what_single_steps_give(session: onnx_iron.Session, count: int) -> None:
    x = rows(count)
    whole = session.prefill(x=x)["output"]
    after = states_of(session)
    assert whole.shape == (count, WIDTH)
    assert session.position == count
    session.reset()
    np.testing.assert_allclose(step_by_step(session, x), whole, rtol=1e-5, atol=1e-6)
    assert session.position == count
    for name, array in after.items():
        np.testing.assert_allclose(session.state(name), array, rtol=1e-5, atol=1e-6)


def test_on_our_provider_any_chunking_gives_the_same_bits(folder: Path) -> None:
    session = onnx_iron.Session(folder)
    x = rows(21)
    results = []
    for cuts in ([21], [1] * 21, [8, 8, 5], [3, 10, 8], [20, 1]):
        session.reset()
        begins = np.cumsum([0, *cuts])
        parts = [
            session.prefill(x=x[b : b + n])["output"] for b, n in zip(begins, cuts, strict=False)
        ]
        results.append((np.concatenate(parts), states_of(session)))
    for output, states in results[1:]:
        np.testing.assert_array_equal(output, results[0][0])
        for name, array in states.items():
            np.testing.assert_array_equal(array, results[0][1][name])


def test_both_providers_agree(folder: Path) -> None:
    ours, stock = (onnx_iron.Session(folder, provider=name) for name in ("iron", "stock"))
    x = rows(13)
    np.testing.assert_allclose(
        ours.prefill(x=x)["output"], stock.prefill(x=x)["output"], rtol=1e-4, atol=1e-5
    )
    for name, array in states_of(ours).items():
        np.testing.assert_allclose(array, stock.state(name), rtol=1e-4, atol=1e-5)


def test_results_do_not_change_with_the_next_call(session: onnx_iron.Session) -> None:
    x = rows(2)
    first = session.decode(x=x[:1])
    kept = first["output"].copy()
    session.decode(x=x[1:])
    np.testing.assert_array_equal(first["output"], kept)


def test_reset_makes_a_session_new(session: onnx_iron.Session) -> None:
    x = rows(5)
    first = session.prefill(x=x)["output"]
    session.reset()
    assert session.position == 0
    assert all(not array.any() for array in states_of(session).values())
    np.testing.assert_array_equal(session.prefill(x=x)["output"], first)


def test_run_picks_the_model_that_the_shapes_fit(session: onnx_iron.Session) -> None:
    x = rows(CHUNK + 1)
    a = session(x=x[:CHUNK])["output"]
    b = session.run({"x": x[CHUNK:]})["output"]
    assert (a.shape, b.shape, session.position) == ((CHUNK, WIDTH), (1, WIDTH), CHUNK + 1)
    session.reset()
    np.testing.assert_allclose(session.prefill(x=x)["output"], [*a, *b], rtol=1e-5, atol=1e-6)


def test_a_position_may_be_given(session: onnx_iron.Session) -> None:
    x = rows(4)
    session.prefill(x=x)
    last = session.decode(x=x[3:], position=3)["output"]
    assert session.position == 4
    assert last.shape == (1, WIDTH)


def test_prefill_goes_on_from_a_given_position(session: onnx_iron.Session) -> None:
    x = rows(12)
    expected = session.prefill(x=x)["output"]
    conv = session.state("conv")
    session.reset()
    session.prefill(x=x[:2])
    session.decode(x=rows(1, seed=5))
    session.reset()
    session.prefill(x=x[:2])
    again = session.prefill(x=x[2:], position=np.array([2]))["output"]
    np.testing.assert_allclose(again, expected[2:], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(session.state("conv"), conv, rtol=1e-5, atol=1e-6)
    assert session.position == 12
    with pytest.raises(ValueError, match="'rows' is filled in"):
        session.prefill(x=x, rows=2)


def test_states_are_saved_and_restored(session: onnx_iron.Session, tmp_path: Path) -> None:
    x = rows(12)
    session.prefill(x=x[:9])
    file = tmp_path / "states"
    session.save(file)
    expected = session.prefill(x=x[9:])["output"]
    session.reset()
    session.restore(file)
    assert session.position == 9
    np.testing.assert_array_equal(session.prefill(x=x[9:])["output"], expected)


def test_states_of_another_model_are_refused(folder: Path, tmp_path: Path) -> None:
    session = onnx_iron.Session(folder)
    other = onnx_iron.Session(export(tmp_path / "bf16", ml_dtypes.bfloat16))
    session.prefill(x=rows(3))
    session.save(tmp_path / "states")
    with pytest.raises(ValueError, match=r"state 'conv' is float32 \(2, 32\), this model's is bf"):
        other.restore(tmp_path / "states")
    (tmp_path / "text").write_text("no states")
    before = states_of(session)
    with pytest.raises(ValueError, match="holds no states"):
        session.restore(tmp_path / "text")
    for name, array in before.items():
        np.testing.assert_array_equal(session.state(name), array)


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        ({"y": rows(1)}, ValueError, r"Session\.decode\(\): unknown input 'y', expected 'x', 'pos"),
        ({"x": rows(1).astype(np.float64)}, TypeError, "input 'x' is float64, expected float32"),
        ({"x": rows(2)}, ValueError, r"input 'x' has shape \(2, 32\), expected float32 \(1, 32\)"),
        ({}, ValueError, "input 'x' is missing"),
        ({"x": rows(1), "position": 1.5}, TypeError, "'position' is float64, expected int32"),
        ({"x": rows(1), "position": 2**40}, TypeError, "'position' is int64, expected int32"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    session: onnx_iron.Session, inputs: dict[str, Array], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        session.decode(**inputs)


def test_prefill_wants_rows(session: onnx_iron.Session) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        session.prefill(x=rows(0))


def test_a_position_past_the_cache_is_an_error(folder: Path) -> None:
    session = onnx_iron.Session(folder)
    session.prefill(x=rows(CAPACITY))
    with pytest.raises(Exception, match=r"'position' is 32.*'keys' has 32 entries, expected 0..31"):
        session.decode(x=rows(1))


def test_a_position_past_the_context_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    onnx_iron.export(
        Decode().trace(x=((1, WIDTH), np.float32)),
        tmp_path / "decode.onnx",
        metadata={"onnx_iron.context": "2"},
    )
    for provider in ("iron", "stock"):
        session = onnx_iron.Session(tmp_path / "decode.onnx", provider=provider)
        step_by_step(session, rows(2))
        before = states_of(session)
        with pytest.raises(ValueError, match=r"1 rows at position 2 go past .* context of 2"):
            session.decode(x=rows(1))
        for name, array in before.items():
            np.testing.assert_array_equal(session.state(name), array)


def test_bfloat16_goes_in_and_comes_out(tmp_path: Path) -> None:
    bf16 = ml_dtypes.bfloat16
    session = onnx_iron.Session(export(tmp_path, bf16, io_dtype=None))
    x = rows(11, dtype=bf16)
    y = session.prefill(x=x)["output"]
    assert y.dtype == bf16
    assert session.state("conv").dtype == bf16
    session.save(tmp_path / "states")
    before = states_of(session)
    session.reset()
    np.testing.assert_array_equal(step_by_step(session, x).view(np.uint16), y.view(np.uint16))
    session.restore(tmp_path / "states")
    for name, array in before.items():
        np.testing.assert_array_equal(session.state(name).view(np.uint16), array.view(np.uint16))


@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_session_options_of_the_callers_own_open_both_models(folder: Path, provider: str) -> None:
    options = onnxruntime.SessionOptions()
    for _ in range(2):  # the same options may open another session too
        session = onnx_iron.Session(folder, provider=provider, session_options=options)
        session.decode(x=np.ones((1, WIDTH), np.float32))
        assert session.position == 1


def test_a_single_file_is_a_model_too(folder: Path) -> None:
    session = onnx_iron.Session(folder / "decode.onnx")
    both = onnx_iron.Session(folder)
    x = rows(3)
    np.testing.assert_array_equal(
        np.concatenate([session(x=x[i : i + 1])["output"] for i in range(3)]),
        step_by_step(both, x),
    )


def test_missing_files_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not there"):
        onnx_iron.Session(tmp_path / "absent.onnx")
    with pytest.raises(FileNotFoundError, match=r"holds neither prefill\.onnx nor decode\.onnx"):
        onnx_iron.Session(tmp_path)
    (tmp_path / "decode.onnx").write_bytes((folder / "decode.onnx").read_bytes())
    with pytest.raises(FileNotFoundError, match=r"weights\.bin"):
        onnx_iron.Session(tmp_path)
    (tmp_path / "weights.bin").write_bytes((folder / "weights.bin").read_bytes()[:100])
    with pytest.raises(ValueError, match=r"weights\.bin has 100 bytes"):
        onnx_iron.Session(tmp_path)


def test_metadata_is_checked(folder: Path, tmp_path: Path) -> None:
    model = onnx.load(str(folder / "decode.onnx"), load_external_data=False)
    for entry in model.metadata_props:
        if entry.key == "onnx_iron.states":
            entry.value = entry.value.replace("[2, 32]", "[3, 32]")
    (tmp_path / "decode.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "weights.bin").write_bytes((folder / "weights.bin").read_bytes())
    with pytest.raises(ValueError, match=r"state 'conv' is declared as float32 \(3, 32\)"):
        onnx_iron.Session(tmp_path)


def test_models_that_share_a_state_agree_on_its_type() -> None:
    def declared(*shape: int) -> dict[str, StateSpec]:
        spec = Spec(shape, np.dtype(np.float32))
        return {"kept": StateSpec("kept", "past.kept", "present.kept", spec)}

    one, other = Path("one.onnx"), Path("other.onnx")
    assert [state.name for state in merged({one: declared(2, 3), other: declared(2, 3)})] == [
        "kept"
    ]
    with pytest.raises(ValueError, match=r"state 'kept' is .* in one\.onnx and .* in other\.onnx"):
        merged({one: declared(2, 3), other: declared(3, 2)})


@pytest.mark.usefixtures("without_npu")
def test_unknown_providers_and_options_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="there is no NPU to use"):
        onnx_iron.Session(folder, device="npu")
    with pytest.raises(ValueError, match="did you mean 'fallback'"):
        onnx_iron.Session(folder, provider_options={"fallbak": "cpu"})
    with pytest.raises(ValueError, match="provider is 'gpu', expected 'iron' or 'stock'"):
        onnx_iron.Session(folder, provider="gpu")
