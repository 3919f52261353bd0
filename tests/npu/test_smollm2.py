"""A real model on the simulated NPU: SmolLM2-135M in bfloat16, all 30 layers of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from npu_models import build_for

import onnx_iron

# "def fibonacci(n):" as a chat, by the model's tokenizer.
PROMPT = [1, 4093, 198, 1604, 44498, 24, 94, 731, 2, 198, 1, 520, 9531, 198]
# Bfloat16 angles, and 30 layers of roundings in another order, on logits up to 25.
TOLERANCE = 1.5


def test_smollm2_says_what_it_says_on_the_cpu(
    driver: Any, target: str, exported: Callable[..., Path]
) -> None:
    folder = exported("bfloat16", context=256, chunk=32)
    outcome = build_for(folder, target)
    assert not outcome.refused
    assert len(outcome.designs) < 32, "a layer's designs are every layer's"
    # The simulated cores take their time, which says nothing about an NPU's.
    npu = onnx_iron.Session(folder, device="npu", provider_options={"timeout_ms": "0"})
    cpu = onnx_iron.Session(folder, device="cpu")
    ids = np.array(PROMPT, np.int32)
    made, expected = (s.prefill(input_ids=ids)["logits"][-1] for s in (npu, cpu))
    agreed = 0
    for _ in range(32):
        np.testing.assert_allclose(made, expected, atol=TOLERANCE)
        token = np.array([expected.argmax()], np.int32)
        agreed += int(made.argmax() == expected.argmax())
        before = driver.counters()
        made = npu.decode(input_ids=token)["logits"][-1]
        after = driver.counters()
        expected = cpu.decode(input_ids=token)["logits"][-1]
    # Where two tokens are all but equally likely, a rounding decides.
    assert agreed >= 30
    # The embedding, and all other steps, as many in a run as have few enough buffers.
    assert after["runs"] - before["runs"] == 16
    assert after["bytes_to_device"] - before["bytes_to_device"] < 1 << 20, "no weights"
