"""Systems over tables and arrays of records: Hugging Face datasets, Grain and LanceDB. None of them shuffles here, unless a class says so."""

import importlib
import os

import data
import numpy
import torch
from others import by_workers
from plain import stacked, workers
from torch.utils.data import DataLoader


def column(rows):
    return [row["x"] for row in rows]


def tokens(rows):
    return stacked([numpy.asarray(row["x"], dtype="<i2") for row in rows])


class Table(data.System):
    """A system whose rows have the column x."""

    package = ""  # imported before the readings are forked

    def __init__(self, job):
        super().__init__(job)
        if self.package:
            importlib.import_module(self.package)
        self.folder = os.path.join(job["work"], f"{type(self).__name__}-{self.kind}")
        self.collate = tokens if self.kind == "tokens" else column

    def rows(self):
        for row in data.samples(self.job["plain"]):
            yield {"x": numpy.frombuffer(row, "<i2") if self.kind == "tokens" else row.decode() if self.kind == "str" else row}

    def settings(self, store):
        return by_workers()

    def unfit(self, store):
        return "" if store == "local" else "not measured from S3"

    def arrow(self):
        import pyarrow

        kind = {"tokens": pyarrow.list_(pyarrow.int16(), data.TOKENS), "str": pyarrow.string()}.get(self.kind, pyarrow.binary())
        return pyarrow.table({"x": pyarrow.array([row["x"] for row in self.rows()], kind)})


class Arrow(Table):
    """Hugging Face datasets over Arrow files that are mapped into memory: its own batches, or those of a DataLoader."""

    package = "datasets"
    shuffle = False

    def prepare(self, store):
        import datasets

        if not os.path.exists(self.folder):
            datasets.Dataset(self.arrow()).save_to_disk(self.folder, max_shard_size=self.job["shard"])

    def settings(self, store):
        if self.kind == "tokens":
            return [{"batches": "iter, numpy"}, *by_workers()]
        return [{"batches": "iter"}, {"batches": "iter, arrow, to_pylist"}, {"batches": "iter, arrow, to_numpy"}, *by_workers()]

    def open(self, place, setting, state=None):
        import datasets

        rows, way, start = datasets.load_from_disk(self.folder), setting.get("batches"), state or 0
        if self.kind == "tokens":
            rows = rows.with_format("numpy", dtype=numpy.int16)
        if start:
            rows = rows.select(range(start, len(rows)))
        if way is None:
            loader = DataLoader(rows, self.batch, shuffle=self.shuffle, collate_fn=self.collate, **workers(setting))
            return data.Loader(self.job["samples"], lambda: iter(loader), lambda seen: seen)
        batches = {
            "iter": lambda batch: batch["x"],
            "iter, numpy": lambda batch: torch.from_numpy(batch["x"]),
            "iter, arrow, to_pylist": lambda batch: batch.column("x").to_pylist(),
            "iter, arrow, to_numpy": lambda batch: batch.column("x").to_numpy().tolist(),
        }[way]

        def epoch():
            order = rows.shuffle() if self.shuffle else rows
            return map(batches, (order.with_format("arrow") if "arrow" in way else order).iter(self.batch))

        return data.Loader(self.job["samples"], epoch, lambda seen: seen)


class Streaming(Table):
    """Hugging Face datasets, streamed from eight Parquet files."""

    package = "datasets"
    resumes = "exact: it does not shuffle here"

    def prepare(self, store):
        import pyarrow.parquet

        if not os.path.exists(self.folder):
            os.mkdir(self.folder)
            table = self.arrow()
            each = -(-len(table) // 8)
            for i in range(8):
                pyarrow.parquet.write_table(table.slice(i * each, each), os.path.join(self.folder, f"{i}.parquet"), row_group_size=1024)

    def settings(self, store):
        return [{"batches": "iter"}, *by_workers()]

    def open(self, place, setting, state=None):
        import datasets

        rows = datasets.load_dataset("parquet", data_files=self.folder + "/*.parquet", split="train", streaming=True)
        if self.kind == "tokens":
            rows = rows.with_format("numpy")
        if "batches" in setting:
            if state:
                rows.load_state_dict(state)
            pick = (lambda batch: torch.from_numpy(numpy.asarray(batch["x"], dtype="<i2"))) if self.kind == "tokens" else lambda batch: batch["x"]
            return data.Loader(self.job["samples"], lambda: map(pick, rows.iter(self.batch)), lambda seen: rows.state_dict())
        from torchdata.stateful_dataloader import StatefulDataLoader

        loader = StatefulDataLoader(rows, self.batch, collate_fn=self.collate, **workers(setting))
        if state:
            loader.load_state_dict(state)
        return data.Loader(self.job["samples"], lambda: iter(loader), lambda seen: loader.state_dict())


class Grain(Table):
    """Grain over eight ArrayRecord files, a sample a record, read by threads or by processes."""

    package = "grain"

    def prepare(self, store):
        from array_record.python.array_record_module import ArrayRecordWriter

        if not os.path.exists(self.folder):
            os.mkdir(self.folder)
            files = [ArrayRecordWriter(os.path.join(self.folder, f"{i}.array_record"), "group_size:1") for i in range(8)]
            for i, row in enumerate(data.samples(self.job["plain"])):
                files[i * 8 // self.job["samples"]].write(row)
            for file in files:
                file.close()

    def settings(self, store):
        return [{"threads": 0}, {"threads": 2, "buffer": 512}, {"threads": 16, "buffer": 512}, {"processes": 2, "threads": 16, "buffer": 512}]

    def open(self, place, setting, state=None):
        import grain

        source = grain.sources.ArrayRecordDataSource(sorted(os.path.join(self.folder, name) for name in os.listdir(self.folder)))
        collate = data.stack if self.kind == "tokens" else list
        options = grain.ReadOptions(num_threads=setting["threads"], prefetch_buffer_size=setting.get("buffer", 0))
        batches = grain.MapDataset.source(source).to_iter_dataset(options).batch(self.batch, batch_fn=collate)
        if "processes" in setting:
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=setting["processes"], per_worker_buffer_size=4))
        current, saved = [None], [state]

        def epoch():
            current[0] = iter(batches)
            if saved[0]:
                current[0].set_state(saved[0])
                saved[0] = None
            return current[0]

        return data.Loader(self.job["samples"], epoch, lambda seen: current[0].get_state())


class Lance(Table):
    """LanceDB's StreamingDataset, a split of the rows for each worker, in storage order. Its threads do not survive a fork: each reading imports it."""

    def prepare(self, store):
        import lancedb

        if not os.path.exists(self.folder):
            lancedb.connect(self.folder).create_table("x", self.arrow())

    def settings(self, store):
        return [*({"workers": 0, "read_batch_size": size} for size in (64, 256, 1024, 4096)), {"workers": 2, "prefetch_factor": 4, "read_batch_size": 1024}]

    def open(self, place, setting, state=None):
        import lancedb
        from lancedb.streaming import StreamingDataLoader, StreamingDataset

        table, splits = lancedb.connect(self.folder).open_table("x"), max(1, setting["workers"])
        more = workers(setting, keep=False)  # it refuses to keep them; a fork of its threads hangs
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

        return data.Loader(self.job["samples"] // splits * splits, epoch, lambda seen: current[0].state_dict())
