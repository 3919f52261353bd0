"""Models as ``torch.onnx.export`` writes them, random weights; torch must be installed."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

WIDTH, HEADS = 64, 4


@dataclass(frozen=True)
class Exported:
    """A module, its ONNX model, and its inputs' names in order."""

    module: torch.nn.Module
    model: bytes
    names: tuple[str, ...]

    def call(self, inputs: Mapping[str, Any]) -> Any:
        """The module's own result."""
        with torch.inference_mode():
            return self.module(*(torch.from_numpy(inputs[name]) for name in self.names))


def exported(
    module: torch.nn.Module,
    arguments: Sequence[Any],
    names: Sequence[str],
    open_axes: Sequence[str],
) -> Exported:
    """Write a module's model.

    Args:
        arguments: tensors to trace it with.
        names: the inputs'.
        open_axes: names of the first axes of each input, which stay open.
    """
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(arguments),
            cast(Any, file),
            dynamo=False,
            input_names=list(names),
            output_names=["y"],
            dynamic_axes={name: dict(enumerate(open_axes)) for name in names},
        )
    return Exported(module, file.getvalue(), tuple(names))


class Layer(torch.nn.Module):
    """Attention and a product with SiLU, its shapes computed as users write them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.query = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        b, t, _ = x.shape
        parts = self.query(self.norm(x)).reshape(b, t, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / 4).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


def transformer(layers: int) -> Exported:
    """A model of ``layers`` layers, of input ``x`` (b, t, WIDTH), both open."""
    module = torch.nn.Sequential(*[Layer() for _ in range(layers)]).eval()
    return exported(module, [torch.rand(2, 7, WIDTH)], ["x"], ["b", "t"])


class Block(torch.nn.Module):
    """A convolution, a group norm, SiLU, added to what comes in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = torch.nn.GroupNorm(8, channels)

    def forward(self, x: Any) -> Any:
        return x + torch.nn.functional.silu(self.norm(self.conv(x)))


def conv_net(channels: int, blocks: int) -> Exported:
    """A network of ``x`` (b, 3, 32, 32)."""
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, channels, 3, padding=1),
        *[Block(channels) for _ in range(blocks)],
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(channels, 10),
    ).eval()
    return exported(module, [torch.rand(1, 3, 32, 32)], ["x"], ["b"])


class Encoder(torch.nn.Module):
    """transformers' BERT, its last hidden state."""

    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids: Any, mask: Any) -> Any:
        return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state


def mini_lm(layers: int, width: int, vocabulary: int) -> Exported:
    """An encoder of MiniLM's shape, of ``ids`` and ``mask`` (b, t).

    Raises:
        ModuleNotFoundError: transformers is not installed.
    """
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        intermediate_size=4 * width,
    )
    config._attn_implementation = "eager"
    module = Encoder(BertModel(config, add_pooling_layer=False)).eval()
    ids = torch.ones((2, 7), dtype=torch.int64)
    return exported(module, [ids, torch.ones_like(ids)], ["ids", "mask"], ["b", "t"])


def sentence(length: int) -> dict[str, Any]:
    """The inputs of ``mini_lm``."""
    ids = (np.arange(length, dtype=np.int64)[None] * 37) % 500
    return {"ids": ids, "mask": np.ones_like(ids)}
