"""A batch: this rank's part of a global batch, field by field."""

from __future__ import annotations

import bisect
import contextlib
import json
import struct
import sys
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

from . import guesses
from ._read import arrays
from ._read.record_batches import record_batch
from ._wire import protocol as proto
from ._wire.regions import Region
from .errors import CheckpointError, ClosedError, ConfigError
from .fields import Field, find, listed

#: A column that only this package reads: the units of the epoch, and of the one that the next batch
#: is in.
HIDDEN = "__units__"

#: The column of where micro-batches begin.
MICRO = "micro_start"


class Layout:
    """Facts that all batches of a run share."""

    __slots__ = ("fields", "given", "heap", "index", "lists", "names", "out", "sources", "types", "units")

    def __init__(self, fields: Sequence[Field], out: str) -> None:
        #: The names of the sources of a mix.
        self.sources: Sequence[str] = ()
        #: The fields, and those of the columns, which a list has several of.
        self.given = list(fields)
        self.fields: List[Field] = []
        self.index: Dict[str, int] = {}
        self.lists: Dict[str, Tuple[Field, range]] = {}
        for f in self.given:
            first = len(self.fields)
            self.fields += f.columns()
            if f.name != HIDDEN:
                self.index[f.name] = first
            if f.elements is not None:
                self.lists[f.name] = f, range(first, len(self.fields))
        self.names = [FieldName(name) for name in self.index]
        self.units = len(self.index) < len(self.given)
        self.out = out
        self.heap = 0  # bytes of payloads that malloc keeps the memory of
        self.types: Dict[bytes, Tuple[arrays.Dtype, Tuple[int, ...], bool]] = {}

    def type_of(self, text: bytes) -> "Tuple[arrays.Dtype, Tuple[int, ...], bool]":
        """Returns the type that a column's row points to."""
        known = self.types.get(text)
        if known is None:
            said = json.loads(text)
            known = arrays.by_descr(said["dtype"]), tuple(said["shape"]), bool(said["fortran_order"])
            self.types[text] = known
        return known


class Place(NamedTuple):
    """The place after a batch."""

    checkpoint: str
    ledger: Optional[str]
    epoch: int
    position: int
    size: int
    sources: Sequence[str] = ()
    keep: Optional[List[int]] = None


