"""Systems without a separate format: PyTorch over files, and the floor, zstd and tar."""

import os
import subprocess
import time

import data
import measure
import numpy
import torch
from torch.utils.data import DataLoader, Dataset

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


def same(rows):
    return rows


def stacked(rows):
    return torch.from_numpy(numpy.stack(rows))


class Files(data.System):
    """torch's DataLoader. It resumes by a sampler that begins at the position of the state."""

    resumes = "exact, by a sampler"

    def settings(self, store):
        counts = (0, 1, 2) if store == "local" else (8,)  # which wait, most of the time
        return [{"workers": w, "prefetch_factor": 4} if w else {"workers": 0} for w in counts]

    def unfit(self, store):
        return "a mapped file needs a local disk" if self.kind == "tokens" and store == "s3" else ""

    def note(self, store):
        return f"the first {REMOTE} files only, a GET each" if store == "s3" and self.kind == "text" else ""

    def names(self):
        folder = self.job["files"]
        return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, files in os.walk(folder) for name in files)

    def prepare(self, store):
        if store == "s3":
            data.upload(self.job, self.job["files"], f"files/{self.kind}", REMOTE)

    def open(self, place, setting, state=None):
        collate = same
        if self.kind == "tokens":
            source, collate = Rows(self.job["mapped"]), stacked
        elif place.s3:
            source = Objects(place.s3, [f"files/{self.kind}/{name}" for name in self.names()[:REMOTE]])
        else:
            source = Paths(self.job["files"], self.names())
        start = [state or 0]

        def epoch():
            begin, start[0] = start[0], 0
            loader = DataLoader(source, self.batch, sampler=range(begin, len(source)), collate_fn=collate, **workers(setting, keep=False))
            return iter(loader)

        return data.Loader(len(source), epoch, lambda seen: seen)


def workers(setting, keep=True):
    """Arguments of a DataLoader."""
    if not setting["workers"]:
        return {"num_workers": 0}
    return {"num_workers": setting["workers"], "prefetch_factor": setting["prefetch_factor"], "persistent_workers": keep}


class Tar(data.System):
    """The floor: zstd and tar, one process each, without Python and without batches."""

    streams = False

    def prepare(self, store):
        if store == "s3":
            data.upload(self.job, self.job["packed"], f"packed/{self.kind}")

    def open(self, place, setting, state=None):
        shards = sorted(name for name in os.listdir(self.job["packed"]) if name.endswith(".tar.zst"))
        if place.s3:
            fetch = [["curl", "--silent", "--fail", *data.signed(self.job, f"packed/{self.kind}", shards)], ["zstd", "-dcq"]]
        else:
            fetch = [["zstd", "-dcq", *(os.path.join(self.job["packed"], name) for name in shards)]]
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
        size = self.pipeline(self.open(place, {}))
        if size != self.job["bytes"]:
            raise measure.Failed(f"{size} bytes came, not {self.job['bytes']}")
        return {"samples": self.job["samples"], "bytes": size, "seconds": time.perf_counter() - began, "cpu": measure.cpu() - used}
