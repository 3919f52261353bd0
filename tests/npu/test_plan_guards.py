"""What a plan's guards are for: plans run on the host, their designs interpreted, give the values
that numpy gives, with a state in one buffer and in two. Each test fails with its guard left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from design_compiler import COMPILER

from onnx_iron.dtypes import BFLOAT16, INT32, Array, Spec
from onnx_iron.kernels.designs import Target, interpreter
from onnx_iron.operators.arithmetic import Add, Mul
from onnx_iron.operators.narrow import Narrow
from onnx_iron.operators.silu import SiLU
from onnx_iron.operators.slice_scatter import SliceScatter
from onnx_iron.provider.devices.npu.host import HostStep
from onnx_iron.provider.devices.npu.plan import make_plan
from onnx_iron.provider.devices.npu.rewrites import is_multiple
from onnx_iron.provider.devices.npu.work import Place, Plan
from onnx_iron.provider.lowering import KernelCall, Lowering
from onnx_iron.provider.schedule import schedule
from onnx_iron.provider.subgraph import Subgraph
from onnx_iron.provider.symbols import Numbers

ROWS, WIDTH = 6, 64


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(BFLOAT16)


def planned(
    steps: list[KernelCall],
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Array],
    **between: tuple[int, ...],
) -> Plan:
    """The plan of steps; a value without axes is an int32, and constants are inputs that stay."""

    def spec(shape: tuple[int, ...]) -> Spec:
        return Spec(shape, BFLOAT16 if shape else INT32)

    specs = {n: spec(shape) for n, shape in {**inputs, **outputs, **between}.items()}
    specs |= {name: spec(array.shape) for name, array in constants.items()}
    known = {name: array for name, array in constants.items() if array.dtype == INT32}
    lowering = Lowering(specs=specs, integers=known, steps=steps)
    names = (*inputs, *constants)
    constant = tuple(name in constants for name in names)
    made = schedule(lowering, names, constant, tuple(outputs))
    subgraph = Subgraph(
        lowering=lowering,
        steps=made.steps,
        inputs=names,
        outputs=tuple(outputs),
        shapes=tuple(specs[name].shape for name in names),
        numbers=Numbers(),
        general=False,
        constant=constant,
        placed=made.placed,
        pairs=made.pairs,
    )
    return make_plan(subgraph, Target.NPU2, COMPILER, any_artifact=True)


def ran(plan: Plan, given: Mapping[str, Array], *, together: bool) -> list[Array]:
    """The outputs; ``together``: each pair of an input and an output is one buffer."""
    lowering, specs = plan.lowering, plan.lowering.specs
    buffers: dict[tuple[Place, object], Array] = {}
    for number, name in enumerate(plan.inputs):
        content = np.ascontiguousarray(given[name]).reshape(-1).view(np.uint8).copy()
        buffers[Place.INPUT, number] = buffers[Place.CONSTANT, number] = content
    for number, name in enumerate(plan.outputs):
        buffers[Place.OUTPUT, number] = np.full(specs[name].bytes, 0xFF, np.uint8)
    shared = set()
    for source, made in sorted(plan.pairs):
        if together and made not in shared and source not in shared:
            buffers[Place.OUTPUT, made] = buffers[Place.INPUT, source]
            shared |= {made}
        elif (source, made) in plan.updates:
            buffers[Place.OUTPUT, made][:] = buffers[Place.INPUT, source]
    buffers[Place.ARENA, 0] = np.full(plan.arena_bytes, 0xFF, np.uint8)
    for name, array in lowering.literals.items():
        buffers[Place.LITERAL, name] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def at(name: str) -> Array:
        root, offset = lowering.resolve(name)
        home = plan.homes[root]
        key = root if home.place is Place.LITERAL else home.index
        begin = home.offset + offset
        raw = buffers[home.place, key][begin : begin + specs[name].bytes]
        return raw.view(specs[name].dtype).reshape(specs[name].shape)

    for work in plan.work:
        step = work.step
        if work.artifact is None:
            host = HostStep(step, lowering)
            host.run(
                [None if name is None else at(name).ctypes.data for name in step.inputs],
                [at(name).ctypes.data for name in step.outputs],
            )
            host.close()
            continue
        design = work.artifact.design
        arrays = {
            buffer.name: at(name).reshape(buffer.shape)
            for buffer, name in zip(design.buffers, work.operands, strict=True)
        }
        values = {
            key: int(at(name).reshape(-1)[place]) for key, (name, place) in work.values.items()
        }
        interpreter.run(design, arrays, values)
    return [at(name).copy() for name in plan.outputs]


def scattered(x: Array, src: Array, start: int) -> Array:
    result = x.copy()
    result[start : start + len(src)] = src
    return result


def scatter(x: str, src: str, y: str) -> KernelCall:
    return KernelCall(y, SliceScatter(), [x, src, "start"], [y])


@pytest.mark.parametrize("together", [False, True])
def test_a_constant_is_copied_before_it_is_updated(together: bool) -> None:
    weight, src = numbers(1, ROWS, WIDTH), numbers(2, 1, WIDTH)
    plan = planned(
        [scatter("weight", "src", "y")],
        {"src": src.shape, "start": ()},
        {"y": weight.shape},
        {"weight": weight},
    )
    assert [work.step.op.name for work in plan.work] == ["Copy", "SliceScatter"]
    given = {"src": src, "start": np.array(3, np.int32), "weight": weight}
    (y,) = ran(plan, given, together=together)
    np.testing.assert_array_equal(y, scattered(weight, src, 3))


@pytest.mark.parametrize("together", [False, True])
def test_a_state_that_is_updated_and_read_keeps_its_old_contents_for_the_reader(
    together: bool,
) -> None:
    x, src = numbers(1, ROWS, WIDTH), numbers(2, 1, WIDTH)
    plan = planned(
        [
            scatter("x", "src", "y"),
            KernelCall("late", SiLU(), ["y"], ["late"]),
            KernelCall("sum", Add(), ["late", "x"], ["sum"]),
        ],
        {"x": x.shape, "src": src.shape, "start": ()},
        {"y": x.shape, "sum": x.shape},
        {},
        late=x.shape,
    )
    y, total = ran(plan, {"x": x, "src": src, "start": np.array(2, np.int32)}, together=together)
    wanted = scattered(x, src, 2)
    np.testing.assert_array_equal(y, wanted)
    wide = wanted.astype(np.float64)
    late = (wide / (1 + np.exp(-wide))).astype(BFLOAT16)
    exact = late.astype(np.float64) + x.astype(np.float64)
    # Two roundings to bfloat16, of SiLU and of the sum.
    np.testing.assert_allclose(total.astype(np.float64), exact, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("factor", "addend", "by_rows"), [(WIDTH, 0, True), (WIDTH, 1, False), (2, 0, False)]
)
def test_a_part_of_a_flat_matrix_is_taken_as_rows_only_where_it_always_is_one(
    factor: int, addend: int, by_rows: bool, together: bool
) -> None:
    flat = numbers(1, ROWS * WIDTH)
    plan = planned(
        [
            KernelCall("scaled", Mul(), ["place", "factor"], ["scaled"]),
            KernelCall("start", Add(), ["scaled", "addend"], ["start"]),
            KernelCall("part", Narrow(length=WIDTH), ["flat", "start"], ["part"]),
        ],
        {"flat": flat.shape, "place": ()},
        {"part": (WIDTH,)},
        {"factor": np.array(factor, np.int32), "addend": np.array(addend, np.int32)},
        scaled=(),
        start=(),
    )
    assert ("Div" in [work.step.op.name for work in plan.work]) == by_rows
    given = {"flat": flat, "place": np.array(3, np.int32)}
    given |= {"factor": np.array(factor, np.int32), "addend": np.array(addend, np.int32)}
    (part,) = ran(plan, given, together=together)
    start = 3 * factor + addend
    np.testing.assert_array_equal(part, flat[start : start + WIDTH])


@pytest.mark.parametrize("together", [False, True])
def test_the_host_updates_a_state_after_the_npu_has_read_it(together: bool) -> None:
    """The host's steps go first where nothing holds them back, and rows of an odd width are its."""
    x, src = numbers(1, ROWS, WIDTH + 1), numbers(2, 1, WIDTH + 1)
    plan = planned(
        [KernelCall("read", SiLU(), ["x"], ["read"]), scatter("x", "src", "y")],
        {"x": x.shape, "src": src.shape, "start": ()},
        {"read": x.shape, "y": x.shape},
        {},
    )
    assert {work.step.op.name: work.on_npu for work in plan.work} == {
        "SiLU": True,
        "SliceScatter": False,
    }
    given = {"x": x, "src": src, "start": np.array(2, np.int32)}
    read, y = ran(plan, given, together=together)
    wide = x.astype(np.float64)
    # 1 ulp of bfloat16: the kernel's own exp.
    np.testing.assert_allclose(read.astype(np.float64), wide / (1 + np.exp(-wide)), rtol=2**-7)
    np.testing.assert_array_equal(y, scattered(x, src, 2))


@pytest.mark.parametrize(
    ("op", "factor", "certain"), [(Mul, WIDTH, True), (Add, WIDTH, False), (Mul, 3, False)]
)
def test_a_product_is_a_multiple_where_one_factor_is_and_a_sum_where_all_terms_are(
    op: type[Mul] | type[Add], factor: int, certain: bool
) -> None:
    lowering = Lowering(integers={"known": np.array(factor, np.int32)})
    made = {"start": KernelCall("start", op(), ["place", "known"], ["start"])}
    assert is_multiple("start", WIDTH, made, lowering) == certain
    both = {"start": KernelCall("start", op(), ["known", "known"], ["start"])}
    assert is_multiple("start", WIDTH, both, lowering) == (factor == WIDTH)
