"""Models of one node of onnx's or com.microsoft's, as other exporters write them, float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnx_iron.tools.bench.measure import Work
from onnx_iron.tools.bench.onnx_models import MICROSOFT

# Keys and values that attention sees, with the rows' own where they come after a past.
KEYS = 512


class Single:
    """One node: its model, its inputs, which outputs are an input's buffer, and its work."""

    def __init__(
        self,
        op: str,
        inputs: Sequence[tuple[str, Any, bool]],
        shapes: Sequence[Sequence[int]],
        flops: float,
        *,
        domain: str = "",
        shared: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        """
        Args:
            inputs: name, array and whether it is a constant of the model.
            shapes: of the outputs.
            shared: by an output's name the input whose buffer it is.
        """
        self.inputs = {name: array for name, array, constant in inputs if not constant}
        self.shared = dict(shared or {})
        outputs = [f"y{i}" for i in range(len(shapes))]
        node = helper.make_node(
            op, [name for name, _, _ in inputs], outputs, name=op, domain=domain, **attributes
        )
        graph = helper.make_graph(
            [node],
            op,
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in self.inputs.items()
            ],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                for name, shape in zip(outputs, shapes, strict=True)
            ],
            [onnx.numpy_helper.from_array(array, name) for name, array, kept in inputs if kept],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        self.model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        moved = sum(array.nbytes for _, array, _ in inputs)
        moved += 4 * sum(
            int(np.prod(shape))
            for name, shape in zip(outputs, shapes, strict=True)
            if name not in self.shared
        )
        self.work = Work(flops, moved)


def singles(rows: int, width: int) -> Mapping[str, Callable[[], Single]]:
    """What makes each model, for ``rows`` of ``width``, a multiple of 256."""
    random = np.random.default_rng(0)

    def given(*shape: int) -> Any:
        return random.standard_normal(shape, np.float32)

    x, vector = given(rows, width), given(width)
    heads, groups = width // 64, max(width // 256, 1)
    square = 2.0 * rows * width * width

    def each(op: str, domain: str = "", cost: float = 8.0, **attributes: Any) -> Single:
        inputs = [("x", x, False)]
        return Single(op, inputs, [x.shape], cost * x.size, domain=domain, **attributes)

    def normed(op: str, *names: str, domain: str = "") -> Single:
        inputs = [("x", x[None], False)]
        inputs += [(n, x[None] if n == "skip" else vector, n != "skip") for n in names]
        attributes: dict[str, Any] = {} if domain else {"axis": -1}
        shape = [x[None].shape]
        return Single(op, inputs, shape, 6.0 * x.size, domain=domain, epsilon=1e-5, **attributes)

    def product(op: str, **attributes: Any) -> Single:
        inputs = [("x", x, False), ("w", given(width, width), True)]
        return Single(op, inputs, [x.shape], square, **attributes)

    def multi_head() -> Single:
        inputs = [("q", x[None], False)]
        inputs += [(name, given(1, KEYS, width), False) for name in ("k", "v")]
        flops = 4.0 * rows * KEYS * width
        return Single(
            "MultiHeadAttention", inputs, [x[None].shape], flops, domain=MICROSOFT, num_heads=heads
        )

    def group_query() -> Single:
        total, inner = KEYS + rows, groups * 64
        caches = [(name, given(1, groups, total, 64), False) for name in ("past_k", "past_v")]
        inputs = [
            ("q", x[None], False),
            *((name, given(1, rows, inner), False) for name in ("k", "v")),
            *caches,
            ("lengths", np.array([total - 1], np.int32), False),
            ("total", np.array(total, np.int32), False),
        ]
        shapes = [x[None].shape, *(array.shape for _, array, _ in caches)]
        return Single(
            "GroupQueryAttention",
            inputs,
            shapes,
            4.0 * rows * (KEYS + (rows + 1) / 2) * width,
            domain=MICROSOFT,
            shared={"y1": "past_k", "y2": "past_v"},
            num_heads=heads,
            kv_num_heads=groups,
        )

    return {
        "MatMul": lambda: product("MatMul"),
        "Gemm": lambda: product("Gemm", transB=1),
        "MultiHeadAttention": multi_head,
        "GroupQueryAttention": group_query,
        "Gelu": lambda: each("Gelu"),
        "QuickGelu": lambda: each("QuickGelu", MICROSOFT),
        "Softmax": lambda: each("Softmax", axis=-1),
        "LayerNormalization": lambda: normed("LayerNormalization", "scale", "bias"),
        "SimplifiedLayerNorm": lambda: normed("SimplifiedLayerNormalization", "scale"),
        "SkipSimplifiedLayerNorm": lambda: normed(
            "SkipSimplifiedLayerNormalization", "skip", "gamma", domain=MICROSOFT
        ),
    }