class FieldName(str):
    """The name of a field, as the iteration of a batch has it. Other code sees a str; a loop that
    takes it for the values of the field is told so."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name in ("batch", "facts", "place"):
                return object.__getattribute__(self, name)
            raise AttributeError(self._no_values(f"has no {name!r}"))

        def _no_values(self, what: str) -> str:
            return (
                f"{str(self)!r} is the name of a field, and {what}: a batch is a mapping, as in batch[{str(self)!r}];"
                " for pairs, as in `for x, y in loader`, give the loader map_batch=lambda batch: (batch['x'], batch['y'])"
            )

        def _computed(self, *_: object) -> Any:
            raise TypeError(self._no_values("no array"))

        __truediv__ = __rtruediv__ = __floordiv__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __matmul__ = __neg__ = _computed

        def __add__(self, other: Any) -> Any:
            return str.__add__(self, other) if isinstance(other, str) else self._computed()

    def __reduce__(self) -> Any:
        return str, (str(self),)


class Name(FieldName):
    """The name of a field, with the place of its batch attached."""

    __slots__ = ("batch", "facts", "place")  # str allows slots, unlike a subclass of tuple
    place: Place
    #: The batch, in a NamedBatch of this process: a Batch must not refer to itself.
    batch: "Batch"
    #: The bytes of the batch before its fields.
    facts: bytes

    def __reduce__(self) -> Any:
        return _renamed, (str(self), self.place, self.facts)


def _renamed(name: str, place: Place, facts: bytes) -> Name:
    out = Name(name)
    out.place, out.facts = place, facts
    return out


def standing_for(name: object, fields: Iterable[str]) -> Optional[str]:
    """Returns the field that is the name with an extension, if there is one and no other."""
    if not isinstance(name, str):
        return None
    with contextlib.suppress(ConfigError):  # there are several
        stored = find(name, fields)
        return None if stored == name else stored
    return None


def decoders_of(fields: "Optional[Sequence[Field]]") -> "Dict[str, Dict[str, str]]":
    """Returns what a state notes about images: the decoder of each field. It is empty without."""
    found = {f.name: f.image.decoder for f in fields or () if f.image is not None}
    return {"decoders": found} if found else {}


def on_tensors(value: Any, change: "Callable[[Any], Any]") -> Any:
    """Returns a value with its tensors changed: it is one, or a list of a batch may have some."""
    torch = sys.modules.get("torch")
    if torch is None:
        return value
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) is list and value and isinstance(value[0], torch.Tensor):
        return [on_tensors(v, change) for v in value]
    return value


def stored_name(name: object, fields: Iterable[str]) -> str:
    """Returns the field that the name stands for, or raises KeyError."""
    stored = standing_for(name, fields)
    if stored is None:
        raise KeyError(no_field(name, fields))
    return stored


def no_field(name: object, fields: Iterable[str]) -> str:
    """Returns the text of an error for a field that a batch or sample lacks."""
    has = ", ".join(map(repr, map(str, fields))) or "none"
    if isinstance(name, (int, slice)):
        return f"no field {name!r}: fields have names, and there are {has}; batch['NAME'][0] is a field of the first sample"
    return f"no field {name!r}: there are {has}"


class Batch(Mapping):  # type: ignore[type-arg]
    """The samples of one step: a mapping from field names to arrays, or lists with one value a
    sample, as ``fields`` declares them.

    Values are decoded at first use, and may be kept and written to. Arrays and views are in the
    memory that the batch was delivered in, which is this batch's for as long as anything refers to
    it. Text and bytes are objects of their own.

    A batch may be empty on some ranks (``tail="short"``). Its lists and arrays then have no
    samples.

    ``Batch(values)`` makes another batch of the same samples from a mapping with the keys of a
    batch, as frameworks do when they move a batch to a device. It has these values, and the place,
    keys and numbers of the first batch, but no ``payloads`` and no ``data``.
    """

    __slots__ = (
        "__weakref__", "_base", "_buffer", "_cache", "_facts", "_keep", "_layout", "_length", "_names", "_region", "_saved",
        "_sources", "epoch", "size",
    )  # fmt: skip

    #: Checkpoint and ledger after it. The checkpoint is None if the buffer has it.
    _saved: Tuple[Optional[str], Optional[str]]
    _names: Optional[Tuple[str, ...]]  # set at first use
    _sources: Sequence[str]  # names, by their numbers

    def __init__(self, values: "Mapping[str, Any]") -> None:
        name = next((key for key in values if isinstance(key, Name) and hasattr(key, "facts")), None)
        if name is None:
            raise CheckpointError("this mapping lacks the keys of a batch: a batch is made by a Loader, or from a mapping with its keys")
        place = name.place
        self._set(None, name.facts, 0, len(name.facts), place.size, place.epoch, place.ledger, checkpoint=place.checkpoint, keep=place.keep)
        self._sources = place.sources
        self._cache.update(values)
        self._names = tuple(values)

    @classmethod
    def _of(cls, *args: Any, **more: Any) -> "Batch":
        """Makes a batch in a buffer: see _set."""
        made = cls.__new__(cls)
        made._set(*args, **more)
        return made

    def _set(
        self,
        layout: Optional[Layout],
        buffer: Any,
        base: int,
        length: int,
        size: int,
        epoch: int,
        ledger: Optional[str],
        checkpoint: Optional[str] = None,
        keep: "Optional[List[int]]" = None,
        facts: Optional[Tuple[int, ...]] = None,
        region: Optional[Region] = None,
    ) -> None:
        #: The number of samples.
        self.size = size
        #: The epoch in which its global batch begins.
        self.epoch = epoch
        self._layout = layout  # None: the batch has only values
        self._sources = () if layout is None else layout.sources
        self._buffer = buffer
        self._region = region  # the buffer is memory of the child
        self._base = base
        self._length = length
        self._cache: Dict[Any, Any] = {}
        self._facts = facts  # the header, once it was read
        self._saved = checkpoint, ledger
        self._keep = keep  # the samples of those in the buffer that it has; None: all
        self._names = None

    # The mapping

    def __getitem__(self, name: str) -> Any:
        cache = self._cache
        if name in cache:
            return cache[name]
        index = None if self._layout is None else self._layout.index.get(name)
        if index is not None and self._layout is not None and name in self._layout.lists:
            value = self._listed(*self._layout.lists[name])
        elif index is not None:
            value = self._column(index)
        elif name == "__key__":
            return self.sample_keys
        else:
            return self[stored_name(name, self)]
        cache[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        if self._names is None:
            assert self._layout is not None
            names = list(self._layout.names)
            if names and self._buffer is not None:
                names[0] = self._name(names[0])
            self._names = tuple(names)
        return iter(self._names)

    def _name(self, name: str) -> "Name":
        """The name of a field, from which the facts of the batch can be read."""
        out = Name(name)
        if self._layout is None:
            first = next(key for key in self._cache if isinstance(key, Name))
            out.facts, out.place = first.facts, first.place
            return out
        rows = [self._row(i)[4] for i in range(self._header()[8])]
        out.facts = bytes(self._view()[: min(rows)] if rows else self._view())  # tables and keys precede all data
        out.place = Place(self.checkpoint, self._saved[1], self.epoch, self.position, self.size, self._sources, self._keep)
        return out

    def __setitem__(self, name: str, values: object) -> NoReturn:
        raise TypeError(f"a batch does not change: {{**batch, {name!r}: values}} is a dict with one more field")

    def __contains__(self, name: object) -> bool:
        if name == "__key__" or name in (self._cache if self._layout is None else self._layout.index):
            return True
        return standing_for(name, self) is not None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            known = guesses.BATCH
            if not name.startswith("_") and name in self:
                known = {name: f"it is a field: batch[{name!r}]"}
            return guesses.missing(self, name, known, "a batch")

    def __len__(self) -> int:
        return len(self._layout.index if self._names is None and self._layout is not None else self._names or ())

    __eq__ = object.__eq__  # a mapping's would compare arrays
    __hash__ = object.__hash__

    def __reduce__(self) -> Any:
        """Pickles a copy of the batch's bytes, and nothing else of the shared memory."""
        if self._layout is None:
            return Batch, ({name: self[name] for name in self},)
        checkpoint, ledger = self._saved
        data = bytearray(self._view())
        return Batch._of, (self._layout, data, 0, self._length, self.size, self.epoch, ledger, checkpoint, self._keep)

    def __repr__(self) -> str:
        return f"<shardtool.Batch of {self.size} samples, epoch {self.epoch}, fields {', '.join(self)}>"

    def to(self, *device: Any, **options: Any) -> "Batch":
        """Returns the batch with its tensors where ``Tensor.to`` puts them, such as
        ``batch.to("cuda")``; other values stay as they are. It has no payloads."""
        return self._each(lambda tensor: tensor.to(*device, **options))

    def pin_memory(self) -> "Batch":
        """Returns the batch with its tensors in pinned memory; other values stay as they are. It
        has no payloads."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: "Callable[[Any], Any]") -> "Batch":
        return Batch({name: on_tensors(self[name], change) for name in self}) if len(self) else self

    # Facts

    def _header(self) -> "Tuple[int, ...]":
        if self._facts is None:
            self._facts = proto.header.unpack_from(self._buffer, self._base)
        return self._facts

    @property
    def position(self) -> int:
        """The position of its global batch: samples of the epoch before it, over all ranks."""
        return self._header()[1]

    @property
    def next_place(self) -> Tuple[int, int]:
        """Epoch and position of the global batch after it."""
        return self._header()[2], self._header()[3]

    @property
    def global_size(self) -> int:
        """Samples of the global batch, over all ranks."""
        return self._header()[4]

    @property
    def first(self) -> int:
        """The position of this rank's first sample in the global batch."""
        return self._header()[5]

    @property
    def holes(self) -> int:
        """Samples of this rank that ``on_error="skip"`` left out."""
        return self._header()[7] + self._stored() - self.size

    @property
    def padding(self) -> int:
        """How many samples at the end only fill the batch, ``tail="pad"``: they repeat samples
        that the epoch has had. With ``Pack``, how many sequences."""
        n = self._header()[9]
        return n if self._keep is None else sum(i >= self._header()[6] - n for i in self._keep)

    @property
    def checkpoint(self) -> str:
        """The place after this batch, as text (ORDER.md 9.10)."""
        if self._saved[0] is not None:
            return self._saved[0]
        at, length = self._header()[10], self._header()[11]
        return str(self._view()[at : at + length], "ascii")

    def state_dict(self) -> Dict[str, Any]:
        """Returns what ``Loader.state_dict()`` returns right after this batch. It is also correct
        when other code reads ahead."""
        state = {"version": 1, "checkpoint": self.checkpoint, "ledger": self._saved[1], "begin": None}
        return {**state, **decoders_of(None if self._layout is None else self._layout.given)}

    @property
    def numbers(self) -> "List[int]":
        """The samples' numbers in storage order."""
        if "#" not in self._cache:
            at = self._header()[14]
            self._cache["#"] = self._kept(self._view()[at : at + 8 * self._stored()].cast("Q").tolist())
        return self._cache["#"]  # type: ignore[no-any-return]

    @property
    def source_numbers(self) -> "List[int]":
        """The number of each sample's source in a mix, by ascending names, as in ``source_names``;
        0 for one data set."""
        return self._kept(self._origins()[2::4])

    @property
    def source_names(self) -> "Tuple[str, ...]":
        """The names of the sources of a mix, by their numbers; empty for one data set."""
        return tuple(self._sources)

    @property
    def sources(self) -> "List[Optional[str]]":
        """The name of each sample's source in a mix; None for one data set."""
        names = self.source_names or (None,)
        return [names[number] for number in self.source_numbers]

    @property
    def epochs(self) -> "List[int]":
        """The epoch of each sample: in a mix, the epoch of its source."""
        at = self._header()[19]
        return self._kept(self._view()[at : at + 8 * self._stored()].cast("I").tolist()[::2])

    @property
    def seeds(self) -> "List[int]":
        """A seed for each sample, of 64 bits, for random choices such as a crop. It depends only on
        the seed of the loader, the source, the sample and its epoch: it is the same on any rank, in
        any worker and after any resume."""
        at = self._header()[18]
        return self._kept(self._view()[at : at + 8 * self._stored()].cast("Q").tolist())

    def _origins(self) -> "List[int]":
        at = self._header()[19]
        return self._view()[at : at + 8 * self._stored()].cast("H").tolist()

    @property
    def sample_keys(self) -> "List[Optional[str]]":
        """The samples' keys. Bytes that are not UTF-8 become surrogates, as in file names.
        ``batch["__key__"]`` is the same."""
        if 0 not in self._cache:
            view = self._view()
            self._cache[0] = [
                None if s < 0 else str(view[o : o + s], "utf-8", "surrogateescape") for o, s in self._pairs(self._header()[15])
            ]
        return self._cache[0]  # type: ignore[no-any-return]

    # Payloads

    def _view(self) -> memoryview:
        if self._buffer is None:
            raise ClosedError("the batch was released: take what you need from it before that")
        return memoryview(self._buffer).cast("B")[self._base : self._base + self._length]

    def _pairs(self, at: int) -> "List[Tuple[int, int]]":
        flat = self._view()[at : at + 16 * self._stored()].cast("q").tolist()
        return self._kept(list(zip(flat[::2], flat[1::2])))

    def _stored(self) -> int:
        """The number of samples in the buffer."""
        return self.size if self._keep is None else self._header()[6]

    def _kept(self, values: "List[Any]") -> "List[Any]":
        """The values of the batch's samples, of one value for each sample in the buffer."""
        return values if self._keep is None else [values[i] for i in self._keep]

    def _leave_out(self, index: int) -> None:
        """Leaves out a sample."""
        keep = list(range(self.size)) if self._keep is None else list(self._keep)
        del keep[index]
        self._keep, self._names, self.size = keep, None, self.size - 1
        self._cache.clear()

    def _index(self, name: str) -> int:
        if self._layout is None:
            raise ClosedError("a batch made from values has no payloads: take them from the batch of the loader")
        if name in self._layout.lists:
            raise ConfigError(f"{name!r} is a list of files: batch[{name!r}] has them; declare it as 'bytes' for their payloads")
        stored = name if name in self._layout.index else standing_for(name, self._layout.index)
        if stored is None:
            raise KeyError(no_field(name, self))
        return self._layout.index[stored]

    def _row(self, index: int) -> "Tuple[int, ...]":
        return proto.row.unpack_from(self._buffer, self._base + self._header()[16] + proto.ROW * index)

    def payloads(self, name: str) -> "List[Optional[memoryview]]":
        """Returns the undecoded payloads of a field, without a copy; None for samples without one.
        Payloads of arrays contain only the numbers."""
        return self._payloads(self._index(name), name)

    def _payloads(self, index: int, name: str) -> "List[Optional[memoryview]]":
        view = self._view()
        row = self._row(index)
        if row[0] == proto.WHOLE:
            raise ConfigError(f"{name!r} is one array for the whole batch, and has no payloads of samples")
        return [None if s < 0 else view[o : o + s] for o, s in self._pairs(row[6])]

    def _listed(self, field: Field, columns: range) -> "List[List[Any]]":
        """Returns the lists of files of the samples."""
        assert self._layout is not None and field.elements is not None
        rows: List[List[Tuple[str, Any]]] = [[] for _ in range(self.size)]
        for index, name in zip(columns, field.elements):
            for row, payload in zip(rows, self._payloads(index, name)):
                if payload is not None:
                    row.append((name, payload))
        return listed(rows, field, self._key_of, self._layout.out)

    def data(self, name: str) -> memoryview:
        """Returns the payloads of a field as one piece, without a copy; ``payloads`` has the
        parts."""
        view, index = self._view(), self._index(name)
        if self._keep is not None:
            return memoryview(b"".join(p for p in self.payloads(name) if p is not None))
        at, length = self._row(index)[4:6]
        return view[at : at + length]

    def to_arrow(self) -> Any:
        """Returns the samples as a ``pyarrow.RecordBatch``: their keys, as ``__key__``, and the
        fields. Text and JSON are strings, so that all batches have one schema; bytes and images are
        binary; numbers are int64 and double; arrays are lists of numbers, of fixed size where all
        samples of the batch have one shape. polars, duckdb and pandas take it. Where the batch has
        ``padding``, the metadata of the schema has the number as ``shardtool.padding``; where it
        has ``micro_start``, its numbers as ``shardtool.micro_start``, a JSON list."""
        if self._layout is None:
            raise ClosedError("a batch made from values has no payloads: convert the batch of the loader")
        fields = [f for f in self._layout.given if f.name != MICRO]
        made = record_batch(self.sample_keys, fields, self.payloads, self.__getitem__)
        facts = {"shardtool.padding": str(self.padding)} if self.padding else {}
        if len(fields) < len(self._layout.given):
            facts["shardtool.micro_start"] = json.dumps([int(i) for i in self[MICRO]])
        return made.replace_schema_metadata(facts) if facts else made

    def _column(self, index: int) -> Any:
        view = self._view()
        kind, _, type_size, type_at, data, length, pairs, stride = self._row(index)
        layout = self._layout
        assert layout is not None
        field = layout.fields[index]
        if kind == proto.WHOLE:
            dtype, shape, _ = layout.type_of(bytes(view[type_at : type_at + type_size]))
            if field.name == MICRO and self._keep is not None:
                begins = array("i", [bisect.bisect_left(self._keep, i) for i in view[data : data + length].cast("i")])
                return arrays.array(bytearray(begins), 0, length, dtype, shape, False, layout.out)
            return self._whole(view, data, length, dtype, shape)
        if field.image is not None:
            return arrays.as_type(field.image._all(self.payloads(field.name), self.seeds, field.name, self._key_of), layout.out)
        if field.decode == "bytes" and kind == proto.BYTES:
            return self._bytes(data, length, pairs)
        small = 8 * length <= self._length  # it would keep much more than itself in memory
        if kind != proto.ARRAY:
            payloads = self.payloads(field.name)
            if small and field.needs_array:
                payloads = [None if p is None else memoryview(bytearray(p)) for p in payloads]
            return field.many(payloads, self._key_of, layout.out)
        dtype, shape, fortran = layout.type_of(bytes(view[type_at : type_at + type_size]))
        if field.dtype is not None:
            dtype = field.dtype  # npy files cannot name every type
        full, buffer, data = (self.size, *shape), self._buffer, self._base + data
        if self._keep is not None:
            buffer, data = bytearray().join(p or bytes(stride) for p in self.payloads(field.name)), 0
            length = len(buffer)
        elif small:
            buffer, data = bytearray(view[data - self._base :][:length]), 0
        if fortran and len(shape) > 1:  # each row is transposed
            turned = arrays.array(buffer, data, length, dtype, (self.size, *reversed(shape)), False, layout.out)
            if layout.out == "bytes":
                return turned
            axes = (0, *range(len(shape), 0, -1))
            return turned.permute(axes) if layout.out == "torch" else turned.transpose(axes)
        return arrays.array(buffer, data, length, dtype, full, False, layout.out)

    def _bytes(self, data: int, length: int, pairs: int) -> "List[Optional[bytes]]":
        """Copies the payloads of a column."""
        assert self._layout is not None
        if length > self._layout.heap:
            # malloc keeps the memory of payloads, as glibc does after one of their size was freed.
            # Otherwise it returns the memory to the system and takes it again for every batch.
            self._layout.heap = length + length // 4
            bytes(min(self._layout.heap, 31 << 20))
        # Payloads are contiguous. This takes less time than a slice for each.
        sizes = self._view()[pairs : pairs + 16 * self._stored()].cast("q")[1::2].tolist()
        there = [size for size in sizes if size >= 0]
        found: "List[Optional[bytes]]" = list(struct.Struct("%ds" * len(there) % (*there,)).unpack_from(self._buffer, self._base + data))
        if len(there) < len(sizes):
            values = iter(found)
            found = [None if size < 0 else next(values) for size in sizes]
        return self._kept(found)

    def _whole(self, view: memoryview, data: int, length: int, dtype: arrays.Dtype, shape: "Tuple[int, ...]") -> Any:
        """Returns an array that has no row for each sample; a number if it has no dimension."""
        assert self._layout is not None
        if not shape:
            return struct.unpack_from("<" + dtype.format, view, data)[0]
        return arrays.array(self._buffer, self._base + data, length, dtype, shape, False, self._layout.out)

    def _units(self) -> "Tuple[int, Optional[int]]":
        """Returns how many units the epochs of this batch and of the next one have; 0 and None
        if it has samples."""
        assert self._layout is not None
        if not self._layout.units:
            return 0, None
        last = len(self._layout.fields) - 1
        data, length = self._row(last)[4:6]
        first, following = self._view()[data : data + length].cast("q").tolist()
        return first, following

    def _key_of(self, index: int) -> str:
        return str(self.sample_keys[index])

    def release(self) -> None:
        """Drops the batch's references to its memory. It is reused when no value from it is in use.
        The batch cannot be read afterwards."""
        self._header()  # facts remain
        self._cache.clear()
        self._buffer = None
