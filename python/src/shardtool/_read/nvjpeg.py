"""Images that a GPU decodes, by the nvJPEG of torchvision."""

from __future__ import annotations

import contextlib
import functools
import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, Sequence

from ..errors import ConfigError
from . import decoders
from .decoding import Failed, Payloads, Pending, Pixels, Threads


class Cuda:
    """A GPU. Everything that needs one is here."""

    def __init__(self, name: str) -> None:
        """Takes "cuda" for the current GPU of the thread, or "cuda:1". Raises ConfigError if it
        cannot decode images."""
        asked = f"decode={name!r}"
        for module in ("torch", "torchvision"):
            if not decoders.there(module):
                raise ConfigError(f"{asked}: nvJPEG is a part of torchvision, and {module} is not installed: pip install torch torchvision")
        import torch

        if not torch.cuda.is_available():
            raise ConfigError(f"{asked}: torch finds no GPU: leave decode out, to decode on the processor")
        if not hasattr(decoders.operators(), "decode_jpegs_cuda"):
            raise ConfigError(f"{asked}: this torchvision lacks nvJPEG, or takes no lists of images: install a later one, built for CUDA")
        self.device = torch.device(name)
        if self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        if self.device.index >= torch.cuda.device_count():
            raise ConfigError(f"{asked}: torch finds {torch.cuda.device_count()} GPUs, numbered from 0")

    def decode(self, files: "List[Any]") -> "List[Any]":
        """Decodes JPEGs, tensors of bytes, to tensors (3, height, width) on the GPU. Raises
        RuntimeError if it cannot decode one of them."""
        return decoders.operators().decode_jpegs_cuda(files, decoders.RGB, self.device)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def stream(self) -> "Iterator[None]":
        """A stream of the thread that calls; its work is done at the end."""
        import torch

        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                yield
            stream.synchronize()

    def hand_over(self, tensor: Any) -> Any:
        """Returns a tensor of another stream for the current one: its memory is not reused before
        that is done with it."""
        import torch

        tensor.record_stream(torch.cuda.current_stream(self.device))
        return tensor


class Nvjpeg:
    """Decodes batches on a GPU. As Threads."""

    def __init__(self, image: Pixels) -> None:
        self._image, self._cuda, self._rest = image, Cuda(image.decode), Threads(image)

    def begin(self, payloads: Payloads, seeds: Sequence[int]) -> Pending:
        """Starts to decode a batch into one tensor on the GPU."""
        job = _pool(os.getpid()).submit(self._run, payloads, seeds)
        return Pending([job], lambda: self._cuda.hand_over(job.result()))

    def _run(self, payloads: Payloads, seeds: Sequence[int]) -> Any:
        import torch

        image = self._image
        with self._cuda.stream():
            out = torch.empty((len(payloads), *image._shape), dtype=torch.uint8, device=self._cuda.device)
            decoded = self._decoded(payloads)
            for i, pixels in decoded.items():
                draw = random.Random(seeds[i])
                part = self._resized(pixels, image._box(draw, pixels.shape[2], pixels.shape[1]))
                if image.flip and draw.random() < 0.5:
                    part = part.flip(2)
                out[i] = part if image.layout == "NCHW" else part.permute(1, 2, 0)
            rest = [i for i in range(len(payloads)) if i not in decoded]
            if rest:
                try:
                    others = self._rest.begin([payloads[i] for i in rest], [seeds[i] for i in rest]).result()
                except Failed as err:
                    raise Failed(rest[err.number], str(err)) from err
                out[rest] = torch.from_numpy(others).to(self._cuda.device)
        return out

    def _decoded(self, payloads: Payloads) -> "Dict[int, Any]":
        """Decodes the whole JPEGs, by number. If nvJPEG fails at one, it returns none."""
        import torch

        files = {}
        for i, payload in enumerate(payloads):
            if payload is None or (self._image.exif and decoders.turned(payload)):
                continue
            size = decoders.whole_jpeg(payload)
            if size is not None and decoders.plausible(payload, *size):
                files[i] = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        try:
            return dict(zip(files, self._cuda.decode(list(files.values())))) if files else {}
        except RuntimeError:
            return {}

    def _resized(self, pixels: Any, box: decoders.Box) -> Any:
        """A part of an image (3, height, width), resized on its device."""
        import torch

        size, (rows, columns) = self._image.size, pixels.shape[1:]
        left, top, right, bottom = decoders.part_of(box, columns, rows, columns, rows)
        down, across = (torch.from_numpy(w).to(pixels.device) for w in (
            decoders.weights(0, bottom - top, bottom - top, size[0]), decoders.weights(0, right - left, right - left, size[1])
        ))  # fmt: skip
        return (down @ pixels[:, top:bottom, left:right].float() @ across.T).round_().clamp_(0, 255).to(torch.uint8)


@functools.cache
def _pool(pid: int) -> "ThreadPoolExecutor":
    """The thread of a process that drives its GPU."""
    return ThreadPoolExecutor(1, "shardtool-nvjpeg")
