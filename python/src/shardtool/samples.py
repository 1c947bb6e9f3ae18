"""Random access: samples by number and by key."""

from __future__ import annotations

import operator
import os
import struct
import sys
import threading
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union, overload

from . import _checks, guesses, sources
from ._read.arguments import opening
from ._wire import protocol as proto
from ._wire.client import Client, Frame, Session
from .batch import standing_for, stored_name
from .errors import ClosedError, ConfigError, DecodeError, KeyNotFoundError, NotFoundError, ShardtoolError, redact
from .fields import Field, Spec, check_out, found, listed, names, parse, typed
from .options import Tuning, cached, format_of
from .sources import Source

#: Requests sent before the first answer is read.
_AHEAD = 64


class Sample(Dict[str, Any]):
    """A sample: a dict of its fields.

    ``key``: its key; bytes that are not UTF-8 become surrogates, as in file names.

    ``number``: its number in storage order, from 0.
    """

    key: str
    number: int

    def __missing__(self, name: str) -> Any:
        if name == "__key__":
            return self.key
        return self[stored_name(name, self)]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            of = name if name in self else standing_for(name, self)
            return guesses.missing(self, name, guesses.SAMPLE if of is None else {name: f"it is a field: sample[{name!r}]"}, "a sample")

    def __repr__(self) -> str:
        def brief(value: Any) -> str:
            if isinstance(value, (bytes, bytearray, memoryview)):
                return f"<{len(value)} bytes>"
            text = repr(value)
            return text if len(text) <= 80 else text[:77] + "..."

        inside = ", ".join(f"{name!r}: {brief(value)}" for name, value in self.items())
        return f"<shardtool.Sample {self.number} {self.key!r}: {{{inside}}}>"


def _collated(batch: List[Sample], *, collate_fn_map: Any = None) -> Dict[str, Any]:
    """Returns what torch's default_collate makes of samples: fields by names, and the keys."""
    from torch.utils.data._utils.collate import collate

    fields: Dict[str, Any] = collate([dict(sample) for sample in batch], collate_fn_map=collate_fn_map)
    return {**fields, "__key__": [sample.key for sample in batch]}


def _collate_as_dicts() -> None:
    """Tells torch, where it is in use, that samples become a dict. It would make a Sample of them,
    with the key of the first. The table is what torch.utils.data.default_collate names for it."""
    table = getattr(sys.modules.get("torch.utils.data._utils.collate"), "default_collate_fn_map", None)
    if table is not None:
        table[Sample] = _collated


