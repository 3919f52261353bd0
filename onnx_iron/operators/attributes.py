"""Attributes: an operator's fields, as ONNX holds them in a node."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Self

import numpy as np

from onnx_iron.operators.declaration import Attribute


class Attributes:
    """A frozen dataclass whose fields are a node's attributes: int, float, bool, str, an
    enumeration of strings, or one of these or None.
    """

    name: ClassVar[str]

    @classmethod
    def attribute_fields(cls) -> dict[str, dataclasses.Field[Any]]:
        """The attributes' fields by name."""
        return {f.name: f for f in dataclasses.fields(typing.cast(Any, cls))}

    def attributes(self) -> dict[str, Attribute]:
        """The ONNX attributes; one that is None is absent."""
        values = {name: getattr(self, name) for name in self.attribute_fields()}
        return {
            name: int(value) if isinstance(value, bool) else value
            for name, value in values.items()
            if value is not None
        }

    @classmethod
    def onnx_attributes(cls) -> dict[str, tuple[type, Attribute | None]]:
        """Each ONNX attribute's type (int, float or str) and its default, None where absent."""
        hints = _hints(typing.cast(Any, cls))
        found: dict[str, tuple[type, Attribute | None]] = {}
        for name, declared in cls.attribute_fields().items():
            kind = _plain_type(hints[name])
            onnx_type: type = float if kind is float else str if issubclass(kind, str) else int
            default = declared.default
            found[name] = (onnx_type, None if default is None else onnx_type(default))
        return found

    @classmethod
    def defaults(cls) -> dict[str, Attribute]:
        """The ONNX attributes that have a default."""
        return {k: v for k, (_, v) in cls.onnx_attributes().items() if v is not None}

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Self:
        """The operator with a node's attributes.

        Raises:
            ValueError: an attribute that it does not have, or a value out of range.
            TypeError: a value of another type.
        """
        known = cls.onnx_attributes()
        unknown = sorted(set(attributes) - set(known))
        if unknown:
            raise ValueError(
                f"{cls.name} has no attribute {unknown[0]!r}; it has {sorted(known) or 'none'}"
            )
        return cls(**cls._converted_fields(attributes))

    @classmethod
    def _converted_fields(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        hints = _hints(typing.cast(Any, cls))
        return {k: _converted(f"{cls.name}.{k}", v, hints[k]) for k, v in values.items()}


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _converted(where: str, value: Any, hint: Any) -> Any:
    """An attribute's value as the field's type: from a call, or from a node (int, float or str).

    Raises:
        TypeError: a value of another type.
        ValueError: none of an enumeration's values.
    """
    kinds = [t for t in (typing.get_args(hint) or (hint,)) if t is not type(None)]
    if typing.get_origin(hint) is tuple:
        kind = kinds[0]
        values = value if isinstance(value, tuple | list) else (value,)
        return tuple(_converted(where, v, kind) for v in values)
    kind = kinds[0]
    if value is None and len(typing.get_args(hint)) > len(kinds):
        return None
    if issubclass(kind, Enum) and isinstance(value, str):
        if value not in list(kind):
            raise ValueError(f"{where} is {value!r}; expected one of {[str(k) for k in kind]}")
        return kind(value)
    whole = isinstance(value, int | np.integer)
    fits = {
        bool: whole and value in (0, 1),
        int: whole and not isinstance(value, bool),
        float: (whole or isinstance(value, float | np.floating)) and not isinstance(value, bool),
        str: isinstance(value, str),
    }
    if not fits.get(kind, False):
        raise TypeError(f"{where} is {value!r}; it must be {kind.__name__}")
    return kind(value)


def _plain_type(hint: Any) -> type:
    """The type of a hint such as ``float | None``."""
    plain: type = next(t for t in (typing.get_args(hint) or (hint,)) if t is not type(None))
    return plain
