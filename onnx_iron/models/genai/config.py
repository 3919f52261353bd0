"""genai_config.json: what onnxruntime-genai is told of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from onnx_iron.models.checkpoint import Checkpoint
from onnx_iron.models.decoder import DecoderConfig
from onnx_iron.models.genai.interface import INPUT_IDS, MASK, PAST, POSITIONS, PRESENT
from onnx_iron.models.genai.rows import LOGITS
from onnx_iron.models.huggingface_text import generation_settings
from onnx_iron.models.kept_files import CONFIG, GENERATION, GGUF
from onnx_iron.models.text import Settings

# As the provider is called where genai looks for it.
PROVIDER = "IronExecutionProvider"


def genai_config(checkpoint: Checkpoint, file: str, context: int, provider: str) -> bytes:
    """The file's contents.

    Args:
        checkpoint: the model's.
        file: the model's, beside it.
        context: the most tokens, prompt and answer together.
        provider: "iron" to name ours, "stock" to name none.
    """
    config: DecoderConfig = checkpoint.config
    settings = generation_settings(checkpoint.path / GENERATION)
    chosen: list[dict[str, Any]] = [{PROVIDER: {}}] if provider == "iron" else []
    decoder = {
        "filename": file,
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": chosen},
        "head_size": config.head_dim,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": config.num_layers,
        "num_key_value_heads": config.num_kv_heads,
        "inputs": {
            "input_ids": INPUT_IDS,
            "attention_mask": MASK,
            "position_ids": POSITIONS,
            **_by_layer(PAST, "past"),
        },
        "outputs": {"logits": LOGITS, **_by_layer(PRESENT, "present")},
    }
    model = {
        "type": checkpoint.family.model_type,
        **_token_ids(checkpoint),
        "vocab_size": config.vocab_size,
        "context_length": context,
        "decoder": decoder,
    }
    made = {"model": model, "search": {"max_length": context, **_search(settings)}}
    return json.dumps(made, indent=2).encode() + b"\n"


def _by_layer(name: str, what: str) -> dict[str, str]:
    return {f"{what}_{kind}_names": name.replace("%s", kind) for kind in ("key", "value")}


def _search(settings: Settings) -> dict[str, Any]:
    """How tokens are chosen, as the model's maker would have it."""
    sampled = settings.temperature > 0
    return {
        "do_sample": sampled,
        "num_beams": 1,
        "past_present_share_buffer": True,
        "repetition_penalty": settings.repetition_penalty,
        **({"temperature": settings.temperature, "top_p": settings.top_p} if sampled else {}),
        **({"top_k": settings.top_k} if sampled and settings.top_k else {}),
    }


def _token_ids(checkpoint: Checkpoint) -> dict[str, Any]:
    """The ids that genai asks for; of a model without a tokenizer, what its configuration says."""
    files = checkpoint.files()
    parts = (files.get(name) for name in (CONFIG, GENERATION, GGUF))
    said = [json.loads(content) for content in parts if content is not None]
    ends = {index for values in said for index in _ids(values, "eos")}
    # A checkpoint may have no tokenizer, or one of a kind that isn't known.
    with suppress(FileNotFoundError, ValueError):
        ends |= checkpoint.text().tokenizer.eos_ids
    first = {
        name: next((i for values in said for i in _ids(values, name)), None)
        for name in ("bos", "eos", "pad", "padding")
    }
    # The configuration's own first.
    own = [first["eos"]] if first["eos"] is not None else []
    eos = own + sorted(ends - set(own))
    pad = next((first[name] for name in ("pad", "padding") if first[name] is not None), None)
    last = eos[0] if eos else 0
    return {
        "bos_token_id": last if first["bos"] is None else first["bos"],
        "eos_token_id": eos[0] if len(eos) == 1 else eos or [0],
        "pad_token_id": last if pad is None else pad,
    }


def _ids(values: Mapping[str, Any], name: str) -> list[int]:
    value = values.get(f"{name}_token_id", values.get(f"tokenizer.ggml.{name}_token_id"))
    given = value if isinstance(value, list) else [value]
    return [index for index in given if type(index) is int and index >= 0]
