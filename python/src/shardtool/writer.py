"""Writing data sets."""

from __future__ import annotations

import json
import os
import struct
from typing import Any, Callable, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, Union

from . import _child, _columns, _config
from ._child import Child
from ._encode import Encoder, Misfit, Slot, Slots, fail
from .errors import ClosedError, ConfigError

#: Bytes of samples that are collected before they are sent.
_FRAME = 512 << 10

#: The length of a key that is left out.
_ABSENT = 0xFFFFFFFF


class Writer:
    """Writes a data set from values of a program.

    ::

        fields, attrs = {"image": "jpg:92"}, {"label": "cls"}
        with shardtool.Writer("s3://bucket/train", fields=fields, attrs=attrs) as w:
            for i, s in enumerate(source):
                w.write({"__key__": f"{i:08d}", "image": s.pil, "emb": s.tensor, "cls": 3})
            w.write_batch({"__key__": keys, "x": array_of_n_rows, "cls": labels})  # n samples
            w.write_table(arrow)  # one sample for each row

    Leaving the block publishes the data set, in one step. An exception, or the end of the process,
    publishes nothing. A child process compresses, hashes and uploads on all cores while the program
    runs; ``write`` waits while ``memory`` bytes are in flight. There is no temporary copy.

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
        duplicate_keys: "fail", or "keep" to allow one key in several shards.
        memory: Bytes in flight in the child.
        workers: Threads that compress. None: one for each core.

    A writer is for one thread at a time, and for the process that made it.
    """

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
        shard_size: Optional[_config.Size] = None,
        block_size: Optional[_config.Size] = None,
        samples_per_shard: Optional[int] = None,
        level: Literal["fastest", "default", "better", "best"] = "default",
        duplicate_keys: Literal["fail", "keep"] = "fail",
        memory: _config.Size = "256MiB",
        workers: Optional[int] = None,
    ) -> None:
        given = _config.typed(Writer.__init__, {
            "url": url, "on_exists": on_exists, "source": source, "rank": rank, "world_size": world_size, "name": name,
            "shard_size": shard_size, "block_size": block_size, "samples_per_shard": samples_per_shard, "level": level,
            "duplicate_keys": duplicate_keys, "memory": memory, "workers": workers,
        })  # fmt: skip
        for option, least in (("samples_per_shard", 1), ("workers", 1)):
            _config.at_least(option, given[option], least)
        if (rank is None) != (world_size is None):
            raise ConfigError("rank and world_size: give both or neither")
        if rank is not None and world_size is not None and not 0 <= given["rank"] < given["world_size"]:
            raise ConfigError(f"rank={rank}, world_size={world_size}: ranks are from 0 to one less than the world size")
        self.url = os.fsdecode(url)
        self._slots = Slots(fields, attrs)
        self._prefix = "" if rank is None else f"{given['rank']:05d}-"
        self._begin: Dict[str, Any] = {
            "source": source, "key_prefix": self._prefix, "name": name, "level": level,
            "shard_size": _config.size_of("shard_size", given["shard_size"]) or 0,
            "block_size": _config.size_of("block_size", given["block_size"]) or 0,
            "samples_per_shard": given["samples_per_shard"] or 0,
            "mode": on_exists if on_exists in ("append", "overwrite") else "create", "resume": on_exists == "resume",
            "part": given["rank"] or 0, "parts": given["world_size"] or 0, "keep_duplicates": duplicate_keys == "keep",
            "workers": given["workers"] or 0, "memory": _config.size_of("memory", given["memory"]),
            "schema": json.dumps([sorted((str(k), v) for k, v in (fields or {}).items()), self._slots.attrs]),
        }  # fmt: skip
        self._child: Optional[Child] = None
        self._pid = os.getpid()
        self._ended = False
        self._done = False  # an equal run published before
        self._resume_from = 0
        self._first = 0  # in the keys of samples without one, the number of the first
        self._samples = 0  # resume_from and those written
        self._plans: Dict[Tuple[str, ...], "_Plan"] = {}
        self._layouts = 0
        self._parts: List[bytes] = []
        self._size = 0
        self._error: Optional[BaseException] = None
        #: What was published, or this rank's part, once the block was left: the members of
        #: ``shardtool pack --json``.
        self.result: Optional[Dict[str, Any]] = None

    def __repr__(self) -> str:
        return f"shardtool.Writer({self.url!r}, {self._samples} samples)"

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
            child = Child(_config.address(self.url), self._begin)
            try:
                ready = child.answer()
                self._slots.learn(ready.get("types") or {})
            except BaseException as err:
                self._error = err
                child.close()
                raise
            self._child = child
            self._resume_from = self._samples = int(ready["samples"])
            self._first = int(ready.get("first") or 0)
            self._done = bool(ready.get("done"))
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
        """The number of samples so far, those before ``resume_from`` included."""
        return self._samples

    def close(self) -> Optional[Dict[str, Any]]:
        """Publishes what was written, and returns ``result``. Leaving a ``with`` block does it."""
        if self._ended:
            return self.result
        child = self._start()
        try:
            if not self._done:
                self._flush()
                child.send(_child.END, [])
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
        self._parts.clear()

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
            child.close()

    # Writing

    def _open(self) -> Child:
        child = self._child
        if child is None or self._ended or self._error is not None or self._pid != os.getpid():
            child = self._start()
        if self._done:
            raise ConfigError(
                f"the data set is complete, with {self._resume_from} samples: an equal run published it."
                " Begin with sample `resume_from`, or give another `source`"
            )
        return child

    def write(self, sample: Mapping[str, Any]) -> None:
        """Writes a sample: values by the names of fields. ``"__key__"`` is its key, by default the
        running number, which continues where samples are appended. After an EncodeError the writer
        can be used, and lacks the sample."""
        if self._child is None or self._ended or self._done or self._error is not None or self._pid != os.getpid():
            self._open()
        names = tuple(sample)
        plan = self._plans.get(names)
        if plan is None:
            plan = self._plan(names)
        data: List[bytes] = []
        name = ""
        try:
            for name, known, slot in plan.fields:
                value = sample[name]
                encode = known.get(value.__class__)
                if encode is None:
                    if value is None:
                        return self.write({n: v for n, v in sample.items() if v is not None})
                    encode = slot.encoder(value)
                data.append(encode(value))
            key = _columns.key_bytes(sample["__key__"]) if plan.keyed else b""
            for name, field in plan.attrs:
                data.append(self._slots.attr(name, sample[field])[1])
        except Misfit as err:
            raise fail(self._key(sample), name, err) from None
        if plan.number < 0:
            self._send_layout(plan)
        try:
            head = plan.head(plan.number, len(key) if plan.keyed else _ABSENT, *map(len, data))
        except struct.error:
            raise fail(self._key(sample), "", "a field of 4 GiB or more: divide it") from None
        parts = self._parts
        parts.append(head)
        if plan.keyed:
            parts.append(key)
        parts += data
        self._samples += 1
        self._size += len(head) + len(key) + sum(map(len, data))
        if self._size >= _FRAME:
            self._flush()

    def write_batch(self, columns: Mapping[str, Any]) -> None:
        """Writes n samples: for each field an array of n rows or a sequence of n values.
        ``"__key__"`` has their keys."""
        child = self._open()
        self._flush()
        made, rows = _columns.of_batch(self._slots, dict(columns), self._samples, self._numbered)
        self._send_columns(child, made, rows)

    def write_table(self, table: Any, *, key: Optional[str] = None) -> None:
        """Writes one sample for each row of a table that has ``__arrow_c_stream__``: of pyarrow,
        polars, pandas or duckdb. Text and bytes are stored as they are, lists of numbers as npy
        files, other nested values as JSON; null means that the sample lacks the field. ``key``
        names the column of keys, by default ``"__key__"`` if there is one."""
        from ._arrow import batches

        child = self._open()
        self._flush()
        for made, rows in batches(self._slots, table, key, lambda i: self._numbered(self._samples + i)):
            self._send_columns(child, made, rows)

    # Frames

    def _plan(self, names: Tuple[str, ...]) -> "_Plan":
        if not [n for n in names if n != "__key__"]:
            raise fail(self._numbered(self._samples), "", "the sample has no fields: give at least one")
        try:
            slots = [self._slots.slot(n) for n in names if n != "__key__"]
        except Misfit as err:
            raise fail(self._numbered(self._samples), "", err) from None
        slots.sort(key=lambda s: s.name.encode("utf-8", "surrogatepass"))
        there = set(names)
        plan = _Plan(slots, [(a, f) for a, f in self._slots.attrs if f in there], "__key__" in there)
        if len(self._plans) < 10_000:  # samples of very many kinds
            self._plans[names] = plan
        return plan

    def _send_layout(self, plan: "_Plan") -> None:
        """Tells the child of a plan, whose types the first sample has determined."""
        body = {
            "fields": [{"name": s.name, "type": s.kind} for _, _, s in plan.fields],
            "attrs": [{"name": a, "kind": self._slots.attr_kinds[a]} for a, _ in plan.attrs],
        }
        self._send(_child.LAYOUT, [json.dumps(body).encode()])
        plan.number = self._layouts
        self._layouts += 1

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            self._send(_child.SAMPLES, [b"".join(parts)])

    def _send(self, kind: int, parts: Sequence[_child.Buffer]) -> None:
        assert self._child is not None
        try:
            self._child.send(kind, parts)
        except BaseException as err:  # KeyboardInterrupt included: the frame was cut
            self._error = err
            raise

    def _send_columns(self, child: Child, columns: "List[_columns.Column]", rows: int) -> None:
        for body in _columns.frames(columns, rows):
            self._send(_child.COLUMNS, body)
        self._samples += rows

    def _numbered(self, number: int) -> str:
        return f"{self._prefix}{self._first + number:09d}"

    def _key(self, sample: Mapping[str, Any]) -> str:
        return str(sample.get("__key__", self._numbered(self._samples)))


class _Plan:
    """How samples with one set of names are sent."""

    __slots__ = ("attrs", "fields", "head", "keyed", "number")

    def __init__(self, slots: List[Slot], attrs: List[Tuple[str, str]], keyed: bool) -> None:
        self.fields: List[Tuple[str, Dict[type, Encoder], Slot]] = [(s.name, s.by_class, s) for s in slots]
        self.attrs = attrs
        self.keyed = keyed
        self.number = -1  # of its layout; the child does not know it yet
        self.head: Callable[..., bytes] = struct.Struct(f"<II{len(slots) + len(attrs)}I").pack
