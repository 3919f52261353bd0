"""What is derived holds: the operator table and the signatures, the README's example as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import onnx_iron
from onnx_iron import functional
from onnx_iron.tools.operator_table import signatures, table

ROOT = Path(__file__).parent.parent


def test_the_operator_table_is_what_the_declarations_say() -> None:
    assert (ROOT / "docs" / "operators.md").read_text() == table(ROOT)


def test_the_native_signatures_are_what_the_declarations_say() -> None:
    path = ROOT / "provider" / "native" / "operator_signatures.inc"
    assert path.read_text() == signatures()


def test_the_readme_example_runs_and_prints_what_its_comments_say(tmp_path: Path) -> None:
    example, application = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL
    )
    assert len(example.strip().splitlines()) <= 25
    script = f"{example}\n{application}"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["(40, 64)", "(1, 64) 41"]


def test_the_page_of_batches_names_every_function_and_its_example_runs() -> None:
    page = (ROOT / "docs" / "batches.md").read_text()
    functions = {name for name in functional.__all__ if not name[0].isupper()}
    assert functions <= set(re.findall(r"`(\w+)`", page))
    example = re.search(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert example is not None
    names = {"np": np, "onnx_iron": onnx_iron, "F": functional}
    exec(example[1], names)
    x = np.random.default_rng(0).standard_normal((4, 16, 64)).astype(np.float32)
    y = names["graph"].reference(x, rows=16)
    padded = torch.nn.functional.pad(torch.tensor(x).transpose(1, 2), (2, 0))
    summed = torch.nn.functional.conv1d(padded, torch.ones(64, 1, 3), groups=64).transpose(1, 2)
    expected = torch.tensor(x) + torch.nn.functional.silu(summed)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_the_public_names_are_these() -> None:
    assert sorted(onnx_iron.__all__) == [
        "Epilogue",
        "ExportReport",
        "Graph",
        "Handle",
        "Placement",
        "Precision",
        "Session",
        "State",
        "Value",
        "Weight",
        "export",
        "functional",
        "placement",
        "register",
        "state",
    ]
    assert all(hasattr(onnx_iron, name) for name in onnx_iron.__all__)
