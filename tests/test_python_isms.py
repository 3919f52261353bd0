"""What people write in a body out of habit: it works as torch's, or the error says what to do."""

from __future__ import annotations

import math
import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from compare import assert_same_bits
from networks import Network, numbered, random, recorded, traced

from onnx_iron import Handle, Session, State, Value, Weight, export, state
from onnx_iron import functional as F
from onnx_iron.dtypes import BFLOAT16, FLOAT32, Array

ON_TENSORS: list[Callable[[Any], Any]] = [
    lambda x: x == None,  # noqa: E711
    lambda x: float(x),
    lambda x: int(x),
    lambda x: complex(x),
    lambda x: round(x),
    lambda x: math.floor(x),
    lambda x: math.sqrt(x),
    lambda x: range(x),
    lambda x: [1, 2][x],
    lambda x: 3 in x,
    lambda x: x in x,
    lambda x: not x,
    lambda x: x and 1,
    lambda x: pow(x, 2, 3),
    lambda x: x // 2,
    lambda x: x % 2,
    lambda x: divmod(x, 2),
    lambda x: x & 1,
    lambda x: ~x,
    lambda x: x << 1,
    lambda x: np.exp(x),
    lambda x: np.sum(x),
    lambda x: np.asarray(x),
    lambda x: np.array([x, x]),
    lambda x: np.concatenate([x, x]),
    lambda x: np.add.reduce(x),
    lambda x: np.float32(x),
    lambda x: torch.relu(x),
    lambda x: torch.nn.functional.silu(x),
    lambda x: torch.cat([x, x]),
    lambda x: torch.tensor(x),
    lambda x: x.numpy(),
    lambda x: x.tolist(),
    lambda x: x.__delitem__(0),
    lambda x: x[x],
    lambda x: x[0.5],
    lambda x: x[True],
    lambda x: list(x),
    lambda x: reversed(x),
    lambda x: F.silu([1.0, 2.0]),
    lambda x: F.linear(3, x, precision="high"),
    lambda x: F.rms_norm([1.0], 1),
    lambda x: F.softmax("x"),
    lambda x: F.layer_norm(None, 8),
    lambda x: F.linear(x, [[1.0]], precision="high"),
    lambda x: F.linear(x, np.zeros((2, 8), np.float32), 3, precision="high"),
    lambda x: F.causal_conv1d(3, x, F.conv_state(3, 8)),
    lambda x: F.scaled_dot_product_attention(x, 3, x),
]  # fmt: skip
ON_VALUES: list[Callable[[Any], Any]] = [
    lambda n: n == 3,
    lambda n: 1 if n else 2,
    lambda n: not n,
    lambda n: range(n),
    lambda n: math.sqrt(n),
    lambda n: math.ceil(n),
    lambda n: int(n),
    lambda n: float(n),
    lambda n: round(n),
    lambda n: len(n),
    lambda n: list(n),
    lambda n: 1 in n,
    lambda n: abs(n),
    lambda n: n / 2,
    lambda n: 8 / n,
    lambda n: 8 // n,
    lambda n: n // n,
    lambda n: divmod(n, 4),
    lambda n: n**2,
    lambda n: 2**n,
    lambda n: n * n,
    lambda n: n * 0.5,
    lambda n: n & 1,
    lambda n: 1 << n,
    lambda n: ~n,
    lambda n: min(n, 4),
    lambda n: [1, 2][n],
    lambda n: np.exp(n),
    lambda n: np.sum(n),
    lambda n: np.asarray(n),
    lambda n: np.int32(n),
    lambda n: np.zeros(n),
    lambda n: np.arange(n),
    lambda n: np.ones(2, np.int32) * n,
    lambda n: np.float32(0.5) * n,
    lambda n: torch.zeros(n),
    lambda n: torch.relu(n),
    lambda n: F.silu(n),
    lambda n: F.rms_norm(n, 1),
    lambda n: F.linear(n, np.zeros((2, 8), np.float32), precision="high"),
    lambda n: F.softmax(n),
]  # fmt: skip


