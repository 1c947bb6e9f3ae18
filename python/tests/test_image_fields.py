"""shardtool.Image: images of a field as one array of a batch."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List

import pytest

import shardtool
from oracle import sample_seed
from shardtool import ConfigError
from shardtool._read import decoding
from shardtool._read.decoders import jpeg_size, kernel, part_of, pillow, resized, weights, whole_jpeg
from shardtool.images import Image

np = pytest.importorskip("numpy")
Pillow = pytest.importorskip("PIL.Image")

N = 60
DECODERS = ["simplejpeg", "cv2", "torchvision", "Pillow"]


def picture(i: int, width: int = 90, height: int = 60) -> Any:
    """Smooth, so that decoders and ways to resize agree, and not symmetric."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    return Pillow.fromarray(np.stack([255 * x, 255 * y, 128 + 100 * np.sin(i + 2 * x)], 2).astype("u1"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    url = tmp_path_factory.mktemp("images") / "out"
    with shardtool.Writer(url, fields={"jpg": "jpg:95"}, block_size="16KiB") as w:
        for i in range(N):
            w.write({"jpg": picture(i, 80 + i, 60), "cls": i})
    return url


def spec(name: str, *args: Any, **options: Any) -> Image:
    """An Image with a decoder that is installed."""
    module = {"Pillow": "PIL"}.get(name, name)
    pytest.importorskip(module, reason=f"{module} is not installed")
    return Image(*args, decoder=name, **options)


def load(url: Path, image: Image, **options: Any) -> "Dict[tuple[int, int], Any]":
    """The images by epoch and number."""
    out = {}
    options = {"epochs": 1, "seed": 7, "shuffle": True, "tuning": shardtool.Tuning(out="numpy"), **options}
    with shardtool.Loader(url, 16, fields={"jpg": image, "cls": "int"}, **options) as loader:
        epochs = range(options["epochs"] or 1)
        for epoch in epochs:
            for batch in loader:
                assert batch["jpg"].dtype == np.uint8 and batch["jpg"].shape[0] == batch.size
                for pixels, number in zip(batch["jpg"], batch["cls"]):
                    out[epoch, int(number)] = pixels.copy()
        assert loader.stats().decoder == image.decoder
    return out


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("crop", ["center", "random", "none"])
def test_pixels(pictures: Path, decoder: str, crop: Any) -> None:
    """Every decoder gives the part of the image that the seed determines."""
    image = spec(decoder, (32, 48), crop=crop, flip=crop == "random")
    got = load(pictures, image)
    assert len(got) == N
    for (epoch, i), pixels in got.items():
        assert pixels.shape == (3, 32, 48)
        draw = random.Random(sample_seed(7, epoch, i))
        box = image._box(draw, 80 + i, 60)
        want = picture(i, 80 + i, 60).resize((48, 32), Pillow.BILINEAR, box=(box[0], box[1], box[0] + box[2], box[1] + box[3]))
        flat = np.asarray(want)
        if image.flip and draw.random() < 0.5:
            flat = flat[:, ::-1]
        assert np.abs(flat.astype(int) - pixels.transpose(1, 2, 0)).mean() < 6, (i, decoder)


def test_same_everywhere(pictures: Path) -> None:
    """Crops and flips depend on the sample and the epoch alone, not on ranks, threads or resume."""
    image = Image(24, crop="random", flip=True)
    whole = load(pictures, image, epochs=2)
    assert len(whole) == 2 * N and any(not np.array_equal(whole[0, i], whole[1, i]) for i in range(N))
    for rank in range(2):
        part = load(pictures, Image(24, crop="random", flip=True, threads=1), rank=rank, world_size=2, epochs=2, tail="drop")
        assert all(np.array_equal(pixels, whole[at]) for at, pixels in part.items())
    fields = {"jpg": image, "cls": "int"}
    with shardtool.Loader(pictures, 16, fields=fields, epochs=2, seed=7, shuffle=True, tuning=shardtool.Tuning(out="numpy")) as loader:
        for batch in loader:
            saved = loader.state_dict()
            break
    with shardtool.Loader(pictures, 16, fields=fields, epochs=2, seed=7, shuffle=True, tuning=shardtool.Tuning(out="numpy")) as loader:
        loader.load_state_dict(saved)
        rest = [(int(n), p.copy()) for batch in loader for p, n in zip(batch["jpg"], batch["cls"])]
    assert len(rest) == N - batch.size and all(np.array_equal(p, whole[0, n]) for n, p in rest)


