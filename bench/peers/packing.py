"""Measures one system that packs documents into sequences: reads a job as JSON, prints a line of JSON.

The documents are one array of tokens and their limits, mapped into memory, or ours. They are shuffled, those that are longer than
a sequence are split, and a batch is an array of sequences with the positions of the tokens. What a system delivers after a resume
is compared, token by token, with what it delivers without one.
"""

import collections
import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import os
import sys
import time
import warnings

import measure
import numpy as np

SECONDS = 4.0  # of a rate at most; an epoch where it takes less
LIMIT = 400  # seconds of a step
COMPARED = 12  # batches after a resume


class System:
    """A system: prepare makes what it reads. open returns the batches of a rank of one epoch as (rows of tokens, positions, tokens
    that are not padding), and a function that returns the state after a number of batches."""

    package = ""
    settings = ({},)

    def __init__(self, job):
        self.job, self.length, self.batch = job, job["length"], job["batch"]

    def limits(self):
        """The limits of the documents, or of their pieces if they are longer than a sequence."""
        limits = np.load(self.job["limits"])
        cuts = [np.arange(a, b, self.length) for a, b in zip(limits, limits[1:])]
        return np.append(np.concatenate(cuts), limits[-1])

    def prepare(self, setting):
        pass

    def open(self, setting, rank, world, state):
        raise NotImplementedError


class Shardtool(System):
    """Every block is checked and decoded."""

    settings = ({"copy": True}, {"copy": False})

    def open(self, setting, rank, world, state):
        import shardtool

        loader = shardtool.Loader(
            self.job["packed"],
            self.batch // world,
            shuffle=True,
            seed=1,
            epochs=1,
            tail="short",
            rank=rank,
            world_size=world,
            out="numpy",
            pack=shardtool.Pack(self.length, ["ids"], long="split", plans=self.job["plans"]),
            order=shardtool.Order(shuffle_memory=self.job["window"]),
            tuning=shardtool.Tuning(**setting),
        )
        if state:
            loader.load_state_dict(state)

        def batches():
            for batch in loader:
                ids = batch["ids"]
                yield ids, batch["position_ids"], round(batch["fill"] * ids.size)

        return batches(), lambda seen: loader.state_dict()


class Documents:
    """A source of Grain: pieces of mapped documents."""

    def __init__(self, tokens, limits):
        self.tokens, self.limits = np.load(tokens, mmap_mode="r"), limits

    def __len__(self):
        return len(self.limits) - 1

    def __getitem__(self, i):
        return {"ids": np.asarray(self.tokens[self.limits[i] : self.limits[i + 1]])}


class Grain(System):
    """One of its two packers over a mapped file."""

    package = "grain"
    settings = tuple(
        {"packer": f"{fit}FitPackIterDataset", "num_packing_bins": bins, "workers": workers}
        for fit, bins in (("Best", 256), ("Best", 64), ("First", 64))
        for workers in (0, 2)
    )

    def open(self, setting, rank, world, state):
        import grain
        from grain import experimental

        data = grain.MapDataset.source(Documents(self.job["tokens"], self.limits())).shuffle(seed=1)
        rows = data[rank::world].to_iter_dataset()
        pack = getattr(experimental, setting["packer"])
        rows = pack(rows, length_struct={"ids": self.length}, num_packing_bins=setting["num_packing_bins"], seed=1).batch(self.batch // world)
        if setting["workers"]:
            rows = rows.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=setting["workers"]))
        rows = iter(rows)
        if state:
            rows.set_state(state)

        def batches():
            for batch in rows:
                yield batch["ids"], batch["ids_positions"], int(np.count_nonzero(batch["ids_segment_ids"]))

        return batches(), lambda seen: rows.get_state()