class Samples(metaclass=guesses.Named):
    """A data set open for random access.

    ``ds[i]`` is a sample by its number in storage order, ``ds["key"]`` by its key, and ``len(ds)``
    the number of samples. Removed samples count, because all others keep their numbers: asking for
    one raises NotFoundError, and slices and iteration leave them out. Each access reads and checks
    one block, in a child process that the first access starts. To read all samples, use a Loader,
    which is much faster.

    The object can be pickled. Each process that uses a copy has its own child.

    Args:
        url: As for Loader, but no mix.
        fields: As for Loader, for one sample at a time. None: all fields of the sample,
            with the types that the data set records, else as bytes.
        layers: As for Loader.
        where: As for Loader. The samples of a view are counted from 0 in storage order: ``ds[i]``
            is the i-th of them, and ``len(ds)`` is how many there are, whatever their weights.
        cache, cache_size: As for Loader.
        format: As for Loader, but not "arrow".
        tuning: As for Loader; ``memory`` and ``workers`` are used.

    Threads may share it. One of them is served at a time: ask for many samples at once, by a slice
    or a list.
    """

    @guesses.answering(guesses.OPENING, written="shardtool.open('out/')")
    def __init__(
        self,
        url: Union[str, os.PathLike[str], Source],
        *,
        fields: Union[Iterable[str], Mapping[str, Spec], None] = None,
        layers: Optional[Sequence[Union[str, os.PathLike[str]]]] = None,
        where: Optional[str] = None,
        cache: Union[str, os.PathLike[str], None] = None,
        cache_size: Optional[_checks.Size] = None,
        format: Optional[_checks.Output] = None,
        tuning: Tuning = Tuning(),
    ) -> None:
        _checks.typed(Samples.__init__, {name: value for name, value in locals().items() if name not in ("self", "fields")})
        tuning, out = cached(tuning, cache_size), format_of(format, tuning)
        if out == "arrow":
            raise ConfigError("format='arrow': samples are dicts; a Loader can deliver record batches")
        source = sources.given(url)
        self.url, self._out = source._shown(), out
        self._fields = parse(fields)
        check_out(self._out, _arrays(self._fields))
        self._open = opening(source, layers, self._fields, where, cache, tuning)
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._session = Session()
        self._asked = 1  # number of the next request
        self._found = False  # whether the names of the fields are those of the data
        self._locks: Dict[int, Any] = {}  # of the connection, by process

    def __getstate__(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in ("url", "_fields", "_out", "_open", "_closed")}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def __repr__(self) -> str:
        return f"shardtool.open({redact(self.url)!r})"

    def _connect(self) -> Client:
        if self._closed:
            raise ClosedError("the data set is closed")
        with self._alone():
            client = self._session.connect(self, self._open)
        if "sources" in self._session.info:
            self._session.close()
            raise ConfigError("a mix has no samples by number or key: open the data set of a source, or read the mix with a Loader")
        return client

    @property
    def info(self) -> Dict[str, Any]:
        """Facts about the data set: samples, removed, chosen (in the view), epoch_samples,
        view (its ID), shards, blocks, bytes, decoded_bytes, digest, tables, generation, fields."""
        self._connect()
        return self._session.facts()

    @property
    def fields(self) -> List[str]:
        """The names of the fields that samples have: all, or as ``fields`` asked."""
        return guesses.Names(names(self.info) if self._fields is None else [f.name for f in self._fields])

    def _what_is(self, key: str) -> str:
        """Says what a text that is no key is, if it is anything: the end of an error."""
        stem, _, field = key.partition(".")
        if key in self.fields:
            return f": {key!r} is a field: ds[i][{key!r}] is the field of one sample, and a Loader delivers it for all"
        if field in self.fields:
            return f": ds[{stem!r}][{field!r}] is the field {field!r} of the sample {stem!r}"
        return ""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return guesses.missing(self, name, guesses.RANDOM, "a data set opened for random access")

    def __len__(self) -> int:
        self._connect()
        return int(self._session.info["chosen"])

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        try:
            self[key]
        except KeyNotFoundError:
            return False
        return True

    @overload
    def __getitem__(self, which: Union[int, str]) -> Sample: ...

    @overload
    def __getitem__(self, which: Union[slice, Sequence[int]]) -> List[Sample]: ...

    def __getitem__(self, which: Any) -> Any:
        """Returns the sample with a number or key, or a list of samples for a slice, a list, or an
        array of numbers. A list or array of ``len(ds)`` bools selects samples, without removed
        ones. Raises IndexError or KeyNotFoundError; for the number of a removed sample
        NotFoundError."""
        if isinstance(which, slice):
            return self._get(range(len(self))[which], holes=True)
        if getattr(which, "ndim", 0) > 0:  # an array or tensor
            which = which.tolist()
        if not isinstance(which, (list, tuple, range)):
            return self._get([which])[0]
        if which and all(isinstance(w, bool) for w in which):
            if len(which) != len(self):
                raise IndexError(f"a mask of {len(which)} bools: the data set has {len(self)} samples")
            return self._get([i for i, w in enumerate(which) if w], holes=True)
        return self._get(which)

    def __getitems__(self, which: Sequence[int]) -> List[Sample]:
        """Returns many samples at once; torch's DataLoader calls it."""
        return self._get(which)

    def __iter__(self) -> Iterator[Sample]:
        """All samples in storage order."""
        total = len(self)
        for first in range(0, total, _AHEAD):
            yield from self._get(range(first, min(first + _AHEAD, total)), holes=True)

    def _get(self, which: "Sequence[Union[int, str]]", holes: bool = False) -> List[Sample]:
        """Requests samples. With ``holes``, removed samples are left out."""
        _collate_as_dicts()
        return [sample for sample in self._answers(which, holes) if sample is not None]

    def _answers(self, which: "Sequence[Union[int, str]]", holes: bool) -> "Iterator[Optional[Sample]]":
        """Requests samples. With ``holes``, a removed sample is None."""
        for first in range(0, len(which), _AHEAD):
            part = which[first : first + _AHEAD]
            for asked, answer in zip(part, self._ask(part)):
                if isinstance(answer, Sample):
                    yield self._decode(answer)
                elif isinstance(answer, NotFoundError) and isinstance(asked, str):
                    raise KeyNotFoundError(answer.message + self._what_is(asked), key=asked)
                elif isinstance(answer, NotFoundError) and holes:
                    yield None
                else:
                    raise answer

    def _ask(self, which: "Sequence[Union[int, str]]") -> "List[Union[Sample, ShardtoolError]]":
        """Returns the answers to requests for samples, which share one connection."""
        with self._alone():
            client, total = self._connect(), len(self)
            idents = range(self._asked, self._asked + len(which))
            client.send(b"".join(_request(i, w, total) for i, w in zip(idents, which)))
            self._asked = idents.stop
            answers = client.gather(idents).items()
            taken = {i: _take(client, a) if isinstance(a, tuple) else a for i, a in answers}
        return [taken[i] for i in idents]

    def _alone(self) -> Any:
        """Returns the lock of the connection. A fork has its own, because another thread may have
        held its parent's lock."""
        return self._locks.setdefault(os.getpid(), threading.RLock())

    def _decode(self, raw: Sample) -> Sample:
        fields = self._fields
        if fields is not None and not self._found:
            fields = self._fields = found(self._session.info, fields)
            self._found = True
            check_out(self._out, _arrays(fields))
        elif fields is None:
            if not self._session.info.get("types") and not self._session.info.get("lists"):
                return raw
            fields = [f for f in typed(self._session.info, False) if f.name in raw or f.elements is not None]
            check_out(self._out, _arrays(fields))
        done = Sample()
        done.key, done.number = raw.key, raw.number
        for field in fields:
            if field.elements is not None:
                row = [(name, raw[name]) for name in field.elements if name in raw]
                done[field.name] = listed([row], field, lambda _: raw.key, self._out)[0]
                continue
            payload = raw.get(field.stored)
            if payload is None and not field.optional:
                raise DecodeError(
                    f"sample {raw.key!r} has no field {field.name!r}; it has {', '.join(map(repr, raw))}", key=raw.key, field=field.name
                )
            try:
                if payload is None or field.decode == "bytes":
                    done[field.name] = payload
                else:  # an array can be written to, unlike bytes
                    done[field.name] = field.one(memoryview(bytearray(payload) if field.needs_array else payload), self._out)
            except (ValueError, OSError) as err:
                raise DecodeError(f"sample {raw.key!r}: field {field.name!r}: {err}", key=raw.key, field=field.name) from err
        return done

    def close(self) -> None:
        """Ends the child. A second call does nothing."""
        self._closed = True
        self._session.close()

    def __enter__(self) -> "Samples":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _arrays(fields: Optional[List[Field]]) -> List[Field]:
    """The fields that may be arrays in a sample, where numbers are Python numbers."""
    return [f for f in fields or () if f.decode not in ("int", "float")]


