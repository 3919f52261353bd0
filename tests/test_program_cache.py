"""The programs that a session keeps for its inputs' shapes, and the memory that its calls share."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
from provider_models import groups, iron, model, node, spec

from onnx_iron.native import library
from onnx_iron.provider.library import programs_compiled

WIDTH = 64


def cached() -> int:
    return int(library().onnx_iron_programs_cached())


def frame_bytes() -> int:
    return int(library().onnx_iron_frame_bytes())


def two_steps() -> bytes:
    """exp(x) + exp(x) of any number of rows: one value lives in the arena."""
    nodes = [node("Exp", "x", "e"), node("Mul", "e e", "m"), node("Add", "m e", "y")]
    return model(nodes, [spec("x", ("rows", WIDTH))], [spec("y", ("rows", WIDTH))])


def run(session: ort.InferenceSession, rows: int) -> npt.NDArray[Any]:
    x = np.linspace(-1, 1, rows * WIDTH, dtype=np.float32).reshape(rows, WIDTH)
    (y,) = session.run(None, {"x": x})
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(y, e * e + e, rtol=1e-6)
    return np.asarray(y)


def test_shapes_beyond_the_bound_drop_the_programs_that_were_not_used_for_longest() -> None:
    session = iron(two_steps(), program_cache_bytes="8000")
    before = cached()
    for rows in range(1, 41):
        run(session, rows)
    kept = cached() - before
    assert 2 <= kept < 40
    oldest, next_oldest = 41 - kept, 42 - kept
    compiled = programs_compiled()
    run(session, oldest)
    assert programs_compiled() == compiled
    run(session, 100)
    run(session, oldest)
    assert programs_compiled() == compiled + 1
    run(session, next_oldest)
    assert programs_compiled() == compiled + 2
    assert cached() - before == kept


def test_groups_with_inputs_of_one_shape_have_programs_of_their_own() -> None:
    # Sinh is no operator that the provider takes: the two lie apart.
    nodes = [node("Exp", "x", "e"), node("Sinh", "e", "s"), node("Neg", "s", "y")]
    session = iron(model(nodes, [spec("x", ("rows", 3))], [spec("y", ("rows", 3))]))
    assert len(groups(session)) == 2
    for rows in (2, 5, 2):
        x = np.linspace(-1, 1, rows * 3, dtype=np.float32).reshape(rows, 3)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, -np.sinh(np.exp(x.astype(np.float64))), rtol=1e-5)


def test_the_latest_program_is_kept_whatever_the_bound() -> None:
    session = iron(two_steps(), program_cache_bytes="0")
    before, compiled = cached(), programs_compiled()
    for rows in (3, 3, 4, 4, 3):
        run(session, rows)
    assert programs_compiled() == compiled + 3
    assert cached() - before == 1


def test_a_session_that_ends_gives_its_programs_and_memory_back() -> None:
    programs, memory = cached(), frame_bytes()
    session = iron(two_steps())
    for rows in range(1, 20):
        run(session, rows)
    assert cached() - programs == 19
    assert frame_bytes() > memory
    del session
    gc.collect()
    assert (cached(), frame_bytes()) == (programs, memory)


def test_many_shapes_work_in_the_memory_of_the_largest() -> None:
    before = frame_bytes()
    session = iron(two_steps())
    run(session, 500)
    alone = frame_bytes() - before
    assert alone >= 500 * WIDTH * 4
    for rows in (*range(400, 500), *range(1, 100)):
        run(session, rows)
    assert frame_bytes() - before == alone


def test_memory_that_grows_step_by_step_has_little_room_to_spare() -> None:
    before = frame_bytes()
    largest = iron(two_steps())
    run(largest, 300)
    alone = frame_bytes() - before
    session = iron(two_steps())
    for rows in range(1, 301):
        run(session, rows)
    assert frame_bytes() - before - alone <= alone * 5 // 4


def test_programs_that_threads_run_outlive_their_place_in_the_cache() -> None:
    before = frame_bytes()
    session = iron(two_steps(), program_cache_bytes="0")
    run(session, 240)
    alone = frame_bytes() - before

    def many(thread: int) -> None:
        for rows in range(1, 241, 7):
            run(session, rows + thread % 3)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(many, range(8)))
    run(session, 240)
    assert frame_bytes() - before <= alone * 5 // 4


@pytest.mark.parametrize("value", ["-1", "64 MiB", "1e6", "9" * 30, ""])
def test_a_bound_that_is_no_number_of_bytes_is_refused(value: str) -> None:
    with pytest.raises(
        Exception, match=r"option .program_cache_bytes. is .* expected bytes, 0\.\."
    ):
        iron(two_steps(), program_cache_bytes=value)
