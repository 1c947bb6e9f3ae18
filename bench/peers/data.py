"""What the systems share: samples of plain tars, batches that are lists of bytes or one tensor, workers, mixes, a client of S3."""

import importlib
import os
import tarfile

import numpy

TOKENS = 2049  # of a row, 16 bits each: as int16, since not every torch has uint16
LENGTH = 2048  # tokens of a packed sequence
WEIGHTS = (0.4, 0.3, 0.2, 0.1)  # of the sources of a mix


def samples(files):
    """The payloads in plain tars."""
    for file in files:
        with tarfile.open(file, "r:") as tar:
            for member in tar:
                yield tar.extractfile(member).read()
                tar.members = []


def rows(kind, files):
    """The samples in the type in which they are stored."""
    for row in samples(files):
        yield numpy.frombuffer(row, "<i2") if kind in ("tokens", "packed") else row.decode() if kind == "str" else row


def column(rows):
    """A list of the samples."""
    return [row["x"] for row in rows] if isinstance(rows[0], dict) else list(rows)


def stacked(rows):
    """One tensor of the token ids of the samples."""
    import torch

    rows = column(rows)
    if isinstance(rows[0], bytes):
        return torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.int16).reshape(-1, TOKENS)
    return torch.from_numpy(numpy.stack([numpy.asarray(row, "<i2") for row in rows]))


def workers(setting, keep=True):
    """Arguments of a DataLoader."""
    if not setting["workers"]:
        return {"num_workers": 0}
    return {"num_workers": setting["workers"], "prefetch_factor": setting["prefetch_factor"], "persistent_workers": keep}


def by_workers(*more):
    """Settings that all systems are tried with, and settings of each system."""
    return [
        {"workers": 0},
        {"workers": 2, "prefetch_factor": 4},
        {"workers": 2, "prefetch_factor": 16},
        *({"workers": 2, "prefetch_factor": 4, **m} for m in more),
    ]


class Loader:
    """A system's loader with the interface of the readings. A batch is a list of bytes, or a tensor with a row for each sample."""

    def __init__(self, samples, epoch, state=None, close=lambda: None):
        self.samples = self.most = samples  # of an epoch
        self.epoch = epoch  # gives the batches of the next one
        self.state = state  # after so many samples of an epoch
        self.close = close

    @staticmethod
    def count(batch):
        if isinstance(batch, list):
            return len(batch), sum(map(len, batch))
        return batch.shape[0], batch.numel() * batch.element_size()

    @staticmethod
    def payloads(batch):
        for row in batch:
            yield bytes(row) if isinstance(batch, list) else row.numpy().tobytes()

    def until_all(self):
        """Of a mix, whose own epochs end elsewhere: an epoch is as many batches as have that number of samples."""
        epoch, batches = self.epoch, [iter(())]

        def some():
            total = 0
            while total < self.samples:
                for batch in batches[0]:
                    total += self.count(batch)[0]
                    yield batch
                    if total >= self.samples:
                        return
                batches[0] = iter(epoch())

        self.epoch = some


class System:
    """A system under measurement. Subclasses implement it. The parts of a mix are systems of the same class, with the data of a source each."""

    streams = True  # it has batches, and can be stopped in the middle
    resumes = "exact"
    package = None  # imported before the readings are forked
    lazy = None  # imported in each reading, before its time begins
    stored = ""  # name of the folder of its data, if another class has the same
    remote = ""  # why it does not read from S3

    def __init__(self, job):
        self.job, self.kind, self.batch = job, job["kind"], job["batch"]
        self.collate = stacked if self.kind == "tokens" else column
        self.module = self.package and importlib.import_module(self.package)
        self.parts = [type(self)(part) for part in job.get("parts") or []]

    def folder(self, form=""):
        """The place of the data in the system's own format."""
        return os.path.join(self.job["work"], (self.stored or type(self).__name__.lower()) + form)

    def forms(self, store):
        """The forms of the data: not compressed, or compressed too."""
        return [""]

    def rows(self):
        return rows(self.kind, self.job["plain"])

    def prepare(self, store):
        """Puts the data where open finds it."""
        for part in self.parts or [self]:
            for form in part.forms(store):
                if not os.path.exists(part.folder(form)):
                    part.pack(part.folder(form), form)
                if store == "s3":
                    upload(part.job, part.folder(form), part.prefix(form), part.objects)

    objects = None  # that are put into S3

    def prefix(self, form=""):
        return f"{os.path.basename(self.folder(form))}/{self.kind}"

    def address(self, place, form=""):
        return f"s3://{place.s3['bucket']}/{self.prefix(form)}" if place.s3 else self.folder(form)

    def loader(self, *args, **more):
        made = Loader(self.job["samples"], *args, **more)
        if self.parts:
            made.until_all()
        if self.kind in ("mix", "packed"):
            made.most = int(1.1 * made.samples) + self.batch  # the last batch, and sequences that are not full
        return made

    def load(self):
        if self.lazy:
            importlib.import_module(self.lazy)

    def clean(self):
        """Removes what a killed reading may have left outside of its folder."""

    def settings(self, store):
        return by_workers()

    def shown(self, setting):
        return ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in setting.items()) or "defaults"

    def unfit(self, store):
        """Why the system cannot make a reading."""
        return self.remote if store == "s3" else ""

    def note(self, store):
        return ""


# ---- S3 ----
def client(endpoint):
    import boto3
    from botocore.config import Config

    return boto3.client("s3", endpoint_url=endpoint, config=Config(signature_version="s3v4"))


def upload(job, folder, prefix, limit=None):
    """Puts the files of a folder below a prefix of the bucket, once: straight to the server."""
    from concurrent.futures import ThreadPoolExecutor

    done = os.path.join(job["work"], f"uploaded-{prefix.replace('/', '-')}")
    if os.path.exists(done):
        return
    s3 = client(job["s3"]["direct"])
    names = [os.path.relpath(os.path.join(at, name), folder) for at, _, files in os.walk(folder) for name in files]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: s3.upload_file(os.path.join(folder, n), job["s3"]["bucket"], f"{prefix}/{n}"), sorted(names)[:limit]))
    with open(done, "w"):
        pass


def signed(job, prefix, names):
    """URLs that any HTTP client can read, through the slow network."""
    s3 = client(job["s3"]["endpoint"])
    return [
        s3.generate_presigned_url("get_object", Params={"Bucket": job["s3"]["bucket"], "Key": f"{prefix}/{name}"}, ExpiresIn=86400)
        for name in names
    ]
