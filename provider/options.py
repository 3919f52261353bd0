"""The provider's options."""

from __future__ import annotations

from dataclasses import dataclass

TIMEOUT, CACHE = "timeout_ms", "program_cache_bytes"
PROFILE, PROFILE_SIZE = "profile", "profile_bytes"
# Who wants the subgraphs that a session compiles, by the name that ``devices.sinks`` gave.
SINK = "sink"

# The driver ends a run that hangs by itself; this is for a driver that doesn't.
TIMEOUT_MS = 10000
MOST_MS = 1 << 30

# Of a program a step takes some 700 bytes: this is enough for some 80 shapes of a large model.
CACHE_BYTES = 32 << 20
MOST_BYTES = 1 << 62

# A step takes some 50 bytes, and 400 in the file: some 400 tokens of a small model.
PROFILE_BYTES = 8 << 20


@dataclass(frozen=True)
class Options:
    """Options with a good value each.

    Attributes:
        device: the one that runs the model, "cpu" or "npu".
        fallback: what is done with nodes and calls that the NPU can't run: "error" or "cpu".
        timeout_ms: how long a call may take the NPU; 0 is for ever.
        program_cache_bytes: how many bytes of programs, one for each set of shapes of its inputs
            that a model leaves open, a session keeps; the latest is kept in any case.
        profile: the file that gets a trace of the session's calls; empty for none.
        profile_bytes: how many bytes of memory what is recorded for it may take.
        sink: who is given each subgraph that is compiled; empty for nobody.
    """

    device: str
    fallback: str
    timeout_ms: int
    program_cache_bytes: int = CACHE_BYTES
    sink: str = ""
    profile: str = ""
    profile_bytes: int = PROFILE_BYTES


class FallbackWarning(UserWarning):
    """A model runs on another device than the one that was asked for."""


class OptionError(ValueError):
    """An option's name or value that the provider does not know."""