def _request(ident: int, which: Any, total: int) -> bytes:
    if isinstance(which, str):
        key = which.encode("utf-8", "surrogateescape")
        return proto.pack(proto.GET, ident, flags=proto.BY_KEY, body=key)
    try:
        number = operator.index(which)
    except TypeError:
        raise TypeError(
            f"{which!r} is neither a number nor a key: ds[0], ds['key'], ds[0:8], ds[[0, 5]], or a mask of bools for all samples"
        ) from None
    if not -total <= number < total:
        raise IndexError(f"sample {number}: the data set has {total}, from 0")
    return proto.pack(proto.GET, ident, number % total)


def _take(client: Client, frame: Frame) -> Sample:
    """Copies a sample out of its region and releases the region."""
    _, _, _, _, segment, fields, offset, _, number, _, _ = frame
    mapped = client.mapped(segment)
    pairs = struct.unpack_from(f"<{2 * (1 + 2 * fields)}q", mapped, offset)
    parts = [mapped[offset + o : offset + o + n] for o, n in zip(pairs[::2], pairs[1::2])]
    client.release(segment, offset)
    sample = Sample(zip((str(p, "utf-8", "surrogateescape") for p in parts[1::2]), parts[2::2]))
    sample.key, sample.number = str(parts[0], "utf-8", "surrogateescape"), number
    return sample


#: Opens a data set for random access.
open = Samples
