"""Images that a GPU decodes. Without a GPU, a processor decodes in its place: it gets
the same images, and the rest is handled in the same way."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
from pathlib import Path
from typing import Any, ClassVar, Iterator, List

import pytest
from test_image_fields import encoded, picture
from test_image_input import broken, packed

import shardtool
from shardtool import ConfigError, DecodeError, Image, Loader
from shardtool._read import decoders, nvjpeg

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")


class Fake:
    """A processor with the interface of a GPU."""

    device = torch.device("cpu")
    calls: ClassVar[List[int]] = []
    handed = 0

    def __init__(self, name: str) -> None:
        assert name == "cuda"

    def decode(self, files: "List[Any]") -> "List[Any]":
        assert threading.current_thread().name.startswith("shardtool-nvjpeg")
        self.calls.append(len(files))
        return [decoders.operators().decode_jpeg(f, decoders.RGB) for f in files]

    @contextlib.contextmanager
    def stream(self) -> "Iterator[None]":
        yield

    def hand_over(self, tensor: Any) -> Any:
        type(self).handed += 1
        return tensor


@pytest.fixture(params=["fake", "cuda"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fake, and the real one where there is one."""
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        return None
    monkeypatch.setattr(nvjpeg, "Cuda", Fake)
    monkeypatch.setattr(Fake, "calls", [])
    monkeypatch.setattr(Fake, "handed", 0)
    return Fake


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_as_on_the_processor(tmp_path: Path, gpu: Any, layout: Any) -> None:
    """The same parts of the same images, JPEG or not, ahead of the loop and by access."""
    files = {str(i): encoded(picture(i, 80 + i, 60), "PNG" if i % 5 == 0 else "JPEG") for i in range(20)}
    files["cmyk"] = encoded(picture(3, 80, 60).convert("CMYK"), "JPEG", quality=95)
    url = packed(tmp_path / "out", files)
    make = functools.partial(Image, (24, 32), crop="random", flip=True, layout=layout, decoder="Pillow")
    options: Any = {"epochs": 1, "seed": 3, "shuffle": True, "tail": "pad"}
    with Loader(url, 8, fields={"jpg": make(decode="cuda"), "cls": "int"}, **options) as ours:
        with Loader(url, 8, fields={"jpg": make(), "cls": "int"}, **options) as theirs:
            for a, b in zip(ours, theirs):
                assert a["cls"].tolist() == b["cls"].tolist() and a["jpg"].dtype == torch.uint8 and a["jpg"].shape == b["jpg"].shape
                assert a["jpg"].device.type == ("cpu" if gpu else "cuda")
                assert (a["jpg"].cpu().float() - b["jpg"].float()).abs().mean() < 4
        assert ours.stats().decoder == "nvJPEG" and theirs.stats().decoder == "Pillow"
    if gpu:
        assert sum(gpu.calls) == 16 and gpu.handed == 3
    with shardtool.open(url, fields={"jpg": make(decode="cuda")}) as ds:
        assert ds["1"]["jpg"].shape == ((3, 24, 32) if layout == "NCHW" else (24, 32, 3))


def test_damaged(tmp_path: Path, gpu: Any) -> None:
    """One image that nvJPEG refuses: threads decode its batch, and find out which."""
    good = encoded(picture(1), "JPEG")
    whole = broken()["half"] + b"\xff\xd9"  # as if it had an end
    url = packed(tmp_path / "out", {"a": good, "b": good, "c": good, "d": b"no image", "e": good, "f": whole})
    with Loader(url, 2, fields={"jpg": Image(16, decode="cuda"), "cls": "int"}, epochs=1) as loader:
        batches = list(loader)
    assert batches[0]["jpg"].shape == (2, 3, 16, 16)
    with pytest.raises(DecodeError, match="sample 'd': field 'jpg'"):
        batches[1]["jpg"]


def test_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each thing that may be missing has an error, when the field is declared."""
    with pytest.raises(ConfigError, match="give 'cpu', 'cuda', or a GPU such as 'cuda:1'"):
        Image(16, decode="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="decode='cuda': torch finds no GPU: leave decode out"):
            Image(16, decode="cuda")
    with monkeypatch.context() as m:
        m.setattr(torch.cuda, "is_available", lambda: True)
        m.setattr(decoders, "operators", object)
        with pytest.raises(ConfigError, match="decode='cuda:1': this torchvision lacks nvJPEG"):
            Image(16, decode="cuda:1")
    with monkeypatch.context() as m:
        m.setattr(decoders, "there", lambda module: module != "torchvision" and importlib.util.find_spec(module) is not None)
        with pytest.raises(ConfigError, match="nvJPEG is a part of torchvision, and torchvision is not installed"):
            Image(16, decode="cuda")
    monkeypatch.setattr(nvjpeg, "Cuda", Fake)
    with pytest.raises(ConfigError, match="field 'jpg': images that a GPU decodes are tensors: give format='torch', not 'numpy'"):
        Loader(tmp_path, 1, fields={"jpg": Image(16, decode="cuda")}, tuning=shardtool.Tuning(out="numpy"))


def test_the_operator() -> None:
    """Current releases of torchvision have the operator that the GPU is asked by, also without
    one."""
    if not hasattr(decoders.operators(), "decode_jpegs_cuda"):
        pytest.skip("this torchvision has no operator for lists of images")
    schema = str(decoders.operators().decode_jpegs_cuda.default._schema)
    assert schema.startswith("image::decode_jpegs_cuda(Tensor[]") and schema.endswith("-> Tensor[]")
