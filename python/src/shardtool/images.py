"""Fields of images as one array of a batch.

::

    fields = {"jpg": shardtool.Image(224, crop="random", flip=True), "cls": "int"}
    for batch in shardtool.Loader(url, 64, shuffle=True, seed=7, fields=fields):
        train(batch["jpg"], batch["cls"])  # uint8, (64, 3, 224, 224)
"""

from __future__ import annotations

import functools
import importlib.util
import io
import math
import os
import random
from typing import TYPE_CHECKING, Any, Callable, List, Literal, Optional, Sequence, Tuple, Union

from . import _config
from .errors import ConfigError, DecodeError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

#: Left, top, width and height in pixels of the original.
Box = Tuple[float, float, float, float]

_DECODERS = ("simplejpeg", "cv2", "Pillow")
_MODULES = {"simplejpeg": "simplejpeg", "cv2": "cv2", "Pillow": "PIL"}


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
        exif: Turn images as their EXIF orientation says. It takes more time.
        threads: Decoding threads. None: one for each core.
        decoder: "auto": the first that is installed of simplejpeg, cv2 and Pillow;
            ``Loader.stats().decoder`` names it. What it cannot decode, such as PNG or CMYK for
            simplejpeg, Pillow decodes if it is installed. Decoders differ in the last bits.

    All need numpy. The resizing is that of cv2 if it is installed, else that of Pillow.
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
        decoder: Literal["auto", "simplejpeg", "cv2", "Pillow"] = "auto",
    ) -> None:
        given = _config.typed(Image.__init__, {
            "crop": crop, "flip": flip, "layout": layout, "exif": exif, "threads": threads, "decoder": decoder,
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
        _numpy()
        there = [name for name in _DECODERS if importlib.util.find_spec(_MODULES[name]) is not None]
        if decoder == "auto" and not there:
            raise ConfigError("decoding images needs simplejpeg, cv2 or Pillow: pip install simplejpeg pillow")
        if decoder not in ("auto", *there):
            raise ConfigError(f"decoder={decoder!r}: it is not installed; there are: {', '.join(there) or 'none'}")
        #: The decoder used.
        self.decoder = there[0] if decoder == "auto" else decoder
        if "cv2" not in there and "Pillow" not in there:
            raise ConfigError("resizing images needs cv2 or Pillow: install one")

    def __repr__(self) -> str:
        return f"shardtool.Image({self.size}, crop={self.crop!r}, flip={self.flip}, decoder={self.decoder!r})"

    # Batches

    def _empty(self, samples: int) -> Any:
        shape = (3, *self.size) if self.layout == "NCHW" else (*self.size, 3)
        return _numpy().empty((samples, *shape), _numpy().uint8)

    def _begin(self, payloads: "Sequence[Optional[memoryview]]", seeds: Sequence[int]) -> "Tuple[Any, List[Tuple[int, Future[None]]]]":
        """Starts to decode a batch: the array, and the jobs that fill it, each with its first
        sample."""
        out = self._empty(len(payloads))
        step = max(1, min(16, -(-len(payloads) // (2 * self.threads))))
        pool = _pool(os.getpid(), self.threads)
        jobs = []
        for lo in range(0, len(payloads), step):
            hi = min(lo + step, len(payloads))
            jobs.append((lo, pool.submit(self._fill, out, payloads, seeds, lo, hi)))
        return out, jobs

    def _fill(self, out: Any, payloads: "Sequence[Optional[memoryview]]", seeds: Sequence[int], lo: int, hi: int) -> None:
        for i in range(lo, hi):
            payload = payloads[i]
            if payload is None:  # padding
                out[i] = 0
                continue
            try:
                self._decode(payload, seeds[i], out[i])
            except MemoryError:
                raise
            except Exception as err:  # decoders raise many types
                raise _Failed(i, f"{len(payload)} bytes that {self.decoder} cannot decode as an image: {err}") from err

    def _all(self, payloads: "Sequence[Optional[memoryview]]", seeds: Sequence[int], name: str, key_of: Callable[[int], str]) -> Any:
        """Decodes a batch."""
        out, jobs = self._begin(payloads, seeds)
        for _, job in jobs:
            job.exception()  # all end before the first error is raised
        for _, job in jobs:
            try:
                job.result()
            except _Failed as err:
                key = key_of(err.number)
                raise DecodeError(f"sample {key!r}: field {name!r}: {err}", key=key, field=name) from err
        return out

    def _one(self, payload: memoryview) -> Any:
        out = self._empty(1)
        try:
            self._decode(payload, 0, out[0])
        except MemoryError:
            raise
        except Exception as err:
            raise ValueError(f"{len(payload)} bytes that {self.decoder} cannot decode as an image: {err}") from err
        return out[0]

    # Samples

    def _decode(self, payload: memoryview, seed: int, out: Any) -> None:
        draw = random.Random(seed)  # its random() is the same in all versions of Python
        decode = {"simplejpeg": _simplejpeg, "cv2": _cv2, "Pillow": _pillow}[self.decoder]
        choose = functools.partial(self._box, draw)
        pixels = None
        if decode is not _pillow and not (self.exif and _turned(payload)):
            pixels = decode(payload, choose, self.size)
        if pixels is None:
            if importlib.util.find_spec("PIL") is None:
                raise ValueError("it is none for it, and Pillow is not installed")
            draw.seed(seed)
            pixels = _pillow(payload, choose, self.size, self.exif)
        if self.flip and draw.random() < 0.5:
            pixels = pixels[:, ::-1]
        out[...] = pixels.transpose(2, 0, 1) if self.layout == "NCHW" else pixels

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


class _Failed(Exception):
    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number

    def __reduce__(self) -> Any:
        return _Failed, (self.number, str(self))


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ConfigError("shardtool.Image needs numpy: install it") from None
    return numpy


@functools.cache
def _pool(pid: int, threads: int) -> "ThreadPoolExecutor":
    """The threads of a process: a forked one has its own."""
    from concurrent.futures import ThreadPoolExecutor  # takes milliseconds

    return ThreadPoolExecutor(threads, "shardtool-images")


# Decoders: each returns an array (height, width, 3), or None for what it does not decode.


def _simplejpeg(payload: memoryview, choose: Callable[[int, int], Box], size: Tuple[int, int]) -> Any:
    import simplejpeg

    if not _is_jpeg(payload):
        return None
    data = bytes(payload)
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
        if space.upper() in ("CMYK", "YCCK"):
            return None
        box = choose(width, height)
        least = [math.ceil(full * wanted / part) for full, wanted, part in ((height, size[0], box[3]), (width, size[1], box[2]))]
        pixels = simplejpeg.decode_jpeg(data, "RGB", min_height=min(least[0], height), min_width=min(least[1], width))
    except ValueError:  # Pillow may be more tolerant
        return None
    return _resized(pixels, box, width, height, size)


def _cv2(payload: memoryview, choose: Callable[[int, int], Box], size: Tuple[int, int]) -> Any:
    import cv2

    numpy = _numpy()
    known = _jpeg_size(payload)
    if known is None:  # alpha and depth are Pillow's
        return None
    width, height, components = known
    if components == 4:
        return None
    box = choose(width, height)
    flags, shrink = cv2.IMREAD_COLOR, min(box[2] / size[1], box[3] / size[0])
    for factor, flag in ((8, cv2.IMREAD_REDUCED_COLOR_8), (4, cv2.IMREAD_REDUCED_COLOR_4), (2, cv2.IMREAD_REDUCED_COLOR_2)):
        if shrink >= factor:
            flags = flag
            break
    pixels = cv2.imdecode(numpy.frombuffer(payload, numpy.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:
        return None
    return _resized(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), box, width, height, size)


def _resized(pixels: Any, box: Box, width: int, height: int, size: Tuple[int, int]) -> Any:
    """A part of an image, which was decoded at a fraction of its width and height."""
    numpy = _numpy()
    x, y = pixels.shape[1] / width, pixels.shape[0] / height
    left, top = min(int(box[0] * x), pixels.shape[1] - 1), min(int(box[1] * y), pixels.shape[0] - 1)
    right, bottom = max(left + 1, math.ceil((box[0] + box[2]) * x)), max(top + 1, math.ceil((box[1] + box[3]) * y))
    part = pixels[top : min(bottom, pixels.shape[0]), left : min(right, pixels.shape[1])]
    if part.shape[:2] == size:
        return part
    if importlib.util.find_spec("cv2") is not None:
        import cv2

        smaller = part.shape[0] > size[0] or part.shape[1] > size[1]
        return cv2.resize(part, (size[1], size[0]), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)
    from PIL import Image as Pillow

    return numpy.asarray(Pillow.fromarray(numpy.ascontiguousarray(part)).resize((size[1], size[0]), Pillow.BILINEAR))


def _pillow(payload: memoryview, choose: Callable[[int, int], Box], size: Tuple[int, int], exif: bool = False) -> Any:
    from PIL import Image as Pillow
    from PIL import ImageOps

    numpy = _numpy()
    image: Any = Pillow.open(io.BytesIO(payload))
    if exif:
        image = ImageOps.exif_transpose(image)
    width, height = image.size
    box = choose(width, height)
    if image.format == "JPEG" and image.mode in ("RGB", "L"):
        image.draft("RGB", (math.ceil(width * size[1] / box[2]), math.ceil(height * size[0] / box[3])))
    x, y = image.size[0] / width, image.size[1] / height
    if image.mode.startswith("I") or image.mode == "F":  # 16 bits
        values = numpy.asarray(image)
        image = Pillow.fromarray((values / 257 if values.max(initial=0) > 255 else values).clip(0, 255).astype(numpy.uint8))
    if image.mode != "RGB":
        image = image.convert("RGB")
    part = (box[0] * x, box[1] * y, min((box[0] + box[2]) * x, image.size[0]), min((box[1] + box[3]) * y, image.size[1]))
    return numpy.asarray(image.resize((size[1], size[0]), Pillow.BILINEAR, box=part))


def _is_jpeg(payload: memoryview) -> bool:
    return bytes(payload[:3]) == b"\xff\xd8\xff"


def _jpeg_size(payload: memoryview) -> Optional[Tuple[int, int, int]]:
    """Width, height and components of a JPEG; None for what is none."""
    if not _is_jpeg(payload):
        return None
    at = 2
    while at + 9 < len(payload) and payload[at] == 0xFF:
        marker = payload[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(payload[at + 7 : at + 9], "big"), int.from_bytes(payload[at + 5 : at + 7], "big"), payload[at + 9]
        at += 1 if marker == 0xFF else 2 + int.from_bytes(payload[at + 2 : at + 4], "big")
    return None


def _turned(payload: memoryview) -> bool:
    """Whether the EXIF data of a JPEG names another orientation than the usual one."""
    if not _is_jpeg(payload) or importlib.util.find_spec("PIL") is None:
        return False
    from PIL import Image as Pillow

    orientation = 0x0112
    with Pillow.open(io.BytesIO(payload)) as image:
        return image.getexif().get(orientation, 1) not in (0, 1)
