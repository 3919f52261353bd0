"""Sessions that go back, and that go on in two ways."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import SMALL, prompt, random_model, saved
from networks import Network

from onnx_iron import Session, export
from onnx_iron import functional as F
from onnx_iron.graph import state
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            folder = saved(random_model(SMALL[name]), tmp_path_factory.mktemp("checkpoint"))
            made[name] = folder / "out"
            export_checkpoint(open_checkpoint(folder), made[name], context=128, chunk=16)
        return made[name]

    return make


def continued(session: Session, token: int, count: int = 6) -> list[int]:
    tokens = [token]
    while len(tokens) < count:
        given = np.array(tokens[-1:], np.int32)
        tokens.append(int(session.decode(input_ids=given)["logits"].argmax()))
    return tokens


@pytest.mark.parametrize("provider", ["iron", "stock"])
@pytest.mark.parametrize("rows", [1, 5, 30])
def test_rows_that_were_taken_back_leave_no_trace(rows: int, provider: str, exported: Any) -> None:
    ids, others = prompt(40), prompt(rows, seed=9)
    fresh = Session(exported("llama"), provider=provider)
    fresh.prefill(input_ids=ids)
    expected = continued(fresh, 3)
    session = Session(exported("llama"), provider=provider)
    session.prefill(input_ids=np.concatenate([ids, others]))
    session.rewind(rows)
    assert session.position == 40
    assert continued(session, 3) == expected


@pytest.mark.parametrize(
    ("name", "state"), [("lfm2", "layers.0.operator.conv"), ("mamba", "layers.0.mixer.conv")]
)
def test_a_convolution_can_not_go_back_and_says_so(name: str, state: str, exported: Any) -> None:
    session = Session(exported(name))
    session.prefill(input_ids=prompt(10))
    with pytest.raises(ValueError, match=rf"'{state}' keeps no entry for each posi"):
        session.rewind(1)
    assert session.position == 10
    session.rewind(0)


@pytest.mark.parametrize("rows", [-1, 11])
def test_more_rows_than_were_run_can_not_be_taken_back(rows: int, exported: Any) -> None:
    session = Session(exported("llama"))
    session.prefill(input_ids=prompt(10))
    with pytest.raises(ValueError, match=rf"rows is {rows}, expected 0..10"):
        session.rewind(rows)


@pytest.mark.parametrize("name", ["llama", "lfm2", "mamba"])
@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_a_fork_goes_on_by_itself(name: str, provider: str, exported: Any) -> None:
    first = Session(exported(name), provider=provider)
    first.prefill(input_ids=prompt(20))
    second = first.fork()
    assert second.position == 20
    expected = {}
    for token in (3, 4):
        alone = Session(exported(name), provider=provider)
        alone.prefill(input_ids=prompt(20))
        expected[token] = continued(alone, token, 20)
    found: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda s=s, t=t: found.update({t: continued(s, t, 20)}))
        for s, t in ((first, 3), (second, 4))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == expected


def test_forks_share_the_weights(exported: Any) -> None:
    session = Session(exported("llama"))
    other = session.fork()
    assert session._models["decode"].session is other._models["decode"].session


def resident() -> int:
    """Bytes of memory that the process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_forks_hold_no_weights_of_their_own(provider: str, tmp_path: Path) -> None:
    width, bytes_of_weights = 2896, 2896 * 2896 * 4

    def body(self: Any, x: Any) -> Any:
        self.last[...] = F.linear(x + self.last, self.weight)
        return self.last

    weight = np.full((width, width), 1 / width, np.float32)
    graph = Network(body, weight=weight, last=state((1, width), np.float32))
    export({"decode": graph.trace(x=((1, width), np.float32))}, tmp_path)
    session = Session(tmp_path, provider=provider)
    x = np.ones((1, width), np.float32)
    session.decode(x=x)
    before = resident()
    forks = [session.fork() for _ in range(6)]
    for number, fork in enumerate(forks):
        for _ in range(number):
            fork.decode(x=x)
    assert resident() - before < bytes_of_weights / 2
    for number, fork in enumerate(forks):  # each has gone on by itself: 1 more at each step
        np.testing.assert_allclose(fork.state("last"), number + 1.0, rtol=1e-5)
