"""How the values of a program become payloads.

A field has one type in a data set. ``fields`` declares it, or the first value determines it.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from ..errors import ConfigError, EncodeError

#: A function that makes a payload of a value.
Encoder = Callable[[Any], bytes]

#: The words of ``fields``, and the type that data sets record for each: one of shardtool.fields.
_DECLARED = {
    "bytes": "bytes", "txt": "txt", "str": "txt", "json": "json", "int": "int", "cls": "int", "float": "float", "npy": "npy",
    "png": "image", "jpg": "image", "jpeg": "image", "webp": "image",
}  # fmt: skip


#: Types to declare for fields with values of several natural types, and which each takes.
_TAKES = {
    "float": {"float", "int"}, "bytes": {"bytes", "txt"}, "json": {"json", "int", "float", "txt"}, "npy": {"npy", "int", "float"},
}  # fmt: skip


class Misfit(Exception):
    """A value does not fit its field. The message explains why, and what to do."""


class Slot:
    """A field of a data set that is being written."""

    __slots__ = ("by_class", "declared", "kind", "name", "quality", "word")

    def __init__(self, name: str, declared: Optional[str] = None) -> None:
        self.name = name
        #: The type that is recorded; empty until the first value.
        self.kind = ""
        self.word, self.quality = "", 0  # of images
        self.declared = declared is not None
        #: Encoders of the classes of values seen.
        self.by_class: Dict[type, Encoder] = {}
        if declared is None:
            return
        word, colon, quality = declared.partition(":") if isinstance(declared, str) else ("", "", "")
        takes = word in ("jpg", "jpeg", "webp") and quality.isdigit() and 1 <= int(quality) <= 100
        if word not in _DECLARED or (colon and not takes):
            raise ConfigError(
                f"fields: {name!r}: {declared!r}: write one of {', '.join(_DECLARED)}; jpg, jpeg and webp take a quality, as in 'jpg:92'"
            )
        self.kind, self.word, self.quality = _DECLARED[word], word, int(quality or 0)

    def encoder(self, value: Any) -> Encoder:
        """Returns the encoder of values of this class, and keeps it. Raises Misfit for a value that
        does not fit."""
        kind, encode = _natural(value)
        if not self.kind:
            encode(value)  # a value that fails determines nothing
            self.kind = kind
        if kind != self.kind:
            other = _other(self, value)
            if other is None:
                how = "declared" if self.declared else "as earlier samples have it"
                both = next((word for word, kinds in _TAKES.items() if {self.kind, kind} <= kinds), None)
                declare = f", or declare the field: fields={{{self.name!r}: {both!r}}}" if both else ""
                raise Misfit(f"{_named(value)} in a field of type {self.kind} ({how}): convert the value{declare}")
            encode = other
        elif kind == "image" and not isinstance(value, (bytes, bytearray, memoryview)):
            encode = _image_encoder(self.word or "png", self.quality)
        self.by_class[value.__class__] = encode
        return encode


def _named(value: Any) -> str:
    of = type(value)
    return of.__name__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__name__}"


def _other(slot: Slot, value: Any) -> Optional[Encoder]:
    """An encoder of values whose natural type is another than the slot's."""
    kind, encode = _natural(value)
    if slot.kind == "float" and kind == "int":
        return lambda v: repr(float(v)).encode()
    if slot.kind == "int" and isinstance(value, bool):
        return lambda v: b"1" if v else b"0"
    if slot.kind == "json" and kind in ("int", "float", "txt"):
        return _json
    if slot.kind == "image" and kind == "bytes":  # encoded already
        return encode
    if slot.kind == "image" and kind == "npy":
        to_bytes = _image_encoder(slot.word or "png", slot.quality)
        return lambda v: to_bytes(_from_array(v))
    if slot.kind == "npy" and slot.declared and kind in ("int", "float", "json"):
        return lambda v: _npy(_numpy().asarray(v))
    if slot.kind == "bytes" and slot.declared and kind == "txt":
        return encode
    return None


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise Misfit("numpy is not installed, and the field is an array: install it") from None
    return numpy


