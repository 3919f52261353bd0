"""The benchmarks with tiny sizes: that each runs, and what its JSON has. Never how fast it was."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnxruntime as ort
import pytest
from gguf_files import write_llama

from onnx_iron.tools import machine
from onnx_iron.tools.bench import measure
from onnx_iron.tools.bench.onnx_models import Size, decoder
from onnx_iron.tools.drive import Driver
from onnx_iron.tools.machine import Spread

ROOT = Path(__file__).parent.parent
SIZE = Size(width=32, inner=48, layers=2, heads=4, groups=2, vocabulary=64, context=32)


@pytest.fixture(autouse=True)
def _sizes_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(machine, "STEPS", 1000)
    monkeypatch.setattr(machine, "clock", machine.clock)
    # Where they run processes of their own.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def quick(name: str, path: Path, *arguments: str) -> dict[str, Any]:
    """What a benchmark writes with ``--quick``."""
    bench = importlib.import_module(f"onnx_iron.tools.bench.{name}")
    bench.main(["--quick", "--threads", "1", "--rounds", "2", "--json", str(path), *arguments])
    found: dict[str, Any] = json.loads(path.read_text())
    assert set(found) == {"machine", "limits", "rows", "skipped"}
    assert found["machine"]["command"]
    assert found["machine"]["versions"]["onnxruntime"] == ort.__version__
    assert found["limits"]["threads"] == 1
    for row in found["rows"]:
        assert row["peer"] in row["candidates"]
        for candidate in row["candidates"].values():
            assert len(candidate["figures"]) >= 2
            assert candidate["low"] <= candidate["median"] <= candidate["high"]
            ratio = candidate["ratio"]
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"] < math.inf
        assert row["candidates"][row["peer"]]["ratio"]["median"] == 1
    return found


def names_of(found: dict[str, Any]) -> list[str]:
    return [row["name"] for row in found["rows"]]


def test_decode_measures_each_context_and_what_it_reads(tmp_path: Path) -> None:
    found = quick("decode", tmp_path / "out.json", "--peers", "stock,llama.cpp,genai")
    assert names_of(found) == ["tiny decode at 0", "tiny decode at 8"]
    assert set(found["skipped"]) == {"llama.cpp", "genai"}
    for row in found["rows"]:
        assert row["peer"] == "onnxruntime GQA"
        assert set(row["candidates"]) == {
            "onnx-iron bfloat16",
            "onnx-iron float32",
            "onnxruntime GQA",
        }
        half, whole = (row["candidates"][f"onnx-iron {d}"] for d in ("bfloat16", "float32"))
        assert whole["bytes"] == 2 * half["bytes"]
        assert half["of_read"] > 0
    near, far = (row["candidates"]["onnx-iron bfloat16"]["bytes"] for row in found["rows"])
    # Eight more keys and values of one head of 64, in two layers and two bytes.
    assert far - near == 8 * 2 * 64 * 2 * 2


def test_prefill_of_a_gguf_file_has_llama_cpp_where_it_is_installed(tmp_path: Path) -> None:
    file = write_llama(tmp_path / "small.gguf")
    peers = ("--peers", "stock,llama.cpp", "--model", str(file))
    found = quick("prefill", tmp_path / "out.json", *peers)
    assert names_of(found) == ["small prefill 8"]
    there = importlib.util.find_spec("llama_cpp") is not None
    names = {"llama.cpp bf16", "llama.cpp f16"} & set(found["rows"][0]["candidates"])
    assert len(names) == (2 if there else 0)
    assert ("llama.cpp" in found["skipped"]) != there


def test_transformers_decodes_the_same_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = quick("decode", tmp_path / "out.json", "--peers", "stock,torch")
    assert "transformers float32" in found["rows"][0]["candidates"]


def test_operators_measures_nodes_of_others_and_steps_of_ours(tmp_path: Path) -> None:
    only = ["MatMul", "MultiHeadAttention", "GroupQueryAttention", "Gelu", "causal_conv1d"]
    found = quick("operators", tmp_path / "out.json", "--only", ",".join(only))
    assert names_of(found) == [f"{name}, {rows} rows" for rows in (1, 4) for name in only]
    products = [row for row in found["rows"] if row["name"].startswith("MatMul")]
    for row, rows in zip(products, (1, 4), strict=True):
        ours = row["candidates"]["onnx-iron"]
        assert ours["flops"] == 2 * rows * 256 * 256
        assert ours["bytes"] == 4 * (2 * rows * 256 + 256 * 256)


def test_load_measures_seconds_and_memory_in_processes_of_their_own(tmp_path: Path) -> None:
    found = quick("load", tmp_path / "out.json", "--peers", "stock")
    assert names_of(found) == ["tiny opened", "tiny resident"]
    for each in found["rows"][1]["found"].values():
        assert all(one["files"] > 0 and one["seconds"] > 0 for one in each)


def test_export_measures_time_and_peak_memory(tmp_path: Path) -> None:
    found = quick("export", tmp_path / "out.json", "--shapes", "tiny")
    (row,) = found["rows"]
    assert all(one["peak"] > one["bytes"] > 0 for one in row["exported"])


def test_others_measures_models_of_other_exporters(tmp_path: Path) -> None:
    found = quick("others", tmp_path / "out.json")
    names = " ".join(names_of(found))
    for what in ("MiniLM", "1st call", "2nd call", "GroupNorm", "Attention prefill"):
        assert what in names
    assert "GroupQueryAttention decode" in names
    assert set(found["rows"][0]["candidates"]) == {"onnx-iron", "onnxruntime", "torch"}


def test_the_roofline_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "roofline.png"
    quick("operators", tmp_path / "out.json", "--only", "Gelu", "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; "
        "from onnx_iron.tools.bench.operators import main; "
        "main(['--quick', '--plot', 'roofline.png'])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1
    assert run.stdout == ""
    assert "--plot needs matplotlib: pip install 'onnx-iron[plot]'" in run.stderr


def test_processor_time_is_of_one_thread(tmp_path: Path) -> None:
    arguments = ("--only", "Gelu", "--processor-time")
    found = quick("operators", tmp_path / "out.json", *arguments)
    assert len(found["rows"]) == 2
    with pytest.raises(SystemExit, match="--processor-time with --threads 2"):
        quick("operators", tmp_path / "out.json", *arguments, "--threads", "2")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("decode", ("--peers", "vllm"), "--peers has ['vllm']"),
        ("prefill", ("--dtypes", "int8"), "--dtypes has ['int8']"),
        ("others", ("--only", "lstm"), "--only has ['lstm']"),
        ("operators", ("--only", "lstm"), "--only has ['lstm']"),
    ],
)
def test_an_unknown_name_is_refused(
    tmp_path: Path, name: str, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match="expected some of") as caught:
        quick(name, tmp_path / "out.json", *arguments)
    assert message in str(caught.value)


# -- what they are made of ----------------------------------------------------------------------


def test_a_spread_is_numpys_quartiles() -> None:
    figures = [3.0, 9.0, 4.0, 1.0, 7.0]
    found = Spread.of(figures)
    low, median, high = np.quantile(figures, [0.25, 0.5, 0.75])
    assert (found.low, found.median, found.high, found.best) == (low, median, high, 9)
    assert Spread.of([2.0]) == Spread(2, 2, 2, 2)


def test_a_ratio_above_one_is_better_for_rates_and_for_times() -> None:
    assert measure.ratios([2.0, 6.0], [1.0, 2.0], "tok/s") == [2, 3]
    assert measure.ratios([2.0, 6.0], [1.0, 2.0], "s") == [1 / 2, 1 / 3]


def test_candidates_take_turns_and_each_round_begins_with_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    order: list[str] = []

    def candidate(name: str) -> Any:
        return lambda: float(bool(order.append(name))) + len(name)

    arguments = measure.parser_of("", 3).parse_args(["--rounds", "3", "--threads", "1"])
    report = measure.Report(arguments)
    names = ["a", "bb", "ccc"]
    report.compare("row", {name: candidate(name) for name in names}, "bb", unit="tok/s")
    assert order == [*names, "a", "bb", "ccc", "bb", "ccc", "a", "ccc", "a", "bb"]
    (row,) = report.rows
    assert row["candidates"]["ccc"]["ratio"]["median"] == 1.5
    report.end()
    assert "the peer" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_a_gguf_files_weights_in_another_dtype_are_the_same_numbers(
    tmp_path: Path, dtype: str
) -> None:
    from onnx_iron.tools.bench.gguf_dtypes import rewrite

    source = write_llama(tmp_path / "small.gguf")
    made = rewrite(source, tmp_path / "made.gguf", dtype)
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(made)
    for one, other in zip(before.tensors, after.tensors, strict=True):
        assert one.name == other.name
        found, wanted = (
            gguf.quants.dequantize(t.data, t.tensor_type).reshape(-1) for t in (other, one)
        )
        # bfloat16's half step; half of float16's smallest number.
        np.testing.assert_allclose(found, wanted, rtol=2**-8, atol=2**-25)
        if found.size and len(one.shape) > 1:
            assert other.tensor_type.name == dtype


def test_decoders_of_others_give_one_result_on_both_providers_and_in_any_chunks() -> None:
    model = decoder(SIZE, "Attention").SerializeToString()
    results = []
    for provider, parts in (("stock", (7,)), ("stock", (3, 1, 3)), ("iron", (3, 3, 1))):
        driver = Driver(measure.open_model(model, provider, 1))
        for rows in parts:
            logits = driver(rows)[0].numpy()
        results.append(logits)
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-4, atol=1e-5)
