"""Runs many drawn graphs through every property, and writes a script of each that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from onnx_iron.conformance import properties
from onnx_iron.conformance.batch_drawing import batches
from onnx_iron.conformance.drawing import graphs
from onnx_iron.conformance.programs import Program
from onnx_iron.conformance.row_drawing import sequences

# Graphs of one search: its first failure is shrunk, and the next search has another seed.
BATCH = 50
# Each property, by its function's name, with what it is drawn for.
PROPERTIES: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    properties.means_what_it_says.__name__: st.tuples(graphs()),
    properties.in_place_is_copied.__name__: st.tuples(graphs()),
    properties.chunks_do_not_matter.__name__: sequences(),
    properties.a_batch_is_its_sequences.__name__: st.tuples(batches()),
}


def run_random(
    count: int, first_seed: int, folder: Path, progress: Callable[[str], None]
) -> list[Path]:
    """Draw graphs and check them; each property has its share.

    Args:
        count: how many graphs.
        first_seed: of the first search; the same seed draws the same graphs.
        folder: where scripts are written; made where it is needed.
        progress: told what is done.

    Returns:
        A script for each search that found a failure, shrunk; it ends with the error.
    """
    scripts = []
    for name, strategy in PROPERTIES.items():
        left = -(-count // len(PROPERTIES))
        for number in range(-(-left // BATCH)):
            drawn = min(BATCH, left - number * BATCH)
            failed = failing(name, strategy, drawn, first_seed + number)
            progress(f"{name}: {number * BATCH + drawn} of {left}" + (", FAILED" * bool(failed)))
            if failed:
                program, *rest = failed
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / f"{name}_{first_seed + number}.py"
                path.write_text(program.script(name, *rest), encoding="utf-8")
                scripts.append(path)
    return scripts


def failing(
    name: str, strategy: st.SearchStrategy[tuple[Any, ...]], count: int, number: int
) -> tuple[Program, Any] | None:
    """The smallest arguments found for which a property fails, or None.

    Args:
        name: the property's.
        strategy: draws its arguments.
        count: how many are drawn.
        number: the seed.
    """
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def check(arguments: tuple[Any, ...]) -> None:
        try:
            getattr(properties, name)(*arguments)
        except Exception:
            found.append(arguments)
            raise

    try:
        check()
    except Exception:
        if not found:
            raise  # of the drawing itself
        return found[-1]  # type: ignore[no-any-return] # hypothesis ends with the smallest
    return None
