"""The native library against an onnxruntime whose C API lacks a function."""

from __future__ import annotations

import ctypes
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from onnx_iron.native import library_path

SLOTS = 600
CREATE_STATUS, GET_EP_API, NODE_GET_NAME, ADD_NODES_TO_FUSE = 0, 317, 349, 2

Text = ctypes.CFUNCTYPE(ctypes.c_char_p)
GetApi = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
CreateStatus = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
GetEpApi = ctypes.CFUNCTYPE(ctypes.c_void_p)


class ApiBase(ctypes.Structure):
    """What a library is handed: the tables by version, and the version."""

    _fields_ = (("GetApi", GetApi), ("GetVersionString", Text))


def refusal(missing_of_api: int | None, missing_of_ep_api: int | None) -> list[bytes]:
    """What the library says to tables that lack a function; in a process of its own, for the
    library keeps the tables."""
    said: list[bytes] = []

    def create_status(code: int, message: bytes) -> int:
        said.append(message)
        return 1

    ep_api = (ctypes.c_void_p * SLOTS)(*[1] * SLOTS)
    api = (ctypes.c_void_p * SLOTS)(*[1] * SLOTS)
    create = CreateStatus(create_status)
    get_ep_api = GetEpApi(lambda: ctypes.addressof(ep_api))
    api[CREATE_STATUS] = ctypes.cast(create, ctypes.c_void_p).value
    api[GET_EP_API] = ctypes.cast(get_ep_api, ctypes.c_void_p).value
    if missing_of_api is not None:
        api[missing_of_api] = None
    if missing_of_ep_api is not None:
        ep_api[missing_of_ep_api] = None
    base = ApiBase(GetApi(lambda version: ctypes.addressof(api)), Text(lambda: b"1.77.0"))
    loaded = ctypes.CDLL(str(library_path()))
    loaded.CreateEpFactories.restype = ctypes.c_void_p
    written = ctypes.c_size_t(9)
    status = loaded.CreateEpFactories(
        *(b"iron", ctypes.byref(base), None, (ctypes.c_void_p * 1)()),
        *(ctypes.c_size_t(1), ctypes.byref(written)),
    )
    assert (status, written.value) == (1, 0)
    return said


@pytest.mark.parametrize(
    ("missing_of_api", "missing_of_ep_api", "name"),
    [
        (NODE_GET_NAME, None, "Node_GetName"),
        (None, ADD_NODES_TO_FUSE, "EpGraphSupportInfo_AddNodesToFuse"),
    ],
)
def test_a_missing_function_is_an_error_that_names_it_and_the_version(
    missing_of_api: int | None, missing_of_ep_api: int | None, name: str
) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        (message,) = pool.submit(refusal, missing_of_api, missing_of_ep_api).result()
    assert f"needs {name} of onnxruntime's C API".encode() in message
    assert b"onnxruntime 1.77.0" in message
