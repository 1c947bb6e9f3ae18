"""How the payloads of a field are decoded.

========================  ========================================================================
``"bytes"``               bytes as they were packed
``"view"``                a memoryview of them, in the memory that the batch was delivered in
``"txt"`` or ``"str"``    text, UTF-8
``"json"``                the value of the JSON text
``"int"`` or ``"cls"``    a whole number written as text, or as an npy file of one int64, as rows
                          have it; a batch has one array of int64
``"float"``               a number written as text, or as an npy file of one float64; a batch has
                          one array of float64
``"npy"``                 an array from an npy file; a batch has one array of shape (samples, ...)
                          if all have the same type and shape, else a list
``("uint8", (3, 8, 8))``  raw numbers of that type and shape, row by row; a batch has one array of
                          shape (samples, 3, 8, 8)
``("int32", (-1,))``      raw numbers; a batch has a list of arrays that may differ in length
``"image"``               a PIL.Image, decoded by Pillow, in the mode and size it was packed with
``"image:RGB"``           the same, converted to a mode, for data sets in which a few images are
                          gray, have a palette, or are CMYK
``"auto"``                by the field's name: .txt, .json, .cls, .npy; bytes for all others
shardtool.Image(224)      one array of uint8 for the batch: see shardtool.images
a function                its result for the payload, a bytes-like object
========================  ========================================================================

The name of a field may lack the extension: "caption" is the field caption.txt, unless there is a
field "caption", or caption.json too. A batch has it under the name that was asked for.

A list of files, such as images of a sample, is one field: a batch has a list for each sample, with
a value for each file as the field declares it, None for one that is null. The list may be empty.

A ``?`` after the word ("json?") makes a field optional: samples without it have None, and a batch
of "int?" or "float?" has a list. A field that no sample has is an error all the same.
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import json
import re
import struct
from collections.abc import Iterable as IterableABC
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ._checks import installed
from ._read import arrays
from .errors import ConfigError, DecodeError
from .images import Image

#: The declaration of a field.
Spec = Union[str, Tuple[Any, Sequence[int]], Callable[[Any], Any], Image]

#: Words of other packages, by the one that is meant.
_OTHER_WORDS = {
    "bytes": ("raw", "binary", "blob"), "cls": ("label", "class"), "float": ("number",),
    "image": ("pil", "rgb", "img", "jpeg"), "int": ("integer",),
    "npy": ("tensor", "torch", "numpy", "array", "ndarray", "np"), "txt": ("utf8", "string", "text"),
}  # fmt: skip
_WORDS = {
    "bytes": "bytes",
    "view": "view",
    "txt": "txt",
    "str": "txt",
    "json": "json",
    "int": "int",
    "cls": "int",
    "float": "float",
    "npy": "npy",
    "image": "image",
}
#: The modes that Pillow converts any image to.
_MODES = ("1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F")
_AUTO = {"txt": "txt", "json": "json", "cls": "int", "npy": "npy"}


#: Words for types, by their names.
_TYPES = {
    "str": "txt", "bytes": "bytes", "bytearray": "bytes", "memoryview": "view", "bool": "int", "int": "int", "float": "float",
    "dict": "json", "list": "json", "ndarray": "npy", "Tensor": "npy",
}  # fmt: skip
#: Names of types of numbers.
_NUMBERS = re.compile(r"((u?int|b?float)\d+|long|half|double)\b")


def _as_numbers(dtype: str) -> str:
    """What to write in place of a type of numbers alone."""
    return f"write 'npy' for a .npy, ({dtype!r}, shape) for bytes of an array, 'int' or 'float' for a number"


def _of_type(spec: object) -> str:
    """What to write in place of a type that is no function of payloads, such as numpy.int32; empty
    for all else. A payload is bytes: bool(b"0") is True, and str(b"a") is "b'a'"."""
    name = getattr(spec, "__name__", str(spec).rpartition(".")[2])
    if inspect.isroutine(spec):  # whatever its name
        return ""
    if spec is Image:
        return "the class Image: write shardtool.Image(224)"
    if isinstance(spec, type) and name in _TYPES:
        return f"the class {name}: write the word {_TYPES[name]!r}"
    found = _NUMBERS.fullmatch(name)
    return f"{spec!r}: {_as_numbers(found[1])}" if found else ""


class Field:
    """A field, and how its payloads are decoded."""

    __slots__ = ("decode", "dtype", "elements", "function", "image", "mode", "name", "optional", "shape", "spec", "stored")

    def __init__(
        self, name: str, spec: Optional[Spec] = None, stored: Optional[str] = None, elements: Optional[Sequence[str]] = None
    ) -> None:
        """spec: None for a field that is only named. stored: its name in the data, see found.
        elements: of a list of files, the fields that are its elements, by their numbers."""
        self.name = name
        self.elements = elements
        self.stored = stored or name
        self.spec = spec
        self.optional = False
        self.dtype: Optional[arrays.Dtype] = None
        self.shape: Tuple[int, ...] = ()
        self.function: Optional[Callable[[Any], Any]] = None
        self.image: Optional[Image] = None
        self.mode = ""  # of images; empty: unchanged
        if spec is None:
            self.decode = "bytes"
        elif isinstance(spec, str):
            self.optional = spec.endswith("?")
            word = spec.rstrip("?")
            if word.startswith("image:"):
                word, self.mode = "image", word[6:]
                if self.mode not in _MODES:
                    raise ConfigError(f"field {name!r}: {spec!r}: the mode is one of {', '.join(_MODES)}; shardtool.Image(224) resizes")
            if word == "auto":
                word = _AUTO.get(self.stored.rsplit(".", 1)[-1], "bytes")
            if word not in _WORDS:
                like = next((known for known, others in _OTHER_WORDS.items() if word.lower() in others), "")
                write = f"write {like!r}, or one of" if like else "write one of"
                if found := _NUMBERS.match(word):
                    write = _as_numbers(found[1]) + ", or one of"
                raise ConfigError(
                    f"field {name!r}: {spec!r}: {write} {', '.join(sorted({*_WORDS, 'auto'}))}, (dtype, shape), or a function of"
                    " the bytes; a field has its name in the data set, as in fields={'jpg': 'image'}"
                )
            self.decode = _WORDS[word]
            if self.decode == "image" and importlib.util.find_spec("PIL") is None:
                raise ConfigError(f"field {name!r}: {spec!r}: decoding images needs Pillow: pip install pillow, or read the field as bytes")
        elif answer := _of_type(spec):
            raise ConfigError(f"field {name!r}: {answer}")
        elif isinstance(spec, Image):
            self.decode, self.image = "pixels", spec
        elif callable(spec):
            self.decode, self.function = "function", spec
        else:
            try:
                given, shape = spec
                self.shape = tuple(int(n) for n in shape)
            except (TypeError, ValueError):
                raise ConfigError(
                    f"field {name!r}: {spec!r}: write a word such as 'npy' or 'image', (dtype, shape) such as ('uint8', (3, 224, 224)), or"
                    " a function of the bytes; fields keep their names, and map_batch=FUNCTION, which gets values, may return others"
                ) from None
            self.decode, self.dtype = "array", arrays.dtype_of(given)
        if self.optional and self.decode in ("int", "float"):  # an array has no None
            self.function = _int if self.decode == "int" else _float
            self.decode = "function"
        if self.decode in ("int", "float"):
            self.dtype = arrays.dtype_of("int64" if self.decode == "int" else "float64")

    @property
    def needs_array(self) -> bool:
        """Whether batches have arrays of the field."""
        return self.dtype is not None or self.decode in ("npy", "pixels")

    def columns(self) -> "List[Field]":
        """Returns the fields that it is stored as."""
        if self.elements is None:
            return [self]
        return [Field(name, "bytes?") for name in self.elements]

    def column(self) -> Dict[str, Any]:
        """Returns the column of START."""
        out: Dict[str, Any] = {"name": self.stored, "optional": self.optional}
        out["decode"] = self.decode if self.decode in ("int", "float", "npy", "array") else "bytes"
        if self.decode == "array" and self.dtype:
            out.update(dtype=self.dtype.descr or self.dtype.name, item_size=self.dtype.size, shape=list(self.shape))
        return out

    def one(self, data: memoryview, out: str) -> Any:
        """Decodes one payload. Arrays and views are in its memory. Its errors describe the problem;
        the caller adds the place."""
        decode = self.decode
        if decode == "bytes":
            return bytes(data)
        if decode == "view":
            return data
        if decode == "txt":
            return str(data, "utf-8")
        if decode == "json":
            return json.loads(bytes(data))
        if decode == "image":
            return _image(data, self.mode)
        if self.image is not None:
            return arrays.as_type(self.image._one(data), out)
        if self.function is not None:
            try:
                return self.function(bytes(data))
            except StopIteration as err:  # it would end the loop, as if there were no more batches
                raise RuntimeError(f"the function of field {self.name!r} raised StopIteration") from err
        if decode == "int":
            return _int(data)
        if decode == "float":
            return _float(data)
        if decode == "npy":
            dtype, shape, fortran, start = arrays.parse_npy(data)
            return arrays.array(data, start, len(data) - start, dtype, shape, fortran, out)
        assert self.dtype is not None
        return arrays.array(data, 0, len(data), self.dtype, self._shape(len(data)), False, out)

    def _shape(self, size: int) -> Tuple[int, ...]:
        assert self.dtype is not None
        if self.shape == (-1,):
            return (size // self.dtype.size,)
        count = self.dtype.size
        for n in self.shape:
            count *= n
        if count != size:
            raise ValueError(f"{size} bytes, but an array of {self.dtype.name} and shape {self.shape} has {count}")
        return self.shape

    def many(self, payloads: "Iterable[Optional[memoryview]]", keys: "Callable[[int], str]", out: str) -> List[Any]:
        """Decodes the payloads of a batch; None stays None. keys returns the key of a sample, for
        errors."""
        if self.decode == "view":
            return list(payloads)
        if self.decode == "txt":
            payloads = list(payloads)
            try:
                return [None if p is None else str(p, "utf-8") for p in payloads]
            except ValueError:
                pass  # the loop finds the sample
        values: List[Any] = []
        for p in payloads:
            try:
                values.append(None if p is None else self.one(p, out))
            except (ValueError, OSError) as err:
                key = keys(len(values))
                raise DecodeError(f"sample {key!r}: field {self.name!r}: {err}", key=key, field=self.name) from err
        return values


def _int(data: Any) -> int:
    return int(_scalar(data, "q", "int64"))


def _float(data: Any) -> float:
    return float(_scalar(data, "d", "float64"))


def _scalar(data: Any, code: str, name: str) -> Any:
    """A number's text, or the number in an npy file, which stacked data has."""
    if bytes(data[:6]) != b"\x93NUMPY":
        return bytes(data)
    dtype, shape, _, start = arrays.parse_npy(memoryview(data))
    if dtype.name != name or shape or len(data) - start != 8:
        raise ValueError(f"an array of {dtype.name} and shape {shape} where one number of type {name} is wanted: read the field as npy")
    return struct.unpack_from("<" + code, data, start)[0]


