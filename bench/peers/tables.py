"""Systems over tables and arrays of records: Hugging Face datasets, Grain and LanceDB. None of them shuffles here, unless a class says so."""

import glob
import os

import data
import numpy
import pyarrow.parquet
import s3fs  # noqa: F401  which no reading is to wait for
import torch
from torchdata.stateful_dataloader import StatefulDataLoader


class Table(data.System):
    """A system whose rows have the column x."""

    def arrow(self):
        kind = {"tokens": pyarrow.list_(pyarrow.int16(), data.TOKENS), "packed": pyarrow.list_(pyarrow.int16()), "str": pyarrow.string()}
        return pyarrow.table({"x": pyarrow.array(list(self.rows()), kind.get(self.kind, pyarrow.binary()))})

    def options(self, place):
        """Where s3fs finds the store."""
        return {"storage_options": {"endpoint_url": place.s3["endpoint"]}} if place.s3 else {}

    def all(self, place):
        """The rows of the data, or of the mix."""
        if not self.parts:
            return self.source(place)
        parts = [part.source(place) for part in self.parts]
        return self.module.interleave_datasets(parts, list(data.WEIGHTS), seed=1, stopping_strategy="all_exhausted")


def filled(rows):
    """Sequences, the last of them padded."""
    out = numpy.zeros((len(rows), data.LENGTH), "<i2")
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)


class Arrow(Table):
    """Hugging Face datasets over Arrow files that are mapped into memory: its own batches, or those of a DataLoader."""

    package = "datasets"
    shuffle = False

    def __init__(self, job):
        super().__init__(job)
        if self.kind == "packed":
            import trl.data_utils

            self.packer = trl.data_utils.pack_dataset

    def pack(self, folder, form):
        self.module.Dataset(self.arrow()).save_to_disk(folder, max_shard_size=self.job["shard"])

    def settings(self, store):
        if self.kind in ("tokens", "packed"):
            return [{"batches": "iter, numpy"}, *data.by_workers()]
        return [{"batches": "iter"}, {"batches": "iter, arrow, to_pylist"}, {"batches": "iter, arrow, to_numpy"}, *data.by_workers()]

    def note(self, store):
        return "TRL packs a copy before the first batch" if self.kind == "packed" else "it copies all to the local disk first" if store == "s3" else ""

    def source(self, place):
        return self.module.load_from_disk(self.address(place), **self.options(place))

    def open(self, place, setting, state=None):
        rows, way, start, collate = self.all(place), setting.get("batches"), state or 0, self.collate
        if self.kind == "packed":
            self.module.disable_caching()
            rows, collate = self.packer(rows, data.LENGTH, "bfd"), lambda rows: filled(data.column(rows))
        if self.kind in ("tokens", "packed"):
            rows = rows.with_format("numpy", dtype=numpy.int16)
        if start:
            rows = rows.select(range(start, len(rows)))
        if way is None:
            loader = torch.utils.data.DataLoader(rows, self.batch, shuffle=self.shuffle, collate_fn=collate, **data.workers(setting))
            return self.loader(lambda: iter(loader), lambda seen: seen)
        batches = {
            "iter": lambda batch: batch["x"],
            "iter, numpy": lambda batch: filled(batch["x"]) if self.kind == "packed" else torch.from_numpy(batch["x"]),
            "iter, arrow, to_pylist": lambda batch: batch.column("x").to_pylist(),
            "iter, arrow, to_numpy": lambda batch: batch.column("x").to_numpy().tolist(),
        }[way]

        def epoch():
            order = rows.shuffle() if self.shuffle else rows
            return map(batches, (order.with_format("arrow") if "arrow" in way else order).iter(self.batch))

        return self.loader(epoch, lambda seen: seen)


