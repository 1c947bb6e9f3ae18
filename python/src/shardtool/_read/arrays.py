"""Number types, and arrays over memory: numpy arrays, torch tensors, or memoryviews."""

from __future__ import annotations

import ast
import math
from typing import Any, Dict, NamedTuple, Sequence, Tuple

from ..errors import ConfigError


class Dtype(NamedTuple):
    """A type of number."""

    name: str  #: name in numpy and torch
    descr: str  #: name in an npy file; empty if numpy has no such type
    size: int  #: bytes
    format: str  #: of a memoryview; "B" if it has none


_ALL = [
    Dtype("bool", "|b1", 1, "?"),
    Dtype("int8", "|i1", 1, "b"),
    Dtype("uint8", "|u1", 1, "B"),
    Dtype("int16", "<i2", 2, "h"),
    Dtype("uint16", "<u2", 2, "H"),
    Dtype("int32", "<i4", 4, "i"),
    Dtype("uint32", "<u4", 4, "I"),
    Dtype("int64", "<i8", 8, "q"),
    Dtype("uint64", "<u8", 8, "Q"),
    Dtype("float16", "<f2", 2, "B"),
    Dtype("float32", "<f4", 4, "f"),
    Dtype("float64", "<f8", 8, "d"),
    Dtype("complex64", "<c8", 8, "B"),
    Dtype("complex128", "<c16", 16, "B"),
    Dtype("bfloat16", "", 2, "B"),
]
_BY_NAME: Dict[str, Dtype] = {d.name: d for d in _ALL}
_BY_NAME.update({d.descr: d for d in _ALL if d.descr})
_BY_NAME.update({"float": _BY_NAME["float32"], "half": _BY_NAME["float16"], "double": _BY_NAME["float64"], "long": _BY_NAME["int64"]})


def dtype_of(given: Any) -> Dtype:
    """Returns the type that "int32", numpy.int32, numpy.dtype("int32") or torch.int32 names. All
    are little-endian."""
    name = getattr(given, "name", None) or getattr(given, "__name__", None) or str(given)
    found = _BY_NAME.get(str(name).replace("torch.", "").replace("=", "<"))
    if found is None:
        raise ConfigError(f"dtype {given!r}: give one of {', '.join(d.name for d in _ALL)}")
    return found


def by_descr(descr: str) -> Dtype:
    """Returns the type that an npy file names, possibly one that only numpy knows."""
    return _BY_NAME.get(descr) or Dtype(descr, descr, 0, "B")


def array(buffer: Any, offset: int, size: int, dtype: Dtype, shape: Sequence[int], fortran: bool, out: str) -> Any:
    """Returns an array over size bytes of a buffer, without a copy. With out="bytes" it is a
    memoryview of that shape, or of bytes if a memoryview has no such type or the order is
    Fortran's."""
    if out == "torch":
        return _tensor(buffer, offset, size, dtype, shape, fortran)
    if out == "numpy":
        return _ndarray(buffer, offset, size, dtype, shape, fortran)
    view = memoryview(buffer).cast("B")[offset : offset + size]
    if dtype.size == 0 or size == 0 or fortran or (dtype.format == "B" and dtype.size != 1):
        return view
    return view.cast(dtype.format, tuple(shape)) if shape else view.cast(dtype.format)  # type: ignore[call-overload]


def _ndarray(buffer: Any, offset: int, size: int, dtype: Dtype, shape: Sequence[int], fortran: bool) -> Any:
    import numpy

    kind = _numpy_types.get(dtype.descr)
    if kind is None:
        if not dtype.descr:
            raise ConfigError(f"numpy has no {dtype.name}: use format='torch'")
        kind = _numpy_types[dtype.descr] = numpy.dtype(dtype.descr)
    if size // kind.itemsize != math.prod(shape):
        raise ValueError(f"{size} bytes, but an array of {kind.name} and shape {tuple(shape)} has {kind.itemsize * math.prod(shape)}")
    # In Fortran order, the rows of a batch stay outermost, where the caller put them.
    return numpy.ndarray(shape, kind, buffer, offset, order="F" if fortran else "C") if size else numpy.empty(shape, kind)


def _tensor(buffer: Any, offset: int, size: int, dtype: Dtype, shape: Sequence[int], fortran: bool) -> Any:
    import torch

    kind = _torch_types.get(dtype)
    if kind is None:
        kind = _torch_types[dtype] = _torch_type(torch, dtype)
    if kind is not True and not fortran:
        if size == 0:
            return torch.empty(tuple(shape), dtype=kind)
        return torch.frombuffer(buffer, dtype=kind, count=size // dtype.size, offset=offset).reshape(tuple(shape))
    if not dtype.descr:
        raise ConfigError(f"this torch has no {dtype.name}")
    flat = _ndarray(buffer, offset, size, dtype, shape, fortran)
    if flat.dtype.byteorder == ">":
        flat = flat.astype(flat.dtype.newbyteorder("<"))
    try:
        return torch.from_numpy(flat)
    except TypeError as err:
        raise ConfigError(f"this torch has no {dtype.name}: use format='numpy' ({err})") from None


def _torch_type(torch: Any, dtype: Dtype) -> Any:
    """Returns torch's type if numpy cannot make the tensor, else True: the way through numpy takes
    half the time."""
    kind = getattr(torch, dtype.name, None) if dtype.size else None
    if kind is None:
        return True
    try:
        import numpy

        torch.from_numpy(numpy.empty(0, dtype.descr or "V2"))
    except (ImportError, TypeError, RuntimeError):
        return kind
    return True


#: Types found so far.
_numpy_types: Dict[str, Any] = {}
_torch_types: "Dict[Dtype, Any]" = {}


def as_type(decoded: Any, out: str) -> Any:
    """Returns an array of numpy, or a tensor that a GPU decoded, as ``out`` says."""
    if out == "torch":
        import torch

        return decoded if isinstance(decoded, torch.Tensor) else torch.from_numpy(decoded)
    return memoryview(decoded) if out == "bytes" else decoded


def parse_npy(data: memoryview) -> "Tuple[Dtype, Tuple[int, ...], bool, int]":
    """Returns the type, the shape, whether the order is Fortran's, and the offset of the numbers in
    an npy file."""
    try:
        if bytes(data[:6]) != b"\x93NUMPY":
            raise ValueError("the magic number is missing")
        start = 10 if data[6] == 1 else 12
        length = int.from_bytes(data[8:start], "little")
        if length > 10000:
            raise ValueError("a header of more than 10,000 bytes")
        header = ast.literal_eval(bytes(data[start : start + length]).decode("latin-1" if data[6] < 3 else "utf-8").strip())
        descr, shape, fortran = header["descr"], tuple(int(n) for n in header["shape"]), bool(header["fortran_order"])
    except (ValueError, SyntaxError, KeyError, TypeError, IndexError, RecursionError, MemoryError) as err:
        raise ValueError(f"not a readable npy file: {err}") from None
    if not isinstance(descr, str) or "O" in descr:
        raise ValueError(f"an npy file of type {descr!r}: read the field as bytes, and decode them with numpy.load")
    return by_descr(descr), shape, fortran, start + length
