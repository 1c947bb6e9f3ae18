"""The arguments that Loader and Dataset have in common."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping as AnyMapping
from typing import Any, Callable, Dict, Generic, Iterable, List, Literal, Mapping, Optional, Tuple, Union

from .. import _checks
from .._checks import Output
from ..batch import Batch
from ..errors import ConfigError, NotFoundError
from ..fields import Field, Spec, check_out, parse
from ..options import Faults, Order, Tuning
from ..wire.requests import opening, starting
from . import mixes, units
from .iteration import T
from .units import Bucket, Pack


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a user asks for, as the child and the batches need it."""

    url: str  #: As it may be shown.
    opening: Dict[str, Any]  #: The body of OPEN.
    starting: Dict[str, Any]  #: The members of START that stay the same.
    fields: Optional[List[Field]]  #: None: all fields.
    typed: bool  #: Whether a field without a type is an error.
    out: str
    ranks: Tuple[Optional[int], Optional[int]]
    map: Optional[Callable[[Any], Any]]
    units: Union[Pack, Bucket, None]
    tuning: Tuning
    faults: Faults

    @property
    def arrays(self) -> str:
        """The type of arrays in batches."""
        return "numpy" if self.out == "arrow" else self.out

    def portable(self) -> Asked:
        """Returns it for another process, which process groups cannot leave for."""
        group = self.faults.skip_group if isinstance(self.faults.skip_group, bool) else None
        return dataclasses.replace(self, faults=dataclasses.replace(self.faults, skip_group=group))


class Arguments(Generic[T]):
    """The signature of Loader and Dataset."""

    def __init__(
        self,
        url: Union[str, os.PathLike[str], Mapping[str, Any]],
        batch_size: Optional[int] = None,
        *,
        fields: Union[Literal["typed"], Iterable[str], Mapping[str, Spec], None] = None,
        shuffle: Optional[bool] = None,
        seed: Optional[int] = None,
        epochs: Optional[int] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        tail: Optional[Literal["short", "wrap", "drop", "pad"]] = None,
        out: Union[Output, Literal["arrow"]] = "torch",
        map: Optional[Callable[[Batch], T]] = None,
        cache: Union[str, os.PathLike[str], None] = None,
        where: Optional[str] = None,
        keys: Union[str, os.PathLike[str], None] = None,
        change_mix: bool = False,
        skip_steps: Optional[Tuple[int, int]] = None,
        pack: Optional[Pack] = None,
        bucket: Optional[Bucket] = None,
        order: Order = Order(),
        tuning: Tuning = Tuning(),
        faults: Faults = Faults(),
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "fields")}
        given = _checks.typed(Arguments.__init__, given)
        if batch_size is not None and order.global_batch is not None:
            raise ConfigError("batch_size and Order(global_batch=...): give one of them")
        for name, least in (("batch_size", 1), ("seed", 0), ("epochs", 1)):
            _checks.at_least(name, given[name], least)
        if skip_steps is not None and not 0 <= skip_steps[0] <= skip_steps[1] < mixes.NO_END:
            raise ConfigError(f"skip_steps={skip_steps!r}: give the first and the last step to leave out, counted from 0")
        wanted = parse(fields)
        check_out(out, wanted)
        ranks = given["rank"], given["world_size"]
        asked = Asked(
            url=mixes.name_of(url) if isinstance(url, AnyMapping) else os.fsdecode(url),
            opening=opening(url, cache, tuning, where, keys, given["change_mix"]),
            starting=starting(given, order, tuning, faults),
            fields=wanted, typed=isinstance(fields, str),  # parse refuses all but "typed"
            out=out, map=map, units=units.check(pack, bucket, fields), tuning=tuning, faults=faults,
            ranks=ranks if ranks == (None, None) else _checks.ranks(*ranks),
        )  # fmt: skip
        if not isinstance(url, AnyMapping):
            _exists(asked.url)
        self._begin_with(asked)

    def _begin_with(self, asked: Asked) -> None:
        raise NotImplementedError


def _exists(url: str) -> None:
    """Refuses a path at which there is nothing. Stores are asked when the child opens them."""
    base = url.rpartition("#")[0] or url  # DATASET#VIEW, DATASET@GENERATION: a name may have these characters
    if "://" not in url and not any(map(os.path.exists, (url, base, base.rpartition("@")[0] or base))):
        what = "mix file" if url.endswith((".yaml", ".yml", ".json")) else "data set in"
        raise NotFoundError(f"no {what} {url}: there is no such file or folder: check the path")