class Streaming(Table):
    """Hugging Face datasets, streamed from eight Parquet files."""

    package = "datasets"
    resumes = "exact: it does not shuffle here"

    def pack(self, folder, form):
        os.mkdir(folder)
        table = self.arrow()
        each = -(-len(table) // 8)
        for i in range(8):
            pyarrow.parquet.write_table(table.slice(i * each, each), os.path.join(folder, f"{i}.parquet"), row_group_size=1024)

    def settings(self, store):
        return [{"batches": "iter"}, *data.by_workers()]

    def source(self, place):
        return self.module.load_dataset("parquet", data_files=self.address(place) + "/*.parquet", split="train", streaming=True, **self.options(place))

    def open(self, place, setting, state=None):
        rows = self.all(place)
        if self.kind == "tokens":
            rows = rows.with_format("numpy")
        if "batches" in setting:
            if state:
                rows.load_state_dict(state)
            pick = (lambda batch: torch.from_numpy(numpy.asarray(batch["x"], dtype="<i2"))) if self.kind == "tokens" else lambda batch: batch["x"]
            return self.loader(lambda: map(pick, rows.iter(self.batch)), lambda seen: rows.state_dict())
        loader = StatefulDataLoader(rows, self.batch, collate_fn=self.collate, **data.workers(setting))
        if state:
            loader.load_state_dict(state)
        return self.loader(lambda: iter(loader), lambda seen: loader.state_dict())


class Grain(Table):
    """Grain over eight ArrayRecord files, a sample a record, read by threads or by processes."""

    package = "grain"
    remote = "ArrayRecord reads local files and gs://, not S3"

    def pack(self, folder, form):
        from array_record.python.array_record_module import ArrayRecordWriter

        os.mkdir(folder)
        files = [ArrayRecordWriter(os.path.join(folder, f"{i}.array_record"), "group_size:1") for i in range(8)]
        each = -(-sum(1 for _ in data.samples(self.job["plain"])) // 8)
        for i, row in enumerate(data.samples(self.job["plain"])):
            files[i // each].write(row)
        for file in files:
            file.close()

    def settings(self, store):
        return [{"threads": 0}, {"threads": 2, "buffer": 512}, {"threads": 16, "buffer": 512}, {"processes": 2, "threads": 16, "buffer": 512}]

    def source(self, place):
        return self.module.MapDataset.source(self.module.sources.ArrayRecordDataSource(sorted(glob.glob(self.folder() + "/*"))))

    def open(self, place, setting, state=None):
        if self.parts:
            rows = self.module.MapDataset.mix([part.source(place).repeat() for part in self.parts], data.WEIGHTS)
        else:
            rows = self.source(place)
        if self.kind == "packed":
            rows = rows.map(lambda row: {"x": numpy.frombuffer(row, "<i2")})
        rows = rows.to_iter_dataset(self.module.ReadOptions(num_threads=setting["threads"], prefetch_buffer_size=setting.get("buffer", 0)))
        if self.kind == "packed":
            rows = self.module.experimental.FirstFitPackIterDataset(rows, length_struct={"x": data.LENGTH}, num_packing_bins=64)
        batches = rows.batch(self.batch, batch_fn=data.stacked if self.kind == "packed" else self.collate)
        if "processes" in setting:
            batches = batches.mp_prefetch(self.module.MultiprocessingOptions(num_workers=setting["processes"], per_worker_buffer_size=4))
        current, saved = [None], [state]

        def epoch():
            current[0] = iter(batches)
            if saved[0]:
                current[0].set_state(saved[0])
                saved[0] = None
            return current[0]

        return self.loader(epoch, lambda seen: current[0].get_state())


class Lance(Table):
    """LanceDB's StreamingDataset, a split of the rows for each worker, in storage order. Its threads do not survive a fork."""

    lazy = "lancedb.streaming"

    def pack(self, folder, form):
        import lancedb

        lancedb.connect(folder).create_table("x", self.arrow())

    def settings(self, store):
        return [*({"workers": 0, "read_batch_size": size} for size in (64, 256, 1024)), {"workers": 2, "prefetch_factor": 4, "read_batch_size": 1024}]

    def options(self, place):
        s3 = place.s3 and {"aws_endpoint": place.s3["endpoint"], "aws_region": place.s3["region"], "allow_http": "true"}
        return {"storage_options": s3} if s3 else {}

    def open(self, place, setting, state=None):
        import lancedb
        from lancedb.streaming import StreamingDataLoader, StreamingDataset

        table, splits = lancedb.connect(self.address(place), **self.options(place)).open_table("x"), max(1, setting["workers"])
        more = data.workers(setting, keep=False)  # it refuses to keep them; a fork of its threads hangs
        if setting["workers"]:
            more["multiprocessing_context"] = "forkserver"
        current, saved = [None], [state]

        def epoch():
            current[0] = StreamingDataset(
                table, num_splits=splits, shuffle=False, shuffle_seed=1, epoch=0, rank=0, world_size=1, read_batch_size=setting["read_batch_size"]
            )
            if saved[0]:
                current[0].load_state_dict(saved[0])
                saved[0] = None
            return iter(StreamingDataLoader(current[0], batch_size=self.batch, collate_fn=self.collate, **more))

        made = self.loader(epoch, lambda seen: current[0].state_dict())
        made.samples = made.most = made.samples // splits * splits
        return made
