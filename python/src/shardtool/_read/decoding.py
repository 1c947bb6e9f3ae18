"""Decoding the images of a batch in threads, into one array."""

from __future__ import annotations

import functools
import math
import os
import random
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Optional, Sequence, Tuple

from . import decoders
from .copies import Pool
from .decoders import Box

Payloads = Sequence[Optional[memoryview]]


class Pixels:
    """What becomes of an image: which part of it is used, and how it is decoded and resized."""

    #: The arguments of shardtool.Image.
    size: Tuple[int, int]
    crop: str
    flip: bool
    scale: Tuple[float, float]
    ratio: Tuple[float, float]
    layout: str
    exif: bool
    threads: int
    decode: str
    _by: str  # the decoder of threads

    @property
    def _shape(self) -> "Tuple[int, int, int]":
        return (3, *self.size) if self.layout == "NCHW" else (*self.size, 3)

    def _decode(self, payload: memoryview, seed: int, out: Any) -> None:
        draw = random.Random(seed)  # its random() is the same in all versions of Python
        choose = functools.partial(self._part, draw, payload)
        pixels, bgr = None, False
        if self._by != "Pillow" and not (self.exif and decoders.turned(payload)):
            decode, bgr = decoders.JPEG[self._by]
            pixels = decode(payload, choose, self.size)
        if pixels is None:
            if not decoders.there("PIL"):
                raise ValueError("it is none for it, and Pillow is not installed")
            draw.seed(seed)
            pixels, bgr = decoders.pillow(payload, choose, self.size, self.exif), False
        decoders.put(pixels, out, self.layout == "NCHW", self.flip and draw.random() < 0.5, bgr)

    def _part(self, draw: random.Random, payload: memoryview, width: int, height: int) -> Box:
        """The part of an image that is used, before the image is decoded."""
        if decoders.is_jpeg(payload) and not decoders.plausible(payload, width, height):
            raise ValueError(f"it names a size of {width} x {height} pixels, more than its bytes can have")
        return self._box(draw, width, height)

    def _box(self, draw: random.Random, width: int, height: int) -> Box:
        """The part of an image that is used."""
        if self.crop == "none":
            return 0, 0, width, height
        if self.crop == "center":
            rows, columns = self.size
            part = min(width / columns, height / rows) * 7 / 8  # pixels of the original for one of the result
            return (width - columns * part) / 2, (height - rows * part) / 2, columns * part, rows * part
        for _ in range(10):
            area = width * height * (self.scale[0] + (self.scale[1] - self.scale[0]) * draw.random())
            low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
            aspect = math.exp(low + (high - low) * draw.random())
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            left, top = draw.random(), draw.random()
            if 0 < w <= width and 0 < h <= height:
                return int(left * (width - w + 1)), int(top * (height - h + 1)), w, h
        w = min(width, max(1, round(height * self.ratio[1])))
        h = min(height, max(1, round(width / self.ratio[0])))
        return (width - w) // 2, (height - h) // 2, w, h


class Failed(Exception):
    """The image of a batch, by its number, that cannot be decoded, and why."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number

    def __reduce__(self) -> Any:
        return Failed, (self.number, str(self))


class Pending:
    """The images of a batch, while jobs decode them."""

    def __init__(self, jobs: "Sequence[Future[Any]]", array: Callable[[], Any]) -> None:
        self._jobs, self._array = jobs, array

    def error(self) -> Optional[BaseException]:
        """Waits for all jobs, and returns the error of the first that failed."""
        return next((err for err in [job.exception() for job in self._jobs] if err is not None), None)

    def result(self) -> Any:
        """Waits for all jobs, and returns the array or raises the error."""
        err = self.error()
        if err is not None:
            raise err
        return self._array()


class Threads:
    """Decodes batches in threads of this process, in memory that is used again. One thread begins
    batches."""

    def __init__(self, image: Pixels) -> None:
        self._image, self._memory = image, Pool()

    def begin(self, payloads: Payloads, seeds: Sequence[int]) -> Pending:
        """Starts to decode a batch into one array."""
        image, numpy = self._image, decoders.numpy()
        shape = len(payloads), *image._shape
        size = math.prod(shape)
        out = numpy.frombuffer(self._memory.take(size), numpy.uint8, size).reshape(shape)
        step = max(1, min(16, -(-len(payloads) // (2 * image.threads))))
        pool = _pool(os.getpid(), image.threads)
        starts = range(0, len(payloads), step)
        return Pending([pool.submit(self._fill, out, payloads, seeds, lo, min(lo + step, len(payloads))) for lo in starts], lambda: out)

    def _fill(self, out: Any, payloads: Payloads, seeds: Sequence[int], lo: int, hi: int) -> None:
        for i in range(lo, hi):
            payload = payloads[i]
            if payload is None:  # the sample lacks it
                out[i] = 0
                continue
            try:
                self._image._decode(payload, seeds[i], out[i])
            except MemoryError:
                raise
            except Exception as err:  # decoders raise many types
                raise Failed(i, f"{len(payload)} bytes that {self._image._by} cannot decode as an image: {err}") from err


@functools.cache
def _pool(pid: int, threads: int) -> "ThreadPoolExecutor":
    """The threads of a process: a forked one has its own. Each has an image, so torch must not
    divide one among the cores."""
    return ThreadPoolExecutor(threads, "shardtool-images", decoders.one_core)
