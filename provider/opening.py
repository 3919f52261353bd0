"""Opening the ONNX files of a session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import onnxruntime

from onnx_iron.export.identity import recorded
from onnx_iron.export.metadata import DRIVER
from onnx_iron.provider.option_checks import read_options
from onnx_iron.provider.placement import RECORDING
from onnx_iron.provider.registration import EP_NAME, register
from onnx_iron.provider.weights import check_weights, load_model

ROLES = ("prefill", "decode")


def model_files(path: Path) -> dict[str, Path]:
    """The files of a model by role: "model" for a single one, else the names of the .onnx files in
    a folder, prefill and decode first.

    Raises:
        FileNotFoundError: none is there.
    """
    if path.is_file():
        return {"model": path}
    found = {file.stem: file for file in sorted(path.glob("*.onnx")) if file.is_file()}
    if not found:
        what = "is not there"
        if path.is_dir():
            what = "holds neither prefill.onnx nor decode.onnx, nor another .onnx file"
        raise FileNotFoundError(f"Session: {path} {what}")
    order = [role for role in ROLES if role in found] + [r for r in found if r not in ROLES]
    return {role: found[role] for role in order}


def load_models(path: Path) -> dict[str, tuple[Path, onnx.ModelProto]]:
    """The models that a session runs, by role, each with its file: those of :func:`model_files` but
    the ones in a folder that somebody else calls, onnxruntime-genai say.

    Raises:
        FileNotFoundError: none is there.
        ValueError: one is no ONNX file.
    """
    found = {role: (file, load_model(file)) for role, file in model_files(path).items()}
    drivers = {role: recorded(loaded, DRIVER) for role, (_, loaded) in found.items()}
    own = {role: item for role, item in found.items() if path.is_file() or not drivers[role]}
    if not own:
        driver, *_ = drivers.values()
        raise FileNotFoundError(
            f"Session: {path} holds a model for {driver} alone; export it again, which writes "
            "prefill.onnx and decode.onnx too"
        )
    return own


def check_not_saving(options: onnxruntime.SessionOptions) -> None:
    """Refuse options that ask onnxruntime for a file which it can't write of compiled nodes.

    Raises:
        ValueError: they ask for a compiled or an optimised model.
    """
    try:
        context = options.get_session_config_entry("ep.context_enable")
    except RuntimeError:  # it is not set
        context = "0"
    saving = {
        "ep.context_enable": context == "1",
        "optimized_model_filepath": bool(options.optimized_model_filepath),
    }
    for name, wanted in saving.items():
        if wanted:
            raise ValueError(
                f"Session: session_options ask for {name}, and IronExecutionProvider saves no "
                "compiled models: it compiles as it opens; leave it out, or use provider='stock'"
            )


def open_session(
    file: Path,
    provider: str,
    options: Mapping[str, str],
    session_options: onnxruntime.SessionOptions | None,
    loaded: onnx.ModelProto,
) -> onnxruntime.InferenceSession:
    """Open a file, whose model is ``loaded``, on a provider, "iron" or "stock".

    Raises:
        FileNotFoundError: the weights file is not there.
        ValueError: an option, the weights file is too short, or the file is no model.
    """
    if session_options is None:
        session_options = onnxruntime.SessionOptions()
        session_options.add_session_config_entry(RECORDING, "1")
    if provider == "iron":
        check_not_saving(session_options)
    providers: list[str] | None = ["CPUExecutionProvider"]
    given: list[dict[str, str]] | None = [{}]
    if provider == "iron":
        read_options(options)
        register()
        if EP_NAME in onnxruntime.get_available_providers():
            providers, given = [EP_NAME, "CPUExecutionProvider"], [dict(options), {}]
        else:  # onnxruntime 1.24 knows no plugin by its name
            # Options that opened a model before have the provider already, and take it once only.
            if not session_options.has_providers():
                devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == EP_NAME]
                session_options.add_provider_for_devices(devices, dict(options))
            providers = given = None
    check_weights(file, loaded)
    return onnxruntime.InferenceSession(
        str(file), session_options, providers=providers, provider_options=given
    )
