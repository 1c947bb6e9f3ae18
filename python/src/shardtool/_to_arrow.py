"""Batches as record batches of Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

from .errors import ClosedError, ConfigError
from .fields import Field

if TYPE_CHECKING:
    from .batch import Batch


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as err:
        raise ConfigError(f"pyarrow cannot be imported ({err}): install it for record batches of Arrow") from err
    return pyarrow


def record_batch(batch: "Batch") -> Any:
    """The samples of a batch; see Batch.to_arrow."""
    pa = _pyarrow()
    if batch._layout is None:
        raise ClosedError("a batch made from values has no payloads: convert the batch of the loader")
    names, columns = ["__key__"], [pa.array(batch.sample_keys, pa.string())]
    for field in batch._layout.fields:
        names.append(field.name)
        columns.append(_column(pa, batch, field))
    return pa.RecordBatch.from_arrays(columns, names)


def _column(pa: Any, batch: "Batch", field: Field) -> Any:
    if field.decode in ("bytes", "image", "pixels"):
        return pa.array([None if p is None else bytes(p) for p in batch.payloads(field.name)], pa.binary())
    if field.decode in ("txt", "json"):
        texts = [None if p is None else str(p, "utf-8") for p in batch.payloads(field.name)]
        return pa.array(texts, pa.string())
    values = batch[field.name]
    if field.decode == "function" and field.function in (int, float):
        return pa.array(values, pa.int64() if field.function is int else pa.float64())
    return _arrays(pa, values)


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
