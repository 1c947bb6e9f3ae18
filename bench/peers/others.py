"""WebDataset, MosaicML Streaming and LitData, each on data in the format it recommends. None of them shuffles here: that is faster."""

import contextlib
import glob
import itertools
import os
import shlex
import sys

import data
import numpy
import torch
from plain import same, stacked, workers


def by_workers(*more):
    """Settings that all systems are tried with, and settings of each system."""
    return [
        {"workers": 0},
        {"workers": 1, "prefetch_factor": 4},
        {"workers": 2, "prefetch_factor": 4},
        {"workers": 2, "prefetch_factor": 16},
        *({"workers": 2, "prefetch_factor": 4, **m} for m in more),
    ]


# ---- WebDataset ----
class Field:
    """Picks a field; with its own class it can be sent to workers."""

    def __init__(self, name):
        self.name = name

    def __call__(self, sample):
        return sample[self.name]


class WebDataset(data.System):
    """Plain tars; from S3 by curl with presigned URLs, in a pipe."""

    resumes = "replays the epoch and skips"

    def __init__(self, job):
        super().__init__(job)
        import webdataset

        self.module = webdataset

    def prepare(self, store):
        if store == "s3":
            data.upload(self.job, os.path.dirname(self.job["plain"][0]), f"plain/{self.kind}")

    def settings(self, store):
        return by_workers()

    def open(self, place, setting, state=None):
        urls = self.job["plain"]
        if place.s3:
            names = [os.path.basename(path) for path in urls]
            urls = [f"pipe:curl --silent --fail {shlex.quote(url)}" for url in data.signed(self.job, f"plain/{self.kind}", names)]
        collate = data.stack if self.kind == "tokens" else list
        source = self.module.WebDataset(urls, shardshuffle=False, empty_check=False).map(Field(self.job["field"]))
        source = source.batched(self.batch, collation_fn=collate)
        loader = self.module.WebLoader(source, batch_size=None, **workers(setting)) if setting["workers"] else source
        skip = [state or 0]

        def epoch():
            batches, skip[0] = skip[0], 0
            return itertools.islice(iter(loader), batches, None)

        return data.Loader(self.job["samples"], epoch, lambda seen: -(-seen // self.batch))


# ---- MosaicML Streaming ----
def gather(rows):
    return {"x": [row["x"] for row in rows]}


def gather_tokens(rows):
    return {"x": torch.from_numpy(numpy.stack([row["x"] for row in rows]))}


class MosaicML(data.System):
    """MDS; from S3 into an empty local folder, compressed or not, whichever is faster."""

    resumes = "exact"

    def __init__(self, job):
        super().__init__(job)
        import streaming

        self.module = streaming

    def clean(self):
        """Shared memory and locks of dead processes lock others out of their folders. Its names lead to the folders."""
        for path in glob.glob("/dev/shm/*_locals"):
            with contextlib.suppress(OSError), open(path, "rb") as f:
                if self.job["work"].encode() in f.read():
                    for each in glob.glob(path.removesuffix("locals") + "*"):
                        os.remove(each)
        for path in glob.glob(os.path.join(self.job["work"], "[0-9]*_filelock")):
            os.remove(path)

    def folder(self, compression):
        return os.path.join(self.job["work"], f"mds-{self.kind}-{compression}")

    def prepare(self, store):
        for compression in ["none"] if store == "local" or self.kind == "images" else ["none", "zstd"]:
            out = self.folder(compression)
            if not os.path.exists(out):
                self.pack(out, compression)
            if store == "s3":
                data.upload(self.job, out, f"mds/{self.kind}-{compression}")

    def pack(self, out, compression):
        column = f"ndarray:int16:{data.TOKENS}" if self.kind == "tokens" else "bytes"
        chosen = None if compression == "none" else compression
        with self.module.MDSWriter(out=out, columns={"x": column}, compression=chosen, size_limit=self.job["shard"]) as sink:
            for row in data.samples(self.job["plain"]):
                sink.write({"x": numpy.frombuffer(row, "<i2") if self.kind == "tokens" else row})

    def settings(self, store):
        if store == "local":
            return by_workers()
        ahead = {"predownload": self.job["samples"]}
        return by_workers(ahead, *([] if self.kind == "images" else [{"compression": "zstd"}]))

    def open(self, place, setting, state=None):
        compression = setting.get("compression", "none")
        more = {"local": self.folder(compression)}
        if place.s3:
            more = {"remote": f"s3://{place.s3['bucket']}/mds/{self.kind}-{compression}", "local": os.path.join(place.scratch, "cache")}
        source = self.module.StreamingDataset(batch_size=self.batch, shuffle=False, predownload=setting.get("predownload"), **more)
        for stream in source.streams:
            stream._downloader.clean_up()  # workers that inherit one connection to S3 would wait on it for ever
        collate = gather_tokens if self.kind == "tokens" else gather
        loader = self.module.StreamingDataLoader(source, batch_size=self.batch, collate_fn=collate, **workers(setting))
        if state:
            loader.load_state_dict(state)
        return data.Loader(self.job["samples"], lambda: (batch["x"] for batch in loader), lambda seen: loader.state_dict())


# ---- LitData ----
class Rows:
    """The samples of a tar, for LitData's optimize."""

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, file):
        for row in data.samples([file]):
            yield numpy.frombuffer(row, "<i2") if self.kind == "tokens" else row.decode() if self.kind == "str" else row


class LitData(data.System):
    """Optimized chunks; from S3 into an empty local folder, compressed or not, whichever is faster."""

    resumes = "exact"
    shuffle = False

    def __init__(self, job):
        super().__init__(job)
        import litdata
        from litdata.helpers import _check_version_and_prompt_upgrade

        self.module = litdata
        _check_version_and_prompt_upgrade(litdata.__version__)  # it asks PyPI once a process, which no reading is to wait for

    def items(self):
        return {"item_loader": self.module.TokensLoader(block_size=data.TOKENS)} if self.kind == "tokens" else {}

    def folder(self, compression):
        return os.path.join(self.job["work"], f"litdata-{self.kind}-{compression}")

    def prepare(self, store):
        for compression in ["none"] if store == "local" or self.kind != "text" else ["none", "zstd"]:
            out = self.folder(compression)
            if not os.path.exists(out):
                more = {"compression": None if compression == "none" else compression, "chunk_bytes": self.job["shard"], **self.items()}
                with contextlib.redirect_stdout(sys.stderr):
                    self.module.optimize(
                        Rows(self.kind), self.job["plain"], output_dir=out, num_workers=1, start_method="fork", reorder_files=False, **more
                    )
            if store == "s3":
                data.upload(self.job, out, f"litdata/{self.kind}-{compression}")

    def settings(self, store):
        if store == "local":
            return by_workers()
        return by_workers({"max_pre_download": 8}, *([{"compression": "zstd"}] if self.kind == "text" else []))

    def open(self, place, setting, state=None):
        compression = setting.get("compression", "none")
        where, more = self.folder(compression), {}
        if place.s3:
            where = f"s3://{place.s3['bucket']}/litdata/{self.kind}-{compression}"
            more = {"cache_dir": os.path.join(place.scratch, "cache"), "storage_options": {"endpoint_url": place.s3["endpoint"]}}
            os.makedirs(more["cache_dir"])
        source = self.module.StreamingDataset(
            where, shuffle=self.shuffle, max_pre_download=setting.get("max_pre_download", 2), **more, **self.items()
        )
        collate = stacked if self.kind == "tokens" else same
        loader = self.module.StreamingDataLoader(source, batch_size=self.batch, collate_fn=collate, **workers(setting))
        if state:
            loader.load_state_dict(state)
        return data.Loader(self.job["samples"], lambda: iter(loader), lambda seen: loader.state_dict())
