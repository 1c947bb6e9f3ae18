"""Text as str, from local disk: shardtool, which shuffles, and others, shuffled and not; and what making the strings takes alone."""

import os

import data
import ours
import tables
from others import LitData


class Packed(ours.Copies):
    """Compressed shards."""

    def settings(self, store):
        return [{"copy": True}, {"copy": False}]


class Plain(Packed):
    """Plain tars, not compressed, as the others' data."""

    def folder(self, form=""):
        return os.path.dirname(self.job["plain"][0])


class LitDataShuffled(LitData):
    shuffle = True


class ArrowShuffled(tables.Arrow):
    stored = "arrow"
    shuffle = True


class Alone(data.System):
    """The limit: str of bytes that are in the memory of the process."""

    def prepare(self, store):
        """It has the tars."""

    def settings(self, store):
        return [{}]

    def open(self, place, setting, state=None):
        rows = list(data.samples(self.job["plain"]))
        batches = [rows[i : i + self.batch] for i in range(0, len(rows), self.batch)]
        return data.Loader(len(rows), lambda: ([str(row, "utf-8") for row in batch] for batch in batches))