def _natural(value: Any) -> Tuple[str, Encoder]:
    """The type that a value has without a declaration."""
    of = value.__class__
    found = _BUILTIN.get(of)
    if found is not None:
        return found
    module = of.__module__.partition(".")[0]
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        if isinstance(value, numpy.ndarray):
            return "npy", _npy
        for base, kind, encode in (
            (numpy.bool_, "json", lambda v: b"true" if v else b"false"),
            (numpy.integer, "int", lambda v: _int(int(v))),
            (numpy.floating, "float", lambda v: repr(float(v)).encode()),
            (numpy.str_, "txt", lambda v: _text(str(v))),
            (numpy.bytes_, "bytes", bytes),
        ):
            if isinstance(value, base):
                return kind, encode
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return "npy", _tensor
    if module == "PIL" and hasattr(value, "save"):
        return "image", _image_encoder("png", 0)
    for base, (kind, encode) in _BUILTIN.items():  # subclasses, such as IntEnum and OrderedDict
        if isinstance(value, base):
            return kind, encode
    raise Misfit(
        f"{_named(value)} has no encoding: give bytes, str, int, float, bool, a numpy array, a CPU tensor, a PIL image, a dict or list,"
        " or None"
    )


def _int(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise Misfit(f"the integer {value} needs more than 64 bits: declare the field as 'json', or write it as text")
    return b"%d" % value


def _text(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as err:
        raise Misfit(f"text that is not valid Unicode ({err}): encode it yourself and write bytes") from None


_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _json(value: Any) -> bytes:
    try:
        return _dump(value).encode()
    except (TypeError, ValueError, RecursionError) as err:
        raise Misfit(f"{_named(value)} that JSON cannot hold ({err}): convert what is in it, or write it as bytes") from None


_headers: Dict[Any, bytes] = {}


def npy_header(descr: str, shape: Tuple[int, ...], fortran: bool = False) -> bytes:
    """The beginning of an npy file."""
    key = descr, shape, fortran
    found = _headers.get(key)
    if found is None:
        text = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
        text += " " * (-(len(text) + 11) % 64) + "\n"
        found = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin-1")
        if len(_headers) > 10_000:  # arrays of very many shapes
            _headers.clear()
        _headers[key] = found
    return found


def plain_array(value: Any) -> Any:
    """An array as npy files have it: little-endian, of numbers or fixed strings. Raises Misfit."""
    dtype = value.dtype
    if hasattr(value, "mask"):
        raise Misfit("a masked array: npy files have no mask: write array.filled(…), and the mask as a separate field if you need it")
    if dtype.hasobject:
        raise Misfit("an array of Python objects: give it a type of number, such as array.astype('float32'), or write a list")
    if dtype.names is not None or dtype.kind in "Mm":
        raise Misfit(f"an array of type {dtype}: write its columns as fields, or view it as numbers, such as array.view('int64')")
    if dtype.byteorder == ">" or (dtype.byteorder == "=" and sys.byteorder == "big"):
        value = value.astype(dtype.newbyteorder("<"))
    return value


def _npy(value: Any) -> bytes:
    value = plain_array(value)
    data: bytes = value.tobytes()
    return npy_header(value.dtype.str, value.shape) + data


def cpu_array(value: Any) -> Any:
    """The numpy array of a tensor. Raises Misfit for tensors on a GPU, and for types that numpy
    lacks."""
    if value.device.type != "cpu":
        raise Misfit(f"a tensor on {value.device}: write tensor.cpu()")
    if value.layout is not sys.modules["torch"].strided:
        raise Misfit(f"a tensor of layout {value.layout}: write tensor.to_dense()")
    try:
        return value.detach().resolve_conj().resolve_neg().numpy()
    except TypeError:
        raise Misfit(f"a tensor of {value.dtype}, which npy files do not have: write tensor.float(), or tensor.view(torch.int16)") from None


def _tensor(value: Any) -> bytes:
    return _npy(cpu_array(value))


def _from_array(value: Any) -> Any:
    from PIL import Image

    try:
        return Image.fromarray(value)
    except (TypeError, ValueError) as err:
        raise Misfit(f"an array of type {value.dtype} and shape {value.shape} that is no image for Pillow ({err})") from None


def _image_encoder(word: str, quality: int) -> Encoder:
    kind = {"png": "PNG", "webp": "WEBP"}.get(word, "JPEG")
    options: Dict[str, Any] = {"quality": quality} if quality else {}

    def encode(value: Any) -> bytes:
        out = io.BytesIO()
        try:
            value.save(out, kind, **options)
        except (OSError, ValueError, KeyError) as err:
            raise Misfit(
                f"an image of mode {value.mode} and size {value.size} that cannot be saved as {kind} ({err}):"
                " convert it, such as image.convert('RGB')"
            ) from None
        return out.getvalue()

    return encode


_BUILTIN: Dict[type, Tuple[str, Encoder]] = {
    bytes: ("bytes", bytes),
    str: ("txt", _text),
    bool: ("json", lambda v: b"true" if v else b"false"),
    int: ("int", _int),
    float: ("float", lambda v: repr(float(v)).encode()),
    dict: ("json", _json),
    list: ("json", _json),
    tuple: ("json", _json),
    bytearray: ("bytes", bytes),
    memoryview: ("bytes", bytes),
}


class Slots:
    """The fields of a data set that is being written."""

    def __init__(self, declared: Optional[Mapping[str, str]], attrs: Optional[Mapping[str, str]]) -> None:
        if declared is not None and not isinstance(declared, Mapping):
            raise ConfigError(f"fields={declared!r}: give a dict of names and encodings")
        if attrs is not None and not isinstance(attrs, Mapping):
            raise ConfigError(f"attrs={attrs!r}: give a dict of attributes and fields, as {{'label': 'cls'}}")
        self.all: Dict[str, Slot] = {str(name): Slot(str(name), word) for name, word in (declared or {}).items()}
        self.attrs: List[Tuple[str, str]] = sorted((str(a), str(f)) for a, f in (attrs or {}).items())
        for a, f in self.attrs:
            if not a:
                raise ConfigError(f"attrs={attrs!r}: field {f!r} has an attribute without a name")
        #: int, float or str, once known.
        self.attr_kinds: Dict[str, str] = {}

    def copy(self) -> "Slots":
        """Returns a copy to which fields can be added. It shares the slots that have a type."""
        out = Slots(None, None)
        out.all = {name: slot if slot.kind else Slot(name) for name, slot in self.all.items()}
        out.attrs, out.attr_kinds = self.attrs, self.attr_kinds.copy()
        return out

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Forgets the types that values in the block have determined, if one of them is refused."""
        kinds, attrs = {name: slot.kind for name, slot in self.all.items()}, self.attr_kinds.copy()
        try:
            yield
        except BaseException:
            for name, slot in list(self.all.items()):
                if name not in kinds:
                    del self.all[name]
                elif slot.kind != kinds[name]:
                    slot.kind = kinds[name]
                    slot.by_class.clear()
            self.attr_kinds = attrs
            raise

    def learn(self, types: Mapping[str, str]) -> None:
        """Takes the types that earlier samples have."""
        for name, kind in types.items():
            slot = self.all.setdefault(name, Slot(name))
            if slot.kind and slot.kind != kind:
                raise ConfigError(f"fields: {name!r} is {slot.kind} here and {kind} in earlier samples: declare it as those have it")
            slot.kind = kind

    def slot(self, name: Any) -> Slot:
        """The slot of a field."""
        slot = self.all.get(name)
        if slot is None:
            if not isinstance(name, str):
                raise Misfit(f"the name {name!r}: names of fields are text")
            _text(name)
            slot = self.all[name] = Slot(name)
        return slot

    def attr(self, name: str, value: Any) -> Tuple[str, bytes]:
        """Kind and text of an attribute's value."""
        kind, encode = _natural(value)
        if kind == "txt":
            kind = "str"
        if isinstance(value, bool) or kind not in ("int", "float", "str"):
            raise Misfit(f"{_named(value)} for the attribute {name!r}: attributes are int, float or str")
        known = self.attr_kinds.setdefault(name, kind)
        if known == "float" and kind == "int":
            return known, repr(float(value)).encode()
        if known != kind:
            raise Misfit(f"{_named(value)} for the attribute {name!r}, which is {known} in earlier samples: convert it")
        return kind, encode(value)


def fail(key: str, field: str, why: object) -> EncodeError:
    """The error of a value."""
    return EncodeError(f"sample {key!r}: field {field!r}: {why}", key=key, field=field)
