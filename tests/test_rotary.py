"""RoPE's scaled angles against transformers', and heads that are turned in part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from networks import Network, random
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from onnx_iron import functional as F

HEAD, LONG = 16, 8
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "mscale": 0.8,
        "mscale_all_dim": 1.2,
        "truncate": False,
    },
    {
        "rope_type": "longrope",
        "original_max_position_embeddings": 64,
        "short_factor": [1.0 + i / 10 for i in range(LONG)],
        "long_factor": [2.0 + i for i in range(LONG)],
    },
]


@pytest.mark.parametrize("positions", [48, 200])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: f"{s['rope_type']} {len(s)}")
def test_scaled_angles_are_transformers(scaling: dict[str, Any], positions: int) -> None:
    config = LlamaConfig(
        hidden_size=4 * HEAD,
        num_attention_heads=4,
        head_dim=HEAD,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": 5e5, **scaling},
    )
    make = ROPE_INIT_FUNCTIONS[scaling["rope_type"]]
    frequencies, factor = make(config, torch.device("cpu"), seq_len=positions)
    angles = np.arange(positions)[:, None] * frequencies.double().numpy()
    wanted = np.stack([np.cos(angles), np.sin(angles)], -1).reshape(positions, HEAD) * factor
    made = F.rope_angles(positions, HEAD, 5e5, scaling=scaling, max_positions=256)
    # transformers' frequencies are float32, and an angle has their error times its position.
    np.testing.assert_allclose(made, wanted, atol=2e-7 * positions)


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_head_is_turned_in_part(interleaved: bool) -> None:
    x, angles = random(3, 2, HEAD), F.rope_angles(3, HEAD, partial=0.5)
    result = Network(lambda self, x: F.rope(x, angles, interleaved=interleaved))(x)
    turn = angles[:, None, 0::2] + 1j * angles[:, None, 1::2]
    part, half = x[..., : HEAD // 2], HEAD // 4
    one, two = (
        (part[..., 0::2], part[..., 1::2]) if interleaved else (part[..., :half], part[..., half:])
    )
    y = (one + 1j * two) * turn
    first = np.stack([y.real, y.imag], -1).reshape(part.shape) if interleaved else None
    wanted = first if first is not None else np.concatenate([y.real, y.imag], -1)
    np.testing.assert_allclose(result[..., : HEAD // 2], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result[..., HEAD // 2 :], x[..., HEAD // 2 :])


def test_a_scaling_that_is_not_known_or_not_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="rope_type is 'dynamic'; expected one of"):
        F.rope_angles(4, 8, scaling={"rope_type": "dynamic"})
    with pytest.raises(ValueError, match="factor is None; rope_type 'linear' needs a number"):
        F.rope_angles(4, 8, scaling={"rope_type": "linear"})
    with pytest.raises(ValueError, match="3 of a head's 6 elements are turned; expected an even"):
        F.rope_angles(4, 6, partial=0.5)