def test_wrapped_batches(pictures: Path) -> None:
    """A batch that reaches into the next epoch has that epoch's crops."""
    image = Image(24, crop="random")
    whole = load(pictures, image, epochs=2)
    with shardtool.Loader(
        pictures, 16, fields={"jpg": image, "cls": "int"}, seed=7, shuffle=True, tuning=shardtool.Tuning(out="numpy"), tail="wrap"
    ) as loader:
        seen: List[int] = []
        for batch in loader:
            for p, n in zip(batch["jpg"], batch["cls"]):
                assert np.array_equal(p, whole[len(seen) // N, int(n)])
                seen.append(int(n))
    assert len(seen) == 64


def test_layout_and_random_access(pictures: Path) -> None:
    rows = load(pictures, Image((20, 30), layout="NHWC"))
    planes = load(pictures, Image((20, 30)))
    assert all(np.array_equal(rows[at].transpose(2, 0, 1), planes[at]) for at in rows) and rows[0, 0].shape == (20, 30, 3)
    with shardtool.open(pictures, fields={"jpg": Image((20, 30)), "cls": "int"}, tuning=shardtool.Tuning(out="numpy")) as ds:
        assert np.array_equal(ds[5]["jpg"], planes[0, 5])
    torch = pytest.importorskip("torch")
    with shardtool.open(pictures, fields={"jpg": Image((20, 30))}, format="torch") as ds:
        assert isinstance(ds[5]["jpg"], torch.Tensor) and np.array_equal(ds[5]["jpg"].numpy(), planes[0, 5])


def encoded(image: Any, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("decoder", DECODERS)
def test_other_kinds(tmp_path: Path, decoder: str) -> None:
    """PNG, gray, CMYK, palettes, alpha and 16 bits."""
    image = spec(decoder, 16, crop="none")
    rgb = picture(1, 32, 32)
    deep = Pillow.fromarray(np.asarray(rgb.convert("L")).astype("u2") * 257)
    kinds = {
        "png": encoded(rgb, "PNG"), "gray": encoded(rgb.convert("L"), "JPEG", quality=95),
        "cmyk": encoded(rgb.convert("CMYK"), "JPEG", quality=95),
        "palette": encoded(rgb.quantize(200), "PNG"), "alpha": encoded(rgb.convert("RGBA"), "PNG"), "deep": encoded(deep, "PNG"),
        "progressive": encoded(rgb, "JPEG", quality=95, progressive=True),
    }  # fmt: skip
    with shardtool.Writer(tmp_path / "out", fields={"jpg": "bytes"}) as w:
        for i, (key, data) in enumerate(kinds.items()):
            w.write({"__key__": key, "jpg": data, "cls": i})
    got = load(tmp_path / "out", image, shuffle=False)
    for i, key in enumerate(kinds):
        want = np.asarray((rgb.convert("L") if key in ("gray", "deep") else rgb).convert("RGB").resize((16, 16), Pillow.BILINEAR)).astype(
            int
        )
        assert np.abs(want - got[0, i].transpose(1, 2, 0)).mean() < 8, key


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("times", [1, 2, 3, 5, 9])
def test_scaled(decoder: str, times: int) -> None:
    """Images that are decoded at a part of their size: the same part of the picture."""
    image = spec(decoder, (40, 64), crop="random")
    rgb = picture(3, 64 * times, 40 * times)
    for seed in range(5):
        out = np.empty((3, 40, 64), np.uint8)
        image._decode(memoryview(encoded(rgb, "JPEG", quality=95)), seed, out)
        box = image._box(random.Random(seed), *rgb.size)
        want = np.asarray(rgb.resize((64, 40), Pillow.BILINEAR, box=(box[0], box[1], box[0] + box[2], box[1] + box[3])))
        assert np.abs(want.astype(int) - out.transpose(1, 2, 0)).mean() < 4


def test_padding(pictures: Path) -> None:
    """The images that fill a batch are real ones."""
    with shardtool.Loader(pictures, 16, fields={"jpg": Image(8)}, epochs=1, tuning=shardtool.Tuning(out="numpy"), tail="pad") as loader:
        last = list(loader)[-1]
        assert last.size == 16 and last.padding == 4 and (last["jpg"][-4:] == last["jpg"][:4]).all() and last["jpg"][-4:].any()


def test_header() -> None:
    data = encoded(picture(1, 50, 40), "JPEG")
    assert jpeg_size(memoryview(data)) == (50, 40, 3)
    for cut in range(60):
        jpeg_size(memoryview(data[:cut]))
    assert jpeg_size(memoryview(b"\x89PNG")) is None
    assert whole_jpeg(memoryview(data)) == (50, 40) and whole_jpeg(memoryview(data[:-2])) is None
    assert whole_jpeg(memoryview(encoded(picture(1).convert("CMYK"), "JPEG"))) is None
    assert pillow(memoryview(data), lambda w, h: (0, 0, w, h), (4, 4)).shape == (4, 4, 3)


@pytest.mark.parametrize(
    "options",
    [{"size": 0}, {"size": "x"}, {"size": (1, 2, 3)}, {"size": 8, "crop": "middle"}, {"size": 8, "scale": (0, 1)}, {"size": 8, "ratio": 1},
     {"size": 8, "threads": 0}, {"size": 8, "decoder": "x"}, {"size": 8, "layout": "CHW"}, {"size": 8, "flip": 1}],
    ids=str,
)  # fmt: skip
def test_options(options: Any) -> None:
    with pytest.raises(ConfigError):
        Image(**options)


@pytest.mark.parametrize("decoder", ["simplejpeg", "cv2", "torchvision"])
@pytest.mark.parametrize("size", [(97, 61), (640, 427), (33, 500)])
def test_decoders_agree(tmp_path: Path, decoder: str, size: "tuple[int, int]") -> None:
    """Decoders use the same pixels of an image: they differ by up to 2 on average and 8 at most,
    also where the image has edges."""
    rng, (width, height) = np.random.default_rng(3), size
    coarse = Pillow.fromarray(rng.integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), np.uint8))
    files = [encoded(coarse.resize((width, height), how), "JPEG", quality=92) for how in (Pillow.NEAREST, Pillow.BICUBIC)]
    with shardtool.Writer(tmp_path, fields={"jpg": "bytes"}) as w:
        for i in range(16):
            w.write({"jpg": files[i % 2], "cls": i})
    for crop in ("random", "center", "none"):
        want = load(tmp_path, spec("Pillow", (24, 40), crop=crop, flip=True))
        got = load(tmp_path, spec(decoder, (24, 40), crop=crop, flip=True))
        apart = np.stack([np.abs(got[at].astype(int) - want[at]) for at in want])
        assert apart.max() <= 8 and apart.mean() <= 2, crop


def test_weights() -> None:
    """Where Pillow is missing, and on a GPU, images are resized with the same filter."""
    pixels = np.random.default_rng(5).integers(0, 256, (50, 70, 3), np.uint8)
    for box in ((0, 0, 70, 50), (3.3, 7.9, 61.25, 40.5), (10.5, 4.25, 17.5, 13.0)):
        for rows, columns in ((16, 24), (50, 70), (90, 33)):
            want = np.asarray(Pillow.fromarray(pixels).resize((columns, rows), Pillow.BILINEAR, box=box)).astype(int)
            down, across = weights(box[1], box[3], 50, rows), weights(box[0], box[2], 70, columns)
            got = np.einsum("oi,ijc,pj->opc", down, pixels, across).round().astype(int)
            assert np.abs(got - want).max() <= 1


def test_whole_pixels() -> None:
    """The part of an image has a pixel, lies in it, and is within half a pixel of the box."""
    draw = random.Random(4)
    for _ in range(3000):
        width, height = (draw.randint(1, 1 << draw.randint(0, 12)) for _ in range(2))
        shrink = draw.choice([1, 2, 4, 8])
        columns, rows = -(-width // shrink), -(-height // shrink)
        image = Image((draw.randint(1, 300), draw.randint(1, 300)), crop=draw.choice(["center", "random", "none"]))
        box = image._box(random.Random(draw.random()), width, height)
        left, top, right, bottom = part_of(box, width, height, columns, rows)
        assert 0 <= left < right <= columns and 0 <= top < bottom <= rows
        for got, want, most in (
            (left, box[0] * columns / width, columns), (right, (box[0] + box[2]) * columns / width, columns),
            (top, box[1] * rows / height, rows), (bottom, (box[1] + box[3]) * rows / height, rows),
        ):  # fmt: skip
            assert abs(got - min(want, most)) <= 1 + 1e-6
            if right - left > 1 and bottom - top > 1:
                assert abs(got - min(want, most)) <= 0.5 + 1e-6


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (2, 2000), (17, 9), (1, 2000)])
def test_a_box_of_nothing(decoder: str, size: "tuple[int, int]") -> None:
    """The crop of an image of few pixels rounds to none: it has one."""
    rgb = Pillow.new("RGB", size, (200, 30, 90))
    for crop in ("center", "random", "none"):
        for result in (3, 224):
            image = spec(decoder, result, crop=crop, flip=True)
            for kind in ("JPEG", "PNG"):
                out = np.empty((3, result, result), np.uint8)
                image._decode(memoryview(encoded(rgb, kind)), 3, out)
                assert np.abs(out.astype(int) - np.array([200, 30, 90])[:, None, None]).max() <= 4


