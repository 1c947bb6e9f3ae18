"""Batches as record batches of Arrow."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

from ..errors import ConfigError
from ..fields import Field


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as err:
        raise ConfigError(f"pyarrow cannot be imported ({err}): install it for record batches of Arrow") from err
    return pyarrow


def record_batch(
    keys: Sequence[Optional[str]],
    fields: Sequence[Field],
    payloads: Callable[[str], List[Optional[memoryview]]],
    values: Callable[[str], Any],
) -> Any:
    """Returns samples with these keys and fields, whose payloads and values the functions return:
    see Batch.to_arrow."""
    pa = _pyarrow()
    columns = [pa.array(keys, pa.string()), *(_column(pa, field, payloads, values) for field in fields)]
    return pa.RecordBatch.from_arrays(columns, ["__key__", *(field.name for field in fields)])


def _column(pa: Any, field: Field, payloads: Callable[[str], List[Optional[memoryview]]], values: Callable[[str], Any]) -> Any:
    if field.elements is not None:
        if field.decode not in ("bytes", "view"):
            raise ConfigError(f"field {field.name!r}: a list of files is a column of bytes: declare it as 'bytes'")
        return pa.array([[None if v is None else bytes(v) for v in row] for row in values(field.name)], pa.list_(pa.binary()))
    if field.decode in ("bytes", "view", "image", "pixels"):
        return pa.array([None if p is None else bytes(p) for p in payloads(field.name)], pa.binary())
    if field.decode in ("txt", "json"):
        return pa.array([None if p is None else str(p, "utf-8") for p in payloads(field.name)], pa.string())
    column = values(field.name)
    if field.decode == "function" and field.function in (int, float):
        return pa.array(column, pa.int64() if field.function is int else pa.float64())
    return _arrays(pa, column)


def _arrays(pa: Any, values: Any) -> Any:
    """A column of arrays, as lists of numbers; each dimension is a list."""
    import numpy

    if isinstance(values, list):
        return pa.array([_listed(v) for v in values])
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    values = numpy.asarray(values)
    if values.dtype.kind not in "iufb" or 0 in values.shape[1:]:
        return pa.array([_listed(v) for v in values])
    column = pa.array(numpy.ascontiguousarray(values).reshape(-1))
    for size in reversed(values.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def _listed(value: Any) -> Any:
    """An array of one dimension as it is, of more as nested lists."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if getattr(value, "ndim", 0) == 1 and value.dtype.kind in "iufb":
        return value
    if hasattr(value, "tolist"):
        nested: List[Any] = value.tolist()
        return nested
    return value