def _image(data: memoryview, mode: str) -> Any:
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(data))
        image.load()
        return image.convert(mode) if mode and image.mode != mode else image
    except MemoryError:
        raise
    except Exception as err:  # of many types: OSError, SyntaxError, struct.error, DecompressionBombError
        raise ValueError(f"{len(data)} bytes that Pillow cannot decode as an image: {err}") from err


def listed(rows: Sequence[Sequence[Tuple[str, Any]]], field: Field, keys: "Callable[[int], str]", out: str) -> List[List[Any]]:
    """Returns the lists of files of samples, whose elements rows have as names and payloads."""
    flat: List[Optional[memoryview]] = []
    owner: List[int] = []
    for row, elements in enumerate(rows):
        for number, (name, payload) in enumerate(elements):
            if _element(name, field.stored) != number:
                raise DecodeError(f"sample {keys(row)!r}: the list {field.name!r} lacks element {number}", key=keys(row), field=field.name)
            flat.append(memoryview(payload) if len(payload) else None)
            owner.append(row)
    lists: List[List[Any]] = [[] for _ in rows]
    for row, value in zip(owner, field.many(flat, lambda i: keys(owner[i]), out)):
        lists[row].append(value)
    return lists


def _element(name: str, of: str) -> int:
    """Returns which element of a list a field is, or -1."""
    number, _, extension = name[len(of) + 1 :].partition(".")
    if not name.startswith(of + ".") or not extension or "." in extension:
        return -1
    known = number.isascii() and number.isdigit() and (number == "0" or number[0] != "0") and len(number) < 4
    return int(number) if known else -1


