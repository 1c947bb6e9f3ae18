"""What the systems share: samples of plain tars, batches that are lists of bytes or one tensor, a client of S3."""

import os
import tarfile

TOKENS = 2049  # of a row, 16 bits each: as int16, since not every torch has uint16


def samples(files):
    """The payloads in plain tars."""
    for file in files:
        with tarfile.open(file, "r:") as tar:
            for member in tar:
                yield tar.extractfile(member).read()
                tar.members = []


def stack(rows):
    """One tensor of the payloads of token ids."""
    import torch

    return torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.int16).reshape(-1, TOKENS)


class Loader:
    """A system's loader with the interface of the readings. A batch is a list of bytes, or a tensor with a row for each sample."""

    def __init__(self, samples, epoch, state=None, close=lambda: None):
        self.samples = samples  # of an epoch
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


class System:
    """A system under measurement. Subclasses implement it."""

    streams = True  # it has batches, and can be stopped in the middle
    resumes = "exact"

    def __init__(self, job):
        self.job, self.kind, self.batch = job, job["kind"], job["batch"]

    def prepare(self, store):
        """Puts the data where open finds it, in the system's own format."""

    def clean(self):
        """Removes what a killed reading may have left outside of its folder."""

    def settings(self, store):
        return [{}]

    def shown(self, setting):
        return ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in setting.items()) or "defaults"

    def unfit(self, store):
        """Why the system cannot make a reading."""
        return ""

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
