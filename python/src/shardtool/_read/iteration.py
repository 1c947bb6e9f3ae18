"""One iteration of a loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Generic, Optional

from ..batch import Batch
from ..errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # which type checkers have built in

    T = TypeVar("T", default=Batch)
else:
    from typing import TypeVar

    T = TypeVar("T")


class Mapped:
    """The function that is called with each batch. Other code calls this in its place."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, batch: Any) -> Any:
        try:
            out = self.function(batch)
        except StopIteration as err:  # it would end the loop, as if there were no more batches
            raise RuntimeError("map_batch raised StopIteration") from err
        except Exception as err:
            if hasattr(err, "add_note"):
                err.add_note(f"map_batch is called with a batch of {getattr(batch, 'size', None) or len(batch)} samples, not with one")
            raise
        if out is None:
            raise ConfigError("map_batch returned None for a batch: did it forget to return?")
        return out


class Epoch:
    """The progress of one iteration of a loader."""

    __slots__ = ("delivered", "ended", "epoch", "last", "position", "units")

    def __init__(self) -> None:
        self.epoch = self.position = 0  # of its first batch
        self.units = 0  # of its epoch
        self.delivered = 0
        self.last = False  # whether the last batch was delivered
        self.ended = False  # whether the loop asked for another batch after the last

    @property
    def left(self) -> bool:
        """Whether the loop was left before the last batch."""
        return self.delivered > 0 and not self.last

    @property
    def given_up(self) -> bool:
        """As left, for a loop that is gone, which may have got no batch."""
        return not self.last

    @property
    def under_way(self) -> bool:
        """Whether a loop is iterating, as far as the loader can see."""
        return self.delivered > 0 and not self.ended


class Iterator(Generic[T]):
    """One iteration of a loader. It refers to the loader, which does not refer back: a reference
    cycle would keep both and the child process until the next garbage collection."""

    __slots__ = ("_left", "_take", "epoch")

    def __init__(self, take: Callable[[Epoch], T], epoch: Epoch, left: Optional[Callable[[Epoch], None]] = None) -> None:
        self._take, self._left, self.epoch = take, left, epoch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"the iterator of a Loader has no {name!r}: ask the loader, as in loader.state_dict()")

    def __del__(self) -> None:
        if self._left is not None and self.epoch.given_up:
            self._left(self.epoch)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._take(self.epoch)
