"""An operator that is a body alone: nothing asks for a kernel, and it runs everywhere."""

from __future__ import annotations

import subprocess
import sys
import textwrap

# In a process of its own: an operator that is declared stays declared.
SCRIPT = textwrap.dedent(
    '''
    from dataclasses import dataclass
    import numpy as np
    import torch
    from networks import Exported, Network, random
    from provider_models import groups, iron
    import onnx_iron
    from onnx_iron.operators.base import Case, In, Op
    from onnx_iron.tools.operator_table import table

    @dataclass(frozen=True)
    class SquaredReLU(Op):
        """``max(x, 0) ** 2``."""

        x = In()
        elementwise = True
        cases = (Case({"x": (4, 8)}),)

        def shape(self, x):
            return x

        def reference(self, x):
            positive = np.maximum(x.astype(np.float32), 0)
            return (positive * positive).astype(x.dtype)

        def oracle(self, x):
            return np.maximum(x, 0) ** 2

        def body(self, g, x):
            positive = g.op("Relu", g.widen(x))
            return g.narrow_like(g.op("Mul", positive, positive), x)

    x = random(4, 8)
    wanted = torch.relu(torch.from_numpy(x)).square().numpy()
    graph = Network(lambda self, x: SquaredReLU.step(x) + 1)
    trace = graph.trace(x=(x.shape, np.float32))
    assert [step.op.name for step in trace.steps] == ["SquaredReLU", "Add"]
    np.testing.assert_array_equal(graph.reference(x), wanted + 1)
    np.testing.assert_array_equal(Exported(trace)(x=x)["output"], wanted + 1)
    ours = Exported(trace, lambda model: iron(model.SerializeToString()))
    np.testing.assert_array_equal(ours(x=x)["output"], wanted + 1)
    print(sorted(name for group in groups(ours.session) for name in group))
    section = table().split("## SquaredReLU")[1].split("##")[0]
    assert "It is a body alone." in section, section
    '''
)


def test_an_operator_without_a_kernel_runs_everywhere_and_is_in_the_table() -> None:
    paths = f"import sys; sys.path[:] = {sys.path!r}\n"
    done = subprocess.run([sys.executable, "-c", paths + SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Left to onnxruntime, which puts its body in its place, and that is ours to run.
    assert "add" in done.stdout
