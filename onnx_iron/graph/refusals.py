"""What Python, numpy and torch do with numbers and arrays, refused until a call has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

_FUNCTIONS = "use + - * / @ and the functions of onnx_iron.functional"
_SHAPES = "index it, reshape() or transpose() it"

# Methods of torch's tensors that numpy's arrays lack, as bodies written for torch call them.
_TORCH_METHODS = (
    "abs add bfloat16 bmm bool broadcast_to cat chunk clone contiguous cos cpu cuda detach dim "
    "div einsum exp expand expand_as erf flatten float gather gelu half index_select int item log "
    "log_softmax long masked_fill matmul mm movedim mul narrow neg norm numel numpy permute pow "
    "reciprocal relu rsqrt scatter select sigmoid silu sin size softmax split sqrt square squeeze "
    "stack sub swapaxes t tanh to topk tril triu type unbind unflatten unsqueeze where add_ copy_ "
    "div_ fill_ mul_ sub_ zero_"
)
_METHODS = {name for name in dir(np.ndarray) if not name.startswith("_")} | set(
    _TORCH_METHODS.split()
)
# What to write instead of some of them.
_INSTEAD = {
    "astype": "it keeps its dtype; inputs and outputs get theirs as the graph is traced",
    "clone": "write copy()",
    "contiguous": "write copy()",
    "detach": "leave it out: handles have no gradient",
    "fill": "write a state with state[...] = number",
    "ndim": "write len(x.shape)",
    "numel": "write math.prod(x.shape)",
    "permute": "write transpose()",
    "size": "write x.shape",
    "t": "write x.T",
    **dict.fromkeys(("flatten", "ravel", "squeeze", "unsqueeze", "unflatten"), "write reshape()"),
    **dict.fromkeys(("chunk", "narrow", "select", "split", "unbind"), _SHAPES),
    **dict.fromkeys(("swapaxes", "movedim"), "write transpose()"),
    **dict.fromkeys(("copy_", "fill_", "zero_", "add_", "sub_", "mul_", "div_"), "write a state "
                    "with state[...] = what it becomes"),
}  # fmt: skip


def _refused(what: str, instead: str = "") -> Callable[..., NoReturn]:
    def refuse(self: Unknown, *_: Any, **__: Any) -> NoReturn:
        self._unknown(what, instead)

    return refuse


class Unknown:
    """What Python asks of a number or an array, refused. A subclass says by ``_unknown`` how, and
    has what it can do after all.
    """

    __slots__ = ()

    def _unknown(self, what: str, instead: str = "") -> NoReturn:
        """Refuse ``what``.

        Args:
            what: what is not there, after "it has no".
            instead: what to write.

        Raises:
            TypeError: always.
        """
        raise NotImplementedError

    __bool__ = _refused("truth value", "is None tells whether it is there")
    __int__ = __index__ = _refused("int()")
    __float__ = _refused("float()")
    __complex__ = _refused("complex()")
    __round__ = _refused("round()")
    __floor__ = __ceil__ = __trunc__ = _refused("rounding")
    __lt__: Callable[..., Any] = _refused("comparison")
    __le__: Callable[..., Any] = __lt__
    __gt__: Callable[..., Any] = __lt__
    __ge__: Callable[..., Any] = __lt__
    __len__: Callable[..., Any] = _refused("len()")
    __contains__ = _refused("'in'")
    __iter__ = __reversed__ = _refused("iteration")
    __delitem__ = _refused("del")
    __abs__ = _refused("abs()", _FUNCTIONS)
    __pow__: Callable[..., Any] = _refused("**", _FUNCTIONS)
    __rpow__ = __pow__
    __mod__: Callable[..., Any] = _refused("%")
    __rmod__ = __mod__
    __divmod__ = __rdivmod__ = _refused("divmod()")
    __and__ = __rand__ = _refused("&")
    __or__ = __ror__ = _refused("|")
    __xor__ = __rxor__ = _refused("^")
    __lshift__ = __rlshift__ = _refused("<<")
    __rshift__ = __rrshift__ = _refused(">>")
    __invert__ = _refused("~")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._unknown("array", _FUNCTIONS)

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        self._unknown(f"np.{function.__name__}()", _FUNCTIONS)

    def __array_ufunc__(self, ufunc: Any, *_: Any, **__: Any) -> Any:
        self._unknown(f"np.{ufunc.__name__}()", _FUNCTIONS)

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> NoReturn:
        # torch takes a TypeError of `tensor + handle` for NotImplemented: the handle adds then.
        name = getattr(function, "__name__", str(function))
        raise TypeError(
            f"torch's {name}() computes with elements, and those of a {cls.__name__} are not known "
            f"while it is traced; {_FUNCTIONS}"
        )


def missing_method(owner: Unknown, name: str) -> Callable[..., NoReturn]:
    """What ``owner.name`` is where it has no such attribute: a method that says so.

    Raises:
        AttributeError: neither numpy nor torch has a method of that name.
    """
    if name in _METHODS:
        return lambda *_, **__: owner._unknown(f"{name}()", _INSTEAD.get(name, _FUNCTIONS))
    raise AttributeError(f"{type(owner).__name__!r} has no attribute {name!r}")