@pytest.mark.parametrize("use", ON_TENSORS, ids=range(len(ON_TENSORS)))
@pytest.mark.parametrize("kind", ["input", "state", "weight", "computed", "slice"])
def test_a_habit_that_needs_elements_is_refused_and_records_nothing(
    use: Callable[[Any], Any], kind: str
) -> None:
    def body(self: Any, x: Handle) -> Any:
        tensor = {
            "input": x,
            "state": self.kept,
            "weight": self.w,
            "computed": x + 0,
            "slice": x[1:3],
        }[kind]
        before = len(x.trace.steps)  # type: ignore[attr-defined]
        with pytest.raises((TypeError, ValueError)) as caught:
            use(tensor)
        assert len(str(caught.value)) > 20
        assert len(x.trace.steps) == before  # type: ignore[attr-defined]
        return x + 0

    traced(body, kept=state((4, 8), FLOAT32), w=Weight.of(random(4, 8)))


@pytest.mark.parametrize("use", ON_VALUES, ids=range(len(ON_VALUES)))
def test_a_habit_that_needs_a_per_call_value_is_refused(use: Callable[[Any], Any]) -> None:
    def body(self: Any, x: Handle, *, n: Value) -> Any:
        with pytest.raises((TypeError, ValueError)) as caught:
            use(n)
        assert len(str(caught.value)) > 20
        return x[:n] + 0

    traced(body)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: x == None, "x has no comparison with None: its elements .*; `is` tells"),  # noqa: E711
        (lambda x: x % 2, "x has no % with a float: .* for int32 and int64"),
        (lambda x: ~x, "x has no ~ with .* for bools, as comparisons give"),
        (lambda x: x[x], "entries are picked by int32 or int64 numbers, and a mask"),
        (lambda x: np.exp(x), r"x has no np.exp\(\): .*functions of onnx_iron.functional"),
        (lambda x: torch.relu(x), r"torch's relu\(\) computes with elements"),
    ],
)
def test_a_refused_habit_says_what_to_write(use: Callable[[Any], Any], message: str) -> None:
    def body(self: Any, x: Handle) -> Any:
        with pytest.raises(TypeError, match=message):
            use(x)
        return x + 0

    traced(body)


def test_handles_are_told_apart_by_identity() -> None:
    def body(self: Any, x: Handle) -> Any:
        y = x + 0
        assert {x: 1, y: 2}[y] == 2
        assert len({x, y, x}) == 2
        assert y in [y]
        return y

    traced(body)


def test_what_is_trivial_works_as_torch_s() -> None:
    x = random(4, 8)
    t = torch.from_numpy(x)

    def body(self: Any, x: Handle) -> Any:
        assert len(x) == 4
        assert (+x) is x
        y = x
        y += 1  # another handle from then on
        return {
            "T": x.T.copy(),
            "view": x.view(2, -1).copy(),
            "neg": -x,
            "square": x**2,
            "added": y,
            "np": np.add(np.ones(8, np.float32), x),
        }

    results = Network(body).reference(x)
    wanted = {
        "T": t.T,
        "view": t.view(2, -1),
        "neg": -t,
        "square": t**2,
        "added": t + 1,
        "np": 1 + t,
    }
    for name, tensor in wanted.items():
        np.testing.assert_array_equal(results[name], tensor.numpy(), err_msg=name)


def test_a_state_and_its_parts_are_written_in_place_as_torch_s() -> None:
    def body(self: Any, x: Any) -> Any:
        part = self.kept[0:2]
        part += x[0:2]
        self.kept[2] *= 3
        self.kept -= 1
        return x * 1

    x, kept = numbered(4, 8), torch.arange(32, dtype=torch.float32).reshape(4, 8)
    graph = Network(body, kept=state((4, 8), FLOAT32))
    graph.reference_states()["kept"] = kept.numpy().copy()
    graph.reference(x)
    part = kept[0:2]
    part += torch.from_numpy(x[0:2])
    kept[2] *= 3
    kept -= 1
    np.testing.assert_array_equal(graph.reference_states()["kept"], kept.numpy())
    assert isinstance(graph.kept, State)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "use",
    [
        lambda x, w: x.__setitem__(0, x[0] + 1),
        lambda x, w: operator.iadd(x[0], 1),
        lambda x, w: operator.imul(w, 2),
        lambda x, w: operator.iadd(np.ones((4, 8), np.float32), x),
    ],
    ids=["entry", "part", "weight", "array"],
)
def test_what_is_no_state_is_not_written_in_place(use: Callable[[Any, Any], Any]) -> None:
    def body(self: Any, x: Any) -> Any:
        with pytest.raises(TypeError, match=r"can't be written|np.add"):
            use(x, self.w)
        return x + 0

    assert recorded(traced(body, w=Weight.of(random(4, 8))))[-1] == "Add"


