"""The entries of a model's configuration file, each read once, and none left unread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# No model has more; what a file asks for is made before its tensors are looked at.
MOST_LAYERS = 4096
# What tells how a model was trained, saved or is to be called, and changes nothing in its graph.
_HARMLESS = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_name_or_path",
        "attention_dropout",
        "auto_map",
        "bos_token_id",
        "chunk_size_feed_forward",
        "decoder_start_token_id",
        "dtype",
        "embd_pdrop",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "label2id",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "pretraining_tp",
        "problem_type",
        "resid_pdrop",
        "return_dict",
        "torch_dtype",
        "transformers_version",
        "unsloth_fixed",
        "unsloth_version",
        "use_cache",
    }
)


class Fields:
    """The entries of a JSON object, with their types and ranges checked.

    Args:
        values: the object.
        source: the file, for errors.
        model: what the entries describe, for errors: "an lfm2 model".
    """

    def __init__(self, values: Mapping[str, Any], source: str, model: str) -> None:
        self._values = values
        self.source = source
        self._model = model
        self._used = set(_HARMLESS)

    def error(self, name: str, value: Any, expected: str) -> ValueError:
        """What is wrong with an entry."""
        return ValueError(f"{self.source}: {name!r} is {repr(value)[:80]}, expected {expected}")

    def raw(self, name: str, default: Any = None) -> Any:
        """An entry as it is; null is as good as none."""
        self._used.add(name)
        value = self._values.get(name)
        return default if value is None else value

    def size(self, name: str, default: int | None = None, *, most: int = 1 << 31) -> int:
        """An integer of at least 1."""
        value = self._required(name, default, "an integer of 1 or more")
        if type(value) is not int or value < 1:
            raise self.error(name, value, "an integer of 1 or more")
        if value > most:
            raise self.error(name, value, f"{most} at most, as in every model")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._required(name, default, "a number")
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self.error(name, value, "a finite number")
        return float(value)

    def positive(self, name: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self.number(name, default)
        if value <= 0:
            raise self.error(name, value, "a number above 0")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw(name, default)
        if type(value) is not bool:
            raise self.error(name, value, "true or false")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of some words."""
        expected = " or ".join(repr(choice) for choice in choices)
        value = self._required(name, default, expected)
        if value not in choices:
            raise self.error(name, value, f"{expected}; the {self._model} graph has no other")
        return str(value)

    def neutral(self, **expected: Any) -> None:
        """Refuse entries with another value than the one that changes nothing."""
        for name, neutral in expected.items():
            allowed = neutral if isinstance(neutral, tuple) else (neutral,)
            value = self.raw(name)
            if value is not None and value not in allowed:
                raise self.error(
                    name, value, f"{allowed[0]!r}; the {self._model} graph has no other"
                )

    def idle(self, *names: str) -> None:
        """Entries that change nothing in this model."""
        self._used.update(names)

    def words(self, name: str, choices: Sequence[str], count: int) -> tuple[str, ...] | None:
        """As many words as there are layers, each one of some; None where the entry is missing."""
        values = self.raw(name)
        if values is None:
            return None
        if not isinstance(values, list) or len(values) != count:
            raise self.error(name, values, f"a list of {count} words, one for each layer")
        for value in values:
            if value not in choices:
                raise self.error(name, value, " or ".join(repr(choice) for choice in choices))
        return tuple(values)

    def part(self, name: str) -> Fields | None:
        """An entry that is an object itself."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, value, "an object")
        return Fields(value, f"{self.source}, {name}", self._model)

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def check_all_read(self) -> None:
        """Refuse an entry that nobody read: nobody knows what it changes.

        Raises:
            ValueError: there is one.
        """
        for name, value in self._values.items():
            if name not in self._used and value is not None:
                raise ValueError(
                    f"{self.source}: {name!r} is {repr(value)[:80]}, and what it changes in a "
                    f"model of type {self._model} isn't implemented; remove it if it changes "
                    "nothing"
                )

    def _required(self, name: str, default: Any, expected: str) -> Any:
        value = self.raw(name, default)
        if value is None:
            raise ValueError(
                f"{self.source}: {name!r} is missing, expected {expected}; the model can't be "
                "built without it"
            )
        return value
