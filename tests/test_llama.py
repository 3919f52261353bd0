"""SmolLM2-135M through export and the provider, against transformers on the same weights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnx_iron import Session

Export = Callable[..., Path]

# 256 tokens and more of plain prose, which no prompt format touches.
TEXT = " ".join(
    f"On day {day} the keeper wound the clock, trimmed the wick, cleaned lamp number {day % 7}, "
    f"and wrote in the log that the wind blew from the {wind}, that {day * 3} ships had passed, "
    "and that nothing else was worth the ink."
    for day, wind in enumerate(
        ["north", "south", "east", "west", "north-east", "south-west"], start=1
    )
)


def greedy(
    session: Session, prompt: list[int], count: int
) -> tuple[list[int], np.ndarray[Any, Any]]:
    """The likeliest ``count`` tokens after a prompt, and the logits that each was taken from."""
    session.reset()
    rows = [session.prefill(input_ids=np.array(prompt, np.int32))["logits"][-1]]
    tokens = [int(rows[-1].argmax())]
    while len(tokens) < count:
        rows.append(session.decode(input_ids=np.array(tokens[-1:], np.int32))["logits"][-1])
        tokens.append(int(rows[-1].argmax()))
    return tokens, np.stack(rows)


def transformers_logits(model: Any, ids: list[int]) -> np.ndarray[Any, Any]:
    """transformers' logits (len(ids), V) for every position."""
    import torch

    with torch.inference_mode():
        return np.asarray(model(torch.tensor([ids])).logits[0])


@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_float32_gives_the_greedy_tokens_and_logits_of_transformers(
    provider: str, exported: Export, transformers_model: Any, prompts: list[list[int]]
) -> None:
    session = Session(exported("float32"), provider=provider)
    for prompt in prompts if provider == "iron" else prompts[:1]:
        tokens, logits = greedy(session, prompt, 64)
        # Teacher-forced with our tokens: they are its greedy ones if each is its likeliest next.
        expected = transformers_logits(transformers_model, prompt + tokens)[len(prompt) - 1 : -1]
        assert tokens == expected.argmax(axis=1).tolist()
        assert np.abs(logits - expected).max() < 1e-3