# -- tensors of torch, and of others --------------------------------------------------------------


class Foreign:
    """An array of some other library."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.array


def test_torch_modules_are_weights_by_their_paths() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 3))

    def body(self: Any, x: Any) -> Any:
        for layer in self.layers:
            x = F.linear(x, layer.weight, layer.bias, precision="highest")
        return x * self.scale["by"]

    graph = Network(body, layers=module, scale={"by": torch.full((3,), 2.0)})
    trace = graph.trace(x=((4, 8), np.float32))
    names = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "scale.by"]
    assert sorted(trace.weights) == sorted(names)
    x = random(4, 8)
    wanted = 2 * module(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(graph.reference(x), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_torch_tensor_keeps_every_bit(dtype: torch.dtype) -> None:
    tensor = torch.nn.Parameter(torch.randn(6, 8).to(dtype)).T[1:7]
    assert not tensor.is_contiguous()
    array = Weight.of(tensor).load()
    kept = ml_dtypes.bfloat16 if dtype == torch.bfloat16 else np.float32
    assert_same_bits(array, tensor.detach().float().numpy().astype(kept))


def test_a_torch_tensor_of_another_dtype_or_place_says_how_to_convert_it() -> None:
    with pytest.raises(TypeError, match=r"torch tensor of float64 is no weight; convert .*\.to"):
        Weight.of(torch.zeros(2, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"a torch tensor \(2,\) on meta .* can't be read"):
        Weight.of(torch.zeros(2, device="meta"))
    with pytest.raises(TypeError, match="can't be read"):
        Weight.of(torch.eye(2).to_sparse())
    with pytest.raises(TypeError, match="is no array and no tensor"):
        Weight.of([1.0, 2.0])


def test_tensors_of_other_libraries_are_operands_on_either_side() -> None:
    x, w = random(4, 8), random(8, seed=1)
    t = torch.from_numpy(w)

    def body(self: Any, x: Any) -> Any:
        return x + t, t * x, t - x, x / Foreign(w), x * torch.tensor(2.0)

    results = Network(body).reference(x)
    for result, wanted in zip(results, (x + w, w * x, w - x, x / w, x * 2), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_torch_is_not_imported_for_a_weight() -> None:
    script = "import sys, numpy, onnx_iron; onnx_iron.Weight.of(numpy.ones(2, numpy.float32)); "
    script += "print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "False", done.stderr


def test_a_bfloat16_handle_times_a_number_stays_bfloat16() -> None:
    graph = Network(lambda self, x: -x)
    assert graph.trace(x=((2,), BFLOAT16)).outputs["output"].dtype == BFLOAT16


def test_rows_that_are_bounded_behind_the_input_say_to_bound_the_input(tmp_path: Path) -> None:
    def behind(self: Any, x: Any, *, rows: Any) -> Any:
        return F.embedding(x, self.table)[:rows] * 1

    def bounded(self: Any, x: Any, *, rows: Any) -> Any:
        return F.embedding(x[:rows], self.table) * 1

    ids, table = np.arange(11, dtype=np.int32), random(16, 4)
    for body in (behind, bounded):
        graph = Network(body, table=table)
        roles = {"prefill": 8, "decode": 1}
        traces = {role: graph.trace(x=((n,), np.int32)) for role, n in roles.items()}
        export(traces, tmp_path / body.__name__)
    session = Session(tmp_path / "behind", provider="stock")
    with pytest.raises(ValueError, match=r"bounds no axis of it by 'rows'.* x = x\[:rows"):
        session.prefill(x=ids)
    result = Session(tmp_path / "bounded", provider="stock").prefill(x=ids)["output"]
    np.testing.assert_array_equal(result, table[ids])
