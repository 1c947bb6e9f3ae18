"""Decoders of images. Each takes a payload, a function that chooses the part of the image, and the
height and width of the result. It returns an array (height, width, 3), or None for what it does not
decode."""

from __future__ import annotations

import functools
import io
import sys
import threading
from typing import Any, Callable, Dict, Optional, Tuple

from .._checks import installed
from ..errors import ConfigError

#: Left, top, width and height in pixels of the original.
Box = Tuple[float, float, float, float]
Choose = Callable[[int, int], Box]
Size = Tuple[int, int]

#: Decoders and the modules that they need, the fastest first.
MODULES = {"simplejpeg": "simplejpeg", "cv2": "cv2", "torchvision": "torchvision", "Pillow": "PIL"}
#: The mode of the operators of torchvision.
RGB = 3  # torchvision.io.ImageReadMode.RGB


#: Whether a module is installed; it is asked for each image.
there = functools.cache(installed)


def numpy() -> Any:
    """The module numpy."""
    try:
        import numpy
    except ImportError:
        raise ConfigError("shardtool.Image needs numpy: install it") from None
    return numpy


def choose(decoder: str) -> str:
    """Returns the decoder to use: the one asked for, or the fastest that is installed."""
    names = [name for name, module in MODULES.items() if there(module)]
    if decoder not in ("auto", *names):
        raise ConfigError(f"decoder={decoder!r}: it is not installed; there are: {', '.join(names) or 'none'}")
    if not names:
        raise ConfigError("decoding images needs a decoder: pip install simplejpeg pillow")
    for name in names if decoder == "auto" else [decoder]:
        if name != "torchvision" or operators() is not None:
            return name
    raise ConfigError("decoder='torchvision': this torchvision cannot decode JPEG; there are: " + ", ".join(names))


@functools.cache
def operators() -> Any:
    """The operators of torchvision.io; None where it was built without them. Its functions warn at
    each call, since 0.29, that TorchCodec will replace them."""
    import torch
    import torchvision.io  # noqa: F401

    return torch.ops.image if hasattr(torch.ops.image, "decode_jpeg") else None


