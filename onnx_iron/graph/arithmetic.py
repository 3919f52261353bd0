"""Python's operators between tensors of a body: each is a step."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from onnx_iron.dtypes import BOOL, FLOAT32, FLOATS
from onnx_iron.graph.arrays import as_array
from onnx_iron.graph.leading import by_rows
from onnx_iron.graph.refusals import Unknown
from onnx_iron.graph.value import Value

# numpy's functions that are steps: `array * handle` asks for them too.
_UFUNCS = {
    np.add: "__add__",
    np.subtract: "__sub__",
    np.multiply: "__mul__",
    np.divide: "__truediv__",
    np.floor_divide: "__floordiv__",
    np.remainder: "__mod__",
    np.power: "__pow__",
    np.equal: "__eq__",
    np.not_equal: "__ne__",
    np.less: "__lt__",
    np.less_equal: "__le__",
    np.greater: "__gt__",
    np.greater_equal: "__ge__",
    np.bitwise_and: "__and__",
    np.bitwise_or: "__or__",
    np.bitwise_xor: "__xor__",
}


class Arithmetic(Unknown):
    """What can be written with operators: ``+ - * / ** @``, ``// %`` of integers, comparisons, and
    ``& | ^ ~`` of bools.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def _handle(self) -> Any:
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return self._step("Add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._step("Add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._step("Sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._step("Sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._step("Mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._step("Mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._quotient(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._quotient(other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._floor_quotient(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._floor_quotient(other, self)

    def __mod__(self, other: Any) -> Any:
        return self._of_integers("Mod", "%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._of_integers("Mod", "%", other, self)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, int | float) and not isinstance(other, bool) and other == 2:
            return self * self  # exactly, of integers too
        return self._step("Pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._step("Pow", other, self)

    def __matmul__(self, other: Any) -> Any:
        return self._product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._product(other, self)

    def __neg__(self) -> Any:
        if self.dtype in FLOATS:
            return self._step("Neg", self)
        return self._step("Sub", 0, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        if self.dtype in FLOATS:
            return self._step("Abs", self)
        return self._step("Max", self, -self)

    def __lt__(self, other: Any) -> Any:
        return self._step("Less", self, other)

    def __le__(self, other: Any) -> Any:
        return self._step("LessOrEqual", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._step("Greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return self._step("GreaterOrEqual", self, other)

    def __eq__(self, other: object) -> Any:
        if not _is_operand(other) and not (isinstance(other, bool) and self.dtype == BOOL):
            self._unknown(
                f"comparison with {other!r}", "`is` tells whether two names are one handle, or None"
            )
        return self._step("Equal", self, other)

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    __hash__ = object.__hash__

    def __invert__(self) -> Any:
        self._bools("~", self)
        return self._handle().trace.call("Equal", self, np.bool_(False))

    def __and__(self, other: Any) -> Any:
        self._bools("&", self, other)
        return self._handle().trace.call("Where", self, other, np.bool_(False))

    def __or__(self, other: Any) -> Any:
        self._bools("|", self, other)
        return self._handle().trace.call("Where", self, np.bool_(True), other)

    def __xor__(self, other: Any) -> Any:
        self._bools("^", self, other)
        return self != other

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and not options:
            if ufunc is np.matmul:
                return self._product(*inputs)
            if ufunc in _UFUNCS and len(inputs) == 2:
                left, right = inputs
                if not isinstance(left, Arithmetic):  # an array or a number
                    left = self._handle().trace.lift(left, self.dtype)
                return getattr(left, _UFUNCS[ufunc])(right)
        return super().__array_ufunc__(ufunc)

    def _unknown(self, what: str, instead: str = "") -> NoReturn:
        raise NotImplementedError

    # -- what they record -------------------------------------------------------------------

    def _step(self, op: str, *operands: Any) -> Any:
        floats = any(getattr(x, "dtype", None) in FLOATS for x in operands)
        for operand in operands:
            if isinstance(operand, Value) and floats:
                raise TypeError(
                    f"{op}: {operand} is a per-call value, an integer, and the other operand is "
                    f"{self.dtype.name}; compute with it among integers, F.tensor({operand}) say, "
                    "and give the result to(dtype)"
                )
            if not isinstance(operand, Value) and not _is_operand(operand):
                if isinstance(operand, bool) and self.dtype == BOOL:
                    continue
                return NotImplemented
        return self._handle().trace.call(op, *operands)

    def _of_integers(self, op: str, sign: str, left: Any, right: Any) -> Any:
        if any(getattr(x, "dtype", None) in FLOATS or isinstance(x, float) for x in (left, right)):
            self._unknown(f"{sign} with a float", "it is for int32 and int64; use / and functions")
        return self._step(op, left, right)

    def _floor_quotient(self, left: Any, right: Any) -> Any:
        rest = self._of_integers("Mod", "//", left, right)
        # Towards zero is downwards where nothing is left over.
        return rest if rest is NotImplemented else self._step("Div", left - rest, right)

    def _quotient(self, left: Any, right: Any) -> Any:
        if self.dtype not in FLOATS and _is_operand(left) and _is_operand(right):
            trace = self._handle().trace
            left, right = (
                trace.call("Cast", x, to=1) if getattr(x, "dtype", FLOAT32) not in FLOATS else x
                for x in (left, right)
            )
        return self._step("Div", left, right)

    def _bools(self, sign: str, *operands: Any) -> None:
        for operand in operands:
            if isinstance(operand, bool | np.bool_) or getattr(operand, "dtype", None) == BOOL:
                continue
            self._unknown(f"{sign} with {operand!r}", "it is for bools, as comparisons give")

    def _product(self, left: Any, right: Any) -> Any:
        """``@`` of two matrices, or of a matrix and a row (n,) on either side; what is left may
        have more axes in front.
        """
        left, right = (x if isinstance(x, Arithmetic) else as_array(x) for x in (left, right))
        if left is None or right is None:
            return NotImplemented
        trace, a, b = self._handle().trace, tuple(left.shape), tuple(right.shape)
        fits = a[-1:] == b[:1] != ()
        bounded = len(a) == 2 and len(b) == 1 and getattr(left, "valid", None)
        if fits and len(b) <= 2 and (len(a) > 2 or bounded):
            return by_rows("@", trace.lift(left), lambda rows: rows @ right)
        if fits and len(a) == 2 and len(b) == 1:
            return trace.call("GEMV", left, right)
        if fits and len(a) in (1, 2) and len(b) == 2:
            rows = trace.lift(left).reshape(-1, b[0])
            return trace.call("GEMM", rows, right).reshape(*a[:-1], b[1])
        several = (
            f"; of a batch's own matrices write F.stack([a[i] @ b[i] for i in range({a[0]})])"
            if len(b) > 2 and a[:1] == b[:1]
            else ""
        )
        raise ValueError(
            f"@ of {a} and {b}: expected (..., m, n) @ (n, k), (..., m, n) @ (n,) or "
            f"(n,) @ (n, k){several}; a product with a weight (out, in) is linear()"
        )


def _is_operand(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    return isinstance(value, Arithmetic | np.generic | int | float) or as_array(value) is not None
