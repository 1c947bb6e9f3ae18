"""Where the next iteration of a loader begins, and how many batches its epoch has."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Mapping, Optional, Tuple

from . import _mixes, _states

if TYPE_CHECKING:
    from .loader import Loader


def batches(loader: Loader[Any]) -> int:
    """Returns how many batches the epoch under way has, or the next one if none is under way."""
    samples, size = int(loader._facts()["epoch_samples"]), loader._global_batch()
    it = loader._pass
    running = it is not None and it.under_way and loader._begin is None
    epoch, position = (it.epoch, it.position) if it is not None and running else place(loader)
    mix = mix_of(loader)
    if mix is not None:
        return mix.batches(max(position, epoch * mix.epoch))
    if loader._units is not None:
        samples = it.units if it is not None and running else units(loader)
    if loader._told("tail") == "drop":
        return position // size + (samples - position) // size
    return position // size - (position - samples) // size


def units(loader: Loader[Any]) -> int:
    """Returns how many units the epoch of the next iteration has. The child may have to plan
    it."""
    run, last, begin = loader._run, loader._pass, loader._begin
    if begin is None and last is not None and run is not None and last.left:
        begin = last.epoch + 1
    if begin is not None:
        return units_of(loader, begin)
    if run is None:
        loader._start(None)
        run = loader._run
        assert run is not None
    return int(run.started.get("units", 0)) if loader._following is None else loader._following


def units_of(loader: Loader[Any], epoch: int) -> int:
    """Returns how many units an epoch has. Another child computes it, so that the place of the
    loader stays what it is."""
    if epoch not in loader._counts:
        other = copy.copy(loader)
        try:
            other._start(epoch)
            assert other._run is not None
            loader._counts[epoch] = int(other._run.started.get("units", 0))
        finally:
            other._disconnect()
    return loader._counts[epoch]


def place(loader: Loader[Any]) -> Tuple[int, int]:
    """Returns where the next iteration begins."""
    it = loader._pass
    if loader._begin is not None:
        return loader._begin, 0
    if loader._checkpoint is None or loader._place is None:
        return loader._first_epoch, 0
    if it is not None and it.left and loader._run is not None:
        return it.epoch + 1, 0
    epoch, position = loader._place
    said = json.loads(loader._checkpoint)
    if _states.of_mix(said):
        mix = mix_of(loader) if said["tail"] == "drop" or said["left_out"] or "skip_steps" in loader._order else None
        position = position if mix is None else mix.beginning(position)
        return position // int(said["epoch_length"]), position
    if loader._told("tail") == "drop":
        samples = said["sources"][0]["N"] if loader._units is None else units(loader)
        if samples - position < loader._global_batch():
            return epoch + 1, 0  # ``tail`` drops the rest
    return epoch, position


def mix_of(loader: Loader[Any]) -> Optional[_mixes.Plan]:
    """Returns the plan of the mix; None for one data set."""
    said = None if loader._checkpoint is None else json.loads(loader._checkpoint)
    if not (_states.of_mix(said) if said else "sources" in loader._facts()):
        return None
    info: Mapping[str, Any] = loader._session.info
    if loader._units is not None:  # units depend on the order, which a start chooses
        if loader._run is None:
            loader._start(None)
            said = json.loads(loader._checkpoint or "null")
        assert loader._run is not None
        started = loader._run.started
        info = {"epoch_length": started["units"], "end": started.get("end", _mixes.NO_END)}
    return _mixes.plan_of(said, info, loader._told("tail"), loader._global_batch(), loader._order.get("skip_steps"))
