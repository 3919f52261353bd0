"""Networks that torch.onnx.export writes, run whole by our provider, against torch."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from provider_models import iron, rand
from torch import nn

import onnx_iron
from onnx_iron.tools.download import MINILM, fetch_folder


class Encoder(nn.Module):
    """Six layers of attention over all rows, without torch's own, which fixes the length."""

    def __init__(self, width: int = 48, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [
                    *(nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)),
                    *(nn.LayerNorm(width), nn.Linear(width, 96), nn.Linear(96, width)),
                ]
            )
            for _ in range(6)
        )

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        unseen = hidden[:, None, None].expand(-1, self.heads, length, -1)
        for norm, qkv, out, second, up, down in self.layers:  # type: ignore[misc]
            parts = qkv(norm(x)).reshape(batch, length, 3, self.heads, width // self.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            scores = (q @ k.transpose(-1, -2) / 3.5).masked_fill(unseen, -1e9)
            seen = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
            x = x + out(seen)
            x = x + down(nn.functional.gelu(up(second(x))))
        return x


class Torchs(nn.Module):
    """Six of torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


class Convolutions(nn.Module):
    """Convolutions of all kinds, group and batch normalisation between, along 1 or 2 axes."""

    def __init__(self, axes: int) -> None:
        super().__init__()
        conv: Any = nn.Conv1d if axes == 1 else nn.Conv2d
        batch: Any = nn.BatchNorm1d if axes == 1 else nn.BatchNorm2d
        self.layers = nn.Sequential(
            *(conv(4, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU()),
            *(conv(16, 16, 3, stride=2, padding=1, groups=4), nn.GroupNorm(8, 16), nn.GELU()),
            *(conv(16, 16, 5, padding=4, dilation=2, groups=16), batch(16), nn.ReLU6()),
            conv(16, 8, 1),
        )
        for norm in self.layers:
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                nn.init.normal_(norm.running_mean)  # type: ignore[arg-type]
                nn.init.uniform_(norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)
        places = tuple(range(2, y.ndim))
        return torch.cat([y.mean(places), y.amax(places), y.std(places)], 1)


def exported(model: nn.Module, given: Sequence[torch.Tensor], axes: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, about itself
        torch.onnx.export(
            model.eval(),
            tuple(given),
            file,
            input_names=[f"x{i}" for i in range(len(given))],
            output_names=["y"],
            dynamic_axes=axes,
            dynamo=False,
            opset_version=17,
        )
    return file.getvalue()


def assert_whole_and_right(
    model: nn.Module, serialized: bytes, calls: Sequence[Sequence[np.ndarray[Any, Any]]]
) -> None:
    session = iron(serialized)
    report = onnx_iron.placement(session)
    assert report.complete, [(row.op_type, row.reason) for row in report.rows if row.reason]
    for given in calls:
        (ours,) = session.run(None, {f"x{i}": array for i, array in enumerate(given)})
        with torch.inference_mode():
            expected = model(*map(torch.tensor, given)).numpy()
        assert ours.shape == expected.shape
        # Sums of a hundred products in another order, through some ten layers.
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def hidden(batch: int, length: int) -> np.ndarray[Any, Any]:
    """The rows behind the end of each text."""
    ends = np.linspace(length, length // 2 + 1, batch).astype(int)
    return np.asarray(np.arange(length) >= ends[:, None])


def test_a_transformer_encoder_of_any_batch_and_length_is_whole() -> None:
    model = Encoder()
    axes = {"x0": {0: "batch", 1: "length"}, "x1": {0: "batch", 1: "length"}}
    serialized = exported(model, [torch.rand(2, 7, 48), torch.tensor(hidden(2, 7))], axes)
    sizes = [(2, 7), (1, 1), (3, 20), *((1, length) for length in range(2, 52, 7))]
    calls = [(rand(b, t, 48), hidden(b, t)) for b, t in sizes]
    assert_whole_and_right(model, serialized, calls)


def test_torch_s_own_encoder_is_whole() -> None:
    model = Torchs()
    serialized = exported(model, [torch.rand(2, 9, 48)], {})
    assert_whole_and_right(model, serialized, [(rand(2, 9, 48),)])


def test_a_net_of_small_convolutions_and_group_normalisation_is_whole() -> None:
    model = Convolutions(1)
    serialized = exported(model, [torch.rand(2, 4, 33)], {"x0": {0: "batch", 2: "length"}})
    calls = [(rand(b, 4, t),) for b, t in ((2, 33), (1, 8), (3, 50), (2, 33))]
    assert_whole_and_right(model, serialized, calls)


def test_a_net_of_large_convolutions_is_left_whole_to_faster_kernels() -> None:
    """With what is between them, which onnxruntime fuses with them."""
    model = Convolutions(2)
    serialized = exported(model, [torch.rand(2, 4, 33, 33)], {"x0": {0: "batch", 2: "length"}})
    session = iron(serialized)
    for row in onnx_iron.placement(session).rows:
        assert row.provider == "CPUExecutionProvider", row
    x = rand(3, 4, 50, 33)
    with torch.inference_mode():
        expected = model(torch.tensor(x)).numpy()
    # Sums of a hundred products in another order, through some ten layers.
    np.testing.assert_allclose(session.run(None, {"x0": x})[0], expected, rtol=1e-4, atol=1e-5)


class Patches(nn.Module):
    """As images are taken into a transformer: a convolution, and layers with weights after it."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 48, 8, 8)
        self.layers = Encoder()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.patches(x).flatten(2).transpose(1, 2)
        y: torch.Tensor = self.layers(rows, torch.zeros(rows.shape[:2], dtype=torch.bool))
        return y


def test_behind_a_convolution_that_is_left_a_transformer_is_one_group() -> None:
    model = Patches()
    serialized = exported(model, [torch.rand(2, 3, 32, 32)], {"x0": {0: "batch"}})
    session = iron(serialized)
    rows = onnx_iron.placement(session).rows
    (left,) = (row for row in rows if "onnxruntime's own kernel is faster" in row.reason)
    assert left.op_type == "Conv"
    (group,) = (
        group
        for group in session.get_provider_graph_assignment_info()
        if group.ep_name == "IronExecutionProvider"
    )
    assert sum(node.op_type == "MatMul" for node in group.get_nodes()) == 36
    for batch in (2, 1, 5):
        x = rand(batch, 3, 32, 32)
        with torch.inference_mode():
            expected = model(torch.tensor(x)).numpy()
        # Sums of a hundred products in another order, through six layers.
        np.testing.assert_allclose(session.run(None, {"x0": x})[0], expected, rtol=1e-4, atol=1e-4)


class Sentences(nn.Module):
    """MiniLM, as sentence-transformers takes it: the mean of the rows that are there."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        rows = self.model(
            input_ids=ids, attention_mask=mask, token_type_ids=kinds, return_dict=False
        )[0]
        there = mask[..., None].to(rows.dtype)
        mean = (rows * there).sum(1) / there.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=-1)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_minilm_is_whole(attention: str) -> None:
    transformers = pytest.importorskip("transformers")
    folder = fetch_folder(MINILM)
    model = Sentences(
        transformers.AutoModel.from_pretrained(folder, attn_implementation=attention).eval()
    )

    def texts(batch: int, length: int) -> list[np.ndarray[Any, Any]]:
        ids = np.random.default_rng(1).integers(5, 20000, (batch, length))
        return [ids, (~hidden(batch, length)).astype(np.int64), np.zeros_like(ids)]

    axes = {f"x{i}": {0: "batch", 1: "length"} for i in range(3)}
    serialized = exported(model, [torch.tensor(array) for array in texts(2, 9)], axes)
    assert_whole_and_right(model, serialized, [texts(2, 9), texts(1, 1), texts(3, 40)])
