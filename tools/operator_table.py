"""Writes docs/operators.md from the operators' declarations.

Run ``python -m onnx_iron.tools.operator_table`` in a checkout.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from onnx_iron.operators import DOMAIN, OPERATORS, VERSION, Op

_HEAD = f"""# Operators of the domain `{DOMAIN}`, version {VERSION}

Generated from their declarations in `onnx_iron/operators` by
`python -m onnx_iron.tools.operator_table`; don't edit it.

T is float32 or bfloat16, the same for every operand of a node. Each operator computes in float32
and rounds once to the nearest even, unless its text says otherwise. A scalar is a per-call int32,
of shape () or (1); a value out of its range is an error at the call. An input marked `?` may be
omitted.
"""


def table() -> str:
    """The page as Markdown."""
    return "\n".join([_HEAD, *(_section(OPERATORS[name]) for name in sorted(OPERATORS))])


def _section(op: type[Op]) -> str:
    lines = [f"## {op.name}", "", inspect.cleandoc(op.__doc__ or ""), ""]
    lines += ["| | name | type |", "|---|---|---|"]
    for declared in op.inputs:
        mark = "?" if declared.optional else ""
        lines.append(f"| input | `{declared.name}`{mark} | {declared.kind.value} |")
    lines += [f"| output | `{name}` | T |" for name in op.outputs]
    for name, (kind, default) in op.onnx_attributes().items():
        shown = "" if default is None else f", default {default!r}"
        lines.append(f"| attribute | `{name}` | {kind.__name__}{shown} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Write the page into a checkout's docs folder."""
    path = Path(__file__).parent.parent / "docs" / "operators.md"
    path.write_text(table())
    print(path)


if __name__ == "__main__":
    main()
