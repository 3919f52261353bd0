"""Prefill and decode speed of a whole model against plain onnxruntime, in turns.

``python -m onnx_iron.tools.bench.models [--rounds N] [--threads N] [--model FILE.gguf]``
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

from onnx_iron import Session
from onnx_iron.models.exported import export_checkpoint
from onnx_iron.models.gguf import GGUFCheckpoint
from onnx_iron.tools.download import smollm2

# What is measured: provider and dtype. The peer is last: every ratio is against it.
CANDIDATES = (("iron", "bfloat16"), ("iron", "float32"), ("stock", "float32"))


def main() -> None:
    """Measure, and print a line a candidate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens decoded after it")
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--model", type=Path, help="a GGUF file (default: SmolLM2-135M)")
    arguments = parser.parse_args()
    checkpoint = GGUFCheckpoint(arguments.model or smollm2(None))
    with tempfile.TemporaryDirectory() as scratch:
        for dtype in sorted({dtype for _, dtype in CANDIDATES}):
            export_checkpoint(
                checkpoint,
                Path(scratch) / dtype,
                dtype=dtype,
                context=arguments.prompt + arguments.tokens,
                chunk=arguments.chunk,
            )
        sessions = {}
        for provider, dtype in CANDIDATES:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = arguments.threads
            # A pool that spins between its calls would slow down whoever has its turn.
            options.add_session_config_entry("session.force_spinning_stop", "1")
            sessions[provider, dtype] = Session(
                Path(scratch) / dtype, provider=provider, session_options=options
            )
        rows: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in sessions}
        for session in sessions.values():
            measure(session, arguments.prompt, 4)  # to warm up
        for _ in range(arguments.rounds):
            for key, session in sessions.items():
                rows[key].append(measure(session, arguments.prompt, arguments.tokens))
    peer = CANDIDATES[-1]
    print(f"{arguments.rounds} rounds in turns, {arguments.threads} threads; medians (best)")
    for key, rates in rows.items():
        line = f"{key[0]:6} {key[1]:9}"
        for what, index in (("prefill", 0), ("decode", 1)):
            mine = [rate[index] for rate in rates]
            ratios = [a[index] / b[index] for a, b in zip(rates, rows[peer], strict=True)]
            line += (
                f"  {what} {statistics.median(mine):7.1f} ({max(mine):7.1f}) tok/s"
                f"  x{statistics.median(ratios):5.2f}"
            )
        print(line)


def measure(session: Session, prompt: int, tokens: int) -> tuple[float, float]:
    """Tokens a second of a prompt, and of the greedy decode after it."""
    session.reset()
    ids = (np.arange(prompt, dtype=np.int32) * 37) % 40000 + 1000
    begin = time.perf_counter()
    logits = session.prefill(input_ids=ids)["logits"]
    middle = time.perf_counter()
    for _ in range(tokens):
        token = logits[-1].argmax().astype(np.int32)
        logits = session.decode(input_ids=token[None])["logits"]
    return prompt / (middle - begin), tokens / (time.perf_counter() - middle)


if __name__ == "__main__":
    main()