@pytest.mark.parametrize("how", [Pillow.NEAREST, Pillow.BICUBIC])
def test_the_filter_of_torch(how: Any) -> None:
    """It is Pillow's: of a photograph's content within 1 on average and 12 at most, with edges."""
    if kernel() is None:
        pytest.skip("this torch has no function that resizes bytes with an antialias filter")
    rng = np.random.default_rng(6)
    for width, height in ((500, 375), (97, 61), (40, 900)):
        coarse = Pillow.fromarray(rng.integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), np.uint8))
        pixels = np.array(coarse.resize((width, height), how))
        for crop in ("center", "random", "none"):
            for size in ((224, 224), (24, 40)):
                image = Image(size, crop=crop)
                box = image._box(random.Random(int(rng.integers(1 << 30))), width, height)
                left, top, right, bottom = part_of(box, width, height, width, height)
                got = resized(pixels, box, width, height, size).astype(int)
                part = Pillow.fromarray(pixels[top:bottom, left:right])
                apart = np.abs(got - np.asarray(part.resize(size[::-1], Pillow.BILINEAR, box=(0, 0, *part.size))))
                assert apart.mean() <= 1 and apart.max() <= 12, (width, height, crop, size)


def test_cores(pictures: Path) -> None:
    """A thread that decodes has one core; all others keep what they have."""
    if kernel() is None:
        pytest.skip("this torch has no function that resizes bytes with an antialias filter")
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(before, 3))
    try:
        load(pictures, Image(24, threads=5))
        pool = decoding._pool(os.getpid(), 5)
        assert {pool.submit(torch.get_num_threads).result() for _ in range(20)} == {1}
        with ThreadPoolExecutor(1) as other:
            assert torch.get_num_threads() == other.submit(torch.get_num_threads).result() == max(before, 3)
    finally:
        torch.set_num_threads(before)


