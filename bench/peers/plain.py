"""Systems without a separate format: PyTorch over files, and the floor, zstd and tar."""

import os
import subprocess
import time

import data
import measure
import numpy
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, WeightedRandomSampler

REMOTE = 2048  # small files that are put into S3: reading all of them would take hours


class Paths(Dataset):
    """One file for each sample."""

    def __init__(self, folder, names):
        self.folder, self.names = folder, names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        with open(os.path.join(self.folder, self.names[i]), "rb") as f:
            return f.read()


class Objects(Paths):
    """One object for each sample. Every process has its own client."""

    s3 = None

    def __getitem__(self, i):
        if self.s3 is None or self.pid != os.getpid():
            self.s3, self.pid = data.client(self.folder["endpoint"]), os.getpid()
        return self.s3.get_object(Bucket=self.folder["bucket"], Key=self.names[i])["Body"].read()


class Rows(Dataset):
    """Rows of a file of token ids, mapped into memory."""

    def __init__(self, path):
        self.rows = numpy.memmap(path, dtype="<i2", mode="r").reshape(-1, data.TOKENS)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Files(data.System):
    """torch's DataLoader. It resumes by a sampler that begins at the position of the state."""

    resumes = "exact, by a sampler"
    objects = REMOTE

    def folder(self, form=""):
        return self.job["mapped" if self.kind == "tokens" else "files"]

    def settings(self, store):
        counts = (8,) if store == "s3" else (0, 1, 2)  # which wait, most of the time
        return [{"workers": w, "prefetch_factor": 4} if w else {"workers": 0} for w in counts]

    def unfit(self, store):
        return "a mapped file needs a local disk" if self.kind == "tokens" and store == "s3" else ""

    def note(self, store):
        return f"the first {REMOTE} files only, a GET each" if store == "s3" and self.kind == "text" else ""

    def source(self, place):
        if self.kind == "tokens":
            return Rows(self.folder())
        names = sorted(os.path.relpath(os.path.join(at, name), self.folder()) for at, _, files in os.walk(self.folder()) for name in files)
        if place.s3:
            return Objects(place.s3, [f"{self.prefix()}/{name}" for name in names[:REMOTE]])
        return Paths(self.folder(), names)

    def open(self, place, setting, state=None):
        source = ConcatDataset([part.source(place) for part in self.parts]) if self.parts else self.source(place)
        start = [state or 0]

        def epoch():
            order, start[0] = range(start[0], len(source)), 0
            if self.parts:
                shares = [w / len(part) for part, w in zip(source.datasets, data.WEIGHTS) for _ in range(len(part))]
                order = list(WeightedRandomSampler(shares, len(source), generator=torch.Generator().manual_seed(1)))[order.start :]
            return iter(DataLoader(source, self.batch, sampler=order, collate_fn=self.collate, **data.workers(setting, keep=False)))

        made = self.loader(epoch, lambda seen: seen)
        made.samples, made.most = len(source), max(made.most, len(source))
        return made


class Tar(data.System):
    """The floor: zstd and tar, one process each, without Python and without batches."""

    streams = False

    def folder(self, form=""):
        return self.job["packed"]

    def settings(self, store):
        return [{}]

    def commands(self, place):
        shards = sorted(name for name in os.listdir(self.folder()) if name.endswith(".tar.zst"))
        if place.s3:
            fetch = [["curl", "--silent", "--fail", *data.signed(self.job, self.prefix(), shards)], ["zstd", "-dcq"]]
        else:
            fetch = [["zstd", "-dcq", *(os.path.join(self.folder(), name) for name in shards)]]
        return [*fetch, ["tar", "-x", "--to-stdout", "--ignore-zeros"]]

    def pipeline(self, commands):
        """Bytes at the end of the pipe."""
        last, all = None, []
        for command in commands:
            all.append(subprocess.Popen(command, stdin=last, stdout=subprocess.PIPE))
            if last:
                last.close()
            last = all[-1].stdout
        size = 0
        while part := last.read(1 << 20):
            size += len(part)
        for command, process in zip(commands, all):
            if process.wait() != 0:
                raise measure.Failed(f"{command[0]} ended with {process.returncode}")
        return size

    def read(self, place):
        used, began = measure.cpu(), time.perf_counter()
        size = self.pipeline(self.commands(place))
        if size != self.job["bytes"]:
            raise measure.Failed(f"{size} bytes came, not {self.job['bytes']}")
        return {"samples": self.job["samples"], "bytes": size, "seconds": time.perf_counter() - began, "cpu": measure.cpu() - used}
