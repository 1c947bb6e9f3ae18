"""Loops over one loader in several threads: the latest one goes on, and the others say so."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Callable, List

from conftest import SAMPLES

import shardtool


def together(loop: Callable[[], object], threads: int = 4) -> None:
    running = [threading.Thread(target=loop) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def test_loops(small: Path) -> None:
    with shardtool.Loader(small, 8) as loader:
        for _ in range(10):
            ends: List[Any] = []

            def loop(ends: List[Any] = ends) -> None:
                try:
                    ends.append(sum(len(batch.numbers) for batch in loader))
                except shardtool.errors.ClosedError as err:
                    ends.append(str(err))

            together(loop)
            assert SAMPLES in ends and all(end == SAMPLES or "another one began" in end for end in ends), ends


def test_one_loop(small: Path) -> None:
    with shardtool.Loader(small, 8) as loader:
        numbers: List[int] = []
        batches = iter(loader)

        def loop() -> None:
            for batch in batches:
                numbers.extend(batch.numbers)

        together(loop)
        assert sorted(numbers) == list(range(SAMPLES))
