"""Batches of images, (64, 3, 224, 224) of uint8, from JPEGs of 500 x 375: random crop, random flip.

    images.py make FOLDER COUNT             writes them as plain tars, as ours, and in the formats of others; prints the bytes of a JPEG
    images.py read SYSTEM WORKERS FOLDER    goes through them twice, and prints JSON of the second time: seconds, processor seconds, images

SYSTEM is "floor" for threads of one process that decode what is in its memory, and nothing else, with torch's filter, as ours. All
decode by simplejpeg; the others resize by cv2.
"""

import io
import json
import math
import os
import pickle
import random
import sys
import tarfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import data
import measure
import numpy
import others
import shardtool
from main import Place

BATCH, SIZE, SHARDS = 64, 224, 8


# ---- data ----
def noise(draw, side):
    """A field whose detail falls with its frequency as that of photos does."""
    f = numpy.fft.fftfreq(side)
    radius = numpy.hypot(f[:, None], f[None])
    radius[0, 0] = 1
    field = numpy.fft.ifft2(numpy.fft.fft2(draw.standard_normal((side, side))) / radius**1.2).real
    return field / field.std()


def jpegs(count):
    """As large as those of ImageNet: 110 KB. They are parts of one large picture."""
    from PIL import Image

    draw, side = numpy.random.default_rng(1), 1024
    light = noise(draw, side)
    colours = numpy.stack([0.9 * light + 0.3 * noise(draw, side) for _ in range(3)], 2)
    pixels = numpy.clip(118 + 55 * colours + draw.normal(0, 3, colours.shape), 0, 255).astype("uint8")
    for _ in range(count):
        top, left = draw.integers(0, side - 375), draw.integers(0, side - 500)
        out = io.BytesIO()
        Image.fromarray(pixels[top : top + 375, left : left + 500]).save(out, "JPEG", quality=93)
        yield out.getvalue()


def make(folder, count):
    payloads = list(jpegs(count))
    os.makedirs(folder)
    with open(f"{folder}/payloads", "wb") as f:
        pickle.dump(payloads, f)
    with shardtool.Writer(f"{folder}/shardtool", fields={"jpg": "bytes"}) as w:
        for payload in payloads:
            w.write({"jpg": payload})
    for shard in range(SHARDS):
        with tarfile.open(f"{folder}/{shard}.tar", "w") as tar:
            for i, payload in enumerate(payloads[shard::SHARDS]):
                member = tarfile.TarInfo(f"{shard}-{i}.jpg")
                member.size = len(payload)
                tar.addfile(member, io.BytesIO(payload))
    for kind in PEERS.values():
        kind(job_of(folder)).prepare("local")
    return sum(map(len, payloads)) // count


def job_of(folder):
    """The job of a system: what it reads, and how."""
    plain = [f"{folder}/{shard}.tar" for shard in range(SHARDS)]
    return {"kind": "images", "field": "jpg", "batch": BATCH, "samples": 0, "shard": 32 << 20, "work": folder, "plain": plain}


# ---- decoding ----
def crop(draw, width, height):
    """A random part, as torchvision's RandomResizedCrop chooses it."""
    for _ in range(10):
        area = width * height * draw.uniform(0.08, 1)
        aspect = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return draw.randint(0, width - w), draw.randint(0, height - h), w, h
    return 0, 0, width, height


def by_cv2(pixels, flip, out):
    """The best resize that others have: of cv2, without an antialias filter where the part is smaller than the result."""
    import cv2

    smaller = pixels.shape[0] > SIZE or pixels.shape[1] > SIZE
    pixels = cv2.resize(pixels, (SIZE, SIZE), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)
    if flip:
        pixels = cv2.flip(pixels, 1)
    cv2.split(pixels, [out[0], out[1], out[2]])


def by_torch(pixels, flip, out):
    """torch's antialias filter for bytes."""
    import torch

    pixels = torch.ops.aten._upsample_bilinear2d_aa(torch.from_numpy(pixels).permute(2, 0, 1)[None], [SIZE, SIZE], False, None, None)[0]
    torch.from_numpy(out).copy_(pixels.flip(2) if flip else pixels)


def decode(payload, draw, out, resize=by_cv2):
    """By simplejpeg, as fast as it can: at a half, a quarter or an eighth of the size where the part has enough pixels then."""
    import simplejpeg

    height, width, _, _ = simplejpeg.decode_jpeg_header(payload)
    left, top, w, h = crop(draw, width, height)
    part = next((n for n in (8, 4, 2) if min(w, h) >= n * SIZE), 1)
    if part > 1:
        pixels = simplejpeg.decode_jpeg(payload, "RGB", min_height=-(-height // part), min_width=-(-width // part))
        left, top, w, h = left // part, top // part, w // part, h // part
    else:
        pixels = simplejpeg.decode_jpeg(payload, "RGB")
    resize(pixels[top : top + h, left : left + w], draw.random() < 0.5, out)


def tensor(rows):
    """For workers of others."""
    import cv2
    import torch

    cv2.setNumThreads(0)
    out = numpy.empty((len(rows), 3, SIZE, SIZE), "uint8")
    for i, row in enumerate(data.column(rows)):
        decode(row, random, out[i])
    return torch.from_numpy(out)


# ---- systems: each gives a function that goes through an epoch of batches ----
def floor(workers, folder):
    import torch

    with open(f"{folder}/payloads", "rb") as f:
        payloads = pickle.load(f)
    out = numpy.empty((BATCH, 3, SIZE, SIZE), "uint8")
    threads = ThreadPoolExecutor(workers)
    torch.set_num_threads(1)  # before the threads: each has an image

    def fill(first, at, count):
        draw = random.Random(first + at)
        for i in range(at, at + count):
            decode(payloads[first + i], draw, out[i], by_torch)

    def epoch():
        for first in range(0, len(payloads) - BATCH + 1, BATCH):
            for job in [threads.submit(fill, first, at, 8) for at in range(0, BATCH, 8)]:
                job.result()
            yield out

    return epoch


def ours(workers, folder):
    image = shardtool.Image(SIZE, crop="random", flip=True, decoder="simplejpeg")
    loader = shardtool.Loader(f"{folder}/shardtool", BATCH, shuffle=True, seed=1, tail="drop", fields={"jpg": image})
    return lambda: (batch["jpg"] for batch in loader)


def peer(system, workers, folder):
    made = PEERS[system](job_of(folder))
    made.collate = tensor
    return made.open(Place(made.job, "local", folder), {"workers": workers, "prefetch_factor": 4}).epoch


PEERS = {"webdataset": others.WebDataset, "mosaicml": others.MosaicML, "litdata": others.LitData}


def read(system, workers, folder):
    epoch = peer(system, workers, folder) if system in PEERS else {"floor": floor, "ours": ours}[system](workers, folder)
    for _ in range(2):
        count, begin, used = 0, time.perf_counter(), measure.cpu()
        for batch in epoch():
            assert tuple(batch.shape[1:]) == (3, SIZE, SIZE) and str(batch.dtype).endswith("uint8")
            count += len(batch)
        took, used = time.perf_counter() - begin, measure.cpu() - used
    return {"seconds": took, "cpu": used, "images": count}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    what, *rest = sys.argv[1:]
    print(make(rest[0], int(rest[1])) if what == "make" else json.dumps(read(rest[0], int(rest[1]), rest[2])))
    sys.stdout.flush()
    os._exit(0)  # workers of others may not end by themselves
