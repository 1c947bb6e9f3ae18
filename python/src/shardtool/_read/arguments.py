"""The arguments that Loader and Dataset have in common."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Iterable, List, Literal, Mapping, NoReturn, Optional, Sequence, Tuple, Union

from .. import _checks, guesses, sources
from ..batch import MICRO, Batch
from ..errors import ConfigError
from ..fields import Field, Spec, check_out, parse
from ..options import Faults, Order, Tuning, cached, format_of
from ..sources import Mix, Source
from .iteration import Mapped, T
from .units import Bucket, Pack


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a user asks for, as the child and the batches need it."""

    url: str  #: As it may be shown.
    opening: Dict[str, Any]  #: The body of OPEN.
    starting: Dict[str, Any]  #: The members of START that stay the same.
    fields: Optional[List[Field]]  #: None: all fields.
    typed: bool  #: Whether a field without a type is an error.
    ranks: Tuple[Optional[int], Optional[int]]
    map: Optional[Callable[[Any], Any]]
    units: Union[Pack, Bucket, None]
    format: _checks.Output  #: The type of arrays.
    tuning: Tuning
    faults: Faults
    tail: Optional[str] = None  #: Where neither the user nor a checkpoint says one; None: by the number of ranks.

    @property
    def arrays(self) -> str:
        """The type of arrays in batches."""
        return "numpy" if self.format == "arrow" else self.format

    def derived(self) -> List[Field]:
        """The columns of batches that no sample has, as the child sends them."""
        micro = [Field(MICRO, "npy")] if self.starting.get("micro_batches", 1) > 1 else []
        return [*micro, *([] if self.units is None else self.units.columns())]

    def portable(self) -> Asked:
        """Returns it for another process, which process groups cannot leave for."""
        group = self.faults.skip_group if isinstance(self.faults.skip_group, bool) else None
        faults, tuning = dataclasses.replace(self.faults, skip_group=group), dataclasses.replace(self.tuning, peers=None)
        return dataclasses.replace(self, faults=faults, tuning=tuning)


class Arguments(Generic[T], metaclass=guesses.Named):
    """The signature of Loader and Dataset."""

    _endless = False  # whether an iteration has no end where epochs says nothing

    @guesses.answering(guesses.READING, written="CLASS('out/', 64, shuffle=True, seed=7)")
    def __init__(
        self,
        url: Union[str, os.PathLike[str], Mapping[str, Any], Source, Mix],
        batch_size: Optional[int] = None,
        *,
        fields: Union[Literal["typed"], Iterable[str], Mapping[str, Spec], None] = None,
        layers: Optional[Sequence[Union[str, os.PathLike[str]]]] = None,
        where: Optional[str] = None,
        shuffle: Optional[bool] = None,
        seed: Optional[int] = None,
        epochs: Optional[int] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        tail: Optional[Literal["short", "wrap", "drop", "pad"]] = None,
        map_batch: Optional[Callable[[Batch], T]] = None,
        cache: Union[str, os.PathLike[str], None] = None,
        cache_size: Optional[_checks.Size] = None,
        units: Union[Pack, Bucket, None] = None,
        cost: Optional[str] = None,
        format: Optional[_checks.Output] = None,
        order: Order = Order(),
        tuning: Tuning = Tuning(),
        faults: Faults = Faults(),
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "fields")}
        sources.refuse_others(url)
        given = _checks.typed(Arguments.__init__, given)
        if batch_size is not None and order.global_batch is not None:
            raise ConfigError("batch_size and Order(global_batch=...): give one of them")
        for name, least in (("batch_size", 1), ("epochs", 0)):
            _checks.at_least(name, given[name], least)
        _checks.within("seed", seed, 0, 2**64 - 1)
        if isinstance(units, Pack) and fields is not None:
            raise ConfigError("fields and Pack(...): sequences have the fields of Pack(fields=...) alone")
        wanted, source, tuning = parse(fields), sources.given(url), self._tuned(cached(tuning, cache_size), format)
        out = format_of(format, tuning)
        check_out(out, wanted)
        ranks = given["rank"], given["world_size"]
        if tuning.peers is not None and None in ranks:
            raise ConfigError("peers: give rank and world_size, too: the data-parallel ones, which are the same on all peers of a rank")
        self._begin_with(Asked(
            url=source._shown(), opening=opening(source, layers, wanted, where, cache, tuning),
            starting=starting(given, source, order, tuning, faults),
            fields=wanted, typed=isinstance(fields, str),  # parse refuses all but "typed"
            tail="wrap" if epochs == 0 or (epochs is None and self._endless) else None,
            map=None if map_batch is None else Mapped(map_batch), units=units, format=out, tuning=tuning, faults=faults,
            ranks=ranks if ranks == (None, None) else _checks.ranks(*ranks),
        ))  # fmt: skip

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return guesses.missing(self, name, guesses.LOADING, "a " + type(self).__name__)

    def __getitem__(self, which: object) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} has no samples by number or key: iterate it, or use shardtool.open(url)[i] or ['key']."
            " A torch DataLoader is of shardtool.Dataset: DataLoader(Dataset(url, batch_size), batch_size=None)"
        )

    def _begin_with(self, asked: Asked) -> None:
        raise NotImplementedError

    def _tuned(self, tuning: Tuning, format: Optional[_checks.Output]) -> Tuning:
        return tuning


def opening(
    source: Union[Source, Mix],
    layers: Optional[Sequence[Union[str, os.PathLike[str]]]],
    fields: Optional[Iterable[Field]],
    where: Optional[str],
    cache: Union[str, os.PathLike[str], None],
    tuning: Tuning,
) -> Dict[str, Any]:
    """Returns the body of OPEN."""
    body = source._opening()
    if where is not None and "where" in body:
        raise ConfigError("where and Source(where=...): give one of them")
    if layers is not None:
        if isinstance(source, Mix):
            raise ConfigError("layers: a mix has them for each source, as a member of the source")
        if "layers" in body:
            raise ConfigError("layers and Source(layers=...): give one of them")
        body["layers"] = sources.opened(sources.layers_of(layers))
    if fields is not None and (body.get("layers") or isinstance(source, Mix)):
        # START compares them with the data; here they choose what is read.
        body["fields"] = [field.name + "?" for field in fields]
    return _checks.drop_none({
        "where": where, **body, "memory": tuning.memory, "workers": tuning.workers,
        "cache": None if cache is None else _checks.address(cache), "cache_size": tuning.cache_size,
    })  # fmt: skip


def starting(given: Mapping[str, Any], source: Union[Source, Mix], order: Order, tuning: Tuning, faults: Faults) -> Dict[str, Any]:
    """Returns the members of START that stay the same for the life of a loader."""
    limit = faults.max_skipped
    return _checks.drop_none({
        **{name: given[name] for name in ("batch_size", "shuffle", "seed", "tail", "cost")},
        **order._members(), "epoch": order.epoch or None, "epochs": given["epochs"] or 0,
        **{name: getattr(tuning, name) for name in ("prefetch", "requests", "depth", "memory", "workers")},
        **({"change_mix": source.change_mix or None, "skip_steps": source.skip_steps} if isinstance(source, Mix) else {}),
        "host": tuning.host or None, "ring": tuning.ring_memory, "autotune": None if tuning.autotune else False,
        "on_error": "fail" if limit == 0 else faults.on_error,
        "max_skipped_share" if isinstance(limit, float) else "max_skipped": limit or None,
    })  # fmt: skip
