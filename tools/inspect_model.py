"""``onnx-iron inspect``: what an ONNX model takes, gives, keeps and is made of."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_iron.tools.options import Subparsers
from onnx_iron.tools.talk import add_session_options

if TYPE_CHECKING:
    import onnx


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "inspect",
        parents=[common],
        help="show a model's inputs, outputs, states, operators and weights",
        description="Show what an ONNX model, or each one in a folder, takes, gives, keeps and is "
        "made of. With --provider it is opened, and where its nodes run is shown too.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="an .onnx file or their folder")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    add_session_options(parser)
    parser.set_defaults(run=run, provider=None)


def run(arguments: argparse.Namespace) -> None:
    """Print what there is to know of each model.

    Raises:
        FileNotFoundError: no model is there.
        ValueError: a file that is no model.
    """
    from onnx_iron.provider.opening import model_files
    from onnx_iron.provider.weights import load_model

    found = {
        role: describe(load_model(path)) for role, path in model_files(arguments.model).items()
    }
    if arguments.provider is not None:
        from onnx_iron.tools.talk import open_session

        for role, placement in open_session(arguments.model, arguments).placement().items():
            found[role]["placement"] = placement.to_dict()["counts"]
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for role, model in found.items():
        _show(role, model)


def describe(model: onnx.ModelProto) -> dict[str, Any]:
    """A model as JSON: ports, states, operators, weights, metadata."""
    import onnx

    metadata = {entry.key: entry.value for entry in model.metadata_props}
    states = _states(metadata)
    kept = {state.get("input") for state in states} | {state.get("output") for state in states}
    initializers = {tensor.name for tensor in model.graph.initializer}
    weights = [
        {
            "name": tensor.name,
            "dtype": onnx.helper.tensor_dtype_to_string(tensor.data_type).removeprefix(
                "TensorProto."
            ),
            "shape": list(tensor.dims),
            "bytes": math.prod(tensor.dims) * _item_bytes(tensor.data_type),
        }
        for tensor in model.graph.initializer
    ]
    return {
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "inputs": [
            _port(value)
            for value in model.graph.input
            if value.name not in kept and value.name not in initializers
        ],
        "outputs": [_port(value) for value in model.graph.output if value.name not in kept],
        "states": states,
        "operators": dict(
            Counter(
                f"{node.domain}.{node.op_type}" if node.domain else node.op_type
                for node in model.graph.node
            ).most_common()
        ),
        "weights": weights,
        "weight_bytes": sum(weight["bytes"] for weight in weights),
        "metadata": metadata,
    }


def _states(metadata: dict[str, str]) -> list[dict[str, Any]]:
    from onnx_iron.export.metadata import read_json
    from onnx_iron.provider.states import STATES

    states = read_json(metadata.get(STATES, "[]"), STATES, "the model")
    return (
        [state for state in states if isinstance(state, dict)] if isinstance(states, list) else []
    )


def _port(value: onnx.ValueInfoProto) -> dict[str, Any]:
    import onnx

    tensor = value.type.tensor_type
    dims = [
        dim.dim_param or "?" if not dim.HasField("dim_value") else dim.dim_value
        for dim in tensor.shape.dim
    ]
    kind = onnx.helper.tensor_dtype_to_string(tensor.elem_type) if tensor.elem_type else "?"
    return {"name": value.name, "dtype": kind.removeprefix("TensorProto."), "shape": dims}


def _item_bytes(kind: int) -> float:
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    bits = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
    return bits.get(dtype.name, dtype.itemsize * 8) / 8


def _show(role: str, model: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from onnx_iron.tools.progress import size

    console = Console(highlight=False)
    table = Table(title=escape(role), show_header=False, title_justify="left", expand=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")

    def rows(name: str, texts: list[str]) -> None:
        for place, text in enumerate(texts or ["none"]):
            table.add_row("" if place else name, escape(text))
        table.add_section()

    def ports(found: list[dict[str, Any]]) -> list[str]:
        return [f"{p['name']}: {p['dtype']} {_dims(p['shape'])}" for p in found]

    rows("inputs", ports(model["inputs"]))
    rows("outputs", ports(model["outputs"]))
    rows("states", _grouped(model["states"]))
    rows("operators", [f"{count} {name}" for name, count in model["operators"].items()])
    largest = sorted(model["weights"], key=lambda w: -w["bytes"])[:5]
    names = [
        f"{w['name']}: {w['dtype']} {_dims(w['shape'])}, {size(int(w['bytes']))}" for w in largest
    ]
    rest = len(model["weights"]) - len(names)
    rows("largest weights", names + ([f"and {rest} more"] if rest else []))
    rows("weights in all", [f"{len(model['weights'])}, {size(int(model['weight_bytes']))}"])
    opsets = ", ".join(f"{name} {version}" for name, version in model["opsets"].items())
    rows("opsets", [opsets])
    if model["producer"]:
        rows("made by", [model["producer"]])
    if "placement" in model:
        rows("nodes", [f"{count} on {where}" for where, count in model["placement"].items()])
    console.print(table)


def _grouped(states: list[dict[str, Any]]) -> list[str]:
    """States of the same type in one line, for a decoder has two in each layer."""
    alike: dict[str, list[str]] = {}
    for state in states:
        kind = f"{state.get('dtype')} {_dims(state.get('shape', []))}"
        alike.setdefault(kind, []).append(str(state.get("name")))
    return [
        f"{len(names)} of {kind}: {names[0]}{', ..., ' + names[-1] if len(names) > 1 else ''}"
        for kind, names in alike.items()
    ]


def _dims(shape: list[Any]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
