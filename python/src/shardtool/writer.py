"""Writing data sets."""

from __future__ import annotations

import atexit
import contextlib
import json
import operator
import os
import struct
import sys
import threading
import time
import warnings
import weakref
from array import array
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Mapping, Optional, Sequence, Union

from . import _checks, guesses
from ._wire import receiver
from ._wire.process import logger
from ._wire.receiver import Child
from ._write.arrow import batches
from ._write.columns import Column, column_frames, of_batch
from ._write.encode import Slots
from ._write.rows import ABSENT, Kind, Rows
from .errors import ClosedError, ConfigError, EncodeError, redact

#: Bytes and seconds of samples that are collected before they are sent. Only what was sent can be
#: in a complete shard, which survives a kill.
_FRAME, _SECONDS = 512 << 10, 1.0

_RUN, _INPUTS = struct.Struct("<II"), struct.Struct("<IIQ")


class Writer(metaclass=guesses.Named):
    """Writes a data set from values of a program.

    ::

        fields, attrs = {"image": "jpg:92"}, {"label": "cls"}
        with shardtool.Writer("s3://bucket/train", fields=fields, attrs=attrs) as w:
            for i, s in enumerate(source):
                w.write({"__key__": f"{i:08d}", "image": s.pil, "emb": s.tensor, "cls": 3})
            w.write_batch({"__key__": keys, "x": array_of_n_rows, "cls": labels})  # n samples
            w.write_table(arrow)  # one sample for each row

    Leaving the block publishes the data set, in one step. An exception, or the end of the process,
    publishes nothing. Without a block, ``close()`` publishes; a writer that is left without it says
    so in the log, with a ResourceWarning. A child process compresses, hashes and uploads on all
    cores while the program runs; ``write`` waits while ``memory`` bytes are in flight. There is no
    temporary copy.

    **Values** may be bytes, str, int, float, bool, a numpy array, a CPU tensor, a PIL image, a dict
    or a list. None means that the sample lacks the field. Each field has one type, which ``fields``
    declares or its first value determines: arrays become npy files, dicts, lists and bools JSON,
    images PNG. The types are recorded, and ``Loader(url)`` returns what was written.

    **Resume.** With ``on_exists="resume"``, a run that was killed continues: ``resume_from`` is the
    number of samples that the store has, and the program writes from that one on. If its samples
    are the same, so are the bytes of the data set::

        with shardtool.Writer(url, on_exists="resume") as w:
            for i in range(w.resume_from, n):
                w.write(make(i))

    **Many processes.** With ``rank`` and ``world_size``, each writes a part, and the last to finish
    publishes all of them, in the order of the ranks. A rank that is started again continues at its
    own ``resume_from``. All ranks need the same arguments.

    Args:
        url: The address of the data set: ``out/`` or ``s3://bucket/prefix``.
        fields: Encodings of fields, by name: "bytes", "txt", "json", "int", "float", "npy", "png",
            "jpg:92" or "webp:90" (with a quality). Fields that are not named are stored as their
            values are.
        attrs: Values that the index keeps, for filters and balancing, from attribute to field, such
            as ``{"label": "cls"}``. They are int, float or str.
        on_exists: What to do with a data set at ``url``. "fail": raise ExistsError. "append": add
            the samples to it. "overwrite": replace it. "resume": continue a run that was killed;
            raise ExistsError for the data set of another one.
        source: A text that names what is written, such as a version of the input. A run is resumed
            only with the text that it began with.
        rank, world_size: This process's part and the number of parts. None: there are no parts.
        name: The beginning of the shards' names.
        shard_size, block_size: Bytes, or text such as "64MiB". None: 256 MiB, and blocks of up to
            1 MiB.
        samples_per_shard: Most samples of a shard. None: no limit.
        level: Of compression: "fastest", "default", "better" or "best".
        layout: "samples" stores samples of any fields. "stacked" stores samples whose fields are
            all numbers, or arrays of one type and shape, as rows of one array a block, which is
            smaller and faster for small samples; another sample raises EncodeError. "auto" stacks
            where that is possible. None: "stacked" if the first samples come from ``write_batch``
            or ``write_table`` and all fields are such columns, of up to 64 KiB a sample; else
            "samples". Where samples are appended to a data set without rows: "samples".
        duplicate_keys: "fail", or "keep" to allow one key in several shards.
        memory: Bytes in flight in the child.
        workers: Threads that compress. None: one for each core.

    A writer is for one thread at a time, and for the process that made it.
    """

    @guesses.answering(guesses.WRITING, written="Writer('out/')")
    def __init__(
        self,
        url: Union[str, os.PathLike[str]],
        *,
        fields: Optional[Mapping[str, str]] = None,
        attrs: Optional[Mapping[str, str]] = None,
        on_exists: Literal["fail", "append", "overwrite", "resume"] = "fail",
        source: str = "",
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        name: str = "data",
        shard_size: Optional[_checks.Size] = None,
        block_size: Optional[_checks.Size] = None,
        samples_per_shard: Optional[int] = None,
        level: Literal["fastest", "default", "better", "best"] = "default",
        layout: Optional[Literal["samples", "stacked", "auto"]] = None,
        duplicate_keys: Literal["fail", "keep"] = "fail",
        memory: _checks.Size = "256MiB",
        workers: Optional[int] = None,
    ) -> None:
        given = _checks.typed(Writer.__init__, {
            "url": url, "on_exists": on_exists, "source": source, "rank": rank, "world_size": world_size, "name": name,
            "shard_size": shard_size, "block_size": block_size, "samples_per_shard": samples_per_shard, "level": level, "layout": layout,
            "duplicate_keys": duplicate_keys, "memory": memory, "workers": workers,
        })  # fmt: skip
        for option, least in (("samples_per_shard", 1), ("workers", 1)):
            _checks.at_least(option, given[option], least)
        if (rank is None) != (world_size is None):
            raise ConfigError("rank and world_size: give both or neither")
        if rank is not None and world_size is not None and not 0 <= given["rank"] < given["world_size"]:
            raise ConfigError(f"rank={rank}, world_size={world_size}: ranks are from 0 to one less than the world size")
        self.url = os.fsdecode(url)
        self._slots = Slots(fields, attrs)
        prefix = "" if rank is None else f"{given['rank']:05d}-"
        self._begin: Dict[str, Any] = {
            "source": source, "key_prefix": prefix, "name": name, "level": level, "layout": layout or "",
            "shard_size": _checks.size_of("shard_size", given["shard_size"]) or 0,
            "block_size": _checks.size_of("block_size", given["block_size"]) or 0,
            "samples_per_shard": given["samples_per_shard"] or 0,
            "mode": on_exists if on_exists in ("append", "overwrite") else "create", "resume": on_exists == "resume",
            "part": given["rank"] or 0, "parts": given["world_size"] or 0, "keep_duplicates": duplicate_keys == "keep",
            "workers": given["workers"] or 0, "memory": _checks.size_of("memory", given["memory"]),
            "schema": json.dumps([sorted((str(k), v) for k, v in (fields or {}).items()), self._slots.attrs]),
        }  # fmt: skip
        self._child: Optional[Child] = None
        self._pid = os.getpid()
        self._ended = False
        self._title = f"shardtool.Writer({redact(os.fsdecode(url))!r})"  # for what it says
        self._done = False  # an equal run published before
        self._resume_from = 0
        self._skip = 0  # samples that the program writes again, after load_state_dict
        #: The input of the sample resume_from, and the number of its samples before that one.
        self._place = (0, 0)
        self._rows = Rows(self._slots, prefix)
        self._layouts: Dict[Kind, int] = {}
        self._pending: List[bytes] = []  # of SAMPLES
        #: When the samples that were collected are sent: bytes, the number of a sample, and a time.
        self._room = min(_FRAME, self._begin["shard_size"] // 8 or _FRAME)
        self._full, self._due = 0, 0.0
        self._sending = threading.Lock()
        self._error: Optional[BaseException] = None
        #: What was published, or this rank's part, once the block was left: the members of
        #: ``shardtool pack --json``.
        self.result: Optional[Dict[str, Any]] = None

    def __repr__(self) -> str:
        return f"shardtool.Writer({redact(self.url)!r}, {self.samples} samples)"

    # Beginning and end

    def __enter__(self) -> "Writer":
        self._start()
        return self

    def _start(self) -> Child:
        if self._pid != os.getpid():
            raise ClosedError("the writer belongs to another process, of which this one is a fork: open one here, with rank and world_size")
        if self._ended:
            raise ClosedError("the writer is closed: open another one, with on_exists='append' to add samples")
        if self._error is not None:
            raise ClosedError(f"the writer has failed ({self._why()}): open another one; on_exists='resume' continues") from self._error
        if self._child is None:
            child = Child(_checks.address(self.url), self._begin)
            try:
                ready = child.answer()
                self._slots.learn(ready["at"].get("types") or {})
            except BaseException as err:
                self._error = err
                child.close()
                raise
            self._child = child
            self._resume_from = self._rows.samples = int(ready["at"]["samples"])
            self._full, self._due = self._rows.samples + (self._begin["samples_per_shard"] or sys.maxsize), time.monotonic() + _SECONDS
            self._place = int(ready["at"]["input"]), int(ready["at"]["since"])
            self._rows.first = int(ready.get("first") or 0)
            self._done = bool(ready.get("done"))
            _started.add(self)
        return self._child

    @property
    def resume_from(self) -> int:
        """The number of samples that earlier runs wrote and that the store has, with
        ``on_exists="resume"`` or of this rank's part, else 0. The program continues with that
        sample."""
        if not self._ended:
            self._start()
        return self._resume_from

    @property
    def samples(self) -> int:
        """The number of samples so far, including samples before ``resume_from``."""
        return self._rows.samples - self._skip

    def state_dict(self) -> Dict[str, Any]:
        """What is safe: ``"samples"`` is the number of samples of this rank in complete shards,
        which the store has. They survive a kill of this process and of its machine. A source that
        cannot be read from any sample on, such as a queue, is acknowledged, or saved, up to that
        number. After a kill ``load_state_dict`` takes the dict. It can be saved as JSON."""
        return {"samples": self._stored(), **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues at the sample ``state["samples"]``, which ``resume_from`` then is. Samples that
        were stored after the state was taken are written again by the program, and left out. Call
        it before the first sample."""
        if not self._begin["resume"] and not self._begin["parts"]:
            raise ConfigError("a state continues a run that was killed: give on_exists='resume'")
        self._start()
        for name, mine in self._identity().items():
            if state.get(name) != mine:
                raise ConfigError(
                    f"the state has {name}={state.get(name)!r}, and this writer {mine!r}: give the state of the same rank and arguments"
                )
        samples = operator.index(state["samples"])
        if self._rows.samples != self._resume_from or self._skip:
            raise ConfigError("samples were written already: load the state before the first one")
        if not 0 <= samples <= self._resume_from:
            raise ConfigError(
                f"the state has {samples} samples, and the store {self._resume_from}: the shards were deleted, or belong to another run;"
                " begin with sample `resume_from`"
            )
        self._skip, self._resume_from = self._resume_from - samples, samples

    def _identity(self) -> Dict[str, Any]:
        begin = self._begin
        parts = begin["parts"] or None
        return {"rank": begin["part"] if parts else None, "world_size": parts, "source": begin["source"]}

    def _stored(self) -> int:
        if self._ended and self.result is None:
            raise ClosedError("the writer ended without publishing: open it again, and see resume_from")
        if not self._ended:
            self._start()
        if self._ended or self._done:
            return self._rows.samples
        self._flush()
        self._send(receiver.STATE, [])
        assert self._child is not None
        try:
            return int(self._child.answer().get("stored") or 0)
        except BaseException as err:
            self._error = err
            raise

    def close(self) -> Optional[Dict[str, Any]]:
        """Publishes what was written, and returns ``result``. Leaving a ``with`` block does it."""
        if self._ended:
            return self.result
        child = self._start()
        try:
            if not self._done:
                self._flush()
                child.send(receiver.END, [])
            self.result = child.answers()["result"]
        except BaseException as err:
            self._error = err
            raise
        finally:
            self._ended = True
            child.close()
        return self.result

    def abort(self) -> None:
        """Ends the writer and publishes nothing."""
        self._ended = True
        if self._child is not None:
            self._child.close()
        self._rows.take()

    def __exit__(self, kind: Any, err: Any, trace: Any) -> None:
        if kind is not None or self._pid != os.getpid():
            self.abort()
        elif self._error is not None:  # raised before, and caught inside the block
            self.abort()
            raise ClosedError(f"nothing was published, because a write failed: {self._why()}") from self._error
        else:
            self.close()

    def _why(self) -> str:
        """Why the writer has failed; Ctrl-C, for example, has no text."""
        return str(self._error) or type(self._error).__name__

    def __del__(self) -> None:
        child = getattr(self, "_child", None)
        if child is not None and not self._ended:
            try:
                self._left()
            finally:
                child.close()

    def _left(self) -> None:
        """Says that the program left the writer open, unless it was told of an error before."""
        if self._ended or self._done or self._error is not None or self._pid != os.getpid():
            return
        self._error = ClosedError(
            f"{self._title} was left without close(): nothing was published, and {self._rows.samples - self._resume_from:,} samples may be"
            " lost. Write in a `with` block, or call close() after the last sample"
        )
        logger.warning("%s", self._error)
        warnings.warn(str(self._error), ResourceWarning, source=self, stacklevel=2)

    # Writing

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return guesses.missing(self, name, guesses.WRITER, "a Writer")

    def _open(self) -> Child:
        child = self._child
        if child is None or self._ended or self._error is not None or self._pid != os.getpid():
            child = self._start()
        if self._done and not self._skip:
            raise ConfigError(
                f"the data set is complete, with {self._resume_from} samples: an equal run published it."
                " Begin with sample `resume_from`, or give another `source`"
            )
        return child

    @guesses.answering({}, written="w.write({'__key__': key, 'jpg': image, 'cls': 3})")
    def write(self, sample: Mapping[str, Any]) -> None:
        """Writes a sample: values by the names of fields. ``"__key__"`` is its key, by default the
        running number, which continues where samples are appended. After an EncodeError the writer
        can be used, and lacks the sample."""
        if self._child is None or self._ended or self._done or self._error is not None or self._pid != os.getpid():
            self._open()
        if self._skip:
            self._skip -= 1
            return
        if type(sample) is not dict and not isinstance(sample, Mapping):
            raise EncodeError(f"a sample is a dict, such as {{'__key__': 'a', 'txt': 'b'}}: not {type(sample).__name__}")
        rows = self._rows
        rows.add(sample)
        if rows.size >= self._room or rows.samples >= self._full or time.monotonic() >= self._due:
            self._flush()

    def write_batch(self, columns: Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]) -> None:
        """Writes n samples: for each field an array of n rows or a sequence of n values.
        ``"__key__"`` has their keys. Or a list of n samples, each as for ``write``, which is called
        for each."""
        if not isinstance(columns, Mapping):
            for sample in columns:
                self.write(sample)
            return
        child = self._open()
        self._flush()
        with self._slots.whole():
            made, rows = of_batch(self._slots, dict(columns), self.samples, self._rows.numbered)
        self._send_columns(child, made, rows)

    def write_table(self, table: Any, *, key: Optional[str] = None) -> None:
        """Writes one sample for each row of a table that has ``__arrow_c_stream__``: of pyarrow,
        polars, pandas or duckdb, or a ``datasets.Dataset``. Text and bytes are stored as they are,
        lists of numbers as npy files, other nested values as JSON; null means that the sample lacks
        the field. ``key`` names the column of keys, by default ``"__key__"`` if there is one.

        All values are checked before a sample is written, so a table that raises an error is not
        written in part. To check a stream that does not fit into memory batch by batch, write its
        batches: ``for batch in reader: w.write_table(batch)``."""
        child = self._open()
        self._flush()
        first = self.samples
        with batches(self._slots, table, key, lambda i: self._rows.numbered(first + i)) as made:
            for columns, rows in made:
                self._send_columns(child, columns, rows)

    # Frames

    def _take(self, kind: Kind, samples: int, parts: Sequence[bytes]) -> None:
        """Takes samples that were encoded, here or in another process."""
        number = self._layouts.get(kind)
        if number is None:
            number = self._layout(kind)
        self._pending.append(_RUN.pack(number, samples))
        self._pending += parts

    def _layout(self, kind: Kind) -> int:
        """Tells the child of a kind of samples, and returns its number."""
        fields, attrs = [], []
        for name, word in kind.fields:
            slot = self._slots.slot(name)
            slot.kind = slot.kind or word
            if slot.kind != word and (slot.kind, word) != ("float", "int"):
                raise EncodeError(
                    f"field {name!r} is {word}, and {slot.kind} in earlier samples: convert it, or declare it in fields", field=name
                )
            fields.append({"name": name, "type": slot.kind})
        for name, word in kind.attrs:
            known = self._slots.attr_kinds.setdefault(name, word)
            if known != word and (known, word) != ("float", "int"):
                raise EncodeError(f"attribute {name!r} is {word}, and {known} in earlier samples: convert it", field=name)
            attrs.append({"name": name, "kind": known})
        self._send(receiver.LAYOUT, [json.dumps({"fields": fields, "attrs": attrs}).encode()])
        number = self._layouts[kind] = len(self._layouts)
        return number

    def _inputs(self, first: int, samples: Sequence[int]) -> None:
        """Tells the child that the next samples belong to the inputs from ``first`` on.
        ``samples`` has the number of samples of each."""
        self._gather()
        self._pending.append(_INPUTS.pack(ABSENT, len(samples), first) + array("I", samples).tobytes())

    def _gather(self) -> None:
        """Takes the samples that _rows has collected."""
        for kind, samples, parts in self._rows.take_parts():
            self._take(kind, samples, parts)

    def _flush(self) -> None:
        samples, each = self._rows.samples, self._begin["samples_per_shard"]
        if samples >= self._full:
            self._full += (samples - self._full) // each * each + each
        self._due = time.monotonic() + _SECONDS
        try:
            self._gather()
            if self._pending:
                pending, self._pending = self._pending, []
                self._send(receiver.SAMPLES, pending)
        except BaseException as err:
            if not isinstance(err, Exception):  # KeyboardInterrupt: samples that were taken may be lost
                self._error = err
            raise

    def _send(self, kind: int, parts: Sequence[receiver.Buffer]) -> None:
        assert self._child is not None
        try:
            if not self._sending.acquire(blocking=False):
                raise ConfigError(
                    "two threads use the writer at once: give each a writer, with rank and world_size, or let one of them write"
                )
            try:
                self._child.send(kind, parts)
            finally:
                self._sending.release()
        except BaseException as err:  # KeyboardInterrupt included: the frame was cut
            self._error = err
            raise

    def _send_columns(self, child: Child, columns: List[Column], rows: int) -> None:
        for body, part in column_frames(columns, rows):
            skip = min(self._skip, part)
            self._skip -= skip
            if skip < part:
                self._send(receiver.COLUMNS, [skip.to_bytes(4, "little"), *body])
                self._rows.samples += part - skip


#: The writers whose children were started.
_started: "weakref.WeakSet[Writer]" = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    for w in list(_started):
        with contextlib.suppress(ResourceWarning):  # an error where the program makes warnings errors
            w._left()
