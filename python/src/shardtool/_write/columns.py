"""Columns: the values of many samples, field by field, in frames for the child of a writer."""

from __future__ import annotations

import itertools
import json
import re
import sys
from array import array
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .._wire.receiver import Buffer
from ..errors import ConfigError, EncodeError
from .encode import Misfit, Slots, cpu_array, fail, npy_header, plain_array

#: Bytes of a frame, approximately.
FRAME = 4 << 20

#: A key, as SPEC.md restricts it.
_KEY = re.compile(r"(?:(?!\.\.?/)[^/\0]+/)*[^/.\0]+")


class Column(NamedTuple):
    """A column of values. ``cut`` returns the buffers of the rows from one number to another, and
    the members of ``facts`` that depend on them."""

    role: str  #: field, key or attr
    name: str
    facts: Dict[str, Any]
    cut: Callable[[int, int], Tuple[Dict[str, Any], List[Buffer]]]
    size: int  #: bytes of all rows, approximately


def column_frames(columns: Sequence[Column], rows: int) -> Iterator[Tuple[List[Buffer], int]]:
    """The bodies of the frames for all rows, without the number of rows to leave out, and how many
    rows each has."""
    order = {"field": 0, "key": 1, "attr": 2}
    columns = sorted(columns, key=lambda c: (order[c.role], c.name.encode("utf-8", "surrogatepass")))
    step = max(1, rows * FRAME // max(1, sum(c.size for c in columns)))
    for lo in range(0, rows, step):
        hi = min(lo + step, rows)
        heads, buffers = [], []
        for c in columns:
            more, own = c.cut(lo, hi)
            heads.append({"role": c.role, "name": c.name, "width": 1, **c.facts, **more})
            buffers += own
        views = [memoryview(b).cast("B") for b in buffers]
        head = json.dumps({"rows": hi - lo, "columns": heads, "buffers": [len(v) for v in views]}).encode()
        yield [len(head).to_bytes(4, "little"), head, *views], hi - lo


def of_payloads(role: str, name: str, kind: str, payloads: "Sequence[Optional[bytes]]", nulls: bool) -> Column:
    """A column of payloads; with nulls, None where a sample has none."""

    def cut(lo: int, hi: int) -> Tuple[Dict[str, Any], List[Buffer]]:
        part = payloads[lo:hi]
        there = [p or b"" for p in part] if nulls else part
        offsets = array("q", itertools.accumulate(map(len, there), initial=0))  # type: ignore[arg-type]
        buffers: List[Buffer] = [memoryview(offsets).cast("B"), b"".join(there)]  # type: ignore[arg-type]
        if nulls:
            bits = bytearray((len(part) + 7) // 8)
            for i, p in enumerate(part):
                if p is not None:
                    bits[i >> 3] |= 1 << (i & 7)
            buffers.append(bits)
        return {}, buffers

    facts = {"type": kind, "kind": "var", "width": 8, "nulls": nulls}
    size = sum(map(len, (p for p in payloads if p is not None) if nulls else payloads))  # type: ignore[arg-type]
    return Column(role, name, facts, cut, size + 8 * len(payloads))


def _alike(slots: Slots, role: str, name: str, values: "Sequence[Any]") -> "Optional[List[bytes]]":
    """The payloads of values that are all bytes, all text, or all keys, without a step in Python
    for each. None where each value must be looked at, to convert it or to name it in an error."""
    of = set(map(type, values))
    if len(of) != 1 or role == "attr" or not of <= {str, bytes}:
        return None
    try:
        if role == "key":
            right = str in of and None not in map(_KEY.fullmatch, values)
            return [v.encode("utf-8", "surrogateescape") for v in values] if right else None
        slot = slots.slot(name)
        return list(map(slot.by_class.get(of.pop()) or slot.encoder(values[0]), values))
    except (Misfit, UnicodeEncodeError):
        return None


def of_values(slots: Slots, role: str, name: str, values: "Sequence[Any]", key_of: Callable[[int], str]) -> List[Column]:
    """The columns of a field, or of keys, with a list of values."""
    kind = "txt"
    same = _alike(slots, role, name, values)
    if same is not None:
        return [of_payloads(role, name, slots.slot(name).kind if role == "field" else kind, same, False)]
    payloads: List[Optional[bytes]] = []
    for i, value in enumerate(values):
        try:
            if value is None:
                if role == "key":
                    raise Misfit("a sample without a key: give one to all, or to none")
                payloads.append(None)
            elif role == "attr":
                kind, data = slots.attr(name, value)
                payloads.append(data)
            elif role == "key":
                payloads.append(key_bytes(value))
            else:
                slot = slots.slot(name)
                encode = slot.by_class.get(value.__class__) or slot.encoder(value)
                payloads.append(encode(value))
                kind = slot.kind
        except Misfit as err:
            raise fail(key_of(i), "__key__" if role == "key" else name, err) from None
    if role == "attr":
        kind = slots.attr_kinds.get(name, "str")
    if all(p is None for p in payloads):
        return []
    return [of_payloads(role, name, kind, payloads, None in payloads)]


def key_bytes(value: Any) -> bytes:
    """The bytes of a key."""
    if not isinstance(value, str):
        raise Misfit(f"the key {value!r} is of type {type(value).__name__}: keys are text, such as f'{{i:09d}}'")
    if _KEY.fullmatch(value) is None:
        last = value.rpartition("/")[2]
        if "." in last and last not in (".", ".."):
            raise Misfit(f"the key {value!r} has a dot in its last element, where key and field would be divided: replace the dot")
        raise Misfit(f"the key {value!r}: give names divided by single slashes, none of them empty, '.' or '..', without NUL bytes")
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as err:
        raise Misfit(f"the key {value!r} is not valid Unicode ({err.reason})") from None


def of_array(slots: Slots, role: str, name: str, value: Any, key_of: Callable[[int], str]) -> List[Column]:
    """The columns of a field with a numpy array of one row a sample."""
    import numpy

    kind = value.dtype.kind
    slot = slots.slot(name) if role == "field" else None
    if value.dtype.names is not None or value.dtype.kind in "Mm":  # tolist would drop names and units
        try:
            plain_array(value)
        except Misfit as err:
            raise fail(key_of(0), name, err) from None
    flat = value.ndim == 1 and not (slot is not None and slot.kind == "npy")
    if flat and (kind not in "iufb" or role == "key" or value.dtype.itemsize > 8):
        return of_values(slots, role, name, value.tolist(), key_of)
    if flat and kind == "b" and role == "attr":
        raise fail(key_of(0), name, f"booleans for the attribute {name!r}: attributes are int, float or str")
    if flat:
        word = {"b": "json", "f": "float"}.get(kind, "int")
        if slot is not None and slot.kind not in ("", word):
            return of_values(slots, role, name, value.tolist(), key_of)
        if slot is not None:
            slot.kind = word
        elif slots.attr_kinds.setdefault(name, word) != word:
            return of_values(slots, role, name, value.tolist(), key_of)
        if kind == "b":
            return [Column(role, name, {"type": word, "kind": "bools"}, lambda lo, hi: ({}, [_bits(numpy, value[lo:hi])]), len(value))]
        if value.dtype == numpy.uint64 and len(value) and int(value.max()) >= 1 << 63:
            raise fail(key_of(int(value.argmax())), name, "an integer of more than 63 bits: declare the field as 'json', and give a list")
        if value.dtype == numpy.float16:
            value = value.astype(numpy.float32)
        return [_numbers(role, name, word, plain_array(value))]
    if slot is None:
        raise fail(key_of(0), name, "an array for an attribute: attributes are int, float or str")
    try:
        value = plain_array(value)
    except Misfit as err:
        raise fail(key_of(0), name, err) from None
    if slot.kind not in ("", "npy"):  # images, or what the field does not hold
        return of_values(slots, role, name, list(value), key_of)
    slot.kind = "npy"
    width = value[:1].nbytes
    if width == 0:
        return of_values(slots, role, name, list(value), key_of)
    header = npy_header(value.dtype.str, value.shape[1:])

    def cut(lo: int, hi: int) -> Tuple[Dict[str, Any], List[Buffer]]:
        return {}, [header, memoryview(numpy.ascontiguousarray(value[lo:hi]).reshape(-1).view(numpy.uint8))]

    return [Column(role, name, {"type": "npy", "kind": "fixed", "width": width}, cut, value.nbytes)]


def _numbers(role: str, name: str, word: str, value: Any) -> Column:
    import numpy

    def cut(lo: int, hi: int) -> Tuple[Dict[str, Any], List[Buffer]]:
        return {}, [memoryview(numpy.ascontiguousarray(value[lo:hi]).view(numpy.uint8))]

    facts = {"type": word, "kind": "number", "dtype": value.dtype.str, "width": value.dtype.itemsize}
    return Column(role, name, facts, cut, value.nbytes)


def _bits(numpy: Any, value: Any) -> memoryview:
    return memoryview(numpy.packbits(value, bitorder="little"))


def _column(name: str, value: Any) -> Any:
    """A column as a numpy array of at least one dimension, or a list."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ma.MaskedArray):
        raise EncodeError(
            f"column {name!r}: a masked array: write column.filled(…), or a list with None where it is masked", field=str(name)
        )
    if torch is not None and isinstance(value, torch.Tensor):
        try:
            value = cpu_array(value)
        except Misfit as err:
            raise EncodeError(f"column {name!r}: {err}", field=str(name)) from None
    single = isinstance(value, (str, bytes, bytearray, memoryview, dict)) or not hasattr(value, "__iter__")
    if single or getattr(value, "ndim", 1) == 0:
        raise EncodeError(
            f"column {name!r}: a single {type(value).__name__}: give an array or a list with one value for each sample", field=str(name)
        )
    return value if numpy is not None and type(value) is numpy.ndarray else list(value)


def of_batch(
    slots: Slots, columns: "Dict[str, Any]", first: int, name_of: Callable[[int], str], bare: bool = False
) -> Tuple[List[Column], int]:
    """The columns of a batch: arrays with one row a sample, or sequences with one value a sample.
    name_of returns the key of a sample by its number in the data set, for those without one. With
    ``bare``, samples need no field."""
    given: Dict[str, Any] = {}
    rows, of = -1, ""
    for name, value in columns.items():
        if value is None:
            continue
        given[name] = column = _column(name, value)
        if rows < 0:
            rows, of = len(column), str(name)
        elif len(column) != rows:
            raise EncodeError(
                f"column {name!r} has {len(column)} values and column {of!r} has {rows}: give the same number for each column",
                field=str(name),
            )
    keys = given.get("__key__")

    def key_of(i: int) -> str:
        return str(keys[i]) if keys is not None else name_of(first + i)

    out: List[Column] = []
    for name, value in given.items():
        role = "key" if name == "__key__" else "field"
        out += (of_array if hasattr(value, "dtype") else of_values)(slots, role, name, value, key_of)
    for name, field in slots.attrs:
        if field in given:
            value = given[field]
            out += (of_array if hasattr(value, "dtype") else of_values)(slots, "attr", name, value, key_of)
    if rows > 0 and not bare and not any(c.role == "field" for c in out):
        raise ConfigError("write_batch: the columns have no field")
    return out, max(rows, 0)