def _lists(info: Mapping[str, Any]) -> Dict[str, List[str]]:
    """Returns the lists of files of a data set, and the fields that are their elements."""
    have = [f["name"] for f in info["fields"]]
    out = {}
    for name in info.get("lists") or ():
        elements = [field for field in have if _element(field, name) >= 0]
        out[name] = sorted(elements, key=lambda field: _element(field, name))
    return out


def names(info: Mapping[str, Any]) -> List[str]:
    """Returns the names of the fields of a data set."""
    lists = _lists(info)
    elements = {field for of in lists.values() for field in of}
    return sorted([*(f["name"] for f in info["fields"] if f["name"] not in elements), *lists])


def unresolved(fields: Optional[Sequence[Field]]) -> bool:
    """Whether the data decide on types."""
    return fields is None or any(f.spec is None for f in fields)


def find(name: str, have: Iterable[str], place: str = "") -> str:
    """Returns the field that a name stands for: the one of that name, or else the only one that is
    the name with an extension. Returns the name where there is none."""
    names = set(have)
    found = sorted(field for field in names if field.startswith(name + ".") and "." not in field[len(name) + 1 :])
    if name in names or not found:
        return name
    if len(found) > 1:
        raise ConfigError(f"{place}the field {name!r} may be {' or '.join(map(repr, found))}: give one of these names")
    return found[0]


