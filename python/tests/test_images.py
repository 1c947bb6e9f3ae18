"""Images, as data sets have them: of several modes and kinds, and some that are none."""

from __future__ import annotations

import importlib.util
import io
import pickle
from pathlib import Path
from typing import Any, Dict

import PIL.Image
import pytest
from conftest import run

import shardtool
from shardtool import ConfigError, DecodeError, Loader


def encoded(mode: str, kind: str, color: Any = 0) -> bytes:
    out = io.BytesIO()
    PIL.Image.new(mode, (20, 10), color).save(out, kind)
    return out.getvalue()


def packed(base: Path, files: Dict[str, bytes]) -> Path:
    (base / "src").mkdir()
    for name, data in files.items():
        (base / "src" / name).write_bytes(data)
    run("pack", base / "src", base / "out", "--quiet")
    return base / "out"


MODES = {"a": ("RGB", "JPEG"), "b": ("L", "JPEG"), "c": ("CMYK", "JPEG"), "d": ("P", "PNG"), "e": ("RGBA", "PNG"), "f": ("1", "PNG")}


def test_modes(tmp_path: Path) -> None:
    """Images are unchanged, or all of one mode; random access delivers both, and they can be sent
    to processes."""
    out = packed(tmp_path, {"e.none": encoded("L", "PNG"), **{f"{name}.img": encoded(*of) for name, of in MODES.items()}})
    with Loader(out, 6, fields={"img": "image"}) as loader:
        images = next(iter(loader))["img"]
        assert [i.mode for i in images] == [mode for mode, _ in MODES.values()]
        assert all(i.size == (20, 10) for i in images)
    for mode in ("RGB", "L"):
        with Loader(out, 6, fields={"img": f"image:{mode}"}) as loader:
            batch = next(iter(loader))
            images = batch["img"]
            batch.release()
            del batch
            next(iter(loader))  # what was decoded is no view
            assert {i.mode for i in images} == {mode}
            assert [i.tobytes() for i in pickle.loads(pickle.dumps(images))] == [i.tobytes() for i in images]
        with shardtool.open(out, fields={"img": f"image:{mode}?", "none": "image?"}) as ds:
            assert ds["e"]["img"].mode == mode and ds[0]["none"] is None
    with pytest.raises(ConfigError, match="the mode is one of 1, L, LA, RGB"):
        Loader(out, 1, fields={"img": "image:rgb"})


def broken() -> Dict[str, bytes]:
    png, jpeg = encoded("RGB", "PNG"), encoded("RGB", "JPEG")
    crc = bytearray(png)
    crc[20] ^= 1
    huge = bytearray(png)
    huge[16:24] = (50_000).to_bytes(4, "big") * 2  # 2.5 gigapixels
    import zlib

    huge[29:33] = zlib.crc32(huge[12:29]).to_bytes(4, "big")
    return {"text": b"no image", "empty": b"", "cut": jpeg[:-60], "head": png[:20], "crc": bytes(crc), "huge": bytes(huge)}


@pytest.mark.parametrize("what", list(broken()))
def test_not_an_image(tmp_path: Path, what: str) -> None:
    """Whatever Pillow makes of it: one class of error, with key and field."""
    out = packed(tmp_path, {"a.img": encoded("RGB", "PNG"), "b.img": broken()[what], "c.img": encoded("L", "PNG")})
    with Loader(out, 3, fields={"img": "image:RGB"}) as loader:
        batch = next(iter(loader))
        with pytest.raises(DecodeError, match=r"sample 'b': field 'img': .* bytes that Pillow cannot decode") as info:
            batch["img"]
        assert (info.value.key, info.value.field) == ("b", "img")
        assert len(batch.payloads("img")) == 3
    with shardtool.open(out, fields={"img": "image"}) as ds:
        assert ds["a"]["img"].mode == "RGB"
        with pytest.raises(DecodeError, match="sample 'b'"):
            ds["b"]


def test_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The declaration of the field raises the error, not the middle of a job."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "PIL" else real(name, *more))
    with pytest.raises(ConfigError, match=r"field 'jpg': 'image:RGB': .* pip install pillow, or read the field as bytes"):
        Loader(tmp_path, 1, fields={"jpg": "image:RGB"})
