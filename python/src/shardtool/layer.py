"""Writing layers from a loop of a program."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, Literal, Mapping, Optional, Sequence, Union

from . import _checks, guesses
from ._write.annotate import layer_address
from .errors import ConfigError, redact
from .writer import Writer


class Layer(metaclass=guesses.Named):
    """Writes a layer: fields that are added to the samples of a data set, in any order.

    ::

        with shardtool.Layer("photos/", "captions", missing="allow") as layer:
            for key, text in answers:
                layer.write({"__key__": key, "caption": text})

    It is written as by Writer: with ``write``, ``write_batch`` and ``write_table``, of the same
    values. Each row has the key of its sample. Leaving the block joins the rows with the samples
    and publishes the layer, in one step; until then they are in temporary files. An exception, or
    the end of the process, publishes nothing, and the program begins anew. ``annotate`` needs no
    loop, continues after a kill, and uses several processes.

    Args:
        data: The data set. It is not written.
        name: The name of the layer, or its address.
        fields, attrs, level, memory, workers: As for Writer.
        on_exists: "fail": raise ExistsError. "overwrite": publish a new generation. "update": the
            same, and samples without a row keep what they have. "append": add the shards that the
            data set has got since; rows of other samples are left out.
        missing: "fail" where samples have no row, or "allow": they have nothing.
        unknown: "fail" where a row has a key that no sample has, or "skip" such rows.
        replaces: Names of fields and attributes of the data set, or of other layers, in whose place
            this layer's are delivered.
        large_blocks: Accept rows of which a block holds more than 16 MiB.

    A key that has two rows raises EncodeError. ``result`` also has the numbers of samples that are
    ``missing``, and of rows that are ``unknown`` or of ``removed`` samples.
    """

    @guesses.answering(guesses.LAYERING, written="Layer('out/', 'captions')")
    def __init__(
        self,
        data: Union[str, os.PathLike[str]],
        name: Union[str, os.PathLike[str]],
        *,
        fields: Optional[Mapping[str, str]] = None,
        attrs: Optional[Mapping[str, str]] = None,
        on_exists: Literal["fail", "overwrite", "update", "append"] = "fail",
        missing: Literal["fail", "allow"] = "fail",
        unknown: Literal["fail", "skip"] = "fail",
        replaces: Sequence[str] = (),
        large_blocks: bool = False,
        level: Literal["fastest", "default", "better", "best"] = "default",
        memory: _checks.Size = "256MiB",
        workers: Optional[int] = None,
    ) -> None:
        _checks.typed(Layer.__init__, {
            "data": data, "name": name, "on_exists": on_exists, "missing": missing, "unknown": unknown, "large_blocks": large_blocks,
        })  # fmt: skip
        mode: Any = "overwrite" if on_exists == "update" else on_exists
        self._writer = Writer(
            data, fields=fields, attrs=attrs, on_exists=mode, level=level, layout="samples", memory=memory, workers=workers
        )
        self._writer._begin["layer"] = {
            "name": layer_address(name), "replaces": list(replaces), "allow_missing": missing == "allow", "skip_unknown": unknown == "skip",
            "update": on_exists == "update", "large_blocks": large_blocks,
        }  # fmt: skip
        self._name = os.fsdecode(name)
        self._writer._title = f"shardtool.Layer({redact(self._name)!r})"

    def __repr__(self) -> str:
        return f"shardtool.Layer({redact(self._name)!r}, {self.rows} rows)"

    def __enter__(self) -> Layer:
        self._writer.__enter__()
        return self

    def __exit__(self, kind: Any, err: Any, trace: Any) -> None:
        self._writer.__exit__(kind, err, trace)

    @property
    def rows(self) -> int:
        """The number of rows so far."""
        return self._writer.samples

    @property
    def result(self) -> Optional[Dict[str, Any]]:
        """What was published, once the block was left: see ``Writer.result``."""
        return self._writer.result

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return guesses.missing(self, name, guesses.ROWS, "a Layer")

    @guesses.answering({}, written="layer.write({'__key__': key, 'caption': text})")
    def write(self, row: Mapping[str, Any]) -> None:
        """Adds a row: the key of its sample as ``"__key__"``, and values by the names of
        fields."""
        if "__key__" not in row:
            raise ConfigError("a row without a key: give the key of its sample as '__key__'")
        self._writer.write(row)

    def write_batch(self, columns: Mapping[str, Any]) -> None:
        """Adds n rows: their keys as ``"__key__"``, and for each field an array of n rows or a
        sequence of n values."""
        if "__key__" not in columns:
            raise ConfigError("rows without keys: give the keys of their samples as '__key__', such as batch.sample_keys")
        self._writer.write_batch(columns)

    def write_table(self, table: Any, *, key: str = "__key__") -> None:
        """Adds one row for each row of an Arrow table, whose column ``key`` has the keys."""
        self._writer.write_table(table, key=key)

    def close(self) -> Optional[Dict[str, Any]]:
        """Publishes the layer, and returns ``result``. Leaving a ``with`` block does it."""
        return self._writer.close()

    def abort(self) -> None:
        """Ends it and publishes nothing."""
        self._writer.abort()