class TRL(System):
    """pack_dataset, which writes a packed copy, read in the order of a sampler."""

    package = "trl"
    settings = tuple({"batch_size": n} for n in (1000, 10_000))  # 1,000 is the default of map

    def folder(self, setting):
        return os.path.join(self.job["work"], f"trl-{setting['batch_size']}")

    def documents(self):
        import datasets
        import pyarrow

        datasets.disable_progress_bars()
        tokens, limits = np.load(self.job["tokens"], mmap_mode="r"), np.load(self.job["limits"])
        order = np.random.default_rng(1).permutation(len(limits) - 1)
        rows = pyarrow.ListArray.from_arrays(
            np.append(0, np.cumsum(np.diff(limits)[order])).astype("int32"), np.concatenate([tokens[limits[i] : limits[i + 1]] for i in order])
        )
        return datasets.Dataset(pyarrow.table({"input_ids": rows}))

    def prepare(self, setting):
        from trl import pack_dataset

        packed = pack_dataset(self.documents(), self.length, "bfd_split", {**setting, "load_from_cache_file": False})
        packed.save_to_disk(self.folder(setting))

    def open(self, setting, rank, world, state):
        import datasets

        rows = datasets.load_from_disk(self.folder(setting)).with_format("arrow")
        order = np.random.default_rng(1).permutation(len(rows))
        counted = np.arange(self.length, dtype="int32")

        def batches():
            for at in range(state or 0, len(order), self.batch):
                part = order[at : at + self.batch]
                table = rows[part[len(part) * rank // world : len(part) * (rank + 1) // world]]
                ids, positions = np.zeros((2, len(table), self.length), "int32")
                real = 0
                for row, (tokens, lengths) in enumerate(zip(table["input_ids"], table["seq_lengths"])):
                    tokens, end = tokens.values.to_numpy(), 0
                    ids[row, : len(tokens)] = tokens
                    for n in lengths.values.to_numpy():
                        positions[row, end : end + n], end = counted[:n], end + n
                    real += len(tokens)
                yield ids, positions, real

        return batches(), lambda seen: (state or 0) + seen * self.batch


SYSTEMS = {"shardtool": Shardtool, "grain": Grain, "trl": TRL}


def names(rows):
    """The identity of a sequence: a hash of its tokens."""
    return [hashlib.blake2b(np.ascontiguousarray(row), digest_size=12).hexdigest() for row in rows]


def rate(system, setting):
    """Tokens a second after the first batch, and how full the sequences are."""
    began = time.perf_counter()
    batches, _ = system.open(setting, 0, 1, None)
    real = size = 0
    first = start = None
    for ids, positions, tokens in batches:
        now = time.perf_counter()
        if start is None:
            start, first = now, now - began
            continue
        assert ids.shape == positions.shape
        real, size = real + tokens, size + ids.size
        if now > start + SECONDS:
            break
    return {"rate": real / (now - start), "fill": real / size, "first": first}


def middle(system, setting):
    """The state in the middle of the epoch, and the batches after it."""
    batches, state_of = system.open(setting, 0, 1, None)
    half, seen, state, after = system.job["sequences"] // system.batch // 2, 0, None, []
    for ids, _, _ in batches:
        seen += 1
        if state is not None:
            after.append(names(ids))
            if len(after) == COMPARED:
                return {"state": state, "after": after}
        elif seen == half:
            state = state_of(seen)
    raise measure.Failed("the epoch ended")


def resumed(system, setting, rank, world, state):
    """Seconds to the first batch, and the batches after a resume."""
    began, first, got = time.perf_counter(), None, []
    batches, _ = system.open(setting, rank, world, state)
    for ids, _, _ in batches:
        first = first or time.perf_counter() - began
        got.append(names(ids))
        if len(got) == COMPARED:
            break
    return {"seconds": first or time.perf_counter() - began, "batches": got}


def other_world(system, setting, at):
    """The sequences of two ranks that continue from the state of one."""
    try:
        parts = [measure.in_child(lambda rank=rank: resumed(system, setting, rank, 2, at["state"])["batches"], LIMIT)[0] for rank in range(2)]
    except measure.Failed as err:
        return f"refused: {err}"
    got = [first + second for first, second in itertools.zip_longest(*parts, fillvalue=[])]
    if [sorted(batch) for batch in got] == [sorted(batch) for batch in at["after"]]:
        return "works: the same sequences in the same batches"
    want = collections.Counter(name for batch in at["after"] for name in batch)
    same = sum((collections.Counter(name for batch in got for name in batch) & want).values())
    return f"continues, but delivers {same} of the next {sum(want.values())} sequences, and others"


def shown(setting):
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in setting.items())


def measured(job):
    system = SYSTEMS[job["system"]](job)

    def once(work, *args):
        return measure.in_child(lambda: work(system, *args), LIMIT)[0]

    prepared, swept = {}, []
    for setting in system.settings:
        began = time.perf_counter()
        measure.in_child(lambda setting=setting: system.prepare(setting), LIMIT)
        prepared[shown(setting)] = time.perf_counter() - began
        swept.append((once(rate, setting), setting))
    best = max(swept, key=lambda reading: reading[0]["rate"])[1]
    readings = [once(rate, best) for _ in range(job["readings"])]
    out = {
        "version": importlib.metadata.version(system.package) if system.package else "",
        "setting": shown(best),
        "swept": [f"{shown(setting)}: {r['rate'] / 1e6:.1f} M tokens/s, {100 * r['fill']:.1f} % full" for r, setting in swept],
        "rates": [r["rate"] for r in readings],
        "first": [r["first"] for r in readings],
        "fill": readings[0]["fill"],
        "prepare": prepared[shown(best)] if type(system).prepare is not System.prepare else 0,
    }
    try:
        at = once(middle, best)
        again = [once(resumed, best, 0, 1, at["state"]) for _ in range(job["readings"])]
        out["resume"] = [r["seconds"] for r in again]
        out["way"] = "exact" if all(r["batches"] == at["after"] for r in again) else "other sequences"
        out["world"] = other_world(system, best, at)
    except measure.Failed as err:
        out["way"] = f"failed: {err}"
    return out


def main():
    warnings.simplefilter("ignore")
    job = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is none of the results
    with contextlib.suppress(ImportError):
        import trl.data_utils  # noqa: F401  imports are not measured
    with contextlib.suppress(ImportError):
        import grain.experimental  # noqa: F401
    try:
        got = measured(job)
    except Exception as err:
        got = {"reason": str(err) if isinstance(err, measure.Failed) else measure.reason(err)}
    json.dump(got, out)
    print(file=out, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
