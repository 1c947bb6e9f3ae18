"""Measures one system on data of one kind: reads a job as JSON, prints one line of JSON for each store.

The stores are "local", files in the page cache, "s3", and "disk", files of which the page cache holds a part.

The system and what it needs is imported once. Every reading is in a fork of this process, so that none has what another left.
"""

import contextlib
import importlib
import json
import os
import shutil
import signal
import statistics
import sys
import time
import warnings

import measure

# The module of each system, and its class there.
SYSTEMS = {
    "shardtool": ("ours", "Copies"),
    "views": ("ours", "Views"),
    "webdataset": ("others", "WebDataset"),
    "mosaicml": ("others", "MosaicML"),
    "litdata": ("others", "LitData"),
    "grain": ("tables", "Grain"),
    "lance": ("tables", "Lance"),
    "arrow": ("tables", "Arrow"),
    "streaming": ("tables", "Streaming"),
    "files": ("plain", "Files"),
    "tar": ("plain", "Tar"),
    "str packed": ("text", "Packed"),
    "str plain": ("text", "Plain"),
    "str litdata": ("others", "LitData"),
    "str litdata shuffled": ("text", "LitDataShuffled"),
    "str arrow": ("tables", "Arrow"),
    "str arrow shuffled": ("text", "ArrowShuffled"),
    "str alone": ("text", "Alone"),
}


class Place:
    """The place of the data, and an empty folder that is removed after the reading."""

    def __init__(self, job, store, scratch):
        self.job, self.store, self.scratch = job, store, scratch
        self.s3 = job["s3"] if store == "s3" else None


def endless(loader):
    """Samples and bytes of every batch, epoch after epoch, and whether it is the last one of its epoch."""
    while True:
        total, held = 0, None
        for batch in loader.epoch():
            if held:
                yield *held, False
            held = loader.count(batch)
            total += held[0]
        if not loader.samples <= total <= loader.most:
            raise measure.Failed(f"{total} samples came in an epoch, not {loader.samples}")
        yield *held, True


def read_local(loader, began, windows):
    """The rate of the first epoch from the creation of the loader, for at most the first window of time; and the rate of
    the last window, after the first epoch and the second window."""
    longest, warm, window = windows
    batches = endless(loader)
    cold, whole = 0, False
    for n, _, last in batches:
        now = time.perf_counter()
        if not whole:
            cold, whole = cold + n, last or now > began[0] + longest
            first_epoch = cold / (now - began[0])
        if whole and now > began[0] + warm:
            break
    samples = size = 0
    used, start = measure.cpu(), time.perf_counter()
    for n, more, _ in batches:
        samples, size = samples + n, size + more
        if (now := time.perf_counter()) > start + window:
            break
    return {"samples": samples, "bytes": size, "seconds": now - start, "cpu": measure.cpu() - used, "cold": first_epoch}


def read_remote(loader, began, windows):
    """The rate of the first epoch, start included, within the time limit."""
    start, used = began
    samples = size = 0
    for n, more, last in endless(loader):
        samples, size, now = samples + n, size + more, time.perf_counter()
        if last or now > start + windows[0]:
            break
    return {"samples": samples, "bytes": size, "seconds": now - start, "cpu": measure.cpu() - used, "whole": last}


def reading(system, place, setting, windows):
    """One reading, in this process."""
    system.load()
    began = time.perf_counter(), measure.cpu()
    if not system.streams:
        got = system.read(place)
        return {**got, "fetched": measure.fetched() / got["seconds"]}
    loader = system.open(place, setting)
    first = []
    epoch = loader.epoch

    def timed():
        batches = epoch()
        for batch in batches:
            if not first:
                first.append(time.perf_counter() - began[0])
            yield batch

    loader.epoch = timed
    got = read_remote(loader, began, windows) if place.s3 else read_local(loader, began, windows)
    got["fetched"] = measure.fetched() / (time.perf_counter() - began[0])
    loader.close()
    return {**got, "first": first[0]}


def half(system, place, setting):
    """The state in the middle of an epoch, and the sample after it."""
    loader = system.open(place, setting)
    seen, state = 0, None
    for batch in loader.epoch():
        if state is not None and seen >= loader.samples // 2:
            return {"state": state, "next": next(iter(loader.payloads(batch)))}
        seen += loader.count(batch)[0]
        state = loader.state(seen)
    raise measure.Failed("the epoch ended before its middle")


