"""Batches on the device before the loop asks for them."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Mapping as AnyMapping
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Union

import torch

from .. import guesses
from .._read import trainers
from .._read.states import place_of, single
from ..batch import Batch
from ..errors import CheckpointError, ClosedError, ConfigError
from ..loader import Loader
from ..stats import Stats
from .dataset import Dataset
from .named import named, state_of


class Prefetcher:
    """Iterates a loader ahead of the loop, in a thread, and copies its batches to a device while
    the device computes.

    ::

        loader = shardtool.Loader("s3://bucket/train", 64, shuffle=True, seed=7)
        with shardtool.torch.Prefetcher(loader, device) as batches:
            for epoch in range(batches.epoch, 90):
                for batch in batches:
                    train(batch["image"], batch["cls"])
                    saved = batches.state_dict()

    On a GPU, tensors are copied through pinned memory on a separate stream; the loop's stream waits
    for the copy, the processor does not. On the CPU nothing is copied, and everything else is the
    same.

    It replaces the loader in the loop: an iteration is one epoch, and ``state_dict`` is the place
    after the batch that the *loop* received last, however far the thread has read ahead. The same
    holds for a DataLoader with workers if its batches are dicts.

    Args:
        loader: A ``shardtool.Loader``, or a DataLoader of a ``shardtool.Dataset``. From now on,
            only the prefetcher may use it.
        device: Where tensors go: "cuda", "cuda:1", torch.device(...). None: the current CUDA
            device if there is one, else the CPU.
        ahead: Batches on the device beyond the one in the loop, at least 1.

    Batches of a Loader become dicts (``NamedBatch``). Tensors in dicts, lists and tuples are moved;
    other values stay as they are. A batch is ready for the stream that was current when the loop
    asked for it.
    """

    @guesses.answering(guesses.PREFETCHING, written="Prefetcher(loader, 'cuda')")
    def __init__(self, loader: Any, device: "Union[str, torch.device, None]" = None, *, ahead: int = 2) -> None:
        if ahead < 1:
            raise ConfigError(f"ahead={ahead}: the least is 1")
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
        target._reads_ahead = ahead
        if isinstance(target, Dataset):
            target._loader._inside = False  # trainers tell the prefetcher
        self._ahead = ahead
        self._thread: Optional[_Reader] = None
        self._state: Optional[Dict[str, Any]] = None  # after the batch delivered last, or where the next iteration begins
        self._lost = False  # whether the batch delivered last has no state
        self._pass: Optional[object] = None  # the latest iteration
        self._delivered = 0  # in it
        self._epoch = 0  # of the batch delivered last
        self._length: Optional[int] = None  # of the iteration under way
        self._wait = self._first = self._begun = 0  # nanoseconds that the loop waited, and for its first batch; and when it began
        self._spent = _Spent()
        self._checked = False  # whether a trainer was looked for
        self._resumes = False  # whether the loader was given the place that the iteration begins at
        self._placed = False  # whether load_state_dict set the place of the next batch
        self._told: Optional[trainers.Told] = None

    # Iterating

    def __iter__(self) -> "Iterator[Any]":
        """Begins the next epoch, or continues where a loaded state points."""
        self._settle()
        self._pass = this = object()
        self._read()
        return self._batches(this)

    def _read(self) -> None:
        """Starts the thread for an iteration."""
        if self._state is None and not self._lost:
            self._state = self._ask_target()
        self._delivered, self._epoch = 0, self._target.epoch
        self._resumes = (self._target if isinstance(self._target, Loader) else self._target._loader)._placed
        source = iter(self.loader)
        # From now on the thread uses the loader, unless workers do.
        self._length = None if getattr(self.loader, "num_workers", 0) else len(self._target)
        self._follow(source)

    def _follow(self, source: "Iterator[Any]") -> None:
        self._thread = thread = _Reader(source, self._target, self.device, self._ahead, self._spent)
        weakref.finalize(self, thread.cancel)
        thread.start()

    def _batches(self, this: object) -> "Iterator[Any]":
        if not self._checked:
            unfit = trainers.unfit(self._resumes)  # the thread that uses the loader cannot see the trainer
            if unfit:
                raise ConfigError(unfit)
            self._checked = True
        if this is self._pass and self._thread is None:  # set_epoch was called meanwhile
            self._read()
        while True:
            thread = self._thread  # set_weights begins another
            if thread is None or this is not self._pass:
                raise ClosedError("this iteration has ended: another one began, or the prefetcher was closed or loaded a state")
            begin = time.perf_counter_ns()
            got = thread.get()
            took = time.perf_counter_ns() - begin
            self._begun, self._wait, self._first = self._begun or begin, self._wait + took, self._first or took
            if not isinstance(got, _Ready):
                self._thread, self._delivered = None, 0
                if got is None:
                    return
                if self._state is not None:
                    self._target.load_state_dict(self._state)  # the next iteration continues after the last batch delivered
                raise got
            if self._told is not None and self._delivered == 0:
                self._told.check(got.epoch)
            self._state, self._lost, self._placed = got.state, got.state is None, False
            self._epoch, self._delivered = got.epoch, self._delivered + 1
            yield got.wait()

    def _settle(self, epoch: Optional[int] = None) -> bool:
        """Ends an iteration under way. Moves the loader, which is ahead of it, to the beginning of
        the next epoch, or of ``epoch``."""
        thread, self._thread = self._thread, None
        if thread is None:
            return False
        thread.stop()
        if self._state is None:
            raise ConfigError(
                "the loop was left at an unknown place, because its batches are not dicts: make `map` return dicts, or set the place"
                " with load_state_dict"
            )
        if self._delivered == 0:
            self._target.load_state_dict(self._state)
            return False
        self._pass = None
        if epoch is not None or place_of(self._state["checkpoint"])[0] == self._epoch:
            self._state = {**self._state, "begin": self._epoch + 1 if epoch is None else epoch}
        self._target.load_state_dict(self._state)
        return epoch is not None

    def _ask_target(self) -> Optional[Dict[str, Any]]:
        try:
            return self._target.state_dict()
        except ConfigError:  # its workers are ahead
            return None

    def __len__(self) -> int:
        """The number of batches of the epoch: see Loader."""
        if self._thread is not None and self._length is not None:
            return self._length
        return len(self._target)

    def __bool__(self) -> bool:
        return True

    # The place

    def state_dict(self) -> Dict[str, Any]:
        """Returns the place after the batch that the loop received last, or before the first, where
        it will begin."""
        state = self._state if self._state is not None or self._lost else self._ask_target()
        if state is None:
            raise CheckpointError("the batches have no place: make `map` return dicts, or use a shardtool.Loader")
        return state

    def load_state_dict(self, state: "Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]") -> None:
        """Makes the next iteration continue at a place: see Loader."""
        state = single(state)
        thread, self._thread, self._pass = self._thread, None, None
        if thread is not None:
            thread.stop()
        self._target.load_state_dict(state)
        self._state, self._lost, self._delivered, self._placed = state, False, 0, True

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Sets the weights of a mix from the batch after the one that the loop received last: see
        Loader. Batches on the device beyond it are dropped."""
        loader = self._target if isinstance(self._target, Loader) else self._target._loader
        if getattr(self.loader, "num_workers", 0):
            raise ConfigError("set_weights: the DataLoader's workers have read ahead of the loop: use num_workers=0 or a shardtool.Loader")
        thread = self._thread
        if thread is not None:
            if self._state is None:
                raise ConfigError(
                    "set_weights: the loop is at an unknown place, because its batches are not dicts: make `map` return dicts"
                )
            thread.stop()
            over = loader._pass is not None and loader._pass.last and not thread.holds()
            loader._rewind(self._state)
        try:
            loader._steer(weights)
            self._state = loader.state_dict()
        finally:  # also after weights that were refused
            if thread is not None and not over:
                self._follow(iter(self.loader))

    def stats(self) -> Stats:
        """Returns what the loop waited for: see Stats. ``wait`` is the loop's, not the wait of the
        thread that reads ahead. Its causes are an estimate, from how the thread spends its time:
        waiting, by cause; ``map`` for decoding fields; ``order`` for pinning and copying. Batches,
        samples and bytes count what the thread has read, up to ``ahead`` batches more than the
        loop."""
        stats, spent = self._target.stats(), self._spent
        stalls = stats.stalls._replace(map=stats.stalls.map + spent.decoding / 1e9, order=stats.stalls.order + spent.moving / 1e9)
        stats = stats._replace(stalls=stalls, wait=sum(stalls))._seen_by(self._wait, self._first, "order")
        return stats._replace(elapsed=(time.perf_counter_ns() - self._begun) / 1e9 if self._begun else 0.0)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin an epoch: see Loader."""
        if self._thread is not None and self._delivered == 0 and epoch == self._epoch:
            return
        if not self._settle(epoch):
            self._target.set_epoch(epoch)
            self._state = self._ask_target()

    @property
    def batch_sampler(self) -> trainers.Told:
        """What a trainer that tells a sampler the epoch finds: see Loader."""
        if self._told is None:
            self._told = trainers.Told(self)
        return self._told

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or of the next one if none is under way."""
        return self._epoch if self._thread is not None else self._target.epoch

    def close(self) -> None:
        """Ends the thread and the loader. Batches stay valid."""
        thread, self._thread, self._pass = self._thread, None, None
        self._target.close()
        if thread is not None:
            thread.stop()

    def __enter__(self) -> "Prefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ready(NamedTuple):
    """A batch that is being copied."""

    batch: Any
    state: Optional[Dict[str, Any]]
    epoch: int
    event: Any  # of the copy; None on the CPU
    moved: List[Any]  # the tensors that were copied

    def wait(self) -> Any:
        """Returns the batch, for the current stream."""
        if self.event is not None:
            stream = torch.cuda.current_stream(self.moved[0].device) if self.moved else None
            if stream is not None:
                stream.wait_event(self.event)
                for tensor in self.moved:
                    tensor.record_stream(stream)  # its memory is not reused before the loop's stream is done with it
        return self.batch


class _Spent:
    """Nanoseconds that threads spent on batches after receiving them."""

    def __init__(self) -> None:
        self.decoding = self.moving = 0


class _Reader(threading.Thread):
    """Reads one iteration of a loader."""

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
        """Waits for the next batch; at the end, returns None or the error."""
        got = self._queue.get()
        self._room.release()
        return got

    def holds(self) -> bool:
        """Whether the loop has not received all batches of a thread that has ended."""
        return any(isinstance(got, _Ready) for got in self._queue.queue)

    def cancel(self) -> None:
        """Makes the thread end after the batch that it is waiting for."""
        self._stopped = True
        self._room.release()

    def stop(self) -> None:
        """Ends the thread, after the batch that it is waiting for."""
        self.cancel()
        self.join()


def _move(value: Any, device: torch.device, moved: List[Any]) -> Any:
    """Returns the value with its tensors on the device. Copies may still be in progress."""
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
