"""Writes what is derived from the operators' declarations: docs/operators.md, and the signatures
that the native library gives onnxruntime.

Run ``python -m onnx_iron.tools.operator_table`` in a checkout.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from pathlib import Path

from onnx_iron.dtypes import BOOL, FLOAT32, INT64
from onnx_iron.operators import DOMAIN, OPERATORS, VERSION, Kind, Op

_HEAD = f"""# Operators of the domain `{DOMAIN}`, version {VERSION}

Generated from their declarations in `onnx_iron/operators` by
`python -m onnx_iron.tools.operator_table`; don't edit it.

T is float32 or bfloat16, the same for every operand of a node. Each operator computes in float32
and rounds once to the nearest even, unless its text says otherwise. A scalar is a per-call int32,
of shape () or (1); a value out of its range is an error at the call. An input marked `?` may be
omitted.
"""

_SIGNATURES_HEAD = """// Generated from the declarations in onnx_iron/operators by
// `python -m onnx_iron.tools.operator_table`; don't edit it.
"""

_ROOT = Path(__file__).parent.parent

# Where an operator's files are, each with the operator's file name.
_LAYERS = {
    "body": ("onnx_iron/operators/{}.py",),
    "CPU kernel": ("kernels/cpu/{}.cc", "kernels/cpu/functions/{}.cc"),
    "NPU kernel": ("kernels/aie/{}.cc",),
    "design": ("kernels/designs/{}.py",),
}

_KINDS = {
    Kind.T: "kT",
    Kind.T_OR_FLOAT32: "kTOrFloat32",
    Kind.FLOAT32: "kFloat32",
    Kind.ANY: "kAny",
    Kind.NUMBER: "kNumber",
    Kind.BOOL: "kBool",
    Kind.INDEX: "kIndex",
    Kind.SCALAR: "kScalar",
}

# The dtypes of results that are not T, as the native library names them.
_NATIVE = {BOOL: "Bool", INT64: "Int64", FLOAT32: "Float32"}


def table(root: Path = _ROOT) -> str:
    """The page as Markdown, with the files that a checkout has."""
    return "\n".join([_HEAD, *(_section(OPERATORS[name], root) for name in sorted(OPERATORS))])


def signatures() -> str:
    """The operators' signatures as C++ initialisers."""
    return _SIGNATURES_HEAD + "".join(_signature(OPERATORS[name]) for name in sorted(OPERATORS))


def _section(op: type[Op], root: Path) -> str:
    lines = [f"## {op.name}", "", inspect.cleandoc(op.__doc__ or ""), ""]
    lines += [_layers(op, root), ""]
    lines += ["| | name | type |", "|---|---|---|"]
    for declared in op.inputs:
        mark = "?" if declared.optional else ""
        lines.append(f"| input | `{declared.name}`{mark} | {declared.kind.value} |")
    for name in op.outputs:
        lines.append(f"| output | `{name}` | {op.results.get(name, 'T')} |")
    for name, (kind, default) in op.onnx_attributes().items():
        shown = "" if default is None else f", default {default!r}"
        lines.append(f"| attribute | `{name}` | {kind.__name__}{shown} |")
    return "\n".join([*lines, ""])


def _layers(op: type[Op], root: Path) -> str:
    """How much of an operator there is, and in which files of a checkout."""
    found = {layer: _existing(op, paths, root) for layer, paths in _LAYERS.items()}
    paths = [f"`{path}`" for layer in found.values() for path in layer]
    if found["NPU kernel"] or found["design"]:
        extent = "a body, a CPU kernel and a design"
        if found["body"] and found["CPU kernel"] and found["NPU kernel"] and found["design"]:
            extent = "all: a body, a CPU kernel, an NPU kernel and a design"
    else:
        extent = "a body and a CPU kernel" if found["CPU kernel"] else "a body alone"
    return f"It is {extent}" + (f": {', '.join(paths)}." if paths else ".")


def _existing(op: type[Op], paths: Iterable[str], root: Path) -> list[str]:
    named = [path.format(op.file) for path in paths if op.__module__.startswith("onnx_iron.")]
    return [path for path in named if (root / path).is_file()]


def _signature(op: type[Op]) -> str:
    inputs = [
        f"{{{_text(declared.name)}, InputKind::{_KINDS[declared.kind]}, "
        f"{'true' if declared.optional else 'false'}}}"
        for declared in op.inputs
    ]
    attributes = []
    for name, (kind, default) in op.onnx_attributes().items():
        native, value = {
            int: ("kInt", f"int64_t{{{default}}}"),
            float: ("kFloat", f"{default}f"),
            str: ("kString", _text(str(default))),
        }[kind]
        value = "{}" if default is None else value
        attributes.append(f"{{{_text(name)}, ort::{native}, {value}}}")
    outputs = [f"{{{_text(name)}, {_result(op, name)}}}" for name in op.outputs]
    parts = [_list(inputs), _list(outputs), _list(attributes)]
    return f"{{{_text(op.name)},\n" + ",\n".join(parts) + "},\n"


def _result(op: type[Op], output: str) -> str:
    """An output's dtype in C++, where it is not the inputs'."""
    dtype = op.results.get(output)
    return "{}" if dtype is None else f"DType::k{_NATIVE[dtype]}"


def _list(items: Iterable[str]) -> str:
    return " {" + ",\n  ".join(items) + "}"


def _text(text: str) -> str:
    return json.dumps(text)


def main() -> None:
    """Write the page and the signatures into a checkout."""
    for path, text in (
        (_ROOT / "docs" / "operators.md", table()),
        (_ROOT / "provider" / "native" / "operator_signatures.inc", signatures()),
    ):
        path.write_text(text)
        print(path)


if __name__ == "__main__":
    main()
