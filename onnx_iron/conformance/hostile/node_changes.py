"""Changes of nodes, functions and operator sets."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import AttributeProto, helper

from onnx_iron.conformance.hostile.change import (
    INTEGERS,
    REALS,
    TEXTS,
    Random,
    a_node,
    change,
    graphs,
    one,
    some_nodes,
    value_names,
)
from onnx_iron.conformance.hostile.originals import Draft
from onnx_iron.operators import DOMAIN, OPERATORS

_OPS = (
    *("Add", "MatMul", "Gather", "Slice", "Reshape", "Concat", "Transpose", "Cast", "Gemm"),
    *("Softmax", "Squeeze", "Unsqueeze", "Expand", "Split", "Where", "Shape", "Identity"),
    *("ReduceMean", "LayerNormalization", "RMSNormalization", "ScatterND", "Tile", "Flatten"),
)


@change
def an_attribute(rng: Random, draft: Draft) -> str | None:
    """An attribute's value, of its own type or of another."""
    node = a_node(rng, draft)
    if node is None or not node.attribute:
        return None
    # A function body holds the value that the attribute had: the two then differ.
    draft.ambiguous |= node.domain == DOMAIN
    attribute = one(rng, node.attribute)
    before = _short(attribute)
    kind: Any = attribute.type if rng.random() < 0.7 else one(rng, (1, 2, 3, 4, 6, 7, 8))
    made = _attribute(rng, attribute.name, kind, attribute)
    attribute.CopyFrom(made)
    return f"{node.op_type}.{attribute.name}: {before} -> {_short(attribute)}"


def _attribute(rng: Random, name: str, kind: Any, old: AttributeProto) -> AttributeProto:
    made = AttributeProto(name=name, type=kind)
    if kind == AttributeProto.INT:
        made.i = one(rng, (*INTEGERS, old.i + 1, old.i - 1))
    elif kind == AttributeProto.FLOAT:
        made.f = one(rng, REALS)
    elif kind == AttributeProto.STRING:
        made.s = one(rng, (*(text.encode() for text in TEXTS), b"\xff\xfe"))
    elif kind == AttributeProto.TENSOR:
        made.t.CopyFrom(old.t if old.HasField("t") else helper.make_tensor("t", 1, [2], [1, 2]))
        made.t.dims[:] = [one(rng, INTEGERS) for _ in range(int(rng.integers(4)))]
    elif kind == AttributeProto.FLOATS:
        made.floats[:] = [one(rng, REALS) for _ in range(int(rng.integers(4)))]
    elif kind == AttributeProto.INTS:
        kept = list(old.ints) or [0]
        kept[int(rng.integers(len(kept)))] = one(rng, INTEGERS)
        made.ints[:] = kept if rng.random() < 0.7 else kept[: int(rng.integers(len(kept)))]
    elif kind == AttributeProto.STRINGS:
        made.strings[:] = [one(rng, TEXTS).encode() for _ in range(int(rng.integers(3)))]
    else:
        made.CopyFrom(old)
    return made


def _short(attribute: AttributeProto) -> str:
    return str(helper.printable_attribute(attribute))[:60] if attribute.type != 4 else "a tensor"


@change
def the_attributes(rng: Random, draft: Draft) -> str | None:
    """An attribute that is dropped, renamed, doubled, or nobody knows."""
    node = a_node(rng, draft)
    if node is None:
        return None
    draft.ambiguous |= node.domain == DOMAIN
    how = one(rng, ("dropped", "renamed", "doubled", "added"))
    if how == "added" or not node.attribute:
        node.attribute.append(helper.make_attribute(one(rng, ("odd", "axis", "epsilon")), 1))
        return f"{node.op_type}: an attribute is added"
    place = int(rng.integers(len(node.attribute)))
    name = node.attribute[place].name
    if how == "dropped":
        del node.attribute[place]
    elif how == "renamed":
        node.attribute[place].name = one(rng, TEXTS)
    else:
        node.attribute.add().CopyFrom(node.attribute[place])
    return f"{node.op_type}.{name} is {how}"


@change
def operands(rng: Random, draft: Draft) -> str | None:
    """A node's inputs: another value, none, one more, one less, two swapped."""
    node = a_node(rng, draft)
    if node is None:
        return None
    how = one(rng, ("another", "omitted", "more", "fewer", "swapped", "all dropped"))
    inputs = list(node.input)
    place = int(rng.integers(len(inputs))) if inputs else 0
    if how == "more" or not inputs:
        inputs.append(one(rng, (*value_names(draft), "", "nowhere")))
    elif how == "another":
        inputs[place] = one(rng, (*value_names(draft), "nowhere"))
    elif how == "omitted":
        inputs[place] = ""
    elif how == "fewer":
        del inputs[place]
    elif how == "swapped":
        inputs[0], inputs[place] = inputs[place], inputs[0]
    else:
        inputs = []
    node.input[:] = inputs
    return f"{node.op_type}: inputs {how}"


@change
def results(rng: Random, draft: Draft) -> str | None:
    """A node's outputs: one more, one less, unnamed, of another node's name."""
    node = a_node(rng, draft)
    if node is None:
        return None
    how = one(rng, ("more", "fewer", "unnamed", "another's"))
    outputs = list(node.output)
    if how == "more" or not outputs:
        outputs.append(f"extra {len(outputs)}")
    elif how == "fewer":
        outputs.pop()
    else:
        outputs[int(rng.integers(len(outputs)))] = (
            "" if how == "unnamed" else one(rng, value_names(draft) or [""])
        )
    node.output[:] = outputs
    return f"{node.op_type}: outputs {how}"


