"""Measures one system on a mix of sources: reads a job as JSON, prints one line of JSON.

Every source is read again and again, shuffled, with fixed shares. A payload begins with the number
of its source and its own, so that what a system delivers can be compared with the shares, and
what it delivers after a resume with what it would have delivered without one.
"""

import collections
import contextlib
import importlib.metadata
import json
import os
import socket
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import data
import measure

NAME = 10  # bytes: the number of a source, a space, and eight digits
WARM, WINDOW = 1.0, 3.0  # seconds of a rate
LIMIT = 240  # seconds of a step
COMPARED = 20  # batches after a resume


class System:
    """A system: data in its format, and an endless stream of batches, lists of payloads.

    pack writes a source in the format of the system. open returns the batches of a rank, and a
    function that returns the state after the last one, given how many samples were read.
    """

    package = ""
    settings = (0,)  # worker processes to try

    def __init__(self, job):
        self.job, self.batch, self.shares = job, job["batch"], [s["share"] for s in job["sources"]]

    def folder(self, source):
        return os.path.join(self.job["work"], f"{type(self).__name__}-{source['name']}")

    def pack(self, source):
        raise NotImplementedError

    def open(self, workers, rank, world, state):
        raise NotImplementedError


class Shardtool(System):
    """Copies of batches; every block is checked."""

    def pack(self, source):
        pass  # done by the Go program

    def open(self, workers, rank, world, state):
        import shardtool

        sources = {s["name"]: {"data": s["packed"], "weight": str(s["share"])} for s in self.job["sources"]}
        loader = shardtool.Loader(
            {"sources": sources, "epoch": 10**9},
            self.batch // world,
            fields={"txt": "bytes"},
            shuffle=True,
            seed=1,
            rank=rank,
            world_size=world,
            order=shardtool.Order(shuffle_memory=self.job["window"]),
        )
        if state:
            loader.load_state_dict(state)
        return (batch["txt"] for batch in loader), lambda seen: loader.state_dict()


def payloads(source):
    return data.samples(source["plain"])


class Epochs:
    """Goes over a loader again and again."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        while True:
            yield from self.loader


class LitData(System):
    """CombinedStreamingDataset over optimized chunks."""

    package, settings = "litdata", (0, 2)

    def __init__(self, job):
        super().__init__(job)
        import litdata
        from litdata.helpers import _check_version_and_prompt_upgrade

        self.module = litdata
        _check_version_and_prompt_upgrade(litdata.__version__)  # it asks PyPI once a process, which no reading is to wait for

    def pack(self, source):
        with contextlib.redirect_stdout(sys.stderr):
            self.module.optimize(
                Tars(),
                source["plain"],
                output_dir=self.folder(source),
                num_workers=1,
                start_method="fork",
                reorder_files=False,
                chunk_bytes=self.job["shard"],
            )

    def open(self, workers, rank, world, state):
        if world > 1:
            import torch.distributed

            torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
        sets = [self.module.StreamingDataset(self.folder(s), shuffle=True, seed=1) for s in self.job["sources"]]
        both = self.module.CombinedStreamingDataset(sets, seed=1, weights=self.shares, iterate_over_all=False)
        loader = self.module.StreamingDataLoader(
            both, batch_size=self.batch // world, num_workers=workers, collate_fn=list, prefetch_factor=2, drop_last=True
        )
        if state:
            loader.load_state_dict(state)
        return iter(Epochs(loader)), lambda seen: loader.state_dict()


class Tars:
    """The samples of a tar, for LitData's optimize."""

    def __call__(self, file):
        yield from data.samples([file])


def gather(rows):
    return {"x": [row["x"] for row in rows]}  # the loader counts samples by the members of a dict


