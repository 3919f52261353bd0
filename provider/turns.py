"""Methods of which one runs at a time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class Locked(Protocol):
    """An object whose methods take turns."""

    _lock: threading.RLock


S = TypeVar("S", bound=Locked)
P = ParamSpec("P")
R = TypeVar("R")


def in_turn(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that waits while another thread is in one of the same object."""

    @functools.wraps(method)
    def waits(self: Any, /, *given: P.args, **named: P.kwargs) -> R:
        with self._lock:
            return method(self, *given, **named)

    return waits
