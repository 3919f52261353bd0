"""The design of a decoder's steps: what it does in one step is what the operators do one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import iron_stub
import numpy as np
import pytest
from design_cases import interpreted, numbers
from exactness import hold

from onnx_iron.dtypes import BFLOAT16, Array
from onnx_iron.kernels.aie.library import KernelLibrary, aligned_copy
from onnx_iron.kernels.designs import Design, Refusal, Target
from onnx_iron.kernels.designs import decode as module
from onnx_iron.kernels.designs.configuration import configuration
from onnx_iron.kernels.designs.configuration import numbers as told
from onnx_iron.kernels.designs.decode import Prologue, Stage, decode
from onnx_iron.kernels.designs.design import Access, Port, Scalar
from onnx_iron.kernels.designs.interpreter import evaluate
from onnx_iron.kernels.designs.lowering import lower
from onnx_iron.kernels.designs.schedule import schedule
from onnx_iron.operators.arithmetic import Add, Mul
from onnx_iron.operators.gemv import GEMV
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.operators.rope import RoPE
from onnx_iron.operators.silu import SiLU

ROWS, WIDTH = 3, 64
LONG = ROWS * WIDTH


def port(name: str, *shape: int, access: Access = Access.READ) -> Port:
    return Port(name, "bfloat16", shape, access)


def stage(prologue: Prologue, *operands: tuple[int, ...], rows: int = 1, **others: Any) -> Stage:
    """One whose operands are named x0, x1, ..., and whose result is as long as it gives."""
    ports = tuple(port(f"x{i}", *shape) for i, shape in enumerate(operands))
    weight = others.get("weight")
    n = int(np.prod(operands[0])) // rows
    length = rows * n if weight is None else weight.shape[0]
    result = others.pop("result", port("y", length, access=Access.WRITE))
    return Stage(prologue, ports, rows, n, result, **others)


def designed(made: Stage, target: Target) -> Design:
    design = decode(made, target)
    assert isinstance(design, Design), design
    return design


def ran(
    made: Stage, target: Target, operands: Sequence[Array], start: int | None = None, **rest: Array
) -> Array:
    """The result, which is the same whatever memory held before."""
    given = {f"x{i}": array for i, array in enumerate(operands)} | rest
    values = {} if start is None else {"start": start}
    design = designed(made, target)
    results = [evaluate(design, given, values, poison=poison)["y"] for poison in (0xFF, 0x3C)]
    np.testing.assert_array_equal(*(result.view(np.uint16) for result in results))
    return results[0]


def one_by_one(prologue: Prologue, target: Target, operands: Sequence[Array]) -> Array:
    """What a prologue does, by the operators' own designs."""
    x, *others = operands
    match prologue:
        case Prologue.NONE:
            return x
        case Prologue.NORM:
            given = {"x": x, "weight": others[0]}
            return interpreted(RMSNorm(epsilon=1e-5), given, target)["y"]
        case Prologue.GATE:
            x = interpreted(SiLU(), {"x": x}, target)["y"]
            return interpreted(Mul(), {"a": x, "b": others[0]}, target)["y"]
        case Prologue.MUL:
            return interpreted(Mul(), {"a": x, "b": others[0]}, target)["y"]
    pairs = prologue is Prologue.ROPE_PAIRS
    given = {"x": x, "angles": others[0][None]}
    return interpreted(RoPE(interleaved=pairs), given, target)["y"]


def operands_of(prologue: Prologue) -> list[Array]:
    x = numbers(1, ROWS, WIDTH, scale=2.0)
    match prologue:
        case Prologue.NONE:
            return [x]
        case Prologue.GATE | Prologue.MUL:
            return [x, numbers(2, ROWS, WIDTH)]
        case Prologue.NORM:
            return [x, numbers(2, WIDTH)]
    return [x, numbers(2, WIDTH, scale=0.5)]


