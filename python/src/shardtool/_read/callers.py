"""The objects whose methods called this package.

No hook of torch or of a trainer reaches an object that they only iterate: a DataLoader does not
tell a data set which iterator starts its workers, or that it collates what it gets; a trainer does
not tell a loader that it resumes. This module finds these objects on the stack, and it is the only
one that looks there. It takes nothing of a frame but ``self``: those who ask read attributes of the
objects, and do without them where a release of the framework has others.
"""

from __future__ import annotations

import sys
from typing import Any, Iterator, Tuple


def callers(*packages: str) -> Iterator[Tuple[str, Any]]:
    """Yields the methods of these packages on the stack, the innermost first: the name, and the
    object. Frames of other packages are not touched: a frame whose variables were asked for keeps
    them, such as a loader, until it returns."""
    frame = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in packages:
            yield frame.f_code.co_name, frame.f_locals.get("self")
        frame = frame.f_back  # type: ignore[assignment]


def caller(*methods: str) -> Any:
    """Returns the object whose method called the function that asks, if it has one of these
    names."""
    frame = sys._getframe(2)
    return frame.f_locals.get("self") if frame.f_code.co_name in methods else None
