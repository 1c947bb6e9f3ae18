"""Batches on the device before they are asked for."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Mapping as AnyMapping
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Union

import torch

from .. import _trainer
from .._states import single
from ..batch import Batch
from ..errors import CheckpointError, ClosedError, ConfigError
from ..loader import Loader
from ..stats import Stats
from ._named import named, state_of
from .dataset import Dataset


class Prefetcher:
    """Iterates a loader ahead of the loop, in a thread, and copies its batches to a device while the device computes.

    ::

        loader = shardtool.Loader("s3://bucket/train", batch_size=64, shuffle=True, seed=7, fields={...}, copy=False)
        with shardtool.torch.Prefetcher(loader, device) as batches:
            for epoch in range(batches.epoch, 90):
                for batch in batches:
                    train(batch["image"], batch["cls"])
                    saved = batches.state_dict()

    On a GPU tensors are put into pinned memory and copied from there on a stream of their own; the loop's stream waits for the copy, the
    processor does not. On the CPU nothing is copied, and all else is the same.

    It stands for the loader: an iteration is one epoch, and ``state_dict`` is the place behind the batch that the
    *loop* got last, whatever has been read ahead. That holds over a DataLoader with workers, too, as long as batches
    are dicts.

    Args:
        loader: A ``shardtool.Loader``, or a DataLoader of a ``shardtool.Dataset``. Only the prefetcher may use it from now on.
        device: Where tensors go: "cuda", "cuda:1", torch.device(...). None: the current CUDA device if there is one, else the CPU.
        ahead: Batches made ready beyond the one in the loop, at least 1. They take memory on the device.

    Batches of a Loader come as dicts (``NamedBatch``). Tensors in dicts, lists and tuples are moved; all else stays
    as it is. A batch may be used on the stream that was current when it was asked for."""

    def __init__(self, loader: Any, device: "Union[str, torch.device, None]" = None, *, ahead: int = 2) -> None:
        if ahead < 1:
            raise ConfigError(f"ahead={ahead}: at least one batch has to be ahead")
        target = loader if isinstance(loader, Loader) else getattr(loader, "dataset", loader)
        if not isinstance(target, (Loader, Dataset)):
            raise ConfigError(
                f"a Prefetcher is for a shardtool.Loader, or a DataLoader of a shardtool.Dataset, not {type(loader).__name__}"
            )
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.loader = loader
        self.device = torch.device(device)
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._target: Union[Loader, Dataset] = target
        self._ahead = ahead
        self._thread: Optional[_Reader] = None
        self._state: Optional[Dict[str, Any]] = None  # behind the batch delivered last, or where the next iteration begins
        self._lost = False  # the batch delivered last has no state
        self._delivered = 0  # in the iteration under way
        self._epoch = 0  # of the batch delivered last
        self._length: Optional[int] = None  # of the iteration under way
        self._wait = self._first = self._begun = 0  # nanoseconds that the loop waited, and for its first batch; and when it began
        self._spent = _Spent()
        self._begun = False  # to deliver batches

    # Iterating

    def __iter__(self) -> "Iterator[Any]":
        """Begins an epoch, or goes on in the one that the state loaded stands in."""
        self._settle()
        if self._state is None and not self._lost:
            self._state = self._ask_target()
        self._delivered, self._epoch = 0, self._target.epoch
        source = iter(self.loader)
        # The thread has the loader from now on, unless workers do.
        self._length = None if getattr(self.loader, "num_workers", 0) else len(self._target)
        self._thread = thread = _Reader(source, self._target, self.device, self._ahead, self._spent)
        weakref.finalize(self, thread.cancel)
        thread.start()
        return self._pass(thread)

    def _pass(self, thread: "_Reader") -> "Iterator[Any]":
        if not self._begun:
            target = self._target if isinstance(self._target, Loader) else self._target._loader
            unfit = _trainer.unfit(target._placed, lambda: self._epoch)  # the thread that has the loader cannot see the trainer
            if unfit:
                raise ConfigError(unfit)
            self._begun = True
        while True:
            if thread is not self._thread:
                raise ClosedError("this iteration is over: another one began, or the prefetcher was closed or given another state")
            begin = time.perf_counter_ns()
            got = thread.get()
            took = time.perf_counter_ns() - begin
            self._begun, self._wait, self._first = self._begun or begin, self._wait + took, self._first or took
            if not isinstance(got, _Ready):
                self._thread, self._delivered = None, 0
                if got is None:
                    return
                if self._state is not None:
                    self._target.load_state_dict(self._state)  # the next iteration goes on behind the last batch delivered
                raise got
            self._state, self._lost = got.state, got.state is None
            self._epoch, self._delivered = got.epoch, self._delivered + 1
            yield got.wait()

    def _settle(self, epoch: Optional[int] = None) -> bool:
        """Ends an iteration under way. The loader, which is ahead of it, is put where it would be without that: at
        the beginning of the epoch after it, or of the one that is asked for."""
        thread, self._thread = self._thread, None
        if thread is None:
            return False
        thread.stop()
        if self._state is None:
            raise ConfigError(
                "the loop was left, and its batches do not tell where that was: have `map` return dicts, or"
                " say where to go on, by load_state_dict"
            )
        if self._delivered == 0:
            self._target.load_state_dict(self._state)
            return False
        self._state = {**self._state, "begin": self._epoch + 1 if epoch is None else epoch}
        self._target.load_state_dict(self._state)
        return epoch is not None

    def _ask_target(self) -> Optional[Dict[str, Any]]:
        try:
            return self._target.state_dict()
        except ConfigError:  # its workers are ahead
            return None

    def __len__(self) -> int:
        """How many batches the epoch has: see Loader."""
        if self._thread is not None and self._length is not None:
            return self._length
        return len(self._target)

    def __bool__(self) -> bool:
        return True

    # The place

    def state_dict(self) -> Dict[str, Any]:
        """The place behind the batch that the loop got last; before the first, where it will begin."""
        state = self._state if self._state is not None or self._lost else self._ask_target()
        if state is None:
            raise CheckpointError("the batches do not tell their place: have `map` return dicts, or use a shardtool.Loader")
        return state

    def load_state_dict(self, state: "Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]") -> None:
        """Makes the next iteration go on at a place: see Loader."""
        state = single(state)
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
        self._target.load_state_dict(state)
        self._state, self._lost, self._delivered = state, False, 0

    def stats(self) -> Stats:
        """What the loop has waited for: see Stats. ``wait`` is the loop's, not that of the thread that reads ahead. Its causes are an
        estimate, from what the thread spends its time with: waiting by its causes, ``map`` where it decodes fields, ``order`` where it pins
        and copies. Batches, samples and bytes are those of the thread, which is ``ahead`` of the loop."""
        stats, spent = self._target.stats(), self._spent
        stalls = stats.stalls._replace(map=stats.stalls.map + spent.decoding / 1e9, order=stats.stalls.order + spent.moving / 1e9)
        stats = stats._replace(stalls=stalls, wait=sum(stalls))._seen_by(self._wait, self._first, "order")
        return stats._replace(elapsed=(time.perf_counter_ns() - self._begun) / 1e9 if self._begun else 0.0)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of an epoch: see Loader."""
        if not self._settle(epoch):
            self._target.set_epoch(epoch)
            self._state = self._ask_target()

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way; when there is none, that of the next one."""
        return self._epoch if self._thread is not None else self._target.epoch

    def close(self) -> None:
        """Ends the thread and the loader. Batches in hand stay valid."""
        thread, self._thread = self._thread, None
        self._target.close()
        if thread is not None:
            thread.stop()

    def __enter__(self) -> "Prefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ready(NamedTuple):
    """A batch whose copy is under way."""

    batch: Any
    state: Optional[Dict[str, Any]]
    epoch: int
    event: Any  # of the copy; None on the CPU
    moved: List[Any]  # the tensors that were copied

    def wait(self) -> Any:
        """The batch, for the stream that is current."""
        if self.event is not None:
            stream = torch.cuda.current_stream(self.moved[0].device) if self.moved else None
            if stream is not None:
                stream.wait_event(self.event)
                for tensor in self.moved:
                    tensor.record_stream(stream)  # its memory is not used again before the loop is through with it
        return self.batch


class _Spent:
    """Nanoseconds that threads have spent with batches they had got."""

    def __init__(self) -> None:
        self.decoding = self.moving = 0


class _Reader(threading.Thread):
    """Goes through one iteration of a loader."""

    def __init__(self, source: "Iterator[Any]", target: "Union[Loader, Dataset]", device: torch.device, ahead: int, spent: _Spent) -> None:
        super().__init__(name="shardtool-prefetch", daemon=True)
        self._source, self._target, self._device, self._spent = source, target, device, spent
        self._queue: "queue.Queue[Union[_Ready, BaseException, None]]" = queue.Queue()
        self._room = threading.Semaphore(ahead)
        self._stopped = False
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def run(self) -> None:
        end: Optional[BaseException] = None
        try:
            for batch in self._batches():
                self._queue.put(batch)
                del batch
        except BaseException as err:
            end = err
        finally:
            self._queue.put(end)

    def _batches(self) -> "Iterator[_Ready]":
        while True:
            self._room.acquire()
            if self._stopped:
                return
            try:
                batch = next(self._source)
            except StopIteration:
                return
            begin = time.perf_counter_ns()
            state = self._state(batch)
            if isinstance(batch, Batch):
                batch = named(batch, batch)
            decoded = time.perf_counter_ns()
            ready = self._ready(batch, state)
            self._spent.decoding += decoded - begin
            self._spent.moving += time.perf_counter_ns() - decoded
            yield ready
            del batch, ready

    def _ready(self, batch: Any, state: Optional[Dict[str, Any]]) -> _Ready:
        told = getattr(batch, "epoch", None)
        epoch = told if isinstance(told, int) else self._target.epoch
        moved: List[Any] = []
        if self._stream is None:
            if self._device.type != "cpu":
                batch = _move(batch, self._device, moved)
            return _Ready(batch, state, epoch, None, [])
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            batch = _move(batch, self._device, moved)
            event = torch.cuda.Event()
            event.record(self._stream)
        return _Ready(batch, state, epoch, event, moved)

    def _state(self, batch: Any) -> Optional[Dict[str, Any]]:
        if isinstance(self._target, Loader):
            return self._target.state_dict()
        try:
            return state_of(batch)
        except CheckpointError:
            pass
        try:
            return self._target.state_dict()
        except ConfigError:
            return None

    def get(self) -> "Union[_Ready, BaseException, None]":
        """Waits for the next batch; at the end it is None, or the error."""
        got = self._queue.get()
        self._room.release()
        return got

    def cancel(self) -> None:
        """Makes the thread end after the batch that it waits for."""
        self._stopped = True
        self._room.release()

    def stop(self) -> None:
        """Ends the thread; waits for the batch that it waits for."""
        self.cancel()
        self.join()


def _move(value: Any, device: torch.device, moved: List[Any]) -> Any:
    """What was given, with its tensors on the device. Copies are under way when it returns."""
    if isinstance(value, torch.Tensor):
        if value.device == device:
            return value
        if device.type == "cuda" and value.device.type == "cpu" and not value.is_pinned():
            value = value.pin_memory()
        out = value.to(device, non_blocking=device.type == "cuda")
        moved.append(out)
        return out
    if isinstance(value, AnyMapping):
        changed = {key: _move(v, device, moved) for key, v in value.items()}
        try:
            return type(value)(changed)  # type: ignore[call-arg]
        except TypeError:
            return changed
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_move(v, device, moved) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_move(v, device, moved) for v in value)
    return value
