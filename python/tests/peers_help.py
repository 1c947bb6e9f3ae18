"""One of the processes that read one rank together. It prints lines of JSON: what it got, or the
error that ended it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import shardtool
import shardtool._wire.peers


class Files:
    """A group of processes that exchange values in files."""

    def __init__(self, folder: str, rank: int, size: int) -> None:
        self.folder, self.rank, self.size, self.calls = Path(folder), rank, size, 0

    def allgather(self, value: Any) -> List[Any]:
        self.calls += 1
        path = self.folder / f"{self.calls}-{self.rank}"
        path.with_suffix(".new").write_text(json.dumps(value))
        path.with_suffix(".new").rename(path)
        out = []
        for i in range(self.size):
            until = time.monotonic() + 300
            while not (self.folder / f"{self.calls}-{i}").exists() and time.monotonic() < until:
                time.sleep(0.005)
            out.append(json.loads((self.folder / f"{self.calls}-{i}").read_text()))
        return out


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def seen(loader: Any, batch: Any) -> Dict[str, Any]:
    """Facts of a batch that must be the same on all peers."""
    values = [(name, bytes(batch.data(name)) if isinstance(batch[name], memoryview) else batch[name]) for name in sorted(batch)]
    text = repr((batch.numbers, values, loader.state_dict(), batch.state_dict()))
    return {"batch": hashlib.sha256(text.encode()).hexdigest()[:16], "keys": batch.sample_keys}


def wait_for(path: Path) -> None:
    until = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < until, "the others wait for this peer"
        time.sleep(0.01)


def main(asked: Dict[str, Any]) -> None:
    index, do = asked["index"], asked.get("do", {}).get(str(asked["index"]), asked.get("do", {}).get("all", {}))
    if asked.get("hosts"):  # as if each were on a host of its own
        shardtool._wire.peers._host = lambda: str(index)  # type: ignore[assignment]
    group = Files(asked["folder"], index, asked["count"])
    options = dict(asked["options"], **do.get("options", {}))
    ring, units, damaged = (options.pop(name, None) for name in ("ring", "units", "on_error"))
    order, faults = shardtool.Order(**options.pop("order", {})), shardtool.Faults(on_error=damaged or "fail")
    tuning = shardtool.Tuning(out="bytes", peers=group, ring_memory=ring)
    if units is not None:
        options["units"] = shardtool.Pack(units, ["input_ids"], long="split")
    loader: Any = shardtool.Loader(do.get("url", asked["url"]), tuning=tuning, faults=faults, order=order, **options)
    pace = random.Random(index)
    if do.get("load"):
        loader.load_state_dict(do["load"])
    try:
        if do.get("len"):
            say(len=len(loader))
        if do.get("give_up"):
            iter(loader)
            if do.get("idle"):
                wait_for(Path(asked["folder"], "done"))
        for epoch in range(do.get("loops", 1)):
            for count, batch in enumerate(loader, 1):
                say(**seen(loader, batch))
                if [count] == do.get("steer", [])[:1]:
                    loader.set_weights(do["steer"][1])
                if do.get("slow"):
                    time.sleep(pace.random() * do["slow"])
                if count == do.get("fork") and os.fork() == 0:
                    os.close(1)
                    time.sleep(20)  # with copies of all that was open
                    os._exit(0)
                if count == do.get("kill"):
                    os.kill(os.getpid(), signal.SIGKILL)
                if count == do.get("kill_child"):
                    from conftest import children

                    for pid in children():
                        os.kill(pid, signal.SIGKILL)
                if [epoch, count] == do.get("break"):
                    break
                if count == do.get("close"):
                    loader.close()
                    break
            if do.get("idle"):
                wait_for(Path(asked["folder"], "done"))
        say(state=loader.state_dict())
    except shardtool.ShardtoolError as err:
        say(error=type(err).__name__, message=err.message, at=loader.state_dict()["checkpoint"] is not None)
        if do.get("again"):
            with contextlib.suppress(shardtool.ShardtoolError):
                for batch in loader:
                    say(**seen(loader, batch))
    loader.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
