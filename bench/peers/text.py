"""Text as str, from local disk: shardtool, which shuffles, and others, shuffled and not; and what making the strings takes alone."""

import os

import data
import ours
from others import LitData, by_workers
from plain import workers
from torch.utils.data import DataLoader


class Packed(ours.Copies):
    """Compressed shards."""

    def settings(self, store):
        return [{"copy": True}, {"copy": False}]


class Plain(Packed):
    """Plain tars, not compressed, as the others' data."""

    def folder(self):
        return os.path.dirname(self.job["plain"][0])


class LitDataShuffled(LitData):
    shuffle = True


def column(rows):
    return [row["x"] for row in rows]


class Arrow(data.System):
    """Hugging Face datasets over Arrow files that are mapped into memory: its own batches, or those of a DataLoader."""

    shuffle = False

    def __init__(self, job):
        super().__init__(job)
        import datasets

        self.module, self.folder = datasets, os.path.join(job["work"], "arrow")

    def prepare(self, store):
        if not os.path.exists(self.folder):
            rows = [row.decode() for row in data.samples(self.job["plain"])]
            self.module.Dataset.from_dict({"x": rows}).save_to_disk(self.folder, max_shard_size=self.job["shard"])

    def settings(self, store):
        return [{"batches": "iter"}, {"batches": "iter, arrow, to_pylist"}, {"batches": "iter, arrow, to_numpy"}, *by_workers()]

    def open(self, place, setting, state=None):
        rows, way = self.module.load_from_disk(self.folder), setting.get("batches")
        if way is None:
            loader = DataLoader(rows, self.batch, shuffle=self.shuffle, collate_fn=column, **workers(setting))
            return data.Loader(self.job["samples"], lambda: iter(loader))
        strings = {
            "iter": lambda batch: batch["x"],
            "iter, arrow, to_pylist": lambda batch: batch.column("x").to_pylist(),
            "iter, arrow, to_numpy": lambda batch: batch.column("x").to_numpy().tolist(),
        }[way]

        def epoch():
            order = rows.shuffle() if self.shuffle else rows
            return map(strings, order.with_format("arrow" if "arrow" in way else None).iter(self.batch))

        return data.Loader(self.job["samples"], epoch)


class ArrowShuffled(Arrow):
    shuffle = True


class Alone(data.System):
    """The limit: str of bytes that are in the memory of the process."""

    def open(self, place, setting, state=None):
        rows = list(data.samples(self.job["plain"]))
        batches = [rows[i : i + self.batch] for i in range(0, len(rows), self.batch)]
        return data.Loader(len(rows), lambda: ([str(row, "utf-8") for row in batch] for batch in batches))