def test_bfloat16_stays_close_to_float32_over_a_text(
    exported: Export, transformers_model: Any, smollm2: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"][:256]
    assert len(ids) == 256
    session = Session(exported("bfloat16", logits="all"))
    logits = session.prefill(input_ids=np.array(ids, np.int32))["logits"]
    assert logits.shape == (256, 49152)
    expected = transformers_logits(transformers_model, ids)

    def log_softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        shifted = x.astype(np.float64) - x.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    p, q = log_softmax(expected), log_softmax(logits)
    divergence = (np.exp(p) * (p - q)).sum(axis=1).mean()
    agreement = (expected.argmax(axis=1) == logits.argmax(axis=1)).mean()
    print(f"KL {divergence:.4f}, top-1 agreement {agreement:.4f}")
    assert divergence <= 0.02
    assert agreement >= 0.97


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_prefill_then_decode_leaves_the_states_of_one_long_prefill(
    dtype: str, exported: Export, prompts: list[list[int]]
) -> None:
    ids = np.array([token for prompt in prompts for token in prompt][:70], np.int32)
    session = Session(exported(dtype))
    whole = session.prefill(input_ids=ids)["logits"][-1]
    long = {name: session.state(name) for name in session.states}
    session.reset()
    session.prefill(input_ids=ids[:41])
    for token in ids[41:]:
        last = session.decode(input_ids=token[None])["logits"][-1]
    for name, state in long.items():
        assert state.tobytes() == session.state(name).tobytes(), name
    # A product of several rows sums each row in the order that a product of one row does.
    assert np.array_equal(whole, last)


def test_every_node_of_the_bfloat16_model_runs_on_the_provider(exported: Export) -> None:
    folder = exported("bfloat16")
    session = Session(folder)
    for placement in session.placement().values():
        refused = [row for row in placement.rows if row.provider != "IronExecutionProvider"]
        assert not refused
    for name in ("prefill", "decode"):
        nodes = onnx.load(folder / f"{name}.onnx", load_external_data=False).graph.node
        assert len(session.placement()[name].rows) == len(nodes)


def test_stock_onnxruntime_runs_the_bfloat16_file_too(
    exported: Export, prompts: list[list[int]]
) -> None:
    prompt = np.array(prompts[0], np.int32)
    ours = Session(exported("bfloat16")).prefill(input_ids=prompt)["logits"]
    stock = Session(exported("bfloat16"), provider="stock").prefill(input_ids=prompt)["logits"]
    # 30 layers of bfloat16 roundings that fall either way where sums differ in order.
    assert np.abs(ours - stock).max() < 1.0
    assert ours.argmax() == stock.argmax()


def test_the_exports_pass_the_checker(exported: Export) -> None:
    for dtype in ("float32", "bfloat16"):
        for name in ("prefill", "decode"):
            onnx.checker.check_model(exported(dtype) / f"{name}.onnx", full_check=True)


def test_export_holds_little_more_than_the_weights(smollm2: Path, tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from onnx_iron.models.gguf import GGUFCheckpoint
from onnx_iron.models.exported import export_checkpoint
report = export_checkpoint(GGUFCheckpoint(sys.argv[1]), sys.argv[2], dtype="bfloat16")
# The kernel's high-water mark of this process alone; getrusage starts from the parent's.
status = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
print(peak, report.total_bytes)
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(smollm2), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    peak, written = map(int, run.stdout.split())
    assert peak <= written + 300e6


def test_two_open_sessions_share_the_weights_memory(exported: Export) -> None:
    script = """
import sys
from pathlib import Path
import numpy as np
import onnxruntime, onnx_iron, onnx_iron.provider

def resident():
    # Proportional set size counts a page that is mapped twice once.
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))

onnx_iron.provider.register()
before = resident()
session = onnx_iron.Session(sys.argv[1])
session.prefill(input_ids=np.arange(40, dtype=np.int32))
session.decode(input_ids=np.arange(1, dtype=np.int32))
print(resident() - before)
"""
    folder = exported("bfloat16")
    run = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )
    print(run.stdout)
    assert int(run.stdout) <= 1.3 * (folder / "weights.bin").stat().st_size


def test_a_full_cache_is_an_error_that_names_the_bound(exported: Export) -> None:
    session = Session(exported("bfloat16", context=64))
    with pytest.raises(ValueError, match="65 rows at position 0 go past the model's context of 64"):
        session.prefill(input_ids=np.zeros(65, np.int32))
    session.reset()
    session.prefill(input_ids=np.zeros(64, np.int32))
    with pytest.raises(
        ValueError, match=r"'position' is 64, and .* has 64 entries, expected 0..63"
    ):
        session.decode(input_ids=np.zeros(1, np.int32))


def test_a_token_outside_the_vocabulary_is_an_error(exported: Export) -> None:
    session = Session(exported("bfloat16"))
    with pytest.raises(Exception, match=r"'input_ids'\[1\] is 49152, .*, expected 0\.\.49151"):
        session.prefill(input_ids=np.array([0, 49152], np.int32))


@pytest.mark.parametrize("damage", ["truncated", "absent"])
def test_a_damaged_weights_file_is_one_clear_error(
    damage: str, exported: Export, tmp_path: Path
) -> None:
    folder = exported("bfloat16")
    for name in ("prefill.onnx", "decode.onnx"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    if damage == "truncated":
        (tmp_path / "weights.bin").write_bytes((folder / "weights.bin").read_bytes()[: 10 << 20])
    with pytest.raises(Exception, match=r"weights\.bin"):
        Session(tmp_path)
