"""Falcon Mamba: Mamba with norms of each scan's steps and of what it takes in and reads with.

Zuo et al., arXiv 2410.05355.
"""

from __future__ import annotations

import dataclasses

from onnx_iron.models.families import mamba
from onnx_iron.models.family import Family
from onnx_iron.models.fields import Fields


def read(fields: Fields) -> mamba.MambaConfig:
    fields.idle("use_falcon_mambapy")
    eps = fields.positive("mixer_rms_eps", 1e-6)
    return dataclasses.replace(mamba.read(fields), scan_norm_eps=eps)


FAMILY = Family("falcon_mamba", ("FalconMambaForCausalLM",), read, mamba.Mamba, endless=True)