def resume(system, place, setting, middle):
    """Seconds to that sample, and how many others were delivered before it."""
    began = time.perf_counter()
    loader = system.open(place, setting, middle["state"])
    passed = 0
    for batch in loader.epoch():
        for payload in loader.payloads(batch):
            if payload == middle["next"]:
                took = time.perf_counter() - began
                loader.close()
                return {"seconds": took, "passed": passed}
            passed += 1
    return {"seconds": None, "passed": passed}


class Bench:
    """The readings of a system."""

    def __init__(self, job, system):
        self.job, self.system = job, system

    def once(self, store, work, *args, limit=None):
        """Runs work with a place that is empty, in a fork; its result and the peak of memory."""
        scratch = os.path.join(self.job["work"], "scratch")  # the same for all: a state may name it
        os.mkdir(scratch)
        most = self.job["memory"] if store == "disk" else 0
        if most:
            measure.forget(self.job["work"])
        try:
            return measure.in_child(lambda: work(self.system, Place(self.job, store, scratch), *args), limit or self.job["limit"], most)
        finally:
            self.system.clean()
            shutil.rmtree(scratch, ignore_errors=True)

    def measure(self, store, loaded):
        reason = self.system.unfit(store)
        if reason:
            return {"reason": reason}
        best, swept = self.sweep(store)
        windows = [self.job[name] for name in ("longest", "warm", "window")]
        got, peaks = [], []
        for _ in self.times(self.job["patience"]):
            result, peak = self.once(store, reading, best, windows)
            got.append(result)
            peaks.append(peak)
        out = {
            "best": best,
            "setting": self.system.shown(best),
            "swept": swept,
            "rates": [r["samples"] / r["seconds"] for r in got],
            "bytes": [r["bytes"] / r["seconds"] for r in got],
            "cpu": [r["cpu"] / r["samples"] for r in got],
            "memory": peaks if self.system.streams else [],
            "whole": all(r.get("whole", True) for r in got),
            "note": f"{statistics.median(r['fetched'] for r in got) / 1e6:.0f} MB/s from the disk" if store == "disk" else self.system.note(store),
        }
        if not self.system.streams:
            return out
        out["first"] = [r["first"] for r in got]
        out["cold"] = [r["cold"] for r in got if "cold" in r]
        if self.job["kind"] == "str" or store == "disk":
            return out
        try:
            out.update(self.resume(store, best, loaded))
        except measure.Failed as err:
            out.update({"resume": [], "way": f"failed: {err}"})
        return out

    def sweep(self, store):
        """The best of the settings, by a short reading of each."""
        settings = [self.job["best"]] if self.job.get("best") else self.system.settings(store)
        if len(settings) == 1:
            return settings[0], []
        rates, failed = {}, {}
        windows = (1 if store == "s3" else 0.2, 0.2, 0.4)
        for i, setting in enumerate(settings):
            try:
                got, _ = self.once(store, reading, setting, windows, limit=8)
                rates[i] = got["samples"] / got["seconds"]
            except measure.Failed as err:
                failed[i] = err
        if not rates:
            raise failed[0]
        best = settings[max(rates, key=rates.get)]
        return best, [[self.system.shown(s), rates.get(i) or f"failed: {failed[i]}"] for i, s in enumerate(settings)]

    def times(self, patience):
        """The requested number of readings, fewer if they take long."""
        began = time.monotonic()
        for i in range(self.job["readings"]):
            if i and time.monotonic() - began > patience:
                return
            yield i

    def resume(self, store, setting, loaded):
        middle, _ = self.once(store, half, setting)
        got = [self.once(store, resume, setting, middle)[0] for _ in self.times(0 if store == "s3" else 1)]
        if any(r["seconds"] is None for r in got):
            return {"resume": [], "way": f"the right sample did not come, {max(r['passed'] for r in got)} others did"}
        passed = statistics.median(r["passed"] for r in got)
        way = self.system.resumes if passed == 0 else f"not exact: {passed:.0f} others came before the right sample"
        return {"resume": [loaded + r["seconds"] for r in got], "loaded": loaded, "way": way}


def main():
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it was told to end"))
    job = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is none of the results
    module, name = SYSTEMS[job["system"]]
    with contextlib.suppress(ImportError):
        import torch.utils.data  # noqa: F401  a training process has it, whatever loads its data
    if "s3" in job["stores"]:
        import boto3  # noqa: F401  which URLs are signed with
    system = getattr(importlib.import_module(module), name)(job)
    loaded = measure.since_start()
    bench = Bench(job, system)
    for store in job["stores"]:
        try:
            if not system.unfit(store):
                measure.in_child(lambda store=store: system.prepare(store), 300)
            got = bench.measure(store, loaded)
        except measure.Failed as err:
            got = {"reason": str(err)}
        json.dump({"store": store, **got}, out)
        print(file=out, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
