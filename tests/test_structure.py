"""The shape of the code: no module imports itself by way of others, and none is long."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "onnx_iron": "onnx_iron",
    "provider": "onnx_iron.provider",
    "kernels": "onnx_iron.kernels",
    "tools": "onnx_iron.tools",
}
MOST_LINES = 400


def modules() -> dict[str, Path]:
    """Every module of the four folders by the name that it is imported by."""
    found = {}
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])
            found[name] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """What a module imports of ours: also inside functions, and for types alone."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.add(inner if inner in known else node.module)
    return names & set(known)


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The sets of nodes that reach one another, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            at = stack.index(node)
            members = sorted(stack[at:])
            del stack[at:]
            if len(members) > 1 or node in edges[node]:
                found.append(members)

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return found


def test_a_cycle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = modules()
    assert len(known) > 100
    assert cycles({name: imported(path, known) for name, path in known.items()}) == []


def test_no_source_module_is_long() -> None:
    sources = [
        path
        for folder in FOLDERS
        for ending in ("py", "cc", "h")
        for path in (ROOT / folder).rglob(f"*.{ending}")
    ]
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
