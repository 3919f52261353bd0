"""The model with the interface that onnxruntime-genai drives, around a decoder's rows.

Inputs are input_ids, attention_mask and position_ids, and for each layer past_key_values.N.key and
.value; outputs are logits and present.N.key and .value. The caches are one buffer for past and
present, or grow. Each Attention becomes GroupQueryAttention of com.microsoft, which keeps the rows
of each sequence behind its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_iron.dtypes import onnx_type
from onnx_iron.export.metadata import BOUNDS, DRIVER, LIMITS, VALUES
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.trace import Step, Trace
from onnx_iron.models.genai.rows import IDS, LAST, LASTS, LOGITS, PLACES, ROWS

INPUT_IDS, MASK, POSITIONS = "input_ids", "attention_mask", "position_ids"
PAST, PRESENT = "past_key_values.%d.%s", "present.%d.%s"
DOMAIN = "com.microsoft"
GENAI = "onnxruntime-genai"


def with_interface(model: onnx.ModelProto, trace: Trace) -> onnx.ModelProto:
    """The model of :func:`rows_trace` with genai's inputs and outputs.

    Raises:
        ValueError: a size of the model has one of the numbers that stand for open ones as a factor.
    """
    made = _Interface(model, trace)
    made.build()
    return made.model


class _Interface:
    """A model that is being given its inputs and outputs."""

    def __init__(self, model: onnx.ModelProto, trace: Trace) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self._trace = trace
        self._graph = self.model.graph
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def build(self) -> None:
        attention = [step for step in self._trace.steps if step.op.name == "Attention"]
        inner = list(self._graph.node)
        self._open_sizes()
        self._front()
        layers = iter(enumerate(attention))
        for node in inner:
            if node.op_type == "Attention":
                layer, step = next(layers)
                self._grouped(node, layer, step)
            else:
                self._nodes.append(node)
        self._declare(attention)
        self._graph.initializer.extend(self._constants.values())
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)
        del self._graph.value_info[:]
        self._describe()

    # -- parts of the graph -------------------------------------------------------------------

    def _add(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        node = helper.make_node(op_type, inputs, [output], f"genai/{output}", **attributes)
        self._nodes.append(node)
        return output

    def _numbers(self, *numbers: int) -> str:
        """A constant of several numbers; ``_number`` makes one of a single one, without axes."""
        return self._constant("x".join(map(str, numbers)), np.array(numbers, np.int64))

    def _number(self, number: int) -> str:
        return self._constant(f"scalar.{number}", np.array(number, np.int64))

    def _constant(self, text: str, array: Any) -> str:
        name = f"genai/constant.{text}"
        self._constants[name] = numpy_helper.from_array(array, name)
        return name

    def _front(self) -> None:
        """The rows of all sequences, where each ends, and which of them have logits."""
        self._add("Reshape", [INPUT_IDS, self._numbers(-1)], IDS)
        self._add("Reshape", [POSITIONS, self._numbers(-1)], PLACES)
        self._add("Shape", [INPUT_IDS], "genai/shape")
        self._add("Shape", [MASK], "genai/mask_shape")
        total = self._add("Gather", ["genai/mask_shape", self._number(1)], "genai/total")
        lengths = self._add("ReduceSum", [MASK, self._numbers(1)], "genai/lengths", keepdims=0)
        ends = self._add("Sub", [lengths, self._number(1)], "genai/ends")
        self._add("Cast", [total], "genai/total.int32", to=TensorProto.INT32)
        self._add("Cast", [ends], "genai/ends.int32", to=TensorProto.INT32)
        if LAST in self._trace.inputs:
            self._last(total, ends)

    def _last(self, total: str, ends: str) -> None:
        """The last row of each sequence that is no padding: a prompt has its padding behind it."""
        batch, rows = (
            self._add("Gather", ["genai/shape", self._number(axis)], f"genai/{name}")
            for axis, name in enumerate(("batch", "rows"))
        )
        before = self._add("Sub", [total, rows], "genai/before")
        place = self._add("Sub", [ends, before], "genai/place")
        most = self._add("Sub", [rows, self._number(1)], "genai/most")
        least = self._add("Max", [place, self._number(0)], "genai/least")
        within = self._add("Min", [least, most], "genai/within")
        count = self._add("Range", [self._number(0), batch, self._number(1)], "genai/count")
        first = self._add("Mul", [count, rows], "genai/first")
        self._add("Add", [first, within], LAST)

    def _whole(self, width: int) -> str:
        """The shape (batch, rows, width)."""
        name = f"genai/shape.{width}"
        if not any(name in node.output for node in self._nodes):
            self._add("Concat", ["genai/shape", self._numbers(width)], name, axis=0)
        return name

    def _grouped(self, node: onnx.NodeProto, layer: int, step: Step) -> None:
        query, key, value = _shapes(step)
        stem = f"genai/attention.{layer}"
        given = [
            self._add("Reshape", [name, self._whole(heads * width)], f"{stem}.{part}")
            for part, name, (_, heads, width) in zip(
                ("query", "key", "value"), node.input, (query, key, value), strict=False
            )
        ]
        pairs = [(PAST % (layer, kind), PRESENT % (layer, kind)) for kind in ("key", "value")]
        attributes = step.op.attributes()
        optional: dict[str, Any] = {
            "scale": attributes.get("scale"),
            "softcap": attributes.get("softcap"),
            "local_window_size": attributes.get("window"),
        }
        grouped = helper.make_node(
            "GroupQueryAttention",
            [*given, *(past for past, _ in pairs), "genai/ends.int32", "genai/total.int32"],
            [f"{stem}.rows", *(present for _, present in pairs)],
            stem,
            domain=DOMAIN,
            num_heads=query[1],
            kv_num_heads=key[1],
            **{name: value for name, value in optional.items() if value is not None},
        )
        self._nodes.append(grouped)
        back = self._numbers(-1, query[1], value[2])
        self._add("Reshape", [f"{stem}.rows", back], node.output[0])

    def _open_sizes(self) -> None:
        """Shapes that values are given leave the number of rows open."""
        opened = {}
        for tensor in self._graph.initializer:
            if tensor.data_type != TensorProto.INT64 or tensor.data_location:
                continue
            numbers = numpy_helper.to_array(tensor)
            rows = _are_rows(numbers.reshape(-1).tolist())
            if not any(rows):
                continue
            if sum(rows) > 1:
                raise ValueError(f"the shape {numbers.tolist()} has rows twice")
            made = np.where(rows, -1, numbers).astype(np.int64)
            opened[tensor.name] = "genai/shape.of." + "x".join(map(str, made.tolist()))
            tensor.CopyFrom(numpy_helper.from_array(made, opened[tensor.name]))
        for node in self._graph.node:
            for index, name in enumerate(node.input):
                node.input[index] = opened.get(name, name)
        seen: set[str] = set()
        for tensor in list(self._graph.initializer):
            if tensor.name in seen:
                self._graph.initializer.remove(tensor)
            seen.add(tensor.name)
            if any(_are_rows(tensor.dims)):
                raise ValueError(f"{tensor.name} is {list(tensor.dims)}: a size stands for rows")

    # -- inputs and outputs -------------------------------------------------------------------

    def _declare(self, attention: Sequence[Step]) -> None:
        graph, integers = self._graph, TensorProto.INT64
        (logits,) = graph.output
        vocabulary = logits.type.tensor_type.shape.dim[-1].dim_value
        for node in self._nodes:
            node.output[:] = [f"genai/{LOGITS}" if name == LOGITS else name for name in node.output]
        last = LAST in self._trace.inputs
        whole = self._numbers(-1, 1, vocabulary) if last else self._whole(vocabulary)
        self._add("Reshape", [f"genai/{LOGITS}", whole], LOGITS)
        inputs = [
            helper.make_tensor_value_info(INPUT_IDS, integers, ["batch", "rows"]),
            helper.make_tensor_value_info(MASK, integers, ["batch", "total"]),
            helper.make_tensor_value_info(POSITIONS, integers, ["batch", "rows"]),
        ]
        rows = 1 if last else "rows"
        outputs = [
            helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, ["batch", rows, vocabulary])
        ]
        for layer, step in enumerate(attention):
            dtype = onnx_type(step.outputs[0].dtype)
            _, key, value = _shapes(step)
            for kind, (_, heads, width) in (("key", key), ("value", value)):
                for name, place, made in ((PAST, "past", inputs), (PRESENT, "present", outputs)):
                    shape: list[str | int | None] = ["batch", heads, place, width]
                    info = helper.make_tensor_value_info(name % (layer, kind), dtype, shape)
                    made.append(info)
        for field, infos in ((graph.input, inputs), (graph.output, outputs)):
            del field[:]
            field.extend(infos)

    def _describe(self) -> None:
        """Functions and metadata that are still of use."""
        used = {(node.domain, node.op_type, node.overload) for node in self._nodes}
        kept = [f for f in self.model.functions if (f.domain, f.name, f.overload) in used]
        del self.model.functions[:]
        self.model.functions.extend(kept)
        self.model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        entries = {entry.key: entry.value for entry in self.model.metadata_props}
        for key in (VALUES, BOUNDS, LIMITS):
            entries.pop(key, None)
        entries[DRIVER] = GENAI
        helper.set_model_props(self.model, dict(sorted(entries.items())))


def _shapes(step: Step) -> list[tuple[int, ...]]:
    """(rows, heads, width) of queries, keys and values."""
    return [given.shape for given in step.inputs[:3] if isinstance(given, Handle)]


def _are_rows(numbers: Iterable[int]) -> list[bool]:
    return [n != 0 and (n % ROWS == 0 or n % LASTS == 0) for n in numbers]
