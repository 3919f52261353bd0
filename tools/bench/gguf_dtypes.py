"""A GGUF file's weights in another dtype, for whoever reads GGUF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np


def rewrite(source: Path, target: Path, dtype: str) -> Path:
    """Write a file as ``source``, matrices in "F32", "F16" or "BF16", vectors in float32."""
    reader: Any = gguf.GGUFReader(source)
    text = gguf.GGUFValueType.ARRAY
    architecture = "general.architecture"
    writer: Any = gguf.GGUFWriter(target, reader.fields[architecture].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == architecture:
            continue
        inner = field.types[1] if field.types[0] == text else None
        value = field.contents()
        if name == "general.file_type":
            value = int(gguf.LlamaFileType[f"MOSTLY_{dtype}" if dtype != "F32" else "ALL_F32"])
        writer.add_key_value(name, value, field.types[0], sub_type=inner)
    kind = gguf.GGMLQuantizationType[dtype]
    for tensor in reader.tensors:
        array = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        array = array.reshape([int(dim) for dim in reversed(tensor.shape)])
        if array.ndim == 1 or dtype == "F32":
            writer.add_tensor(tensor.name, array)
        elif dtype == "F16":
            writer.add_tensor(tensor.name, array.astype(np.float16))
        else:
            writer.add_tensor(tensor.name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
