"""Arrow tables through the C stream interface, which needs no library of Arrow.

https://arrow.apache.org/docs/format/CStreamInterface.html
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import math
import struct
import sys
from array import array
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .._wire.receiver import Buffer
from ..errors import EncodeError
from .columns import Column, of_array, of_values
from .encode import Misfit, Slots, fail


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


class _Stream(ctypes.Structure):
    pass


_Schema._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p), ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("children", ctypes.POINTER(ctypes.POINTER(_Schema))), ("dictionary", ctypes.POINTER(_Schema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))), ("private_data", ctypes.c_void_p),
]  # fmt: skip
_Array._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64), ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("buffers", ctypes.POINTER(ctypes.c_void_p)), ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.POINTER(_Array)), ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))), ("private_data", ctypes.c_void_p),
]  # fmt: skip
_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Stream))), ("private_data", ctypes.c_void_p),
]  # fmt: skip

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class _Number(NamedTuple):
    dtype: str  #: as in npy files
    code: str  #: of a memoryview


_NUMBERS = {
    "c": _Number("|i1", "b"), "C": _Number("|u1", "B"), "s": _Number("<i2", "h"), "S": _Number("<u2", "H"), "i": _Number("<i4", "i"),
    "I": _Number("<u4", "I"), "l": _Number("<i8", "q"), "L": _Number("<u8", "Q"), "e": _Number("<f2", "e"), "f": _Number("<f4", "f"),
    "g": _Number("<f8", "d"),
}  # fmt: skip
#: Text and bytes: the width of offsets, and the type of the field.
_VARIABLE = {"u": (4, "txt"), "U": (8, "txt"), "z": (4, "bytes"), "Z": (8, "bytes")}


@contextlib.contextmanager
def batches(slots: Slots, table: Any, key: Optional[str], name_of: Callable[[int], str]) -> Iterator[List[Tuple[List[Column], int]]]:
    """The columns of each record batch of a table, all of which are checked. They are valid in the
    block. name_of returns the key of a row of the table, for those without one."""
    if hasattr(table, "with_format") and hasattr(table, "column_names") and hasattr(table, "__getitem__"):  # datasets.Dataset
        table = table.with_format("arrow")[:]
    export = getattr(table, "__arrow_c_stream__", None)
    if export is None:
        raise EncodeError(
            f"write_table: {type(table).__name__} has no __arrow_c_stream__: give a table of pyarrow, polars, pandas 2.2 or duckdb,"
            " or use write_batch"
        )
    capsule = export()
    stream = _Stream.from_address(_pointer(capsule, b"arrow_array_stream"))
    with contextlib.ExitStack() as ended:
        ended.callback(_release, stream)
        schema = _Schema()
        _check(stream, stream.get_schema(ctypes.byref(stream), ctypes.byref(schema)))
        ended.callback(_release, schema)
        if schema.format != b"+s":
            raise EncodeError(f"write_table: a stream of type {schema.format!r}, not of rows: give a table")
        names = [_name(schema.children[i].contents) for i in range(schema.n_children)]
        wanted = key if key is not None else "__key__"
        if len(set(names)) < len(names):
            raise EncodeError(f"write_table: two columns have one name: {', '.join(names)}")
        if key is not None and key not in names:
            raise EncodeError(f"write_table: key={key!r}: there is no such column; there are: {', '.join(names)}")
        made: List[Tuple[List[Column], int]] = []
        before = 0
        with slots.whole():
            while True:
                rows = _Array()
                _check(stream, stream.get_next(ctypes.byref(stream), ctypes.byref(rows)))
                if not rows.release:
                    break
                ended.callback(_release, rows)
                named = functools.partial(lambda first, i: name_of(first + i), before)
                out: List[Column] = []
                for i, name in enumerate(names):
                    part = _Part(schema.children[i].contents, rows.children[i].contents, rows.offset, rows.length)
                    out += _columns(slots, "key" if name == wanted else "field", name, part, named)
                    for attr, field in slots.attrs:
                        if field == name:
                            out += _columns(slots, "attr", attr, part, named)
                made.append((out, rows.length))
                before += rows.length
        yield made


def _release(of: Any) -> None:
    if of.release:
        of.release(ctypes.byref(of))


def _check(stream: _Stream, code: int) -> None:
    if code != 0:
        said = stream.get_last_error(ctypes.byref(stream))
        raise EncodeError(f"write_table: the table failed: {(said or b'').decode('utf-8', 'replace') or f'error {code}'}")


def _name(schema: Any) -> str:
    return (schema.name or b"").decode("utf-8", "surrogateescape")


class _Part:
    """Rows of a column: those from ``offset`` on in its buffers."""

    def __init__(self, schema: Any, values: Any, more: int, length: int) -> None:
        self.schema, self.values = schema, values
        self.format = (schema.format or b"").decode()
        self.offset = values.offset + more
        self.length = length

    def buffer(self, i: int, size: int) -> memoryview:
        """The first bytes of a buffer."""
        at = self.values.buffers[i]
        if size == 0 or not at:
            return memoryview(b"")
        return memoryview((ctypes.c_char * size).from_address(at)).cast("B")

    def items(self, i: int, code: Any, first: int, count: int) -> "memoryview[Any]":
        """Items of a buffer of numbers."""
        width = array(code).itemsize
        return self.buffer(i, (first + count) * width)[first * width :].cast(code)

    def child(self, i: int, first: int, count: int) -> "_Part":
        return _Part(self.schema.children[i].contents, self.values.children[i].contents, first, count)

    def extension(self, name: str) -> Optional[bytes]:
        """The metadata of an extension type of that name; None for another type."""
        at = self.schema.metadata
        if not at:
            return None
        known: Dict[bytes, bytes] = {}

        def take(size: int) -> bytes:
            nonlocal at
            at += size
            return ctypes.string_at(at - size, size)

        for _ in range(int.from_bytes(take(4), sys.byteorder)):
            key = take(int.from_bytes(take(4), sys.byteorder))
            known[key] = take(int.from_bytes(take(4), sys.byteorder))
        return known.get(b"ARROW:extension:metadata", b"") if known.get(b"ARROW:extension:name") == name.encode() else None

    def nulls(self) -> bool:
        return self.values.n_buffers > 0 and self.values.null_count != 0 and bool(self.values.buffers[0])

    def valid(self) -> Optional[memoryview]:
        """The validity bits; the first row has bit number ``offset``."""
        return self.buffer(0, (self.offset + self.length + 7) // 8) if self.nulls() else None

    def is_null(self, i: int) -> bool:
        at = self.offset + i
        return self.nulls() and not self.buffer(0, at // 8 + 1)[at // 8] >> (at % 8) & 1


def _columns(slots: Slots, role: str, name: str, part: _Part, name_of: Callable[[int], str]) -> List[Column]:
    if part.format == "n" or part.length == 0:
        return []
    tensors = _tensors(part) if role == "field" else None
    if tensors is not None:
        return of_array(slots, role, name, tensors, name_of)
    quick = None if part.schema.dictionary else _quick(slots, role, name, part)
    if quick is not None:
        return [quick]
    if _is_file(part):  # {"bytes": …, "path": …}, as Hugging Face stores images and audio
        names = [_name(part.schema.children[i].contents) for i in range(2)]
        inner = part.child(names.index("bytes"), part.offset, part.length)
        if not part.nulls():
            return _columns(slots, role, name, inner, name_of)
        return of_values(slots, role, name, [None if part.is_null(i) else v for i, v in enumerate(_values(inner))], name_of)
    try:
        values = _values(part)
    except Misfit as err:
        raise fail(name_of(0), name, err) from None
    if role == "key":
        values = [v if v is None else str(v) for v in values]
    return of_values(slots, role, name, values, name_of)


def _tensors(part: _Part) -> Any:
    """The rows of a fixed_shape_tensor without nulls as one numpy array; None for other columns.

    https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor
    """
    facts = part.extension("arrow.fixed_shape_tensor")
    items = part.child(0, 0, 0) if facts is not None and part.format.startswith("+w:") else None
    if items is None or items.format not in _NUMBERS or items.nulls() or part.nulls():
        return None
    import numpy

    said = json.loads(facts or b"{}")
    shape = [int(n) for n in said["shape"]]
    size = math.prod(shape)
    items = part.child(0, part.offset * size, part.length * size)
    number = _NUMBERS[items.format]
    code = number.code if number.code != "e" else "H"
    values = numpy.frombuffer(items.items(1, code, items.offset, items.length), number.dtype, part.length * size)
    order = said.get("permutation") or range(len(shape))
    return values.reshape(part.length, *shape).transpose(0, *(1 + int(n) for n in order))


def _is_file(part: _Part) -> bool:
    if part.format != "+s" or part.schema.n_children != 2:
        return False
    children = {_name(part.schema.children[i].contents): part.schema.children[i].contents.format for i in range(2)}
    return set(children) == {"bytes", "path"} and children["bytes"] in (b"z", b"Z", b"vz")


def _quick(slots: Slots, role: str, name: str, part: _Part) -> Optional[Column]:
    """The column as it lies in memory, if the child can read it so."""
    kind = _kind(part)
    if (
        kind is None
        or (role == "key" and part.nulls())
        or (role == "attr" and kind not in ("txt", "int", "float"))
        or (role == "key" and kind not in ("txt", "int"))
    ):
        return None
    if role == "field":
        slot = slots.slot(name)
        if slot.kind == "image" and kind == "bytes":
            kind = "image"
        if slot.kind not in ("", kind):
            return None
        slot.kind = kind
    elif role == "attr":
        kind = {"txt": "str"}.get(kind, kind)
        if slots.attr_kinds.setdefault(name, kind) != kind:
            return None
    facts, cut, size = _cut(part)
    valid = part.valid()
    offset = part.offset

    def whole(lo: int, hi: int) -> Tuple[Dict[str, Any], List[Buffer]]:
        more, buffers = cut(lo, hi)
        if valid is not None:
            first = offset + lo
            more["bit"] = first % 8
            buffers.append(valid[first // 8 : (offset + hi + 7) // 8])
        return more, buffers

    return Column(role, name, {"type": kind, "nulls": valid is not None, **facts}, whole, size)


def _kind(part: _Part) -> Optional[str]:
    """The type of a field of such columns; None if they become Python values first."""
    f = part.format
    if f in _VARIABLE:
        return _VARIABLE[f][1]
    if f == "b":
        return "json"
    if f in _NUMBERS and f not in "eL":
        return "float" if f in "fg" else "int"
    if f in ("+l", "+L") or f.startswith("+w:"):
        items = part.child(0, 0, 0)
        if items.format in _NUMBERS and not items.nulls() and not items.schema.dictionary:
            return "npy"
    return None


def _cut(part: _Part) -> Tuple[Dict[str, Any], Callable[[int, int], Tuple[Dict[str, Any], List[Buffer]]], int]:
    f, offset, length = part.format, part.offset, part.length
    if f in _VARIABLE:
        width = _VARIABLE[f][0]
        offsets = part.items(1, "i" if width == 4 else "q", offset, length + 1)
        data = part.buffer(2, offsets[length])

        def variable(lo: int, hi: int) -> Tuple[Dict[str, Any], List[Buffer]]:
            first = offsets[lo]
            cut = offsets[lo : hi + 1]
            shifted: Buffer = cut.cast("B") if first == 0 else memoryview(array("q", (o - first for o in cut))).cast("B")
            return {"width": width if first == 0 else 8}, [shifted, data[first : offsets[hi]]]

        return {"kind": "var"}, variable, offsets[length] - offsets[0] + 8 * length
    if f == "b":
        bits = part.buffer(1, (offset + length + 7) // 8)
        return (
            {"kind": "bools"},
            lambda lo, hi: ({"data_bit": (offset + lo) % 8}, [bits[(offset + lo) // 8 : (offset + hi + 7) // 8]]),
            length,
        )
    if f in _NUMBERS:
        number = _NUMBERS[f]
        values = part.items(1, number.code, offset, length)
        facts = {"kind": "number", "dtype": number.dtype, "width": values.itemsize}
        return facts, lambda lo, hi: ({}, [values[lo:hi].cast("B")]), values.nbytes
    return _lists(part)


def _lists(part: _Part) -> Tuple[Dict[str, Any], Callable[[int, int], Tuple[Dict[str, Any], List[Buffer]]], int]:
    offset, length = part.offset, part.length
    if part.format.startswith("+w:"):
        n = int(part.format[3:])
        ends = array("q", range(offset * n, (offset + length + 1) * n, n) if n else [0] * (length + 1))
    else:
        ends = array("q", part.items(1, "i" if part.format == "+l" else "q", offset, length + 1))
    first = ends[0]
    items = part.child(0, first, ends[length] - first)
    number = _NUMBERS[items.format]
    values = items.items(1, number.code if number.code != "e" else "H", items.offset, items.length)

    def cut(lo: int, hi: int) -> Tuple[Dict[str, Any], List[Buffer]]:
        own = array("q", (e - ends[lo] for e in ends[lo : hi + 1]))
        return {}, [memoryview(own).cast("B"), values[ends[lo] - first : ends[hi] - first].cast("B")]

    return {"kind": "list", "dtype": number.dtype, "width": values.itemsize}, cut, values.nbytes + 8 * length


# Python values, for types that are stored as JSON


def _values(part: _Part) -> List[Any]:
    made = _made(part)
    if not part.nulls():
        return made
    return [None if part.is_null(i) else v for i, v in enumerate(made)]


def _made(part: _Part) -> List[Any]:
    """The values of a part; null rows have values without a meaning."""
    f, offset, length = part.format, part.offset, part.length
    if part.schema.dictionary:
        choices = _values(
            _Part(part.schema.dictionary.contents, part.values.dictionary.contents, 0, part.values.dictionary.contents.length)
        )
        return [choices[i] if 0 <= i < len(choices) else None for i in part.items(1, _NUMBERS[f].code, offset, length)]
    if f == "n":
        return [None] * length
    if f == "b":
        bits = part.buffer(1, (offset + length + 7) // 8)
        return [bool(bits[i // 8] >> (i % 8) & 1) for i in range(offset, offset + length)]
    if f == "e":  # memoryviews have no such type before Python 3.12
        return [v for (v,) in struct.iter_unpack("<e", part.items(1, "H", offset, length).cast("B"))]
    if f in _NUMBERS:
        return part.items(1, _NUMBERS[f].code, offset, length).tolist()
    if f in _VARIABLE:
        width, kind = _VARIABLE[f]
        offsets = part.items(1, "i" if width == 4 else "q", offset, length + 1)
        data = bytes(part.buffer(2, offsets[length]))
        found = [data[lo:hi] for lo, hi in itertools.pairwise(offsets)] if hasattr(itertools, "pairwise") else [
            data[offsets[i] : offsets[i + 1]] for i in range(length)
        ]  # fmt: skip
        return [v.decode() for v in found] if kind == "txt" else found
    if f in ("vu", "vz"):
        return _views(part, f == "vu")
    if f.startswith("w:"):
        n = int(f[2:])
        data = bytes(part.buffer(1, (offset + length) * n))
        return [data[i * n : (i + 1) * n] for i in range(offset, offset + length)]
    if f in ("+l", "+L", "+m") or f.startswith("+w:"):
        return _made_lists(part)
    if f == "+s":
        n = part.schema.n_children
        columns = [(_name(part.schema.children[i].contents), _values(part.child(i, offset, length))) for i in range(n)]
        return [{name: values[i] for name, values in columns} for i in range(length)]
    raise Misfit(f"a column of the Arrow type {f!r}: cast it to text or to a number before writing")


def _made_lists(part: _Part) -> List[Any]:
    offset, length = part.offset, part.length
    if part.format.startswith("+w:"):
        n = int(part.format[3:])
        ends = list(range(offset * n, (offset + length) * n + 1, n)) if n else [0] * (length + 1)
    else:
        ends = part.items(1, "q" if part.format == "+L" else "i", offset, length + 1).tolist()
    items = _values(part.child(0, ends[0], ends[length] - ends[0]))
    rows = [items[ends[i] - ends[0] : ends[i + 1] - ends[0]] for i in range(length)]
    if part.format != "+m":
        return rows
    return [{(k if isinstance(k, str) else json.dumps(k)): v for k, v in (tuple(pair.values()) for pair in row)} for row in rows]


def _views(part: _Part, text: bool) -> List[Any]:
    """The values of a view column: 12 bytes inline, or a buffer's number and an offset."""
    views = part.buffer(1, 16 * (part.offset + part.length))
    sizes = part.items(part.values.n_buffers - 1, "q", 0, part.values.n_buffers - 3)
    data = [part.buffer(2 + i, size) for i, size in enumerate(sizes)]
    out: List[Any] = []
    for at in range(16 * part.offset, 16 * (part.offset + part.length), 16):
        size = int.from_bytes(views[at : at + 4], "little", signed=True)
        if size <= 12:
            value = bytes(views[at + 4 : at + 4 + size])
        else:
            which, first = int.from_bytes(views[at + 8 : at + 12], "little"), int.from_bytes(views[at + 12 : at + 16], "little")
            value = bytes(data[which][first : first + size]) if which < len(data) else b""
        out.append(value.decode() if text else value)
    return out