# Those of attention have tests of their own.
PROLOGUES = [prologue for prologue in Prologue if prologue < Prologue.ATTENTION]


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("prologue", PROLOGUES)
def test_what_comes_before_and_after_has_the_bits_of_the_operators_one_by_one(
    prologue: Prologue, target: Target
) -> None:
    operands = operands_of(prologue)
    shapes = [array.shape for array in operands]
    wanted = one_by_one(prologue, target, operands).reshape(-1)
    number = 1e-5 if prologue is Prologue.NORM else 0.0
    made = stage(prologue, *shapes, rows=ROWS, number=number)
    y = ran(made, target, operands)
    np.testing.assert_array_equal(y.view(np.uint16), wanted.view(np.uint16))
    residual = numbers(3, LONG)
    made = stage(prologue, *shapes, rows=ROWS, number=number, added=port("added", LONG))
    y = ran(made, target, operands, added=residual)
    wanted = interpreted(Add(), {"a": wanted, "b": residual}, target)["y"]
    np.testing.assert_array_equal(y.view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("prologue", [Prologue.NONE, Prologue.NORM, Prologue.GATE, Prologue.MUL])
@pytest.mark.parametrize(("n", "k"), [(8, 64), (336, 192), (24, 1536), (1024, 64)])
def test_a_product_of_what_comes_before(n: int, k: int, prologue: Prologue, target: Target) -> None:
    """Rows that share a tile of the weight, rows of several tiles, more columns than blocks."""
    weight = numbers(4, n, k, scale=k**-0.5)
    operands = [numbers(5, k), *([] if prologue is Prologue.NONE else [numbers(6, k)])]
    number = 1e-5 if prologue is Prologue.NORM else 0.0
    made = stage(prologue, *[(k,)] * len(operands), number=number, weight=port("weight", n, k))
    x = one_by_one(prologue, target, operands)
    hold(GEMV(), ran(made, target, operands, weight=weight), weight, x)


@pytest.mark.parametrize("target", Target)
def test_a_sum_is_of_the_rounded_product(target: Target) -> None:
    n, k = 352, 192
    weight, x, residual = numbers(4, n, k, scale=k**-0.5), numbers(5, k), numbers(6, n)
    plain = stage(Prologue.NONE, (k,), weight=port("weight", n, k))
    product = ran(plain, target, [x], weight=weight)
    added = stage(Prologue.NONE, (k,), weight=port("weight", n, k), added=port("added", n))
    y = ran(added, target, [x], weight=weight, added=residual)
    wanted = (product.astype(np.float64) + residual.astype(np.float64)).astype(BFLOAT16)
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("target", Target)
def test_a_result_may_be_one_entry_of_a_state(target: Target) -> None:
    cache, x, angles = numbers(1, 7, ROWS, WIDTH), numbers(2, ROWS, WIDTH), numbers(3, WIDTH)
    made = stage(
        Prologue.ROPE,
        (ROWS, WIDTH),
        (WIDTH,),
        rows=ROWS,
        result=port("y", *cache.shape, access=Access.UPDATE),
        entry=Scalar("start", 0, 6),
    )
    wanted = cache.copy()
    wanted[5] = one_by_one(Prologue.ROPE, target, [x, angles])
    y = ran(made, target, [x, angles], 5, y=cache)
    np.testing.assert_array_equal(y, wanted)


SHAPES = {
    "SmolLM2-135M": (576, 1536, 192, 49152),
    "LFM2-350M": (1024, 4608, 512, 65536),
    "Llama-3.2-1B": (2048, 8192, 512, 128256),
}


def stages_of(model: str) -> dict[str, Stage]:
    """Those of a layer, and of the head."""
    hidden, inner, kv, vocabulary = SHAPES[model]
    norm = {"number": 1e-5}
    both = hidden + kv
    return {
        "query and key": stage(
            Prologue.NORM, (hidden,), (hidden,), weight=port("weight", both, hidden), **norm
        ),
        "gate and up": stage(
            Prologue.NORM, (hidden,), (hidden,), weight=port("weight", 2 * inner, hidden), **norm
        ),
        "down": stage(
            Prologue.GATE,
            (inner,),
            (inner,),
            weight=port("weight", hidden, inner),
            added=port("added", hidden),
        ),
        "rope": stage(Prologue.ROPE, (hidden // WIDTH, WIDTH), (WIDTH,), rows=hidden // WIDTH),
        "head": stage(
            Prologue.NORM, (hidden,), (hidden,), weight=port("weight", vocabulary, hidden), **norm
        ),
    }


@pytest.mark.parametrize("target", Target)
def test_all_steps_of_all_models_share_a_configuration(target: Target) -> None:
    designs = [designed(made, target) for model in SHAPES for made in stages_of(model).values()]
    assert len({configuration(design) for design in designs}) == 1
    # Each column's core is told as many words, which say apart what differs.
    words = [[tuple(told(design, c, {})) for c in range(target.columns)] for design in designs]
    assert {len(each) for design in words for each in design} == {17}
    assert len({tuple(design) for design in words}) == len(designs)


@pytest.mark.parametrize("release", iron_stub.RELEASES)
@pytest.mark.parametrize("target", Target)
def test_a_step_is_told_to_iron_as_its_numbers(target: Target, release: str) -> None:
    for made in stages_of("SmolLM2-135M").values():
        if made.length > 2048:
            continue
        design = designed(made, target)
        with iron_stub.installed(release) as iron:
            lower(design, {})
        start, _, tile, finish = design.calls
        for column, (blocks, tiles) in enumerate(design.columns):
            calls = [(name, given) for name, at, given in iron.calls if at[0] == column]
            counts = Counter(name for name, _ in calls)
            assert counts["decode_put_bf16"] == design.streams[0].size // design.streams[0].chunk
            assert counts[start.kernel] == 1
            assert counts[tile.kernel] == blocks * tiles
            firsts = [int(given[4]) for name, given in calls if name == finish.kernel]
            begin = module.BLOCK * design.columns[0][0] * column
            assert firsts == [begin + module.BLOCK * block for block in range(blocks)]
            assert {int(given[3]) for name, given in calls if name == finish.kernel} <= {
                (1 if made.weight else 0) | (2 if made.added else 0)
            }


@pytest.mark.parametrize("model", SHAPES)
def test_a_step_is_one_phase_of_few_descriptors(model: str) -> None:
    for name, made in stages_of(model).items():
        phases = schedule(designed(made, Target.NPU2), {})
        assert len(phases) == 1, name
        # For each column one of the weight and one of the result, and the operands once.
        assert len(phases[0]) <= 2 * 8 + 4, name


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (stage(Prologue.NONE, (72,)), "x0 has 72 elements, no multiple of 32"),
        (stage(Prologue.NONE, (96,), weight=port("weight", 32, 96)), "K 96 is no multiple of 64"),
        (
            stage(Prologue.NONE, (64,), weight=port("weight", 20, 64)),
            "to 20 elements; it takes multiples of 32 and 8",
        ),
        (stage(Prologue.MUL, (16384,), (16384,)), "there is room for 24576"),
        (
            stage(Prologue.NONE, (64,), weight=Port("weight", "float32", (32, 64), Access.READ)),
            "weight is float32; the kernels take bfloat16",
        ),
    ],
)
def test_what_the_design_does_not_take_is_refused_with_the_reason(made: Stage, reason: str) -> None:
    refused = decode(made, Target.NPU2)
    assert isinstance(refused, Refusal)
    assert reason in refused.reason


def test_the_kernels_numbers_are_the_designs(kernels: KernelLibrary) -> None:
    """A tile and a block of another size would be read and written outside the arrays."""
    weight = aligned_copy(numbers(1, module.BLOCK, 64))
    x, y = aligned_copy(numbers(2, 64)), aligned_copy(numbers(3, module.BLOCK))
    sums = aligned_copy(np.zeros(module.BLOCK * kernels.generation.lanes, np.float32))
    kernels.call("decode_clear_bf16", sums)
    kernels.call("decode_tile_bf16", weight, x, sums, 64, 0, 0)
    kernels.call("decode_finish_bf16", sums, x, y, 1, 0, 0)
    hold(GEMV(), y, weight, x)