def simplejpeg(payload: memoryview, choose: Choose, size: Size) -> Any:
    """RGB of a JPEG; None for CMYK and for payloads that it cannot decode, but Pillow may."""
    import simplejpeg

    if not is_jpeg(payload):
        return None
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(payload)
        if space.upper() in ("CMYK", "YCCK"):
            return None
        box = choose(width, height)
        part = _reduction(box, size)
        # It decodes at any eighth of the size, but takes longer at 5/8 to 7/8 than at full size.
        least = (-(-height // part), -(-width // part)) if part > 1 else (0, 0)
        pixels = simplejpeg.decode_jpeg(payload, "RGB", min_height=least[0], min_width=least[1])
    except ValueError:
        return None
    return resized(pixels, box, width, height, size)


def cv2(payload: memoryview, choose: Choose, size: Size) -> Any:
    """BGR of a JPEG; None for CMYK, and for other kinds of images: alpha and depth are Pillow's."""
    import cv2

    known = whole_jpeg(payload)
    if known is None:
        return None
    width, height = known
    box = choose(width, height)
    flags = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}
    how = flags[_reduction(box, size)] | cv2.IMREAD_IGNORE_ORIENTATION
    pixels = cv2.imdecode(numpy().frombuffer(payload, numpy().uint8), how)
    return None if pixels is None else resized(pixels, box, width, height, size)


def torchvision(payload: memoryview, choose: Choose, size: Size) -> Any:
    """RGB of a JPEG, which it decodes at full size; None where Pillow can decode a half of it or
    less, for CMYK and other kinds of images, and for what it cannot decode."""
    import torch

    known = whole_jpeg(payload)
    if known is None:
        return None
    width, height = known
    box = choose(width, height)
    if _reduction(box, size) > 1 and there("PIL"):
        return None
    try:
        pixels = operators().decode_jpeg(torch.frombuffer(bytearray(payload), dtype=torch.uint8), RGB)
    except RuntimeError:
        return None
    return resized(pixels.permute(1, 2, 0).numpy(), box, width, height, size)


def pillow(payload: memoryview, choose: Choose, size: Size, exif: bool = False) -> Any:
    """RGB of any image that Pillow knows. Its errors are of many types."""
    from PIL import Image as Pillow
    from PIL import ImageOps

    image: Any = Pillow.open(io.BytesIO(payload))
    if exif:
        image = ImageOps.exif_transpose(image)
    width, height = image.size
    box = choose(width, height)
    if image.format == "JPEG" and image.mode in ("RGB", "L"):
        part = _reduction(box, size)  # the same as for the other decoders
        image.draft("RGB", (max(1, width // part), max(1, height // part)))
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):  # old releases have 16 bits as I
        image = Pillow.fromarray((numpy().asarray(image) / 257).clip(0, 255).round().astype(numpy().uint8))
    if image.mode in ("I", "F"):
        raise ValueError("its pixels are numbers of 32 bits: give the field a function that decodes it")
    if image.mode != "RGB":
        image = image.convert("RGB")
    image = image.crop(part_of(box, width, height, *image.size))
    if kernel() is None:
        return numpy().asarray(image.resize((size[1], size[0]), Pillow.BILINEAR))
    columns, rows = image.size
    return resized(numpy().array(image), (0, 0, columns, rows), columns, rows, size)


#: The decoders that only decode JPEG, by name, and whether their pixels are BGR.
JPEG: Dict[str, Tuple[Callable[[memoryview, Choose, Size], Any], bool]] = {
    "simplejpeg": (simplejpeg, False),
    "cv2": (cv2, True),
    "torchvision": (torchvision, False),
}


def _reduction(box: Box, size: Size) -> int:
    """How many times smaller, of 1, 2, 4 and 8, the image can be decoded: the part still has the
    pixels of the result."""
    least = min(box[2] / size[1], box[3] / size[0])
    return 8 if least >= 8 else 4 if least >= 4 else 2 if least >= 2 else 1


def part_of(box: Box, width: int, height: int, columns: int, rows: int) -> "Tuple[int, int, int, int]":
    """Left, top, right and bottom of the part of an image that was decoded to ``columns`` and
    ``rows``: the whole pixels nearest to the box, or the one that its middle is in where these are
    none."""
    left, right = _nearest(box[0], box[2], columns / width, columns)
    top, bottom = _nearest(box[1], box[3], rows / height, rows)
    return left, top, right, bottom


def _nearest(begin: float, length: float, scale: float, pixels: int) -> "Tuple[int, int]":
    first, end = int(begin * scale + 0.5), min(int((begin + length) * scale + 0.5), pixels)
    if first >= end:
        first = min(int((begin + length / 2) * scale), pixels - 1)
    return first, max(first + 1, end)


def resized(pixels: Any, box: Box, width: int, height: int, size: Size) -> Any:
    """A part of an image, which was decoded at a fraction of its width and height. The filter is
    Pillow's BILINEAR, and sees the pixels of the part alone."""
    left, top, right, bottom = part_of(box, width, height, pixels.shape[1], pixels.shape[0])
    part = pixels[top:bottom, left:right]
    resize = kernel()
    if resize is not None:
        import torch

        return resize(torch.from_numpy(part).permute(2, 0, 1)[None], size, False, None, None)[0].permute(1, 2, 0).numpy()
    if there("PIL"):
        from PIL import Image as Pillow

        return numpy().asarray(Pillow.fromarray(numpy().ascontiguousarray(part)).resize((size[1], size[0]), Pillow.BILINEAR))
    down, across = weights(0, bottom - top, bottom - top, size[0]), weights(0, right - left, right - left, size[1])
    out = numpy().einsum("oi,ijc,pj->opc", down, part.astype("f4"), across, optimize=True)
    return out.round().clip(0, 255).astype("u1")


@functools.cache
def kernel() -> Any:
    """torch's function that resizes bytes with an antialias filter, three times as fast as Pillow;
    None where torch is missing, or has it for other numbers alone, as before 2.1."""
    if not there("torch"):
        return None
    try:
        import torch

        resize = torch.ops.aten._upsample_bilinear2d_aa.default
        resize(torch.zeros((1, 2, 2, 3), dtype=torch.uint8).permute(0, 3, 1, 2), [1, 1], False, None, None)
    except (ImportError, OSError, AttributeError, RuntimeError):
        return None
    return resize


_counting = threading.Lock()


def one_core() -> None:
    """Makes torch use one core in the calling thread, and as many as before in all others. What it
    sets for a thread it also keeps for threads to come, so another thread sets that back."""
    if kernel() is None:
        return
    import torch

    with _counting:
        before = torch.get_num_threads()
        if before > 1:
            torch.set_num_threads(1)
            back = threading.Thread(target=torch.set_num_threads, args=(before,))
            back.start()
            back.join()


def weights(low: float, high: float, pixels: int, size: int) -> Any:
    """How much each pixel of a line contributes to each pixel of its part from ``low`` to ``high``,
    resized: an array (size, pixels). The filter is Pillow's BILINEAR."""
    step = (high - low) / size
    centres = low + (numpy().arange(size) + 0.5) * step
    apart = abs(numpy().arange(pixels) + 0.5 - centres[:, None]) / max(step, 1)
    out = (1 - apart).clip(0)
    return (out / out.sum(1, keepdims=True)).astype("f4")


def put(pixels: Any, out: Any, planes: bool, flip: bool, bgr: bool) -> None:
    """Writes pixels into the array of a sample: as three planes, or as they are. torch and cv2 are
    several times faster than numpy; what is here for another reason is used."""
    if kernel() is not None:
        import torch

        source, target = torch.from_numpy(pixels), torch.from_numpy(out)
        if flip:
            source = source.flip(1)
        if planes:
            source = source.permute(2, 0, 1)
        if not bgr:
            target.copy_(source)
            return
        colors = 0 if planes else 2
        for color in range(3):
            target.select(colors, color).copy_(source.select(colors, 2 - color))
        return
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        if flip:
            pixels = cv2.flip(pixels, 1)
        if planes:
            cv2.split(pixels, [out[2], out[1], out[0]] if bgr else [out[0], out[1], out[2]])
        elif bgr:
            cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, out)
        else:
            out[...] = pixels
        return
    if flip:
        pixels = pixels[:, ::-1]
    out[...] = pixels.transpose(2, 0, 1) if planes else pixels


def is_jpeg(payload: memoryview) -> bool:
    """Whether a payload begins as a JPEG."""
    return bytes(payload[:3]) == b"\xff\xd8\xff"


def jpeg_size(payload: memoryview) -> Optional[Tuple[int, int, int]]:
    """Width, height and components of a JPEG; None if the payload is not a JPEG."""
    if not is_jpeg(payload):
        return None
    at = 2
    while at + 9 < len(payload) and payload[at] == 0xFF:
        marker = payload[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(payload[at + 7 : at + 9], "big"), int.from_bytes(payload[at + 5 : at + 7], "big"), payload[at + 9]
        at += 1 if marker == 0xFF else 2 + int.from_bytes(payload[at + 2 : at + 4], "big")
    return None


def whole_jpeg(payload: memoryview) -> Optional[Tuple[int, int]]:
    """Width and height of a JPEG that has its last bytes and is not CMYK; None for others. Some
    decoders fill what is missing at the end, and report nothing."""
    known = jpeg_size(payload)
    return None if known is None or known[2] == 4 or bytes(payload[-2:]) != b"\xff\xd9" else known[:2]


def plausible(payload: memoryview, width: int, height: int) -> bool:
    """Whether the bytes of a JPEG can have that many pixels: a block of 8 x 8 pixels takes a bit or
    more."""
    return width * height <= max(1 << 20, 1024 * len(payload))


def turned(payload: memoryview) -> bool:
    """Whether the EXIF data of a JPEG names another orientation than the usual one."""
    if not is_jpeg(payload) or not there("PIL"):
        return False
    from PIL import Image as Pillow

    orientation = 0x0112
    with Pillow.open(io.BytesIO(payload)) as image:
        return image.getexif().get(orientation, 1) not in (0, 1)
