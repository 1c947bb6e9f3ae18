"""Batches that one process hands to another, which maps the memory that they are in."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, List

import pytest
from conftest import SAMPLES, payload

from shardtool import Loader, Tuning
from shardtool._wire.messages import Gone, Inlet, Outlet

FIELDS = {"tokens": ("uint8", (64,)), "txt": "txt", "extra": "bytes?"}


@pytest.mark.parametrize("copies", [False, True], ids=["maps", "copies"])
@pytest.mark.parametrize("ends", [False, True], ids=["returns", "ends"])
def test_passed(small: Path, copies: bool, ends: bool) -> None:
    """A region is the other process's until that releases it or ends; then others come there."""
    a, b = socket.socketpair()
    with a, b, Loader(small, 10, fields=FIELDS, tuning=Tuning(out="numpy", ring_memory="256KiB")) as loader:
        loader._whole = True
        outlet, inlet = Outlet(a), Inlet(b, loader._asked, copies)
        places = set()
        for _ in range(4):
            kept: List[Any] = []
            for batch in loader:
                places.add(batch._region.place)
                outlet.send({"x": batch.position}, batch, loader._asked)
                del batch
                message = inlet.receive()
                kept.append(inlet.batch(message))
                assert message["x"] == kept[-1].position
                if copies:
                    outlet.freed(inlet.freed())
            client = loader._session.client
            assert client is not None and len(outlet._out) == (0 if copies else SAMPLES // 10)
            assert copies or not client._released
            assert [n for batch in kept for n in batch.numbers] == list(range(SAMPLES))
            for batch in kept:
                want = [payload(i) for i in batch.numbers]
                assert batch["tokens"].tobytes() == b"".join(w["tokens"] for w in want)
                assert batch["txt"] == [w["txt"].decode() for w in want] and batch["extra"] == [w.get("extra") for w in want]
            kept.clear()
            del batch
            if ends:
                outlet.close()
                outlet, inlet = Outlet(a), Inlet(b, loader._asked, copies)
            else:
                outlet.freed(inlet.freed())
            assert not outlet._out and (copies or len(client._released) == SAMPLES // 10)
        assert len(places) < SAMPLES // 10 * 2


def test_ended(small: Path) -> None:
    """The end of the other process is noticed in the middle of a batch, too."""
    a, b = socket.socketpair()
    with Loader(small, 10, fields=FIELDS, tuning=Tuning(out="numpy")) as loader:
        loader._whole = True
        outlet, inlet = Outlet(a), Inlet(b, loader._asked)
        batch = next(iter(loader))
        a.sendall(b"\x40\0\0\0{")
        a.close()
        with pytest.raises(Gone):
            inlet.receive()
        b.close()
        with pytest.raises(Gone):
            outlet.send({}, batch, loader._asked)
        del batch
        client = loader._session.client
        assert client is not None and not outlet._out
        client._settle_dropped()
        assert len(client._released) == 1
