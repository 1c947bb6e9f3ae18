"""What data sets have where an image is expected, with each decoder that is installed."""

from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path
from typing import Any, Dict

import pytest
from test_image_fields import DECODERS, Pillow, encoded, load, np, picture, spec

import shardtool
from shardtool import DecodeError, Image, Loader


def packed(url: Path, files: Dict[str, bytes]) -> Path:
    with shardtool.Writer(url, fields={"jpg": "bytes"}) as w:
        for i, (key, data) in enumerate(files.items()):
            w.write({"__key__": key, "jpg": data, "cls": i})
    return url


def claims(jpeg: bytes, width: int, height: int) -> bytes:
    """A JPEG whose header has another size."""
    at = jpeg.index(b"\xff\xc0")
    return jpeg[: at + 5] + struct.pack(">HH", height, width) + jpeg[at + 9 :]


def broken() -> "Dict[str, bytes]":
    noise = Pillow.fromarray(np.random.default_rng(1).integers(0, 256, (60, 90, 3), np.uint8))
    jpeg, png, tiff = encoded(noise, "JPEG"), encoded(noise, "PNG"), encoded(noise.convert("F"), "TIFF")
    return {
        "text": b"no image", "empty": b"", "half": jpeg[: len(jpeg) // 2], "end": jpeg[:-2], "header": jpeg[:200], "start": jpeg[:3],
        "huge": claims(jpeg, 9_000, 9_000), "png": png[: len(png) // 2], "float": tiff,
    }  # fmt: skip


@pytest.mark.parametrize("decoder", DECODERS)
def test_not_an_image(tmp_path: Path, decoder: str) -> None:
    """The batch is delivered, and the error names the sample when the field is used."""
    files = {}
    for key, data in broken().items():
        files[f"good-{key}"] = encoded(picture(1), "JPEG")
        files[key] = data
    fields = {"jpg": spec(decoder, 16), "cls": "int"}
    failed = []
    with Loader(packed(tmp_path / "out", files), 2, fields=fields, epochs=1, tuning=shardtool.Tuning(out="numpy")) as loader:
        for batch in loader:
            with pytest.raises(DecodeError, match="cannot decode as an image") as caught:
                batch["jpg"]
            failed.append((caught.value.key, caught.value.field, batch["cls"].tolist()))
            if caught.value.key == "huge":
                assert "9000 x 9000 pixels, more than its bytes can have" in str(caught.value)
            if caught.value.key == "float":
                assert "give the field a function" in str(caught.value)
    assert failed == [(key, "jpg", [2 * i, 2 * i + 1]) for i, key in enumerate(broken())]


@pytest.mark.parametrize("decoder", DECODERS)
def test_tolerated(tmp_path: Path, decoder: str) -> None:
    """Bytes after the end of a JPEG, and fill bytes before a marker."""
    jpeg = encoded(picture(1, 32, 32), "JPEG", quality=95)
    files = {"plain": jpeg, "more": jpeg + bytes(100), "fill": jpeg[:2] + b"\xff" + jpeg[2:]}
    got = load(packed(tmp_path / "out", files), spec(decoder, 32, crop="none"), shuffle=False)
    want = np.asarray(picture(1, 32, 32)).astype(int)
    assert all(np.abs(want - got[0, i].transpose(1, 2, 0)).mean() < 4 for i in range(3))


@pytest.mark.parametrize("decoder", DECODERS)
def test_sixteen_bits(tmp_path: Path, decoder: str) -> None:
    """The brightness does not depend on the other pixels of the image; dark ones stay dark."""
    ramp = np.linspace(0, 1, 32 * 32).reshape(32, 32)
    files = {str(top): encoded(Pillow.fromarray((top * ramp).astype(np.uint16)), "PNG") for top in (200, 30_000, 65_535)}
    got = load(packed(tmp_path / "out", files), spec(decoder, 32, crop="none"), shuffle=False)
    for i, top in enumerate((200, 30_000, 65_535)):
        assert np.abs(top / 257 * ramp - got[0, i][0]).max() <= 1


@pytest.mark.parametrize("decoder", DECODERS)
def test_cmyk(tmp_path: Path, decoder: str) -> None:
    """CMYK in JPEG, as Photoshop writes it and not, and in TIFF."""
    rgb = picture(1, 32, 32)
    out = io.BytesIO()
    rgb.convert("CMYK").save(out, "TIFF")
    files = {"jpeg": encoded(rgb.convert("CMYK"), "JPEG", quality=95), "tiff": out.getvalue()}
    got = load(packed(tmp_path / "out", files), spec(decoder, 32, crop="none"), shuffle=False)
    assert all(np.abs(np.asarray(rgb).astype(int) - got[0, i].transpose(1, 2, 0)).mean() < 6 for i in range(2))


@pytest.mark.parametrize("decoder", DECODERS)
def test_exif(tmp_path: Path, decoder: str) -> None:
    """Each orientation, as it is stored unless ``exif`` is set."""
    image, files, turns = picture(1, 64, 32), {}, Pillow.Transpose
    wanted: Dict[int, Any] = {
        1: None, 2: turns.FLIP_LEFT_RIGHT, 3: turns.ROTATE_180, 4: turns.FLIP_TOP_BOTTOM, 5: turns.TRANSPOSE, 6: turns.ROTATE_270,
        7: turns.TRANSVERSE, 8: turns.ROTATE_90,
    }  # fmt: skip
    for orientation in wanted:
        exif = Pillow.Exif()
        exif[0x0112] = orientation
        files[str(orientation)] = encoded(image, "JPEG", quality=95, exif=exif)
    url = packed(tmp_path / "out", files)
    for turn in (False, True):
        got = load(url, spec(decoder, (32, 32), crop="none", exif=turn), shuffle=False)
        for i, method in enumerate(wanted.values()):
            right = image.transpose(method) if turn and method is not None else image
            want = np.asarray(right.resize((32, 32), Pillow.BILINEAR)).astype(int)
            assert np.abs(want - got[0, i].transpose(1, 2, 0)).mean() < 6, (turn, i)


@pytest.mark.parametrize("how", ["loader", "arrow", "dataset", "workers"])
def test_left_out(tmp_path: Path, how: str) -> None:
    """With on_error="skip", samples whose image is damaged are left out, and no other one moves."""
    files: Dict[str, bytes] = {}
    for key, data in broken().items():
        files.update({f"good-{key}": encoded(picture(1), "JPEG"), key: data, f"more-{key}": data})
    url = packed(tmp_path / "out", files)
    if how in ("dataset", "workers"):
        torch_data = pytest.importorskip("torch.utils.data")
    fields = {"jpg": Image(16), "cls": "int"}
    options: Dict[str, Any] = {"fields": fields, "epochs": 1, "faults": shardtool.Faults(on_error="skip", max_skipped=18)}
    if how in ("dataset", "workers"):
        ds = shardtool.Dataset(url, 4, **options)
        batches: Any = torch_data.DataLoader(ds, batch_size=None, num_workers=2 * (how == "workers"))
    else:
        out = {"arrow": "arrow"}.get(how, "numpy")
        batches = Loader(url, 4, **options, tuning=shardtool.Tuning(out=out))  # type: ignore[arg-type]
    keys, numbers, holes = [], [], 0
    for batch in batches:
        if how == "arrow":
            keys += batch["__key__"].to_pylist()
            numbers += batch["cls"].to_pylist()
            continue
        assert batch.size == len(batch["jpg"]) == len(batch["cls"]) == len(batch.seeds) == len(batch.epochs) == len(batch.sample_keys)
        assert batch.numbers == batch["cls"].tolist()
        keys += batch["__key__"]
        numbers += batch.numbers
        holes += getattr(batch, "holes", 0)
        if how == "loader":
            again = pickle.loads(pickle.dumps(batch))
            assert np.array_equal(again["jpg"], batch["jpg"]) and again.numbers == shardtool.Batch(dict(batch)).numbers == batch.numbers
            assert [bytes(p) for p in batch.payloads("jpg")] == [files[k] for k in batch["__key__"]]
    assert keys == [k for k in files if k.startswith("good-")] and numbers == list(range(0, 27, 3))
    assert holes == (0 if how == "arrow" else 18)
    (ds if how in ("dataset", "workers") else batches).close()
    if how == "loader":
        fewer = shardtool.Faults(on_error="skip", max_skipped=9)
        with Loader(url, 4, **{**options, "tuning": shardtool.Tuning(out="numpy"), "faults": fewer}) as loader:
            with pytest.raises(shardtool.SkippedError, match=r"1\d samples with images that cannot be decoded"):
                list(loader)
