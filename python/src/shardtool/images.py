"""Fields of images as one array of a batch.

::

    fields = {"jpg": shardtool.Image(224, crop="random", flip=True), "cls": "int"}
    for batch in shardtool.Loader(url, 64, shuffle=True, seed=7, fields=fields):
        train(batch["jpg"], batch["cls"])  # uint8, (64, 3, 224, 224)
"""

from __future__ import annotations

import functools
import logging
import math
import os
import random
import re
from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, Sequence, Tuple, Union

from . import _config, _decoders
from ._decoders import Box
from ._own import Pool
from .errors import ConfigError, DecodeError

logger = logging.getLogger("shardtool")

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from ._nvjpeg import Nvjpeg

Payloads = Sequence[Optional[memoryview]]


class Image:
    """Decodes, crops and resizes the images of a field to one uint8 array of shape
    (samples, 3, height, width).

    Threads of this process decode into the memory of the batch, ahead of the loop, while the
    batches before it are in use. The crop and the flip of a sample are drawn from its seed: they
    are the same on any rank, in any worker and after any resume, and differ from epoch to epoch.

    Args:
        size: Height and width of the result, or one number for both.
        crop: "center": the middle of the image, after its shorter side was scaled to size x 8/7.
            "random": a random part, of ``scale`` of the area and an aspect of ``ratio``, as
            torchvision's RandomResizedCrop. "none": the whole image, stretched.
        flip: Mirror a random half of the samples.
        scale, ratio: For ``crop="random"``: the least and greatest share of the area, and width to
            height.
        layout: "NCHW", or "NHWC" for (samples, height, width, 3).
        exif: Turn images by their EXIF orientation. It takes more time.
        threads: Decoding threads. None: one for each core.
        decoder: "auto": the first that is installed of simplejpeg, cv2, torchvision and Pillow;
            ``Loader.stats().decoder`` names it. What it cannot decode, such as PNG or CMYK for the
            first three, Pillow decodes if it is installed. Decoders differ by up to 2 of 255 on
            average, and 8 at most.
        decode: "cpu", or "cuda" for a tensor on the current GPU, "cuda:1" for one on another:
            nvJPEG, a part of torchvision, decodes the JPEGs of a batch, and the GPU crops and
            resizes them. Threads decode what nvJPEG cannot. Needs ``out="torch"``.

    All need numpy. All resize the same part of the image, which need not begin at a whole pixel,
    with the same filter: Pillow's BILINEAR.
    """

    def __init__(
        self,
        size: Union[int, Sequence[int]],
        *,
        crop: Literal["center", "random", "none"] = "center",
        flip: bool = False,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        layout: Literal["NCHW", "NHWC"] = "NCHW",
        exif: bool = False,
        threads: Optional[int] = None,
        decoder: Literal["auto", "simplejpeg", "cv2", "torchvision", "Pillow"] = "auto",
        decode: str = "cpu",
    ) -> None:
        given = _config.typed(Image.__init__, {
            "crop": crop, "flip": flip, "layout": layout, "exif": exif, "threads": threads, "decoder": decoder,
            "decode": decode,
        })  # fmt: skip
        _config.at_least("threads", given["threads"], 1)
        try:
            height, width = (size, size) if isinstance(size, int) else size
            low, high = map(float, scale)
            narrow, wide = map(float, ratio)
        except (TypeError, ValueError):
            raise ConfigError(f"size={size!r}, scale={scale!r}, ratio={ratio!r}: give a size, and two numbers each") from None
        if not all(isinstance(n, int) and 1 <= n <= 1 << 14 for n in (height, width)):
            raise ConfigError(f"size={size!r}: give the height and width in pixels, as in 224 or (224, 320)")
        if not (0 < low <= high <= 1 and 0 < narrow <= wide):
            raise ConfigError(f"scale={scale!r}, ratio={ratio!r}: give the least and the greatest; scale is between 0 and 1")
        self.size = height, width
        self.crop, self.flip, self.scale, self.ratio = crop, flip, (low, high), (narrow, wide)
        self.layout, self.exif, self.threads = layout, exif, given["threads"] or len(os.sched_getaffinity(0))
        if not re.fullmatch(r"cpu|cuda(:\d+)?", decode):
            raise ConfigError(f"decode={decode!r}: give 'cpu', 'cuda', or a GPU such as 'cuda:1'")
        _decoders.numpy()
        self._by, self.decode = _decoders.choose(decoder), decode
        #: The decoder used.
        self.decoder = self._by
        if decode != "cpu":
            from . import _nvjpeg

            _nvjpeg.Cuda(decode)
            self.decoder = "nvJPEG"

    def __repr__(self) -> str:
        return f"shardtool.Image({self.size}, crop={self.crop!r}, flip={self.flip}, decoder={self.decoder!r})"

    # Batches

    @property
    def _shape(self) -> "Tuple[int, int, int]":
        return (3, *self.size) if self.layout == "NCHW" else (*self.size, 3)

    def _begun(self) -> "Union[Threads, Nvjpeg]":
        """Returns what decodes batches, for the thread that calls."""
        if self.decode == "cpu":
            return Threads(self)
        from ._nvjpeg import Nvjpeg

        return Nvjpeg(self)

    def _all(self, payloads: Payloads, seeds: Sequence[int], name: str, key_of: Callable[[int], str]) -> Any:
        """Decodes a batch."""
        try:
            return self._begun().begin(payloads, seeds).result()
        except Failed as err:
            key = key_of(err.number)
            raise DecodeError(f"sample {key!r}: field {name!r}: {err}", key=key, field=name) from err

    def _one(self, payload: memoryview) -> Any:
        """Decodes a sample."""
        try:
            return self._begun().begin([payload], [0]).result()[0]
        except Failed as err:
            raise ValueError(str(err)) from err

    # Samples

    def _decode(self, payload: memoryview, seed: int, out: Any) -> None:
        draw = random.Random(seed)  # its random() is the same in all versions of Python
        choose = functools.partial(self._part, draw, payload)
        pixels, bgr = None, False
        if self._by != "Pillow" and not (self.exif and _decoders.turned(payload)):
            decode, bgr = _decoders.JPEG[self._by]
            pixels = decode(payload, choose, self.size)
        if pixels is None:
            if not _decoders.there("PIL"):
                raise ValueError("it is none for it, and Pillow is not installed")
            draw.seed(seed)
            pixels, bgr = _decoders.pillow(payload, choose, self.size, self.exif), False
        _decoders.put(pixels, out, self.layout == "NCHW", self.flip and draw.random() < 0.5, bgr)

    def _part(self, draw: random.Random, payload: memoryview, width: int, height: int) -> Box:
        """The part of an image that is used, before the image is decoded."""
        if _decoders.is_jpeg(payload) and not _decoders.plausible(payload, width, height):
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

    def __init__(self, image: Image) -> None:
        self._image, self._memory = image, Pool()

    def begin(self, payloads: Payloads, seeds: Sequence[int]) -> Pending:
        """Starts to decode a batch into one array."""
        image, numpy = self._image, _decoders.numpy()
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
            if payload is None:  # padding
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
    """The threads of a process: a forked one has its own."""
    from concurrent.futures import ThreadPoolExecutor  # takes milliseconds

    return ThreadPoolExecutor(threads, "shardtool-images")


def leave_out_damaged(batch: Any, names: Sequence[str]) -> int:
    """Leaves the samples out of a batch whose images cannot be decoded, with a warning for each.
    Returns how many."""
    count = 0
    while True:
        try:
            for name in names:
                batch[name]
            return count
        except DecodeError as err:
            if not isinstance(err.__cause__, Failed):
                raise
            logger.warning("left out a sample: %s", err)
            batch._leave_out(err.__cause__.number)
            count += 1