def test_imports_no_decoder_that_it_does_not_use() -> None:
    program = (
        "import sys, io, PIL.Image, numpy; from shardtool.images import Image\n"
        "out = io.BytesIO(); PIL.Image.new('RGB', (30, 20)).save(out, 'JPEG')\n"
        "Image(8, decoder='Pillow')._all([memoryview(out.getvalue())], [1], 'jpg', str)\n"
        "print('cv2' in sys.modules, 'simplejpeg' in sys.modules, 'torchvision' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(shardtool.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "False False False\n"


def test_another_decoder_is_said(pictures: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The decoder is in the state, and a loader that has another says so once."""
    fields = {"jpg": spec("Pillow", 8)}
    with shardtool.Loader(pictures, 16, fields=fields, format="numpy") as loader:
        state = loader.state_dict()
        assert state["decoders"] == {"jpg": "Pillow"}
        for batch in loader:
            assert batch.state_dict() == loader.state_dict()
            break
        loader.load_state_dict(loader.state_dict())
    assert not caplog.messages
    state["decoders"]["jpg"] = "simplejpeg"
    with shardtool.Loader(pictures, 16, fields=fields, format="numpy") as loader:
        for saved in (state, [state, state]):
            loader.load_state_dict(saved)
        assert len(list(loader)) == 4
    assert len([m for m in caplog.messages if "decoded by simplejpeg before, and are by Pillow now" in m]) == 1
    with shardtool.Loader(pictures, 16, fields=["cls"], format="numpy") as loader:
        loader.load_state_dict(state)
        assert "decoders" not in loader.state_dict()
    with pytest.raises(shardtool.CheckpointError, match="not a state"):
        loader.load_state_dict({**state, "decoders": 3})
