"""Fields of images as one array of a batch.

::

    fields = {"jpg": shardtool.Image(224, crop="random", flip=True), "cls": "int"}
    for batch in shardtool.Loader(url, 64, shuffle=True, seed=7, fields=fields):
        train(batch["jpg"], batch["cls"])  # uint8, (64, 3, 224, 224)
"""

from __future__ import annotations

import logging
import re
from typing import Any, Callable, Literal, Optional, Sequence, Union

from . import _checks, guesses
from ._read import decoders, nvjpeg
from ._read.decoding import Failed, Payloads, Pixels, Threads
from ._system import processors
from .errors import ConfigError, DecodeError

logger = logging.getLogger("shardtool")


class Image(Pixels):
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
            resizes them. Threads decode what nvJPEG cannot. Needs ``format="torch"``.

    All need numpy. All resize the same part of the image with the same filter, Pillow's BILINEAR:
    the whole pixels of what was decoded that are nearest to the crop, or the one in its middle
    where these are none. The filter sees the pixels of the part alone. Where torch 2.1 or newer is
    installed, its function does it, which differs from Pillow by up to 1 of 255 on average, and 12
    at most.
    """

    @guesses.answering(guesses.IMAGE, written="Image(224), or Image((224, 320), crop='random', flip=True)")
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
        given = _checks.typed(Image.__init__, {
            "crop": crop, "flip": flip, "layout": layout, "exif": exif, "threads": threads, "decoder": decoder,
            "decode": decode,
        })  # fmt: skip
        _checks.at_least("threads", given["threads"], 1)
        try:
            height, width = (size, size) if isinstance(size, int) else size
        except (TypeError, ValueError):
            raise ConfigError(f"size={size!r}: give the height and width in pixels, as in 224 or (224, 320)") from None
        try:
            low, high = map(float, scale)
            narrow, wide = map(float, ratio)
        except (TypeError, ValueError):
            raise ConfigError(f"scale={scale!r}, ratio={ratio!r}: give two numbers each, as in scale=(0.08, 1.0)") from None
        if not all(isinstance(n, int) and 1 <= n <= 1 << 14 for n in (height, width)):
            raise ConfigError(f"size={size!r}: give the height and width in pixels, as in 224 or (224, 320)")
        if not (0 < low <= high <= 1 and 0 < narrow <= wide):
            raise ConfigError(f"scale={scale!r}, ratio={ratio!r}: give the least and the greatest; scale is between 0 and 1")
        self.size = height, width
        self.crop, self.flip, self.scale, self.ratio = crop, flip, (low, high), (narrow, wide)
        self.layout, self.exif, self.threads = layout, exif, given["threads"] or processors()
        if not re.fullmatch(r"cpu|cuda(:\d+)?", decode):
            raise ConfigError(f"decode={decode!r}: give 'cpu', 'cuda', or a GPU such as 'cuda:1'")
        decoders.numpy()
        self._by, self.decode = decoders.choose(decoder), decode
        #: The decoder used.
        self.decoder = self._by
        if decode != "cpu":
            nvjpeg.Cuda(decode)
            self.decoder = "nvJPEG"

    def __repr__(self) -> str:
        return f"shardtool.Image({self.size}, crop={self.crop!r}, flip={self.flip}, decoder={self.decoder!r})"

    # Batches

    def _begun(self) -> "Union[Threads, nvjpeg.Nvjpeg]":
        """Returns the decoder of batches for the calling thread."""
        if self.decode == "cpu":
            return Threads(self)
        return nvjpeg.Nvjpeg(self)

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
