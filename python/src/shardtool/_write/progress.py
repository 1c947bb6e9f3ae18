"""Lines about the progress of long work, on stderr."""

from __future__ import annotations

import sys
import time

#: Seconds between lines about the progress, on a terminal and elsewhere.
TERMINAL, ELSEWHERE = 0.5, 60.0


class Progress:
    """Prints how many samples or inputs are done, the rate and the time left.

    ``what`` begins the line, ``things`` is what is counted."""

    def __init__(self, what: str, things: str, shown: bool) -> None:
        self._what, self._things, self._shown = what, things, shown
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._done, self._total, self._since, self._due = 0, 0, 0.0, 0.0

    def begin(self, total: int) -> None:
        """Begins to count up to a total, 0 where that is not known."""
        self._total, self._since = total, time.monotonic()
        self._due = self._since + (TERMINAL if self._terminal else ELSEWHERE)

    def add(self, done: int) -> None:
        """Counts so many more."""
        self.at(self._done + done)

    def at(self, done: int) -> None:
        """Sets the number that are done, and prints a line if it is time to."""
        self._done, now = done, time.monotonic()
        if self._shown and now >= self._due:
            self._due = now + (TERMINAL if self._terminal else ELSEWHERE)
            print(self.line(now), end="" if self._terminal else "\n", file=sys.stderr, flush=True)

    def line(self, now: float) -> str:
        """Returns the line."""
        rate = self._done / max(now - self._since, 1e-9)
        of, left = "", ""
        if self._total:
            of = f" of {self._total:,}"
            left = f", {_time((self._total - self._done) / rate if rate else 0.0)} left"
        text = f"{self._what}: {self._done:,}{of} {self._things}, {rate:,.0f}/s{left}"
        return f"\r{text}\x1b[K" if self._terminal else text

    def end(self) -> None:
        """Ends the line on a terminal."""
        if self._shown and self._terminal and self._done:
            print(self.line(time.monotonic()), file=sys.stderr, flush=True)


def _time(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"