class MosaicML(System):
    """StreamingDataset over streams with proportions."""

    package, settings = "mosaicml-streaming", (0, 2)

    def pack(self, source):
        import streaming

        with streaming.MDSWriter(out=self.folder(source), columns={"x": "bytes"}, size_limit=self.job["shard"]) as sink:
            for row in payloads(source):
                sink.write({"x": row})

    def open(self, workers, rank, world, state):
        import streaming

        if world == 1:
            streaming.base.util.clean_stale_shared_memory()  # of steps before; ranks that run together must not
        streams = [streaming.Stream(local=self.folder(s), proportion=s["share"]) for s in self.job["sources"]]
        source = streaming.StreamingDataset(streams=streams, batch_size=self.batch // world, shuffle=True, shuffle_seed=1)
        loader = streaming.StreamingDataLoader(source, batch_size=self.batch // world, num_workers=workers, collate_fn=gather)
        if state:
            loader.load_state_dict(state)
        return (batch["x"] for batch in Epochs(loader)), lambda seen: loader.state_dict()


class Grain(System):
    """MapDataset.mix over ArrayRecord files, by the ElasticIterator, which allows other ranks."""

    package = "grain"

    def file(self, source):
        return self.folder(source) + ".arrayrecord"

    def pack(self, source):
        from array_record.python import array_record_module

        sink = array_record_module.ArrayRecordWriter(self.file(source), "group_size:1")
        for row in payloads(source):
            sink.write(row)
        sink.close()

    def open(self, workers, rank, world, state):
        import grain

        sets = [
            grain.MapDataset.source(grain.sources.ArrayRecordDataSource(self.file(s))).shuffle(seed=1).repeat() for s in self.job["sources"]
        ]
        mixed = grain.MapDataset.mix(sets, weights=self.shares)
        batches = grain.experimental.ElasticIterator(mixed, self.batch, grain.sharding.ShardOptions(rank, world))
        if state:
            batches.set_state(state)
        return batches, lambda seen: batches.get_state()


class HuggingFace(System):
    """interleave_datasets over Arrow, shuffled in a buffer."""

    package = "datasets"

    def pack(self, source):
        import datasets

        rows = datasets.Dataset.from_dict({"x": list(payloads(source))}, features=datasets.Features({"x": datasets.Value("binary")}))
        rows.save_to_disk(self.folder(source), num_shards=8)

    def open(self, workers, rank, world, state):
        import datasets
        from datasets.distributed import split_dataset_by_node

        datasets.disable_progress_bars()
        sets = [
            datasets.load_from_disk(self.folder(s)).to_iterable_dataset(num_shards=8).shuffle(seed=1, buffer_size=1000).repeat(None)
            for s in self.job["sources"]
        ]
        mixed = datasets.interleave_datasets(sets, probabilities=self.shares, seed=1)
        if world > 1:
            mixed = split_dataset_by_node(mixed, rank, world)
        if state:
            mixed.load_state_dict(state)
        return (rows["x"] for rows in mixed.iter(self.batch // world)), lambda seen: mixed.state_dict()


SYSTEMS = {"shardtool": Shardtool, "litdata": LitData, "mosaicml": MosaicML, "grain": Grain, "datasets": HuggingFace}


def names(batch):
    return [bytes(payload[:NAME]).decode() for payload in batch]


def rate(system, workers):
    """Samples a second, after a time that is not counted."""
    batches, _ = system.open(workers, 0, 1, None)
    end, seen = time.perf_counter() + WARM, 0
    for _ in batches:
        if time.perf_counter() > end:
            break
    start = time.perf_counter()
    for batch in batches:
        seen += len(batch)
        if (now := time.perf_counter()) > start + WINDOW:
            return seen / (now - start)
    raise measure.Failed("the stream ended")


def shares(system, workers):
    """How far the sources are from their shares after all batches, in samples."""
    batches, _ = system.open(workers, 0, 1, None)
    given, total = collections.Counter(), 0
    for k, batch in enumerate(batches, 1):
        given.update(name[0] for name in names(batch))
        total += len(batch)
        if k == system.job["batches"]:
            return max(abs(given[str(i)] - total * share) for i, share in enumerate(system.shares))
    raise measure.Failed("the stream ended")


def middle(system, workers):
    """The state in the middle, and the batches after it."""
    batches, state_of = system.open(workers, 0, 1, None)
    seen, state, after = 0, None, []
    for k, batch in enumerate(batches, 1):
        seen += len(batch)
        if state is not None:
            after.append(names(batch))
            if len(after) == COMPARED:
                return {"state": state, "after": after}
        elif k == system.job["batches"] // 2:
            state = state_of(seen)
    raise measure.Failed("the stream ended")


def resumed(system, workers, rank, world, state):
    """Seconds to the first batch, and the batches after a resume."""
    began = time.perf_counter()
    batches, _ = system.open(workers, rank, world, state)
    got, first = [], None
    for batch in batches:
        first = first or time.perf_counter() - began
        got.append(names(batch))
        if len(got) == COMPARED:
            return {"seconds": first, "batches": got}
    raise measure.Failed("the stream ended")


def as_rank(args):
    job, workers, rank, world, port, state = args
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    return resumed(SYSTEMS[job["system"]](job), workers, rank, world, state)["batches"]


def two_ranks(job, workers, state):
    """The global batches of two ranks that continue from the state of one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        parts = list(pool.map(as_rank, [(job, workers, rank, 2, port, state) for rank in range(2)]))
    return [first + second for first, second in zip(*parts)]


def other_world(job, workers, at):
    try:
        got, _ = measure.in_child(lambda: two_ranks(job, workers, at["state"]), LIMIT)
    except measure.Failed as err:
        return f"refused: {err}"
    want = collections.Counter(name for batch in at["after"] for name in batch)
    if all(sorted(a) == sorted(b) for a, b in zip(got, at["after"])):
        return "works: the same global batches"
    other = sum((collections.Counter(name for batch in got for name in batch) - want).values())
    return f"continues, but {other} of the next {sum(want.values())} samples are others"


def measured(job):
    system = SYSTEMS[job["system"]](job)

    def once(work, *args):
        return measure.in_child(lambda: work(system, *args), LIMIT)[0]

    measure.in_child(lambda: [system.pack(s) for s in job["sources"]], LIMIT)
    rates = {workers: once(rate, workers) for workers in system.settings}
    best = max(rates, key=rates.get)
    out = {
        "version": importlib.metadata.version(system.package) if system.package else "",
        "setting": f"{best} workers" if len(rates) > 1 else "",
        "rates": [rates[best], *(once(rate, best) for _ in range(job["readings"] - 1))],
        "error": once(shares, best),
    }
    try:
        at = once(middle, best)
        again = [once(resumed, best, 0, 1, at["state"]) for _ in range(job["readings"])]
        out["resume"] = [r["seconds"] for r in again]
        exact = all(r["batches"] == at["after"] for r in again)
        out["way"] = "exact" if exact else "other samples come"
        out["world"] = other_world(job, best, at)
    except measure.Failed as err:
        out["way"] = f"failed: {err}"
    return out


def main():
    warnings.simplefilter("ignore")
    job = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is none of the results
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  a training process has it, whatever loads its data
    try:
        got = measured(job)
    except Exception as err:
        got = {"reason": str(err) if isinstance(err, measure.Failed) else measure.reason(err)}
    json.dump(got, out)
    print(file=out, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