def typed(info: Mapping[str, Any], wanted: bool) -> "List[Field]":
    """Returns all fields of a data set, with the types that it records, the others as bytes.
    wanted: a field without a type is an error."""
    types: Mapping[str, str] = info.get("types") or {}
    lists = _lists(info)
    stored = {f["name"]: f for f in info["fields"]}
    untyped = [name for name in names(info) if name not in types and name not in lists]
    if wanted and untyped:
        raise ConfigError(
            f"fields='typed': the data records no types, or several, for {', '.join(map(repr, untyped))}: give a dict of names and types"
        )
    out = []
    for name in names(info):
        if name in lists:
            out.append(Field(name, "bytes", elements=lists[name]))
            continue
        word = _word(types, name)
        out.append(Field(name, word if stored[name]["samples"] == info["samples"] else word + "?"))
    return out


def found(info: Mapping[str, Any], fields: Sequence[Field]) -> "List[Field]":
    """Returns fields with their names in the data, and with the types that the data records for
    those that are only named. The run refuses those that are not there, except optional ones."""
    have, types = [f["name"] for f in info["fields"]], info.get("types") or {}
    lists = _lists(info)
    out = []
    for field in fields:
        if field.name in lists and field.name not in have:
            if field.image is not None:
                raise ConfigError(f"field {field.name!r} is a list of files: declare it as 'image', 'bytes' or a function")
            out.append(Field(field.name, field.spec or "bytes", elements=lists[field.name]))
            continue
        stored = find(field.name, have)
        if field.optional and stored not in have:
            raise ConfigError(f'no sample has the field "{field.name}"; there are {", ".join(have)}')
        out.append(Field(field.name, _word(types, stored) if field.spec is None else field.spec, stored))
    return out


def _word(types: Mapping[str, str], name: str) -> str:
    word = types.get(name, "bytes")
    return word if word in _WORDS else "bytes"  # of a later version


def parse(fields: "Union[Iterable[str], Mapping[str, Spec], None]") -> "Optional[List[Field]]":
    """Returns the fields that a user asks for; None: all of them, see typed."""
    if fields is None or (isinstance(fields, str) and fields == "typed"):
        return None
    if isinstance(fields, str) or not isinstance(fields, IterableABC):
        raise ConfigError(f"fields={fields!r}: give a list of names, or a dict of names and types")
    if marked := [str(name) for name in fields if str(name).endswith("?")]:
        plain = marked[0].rstrip("?")
        raise ConfigError(f"field {marked[0]!r}: the question mark is of the type: fields={{{plain!r}: 'str?'}}")
    if isinstance(fields, Mapping):
        return [Field(str(name), spec) for name, spec in fields.items()]
    return [Field(str(name)) for name in fields]


def check_out(out: str, fields: Optional[List[Field]]) -> None:
    """Raises ConfigError if fields become arrays and the library for them is missing."""
    on_gpu = [f.name for f in fields or () if f.image is not None and f.image.decode != "cpu"]
    if on_gpu and out != "torch":
        raise ConfigError(f"field {on_gpu[0]!r}: images that a GPU decodes are tensors: give format='torch', not {out!r}")
    if out == "arrow":
        if not installed("pyarrow"):
            raise ConfigError("format='arrow': pyarrow is not installed: install it")
        out = "numpy"
    arrays = any(f.needs_array for f in fields or ())
    if arrays and out != "bytes" and not installed(out):
        other = "numpy" if out == "torch" and installed("numpy") else "bytes"
        raise ConfigError(f"fields that are arrays need {out}, which is not installed: install it, or give format={other!r}")
