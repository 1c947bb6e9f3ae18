"""WebDataset, MosaicML Streaming and LitData, each on data in the format it recommends. None of them shuffles here: that is faster."""

import contextlib
import glob
import itertools
import os
import shlex
import sys

import data


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
    package = "webdataset"

    def folder(self, form=""):
        return os.path.dirname(self.job["plain"][0])

    def source(self, place):
        urls = self.job["plain"]
        if place.s3:
            urls = data.signed(self.job, self.prefix(), map(os.path.basename, urls))
            urls = [f"pipe:curl --silent --fail {shlex.quote(url)}" for url in urls]
        return self.module.WebDataset(urls, shardshuffle=False, empty_check=False).map(Field(self.job["field"]))

    def open(self, place, setting, state=None):
        if self.parts:
            source = self.module.RandomMix([part.source(place).repeat() for part in self.parts], data.WEIGHTS)
            source = self.module.compat.FluidWrapper(source)
        else:
            source = self.source(place)
        source = source.batched(self.batch, collation_fn=self.collate)
        loader = self.module.WebLoader(source, batch_size=None, **data.workers(setting)) if setting["workers"] else source
        skip = [state or 0]

        def epoch():
            batches, skip[0] = skip[0], 0
            return itertools.islice(iter(loader), batches, None)

        return self.loader(epoch, lambda seen: -(-seen // self.batch))


# ---- MosaicML Streaming ----
class Named:
    """A batch in a dict, whose length MosaicML knows."""

    def __init__(self, collate):
        self.collate = collate

    def __call__(self, rows):
        return {"x": self.collate(rows)}


class MosaicML(data.System):
    """MDS; from S3 into an empty local folder, compressed or not, whichever is faster."""

    package = "streaming"

    def clean(self):
        """Shared memory and locks of dead processes lock others out of their folders. Its names lead to the folders."""
        for path in glob.glob("/dev/shm/*_locals"):
            with contextlib.suppress(OSError), open(path, "rb") as f:
                if self.job["work"].encode() in f.read():
                    for each in glob.glob(path.removesuffix("locals") + "*"):
                        os.remove(each)
        for path in glob.glob(os.path.join(self.job["work"], "[0-9]*_filelock")):
            os.remove(path)

    def forms(self, store):
        return [""] if store != "s3" or self.kind == "images" else ["", "zstd"]

    def pack(self, folder, form):
        column = f"ndarray:int16:{data.TOKENS}" if self.kind == "tokens" else "bytes"
        with self.module.MDSWriter(out=folder, columns={"x": column}, compression=form or None, size_limit=self.job["shard"]) as sink:
            for row in self.rows():
                sink.write({"x": row})

    def settings(self, store):
        more = [{"predownload": self.job["samples"]}] if store == "s3" else []
        return data.by_workers(*more, *({"compression": form} for form in self.forms(store)[1:]))

    def open(self, place, setting, state=None):
        form = setting.get("compression", "")
        more = {"local": self.folder(form)}
        if self.parts:
            streams = [self.module.Stream(local=part.folder(), proportion=w) for part, w in zip(self.parts, data.WEIGHTS)]
            more = {"streams": streams, "epoch_size": self.job["samples"]}
        elif place.s3:
            more = {"remote": self.address(place, form), "local": os.path.join(place.scratch, "cache")}
        source = self.module.StreamingDataset(batch_size=self.batch, shuffle=False, predownload=setting.get("predownload"), **more)
        for stream in source.streams:
            stream._downloader.clean_up()  # workers that inherit one connection to S3 would wait on it for ever
        loader = self.module.StreamingDataLoader(source, batch_size=self.batch, collate_fn=Named(self.collate), **data.workers(setting))
        if state:
            loader.load_state_dict(state)
        return self.loader(lambda: (batch["x"] for batch in loader), lambda seen: loader.state_dict())


# ---- LitData ----
class Rows:
    """The samples of a tar, for LitData's optimize."""

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, file):
        yield from data.rows(self.kind, [file])


class LitData(data.System):
    """Optimized chunks; from S3 into an empty local folder, compressed or not, whichever is faster."""

    package = stored = "litdata"
    shuffle = False

    def items(self):
        return {"item_loader": self.module.TokensLoader(block_size=data.TOKENS)} if self.kind == "tokens" else {}

    def forms(self, store):
        return [""] if store != "s3" or self.kind != "text" else ["", "zstd"]

    def pack(self, folder, form):
        more = {"compression": form or None, "chunk_bytes": self.job["shard"], **self.items()}
        with contextlib.redirect_stdout(sys.stderr):
            self.module.optimize(
                Rows(self.kind), self.job["plain"], output_dir=folder, num_workers=1, start_method="fork", reorder_files=False, **more
            )

    def settings(self, store):
        more = [{"max_pre_download": 8}] if store == "s3" else []
        return data.by_workers(*more, *({"compression": form} for form in self.forms(store)[1:]))

    def source(self, place, setting):
        more = {}
        if place.s3:
            self.module.streaming.downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # the server has no TLS
            more = {"cache_dir": os.path.join(place.scratch, "cache"), "storage_options": {"endpoint_url": place.s3["endpoint"]}}
            os.makedirs(more["cache_dir"])
        where = self.address(place, setting.get("compression", ""))
        return self.module.StreamingDataset(where, shuffle=self.shuffle, max_pre_download=setting.get("max_pre_download", 2), **more, **self.items())

    def open(self, place, setting, state=None):
        if self.parts:
            sources = [part.source(place, setting) for part in self.parts]
            source = self.module.CombinedStreamingDataset(sources, weights=list(data.WEIGHTS), iterate_over_all=False)
        else:
            source = self.source(place, setting)

        def sent(rows):  # by workers: samples that are bytes come as views, which cannot be pickled
            return self.collate([bytes(row) if isinstance(row, memoryview) else row for row in rows])

        collate = sent if setting["workers"] else self.collate
        loader = self.module.StreamingDataLoader(source, batch_size=self.batch, collate_fn=collate, **data.workers(setting))
        if state:
            loader.load_state_dict(state)
        return self.loader(lambda: iter(loader), lambda seen: loader.state_dict())
