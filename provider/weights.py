"""What may be wrong with a model's weights file, in words."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data


def check_weights(model: Path) -> None:
    """Check that a model's weights files are there and long enough. The weights are not read.

    Raises:
        FileNotFoundError: a weights file is not there.
        ValueError: the model is no ONNX file, or a weights file is too short.
    """
    try:
        graph = onnx.load(str(model), load_external_data=False).graph
    except Exception as error:  # protobuf's own classes vary
        raise ValueError(f"{model} is no ONNX model ({error})") from None
    for tensor in graph.initializer:
        if not uses_external_data(tensor):
            continue
        info = ExternalDataInfo(tensor)
        file = model.parent / info.location
        if not file.is_file():
            raise FileNotFoundError(
                f"{model} keeps its weights in {file.name}, which is not beside it"
            )
        end = (info.offset or 0) + (info.length or 0)
        size = file.stat().st_size
        if size < end:
            raise ValueError(
                f"{file} has {size} bytes, {model.name} needs {end} of it (for {tensor.name!r}); "
                "the copy is cut short"
            )