@change
def which_operator(rng: Random, draft: Draft) -> str | None:
    """A node that is of another operator, domain or overload."""
    node = a_node(rng, draft)
    if node is None:
        return None
    before = node.op_type
    how = one(rng, ("standard", "ours", "domain", "overload", "odd"))
    if how == "standard":
        node.op_type, node.domain = one(rng, _OPS), ""
    elif how == "ours":
        node.op_type, node.domain = one(rng, sorted(OPERATORS)), DOMAIN
        draft.ambiguous = True
    elif how == "domain":
        node.domain = one(rng, ("", DOMAIN, "com.microsoft", "ai.onnx.ml", "nobody", "\0"))
    elif how == "overload":
        node.overload = one(rng, ("", "nobody", "\0"))
    else:
        node.op_type = one(rng, TEXTS)
    return f"{before} is {node.domain[:20]}.{node.op_type[:20]} {node.overload[:20]}"


@change
def a_nodes_name(rng: Random, draft: Draft) -> str | None:
    """A node's name: none, odd, or another node's."""
    node = a_node(rng, draft)
    if node is None:
        return None
    node.name = one(rng, (*TEXTS, draft.model.graph.node[0].name if draft.model.graph.node else ""))
    return f"{node.op_type}'s name is {node.name[:20]!r}"


@change
def the_nodes(rng: Random, draft: Draft) -> str | None:
    """Nodes that are dropped, doubled, or in another order."""
    nodes = some_nodes(rng, draft)
    if nodes is None:
        return None
    how = one(rng, ("dropped", "doubled", "reversed", "moved"))
    kept = list(nodes)
    place = int(rng.integers(len(kept)))
    if how == "dropped":
        del kept[place]
    elif how == "doubled":
        kept.insert(place, kept[place])
    elif how == "reversed":
        kept.reverse()
    else:
        kept.insert(0, kept.pop(place))
    copies = []
    for node in kept:
        copies.append(onnx.NodeProto())
        copies[-1].CopyFrom(node)
    del nodes[:]
    nodes.extend(copies)
    return f"nodes {how}"


@change
def a_function(rng: Random, draft: Draft) -> str | None:
    """A function: gone, doubled, renamed, called by itself, of other inputs or outputs."""
    functions = draft.model.functions
    if not functions:
        return None
    draft.ambiguous = True
    place = int(rng.integers(len(functions)))
    function = functions[place]
    how = one(
        rng, ("gone", "doubled", "renamed", "recursive", "inputs", "outputs", "opsets", "empty")
    )
    if how == "gone":
        del functions[place]
    elif how == "doubled":
        functions.add().CopyFrom(function)
    elif how == "renamed":
        function.name = one(rng, (*sorted(OPERATORS), *TEXTS[:4]))
    elif how == "recursive":
        function.node.append(
            helper.make_node(
                function.name,
                list(function.input),
                ["again"],
                domain=function.domain,
                overload=function.overload,
            )
        )
    elif how == "inputs":
        function.input[:] = (
            list(function.input)[1:] if rng.random() < 0.5 else [*function.input, ""]
        )
    elif how == "outputs":
        function.output[:] = list(function.output)[1:] or ["nowhere"]
    elif how == "opsets":
        del function.opset_import[:]
    else:
        del function.node[:]
    return f"a function: {how}"


@change
def operator_sets(rng: Random, draft: Draft) -> str | None:
    """The versions that a model asks for."""
    imports = draft.model.opset_import
    how = one(rng, ("version", "gone", "doubled", "ir", "domain"))
    if how == "ir" or not imports:
        draft.model.ir_version = one(rng, (0, 3, 7, 9, 12, 13, 99, -1))
        return f"ir_version {draft.model.ir_version}"
    draft.ambiguous = True
    entry = one(rng, imports)
    if how == "version":
        entry.version = one(rng, (0, 1, 7, 11, 13, 17, 18, 20, 22, 23, 24, 99, -1, 1 << 40))
    elif how == "gone":
        imports.remove(entry)
    elif how == "doubled":
        imports.add(domain=entry.domain, version=one(rng, (1, 17, 23)))
    else:
        entry.domain = one(rng, ("", DOMAIN, "com.microsoft", "nobody"))
    return f"operator sets: {how}"


@change
def a_nested_graph(rng: Random, draft: Draft) -> str | None:
    """A graph inside a node: its inputs, its outputs, or the whole model's graph in its place."""
    nested = [g for g in graphs(draft.model) if g.name != draft.model.graph.name]
    if not nested:
        return None
    graph = one(rng, nested)
    how = one(rng, ("inputs", "outputs", "names", "deep"))
    if how == "inputs" and graph.input:
        del graph.input[int(rng.integers(len(graph.input)))]
    elif how == "outputs" and graph.output:
        del graph.output[int(rng.integers(len(graph.output)))]
    elif how == "names" and graph.output:
        one(rng, graph.output).name = one(rng, ("x", "nowhere", ""))
    else:
        for _ in range(int(rng.integers(1, 8))):  # twice as large each time
            inner = onnx.GraphProto()
            inner.CopyFrom(graph)
            names = [value.name for value in inner.output]
            del graph.node[:]
            graph.node.append(
                helper.make_node("If", ["which"], names, then_branch=inner, else_branch=inner)
            )
    return f"a nested graph: {how}"
