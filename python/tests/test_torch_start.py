"""The programs and commands of docs/start-*.md, on raw data as users have it."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import wave
from pathlib import Path
from typing import Callable

import pytest
from pages_help import blocks, run_blocks

np = pytest.importorskip("numpy")
image = pytest.importorskip("PIL.Image")

# What a loop does with a batch: each page says what it gets.
TRAIN = """
steps = []
def train(*values):
    steps.append([tuple(v.shape) if hasattr(v, "shape") else len(v) for v in values])
"""


# Where the package of tokenizers is not installed, one that reads the same file takes its place.
TOKENIZERS = """
import json
class Tokenizer:
    @classmethod
    def from_file(cls, name):
        self = cls()
        self.ids = json.load(open(name))["model"]["vocab"]
        return self
    def token_to_id(self, token):
        return self.ids[token]
    def encode(self, text):
        self = type(self)()
        self.ids = [1 + len(word) % 7 for word in text.split()]
        return self
"""


def language(folder: Path) -> None:
    zstd = shutil.which("zstd")
    if zstd is None:
        pytest.skip("zstd is not installed")
    words = ["<|endoftext|>", "<unk>", "prose", "x", "=", "1;", "a", "b"]
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": "<unk>"}
    added = {"id": 0, "content": words[0], "special": True, **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)}
    tokenizer = {"version": "1.0", "added_tokens": [added], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    if importlib.util.find_spec("tokenizers") is None:
        (folder / "tokenizers.py").write_text(TOKENIZERS)
    for source, word in (("web", "prose "), ("code", "x = 1; ")):
        (folder / "raw" / source).mkdir(parents=True)
        for file in range(3):
            path = folder / "raw" / source / f"{file:03d}.jsonl"
            with path.open("w") as f:
                for i in range(60):
                    f.write(json.dumps({"text": word * (1 + 3 * ((file + 7 * i) % 90))}) + "\n")
            subprocess.run([zstd, "-q", "--rm", path], check=True)


def picture(path: Path, i: int, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(i).integers(0, 255, (72 + i % 9, 80, 3), dtype="u1")
    image.fromarray(pixels).convert(mode).save(path, "JPEG")


def images(folder: Path) -> None:
    """ImageNet: a folder for each class in each split, .JPEG, some of them gray or CMYK."""
    for part, n in (("train", 40), ("val", 10)):
        for cls, many in (("n01440764", n), ("n01443537", n // 2), ("n01484850", n // 4)):
            for i in range(many):
                mode = ("L", "CMYK", "RGB")[min(i % 5, 2)]
                picture(folder / "imagenet" / part / cls / f"{cls}_{i}.JPEG", i, mode)


def vision_language(folder: Path) -> None:
    """LLaVA, with talks without an image, and captions of COCO, of which an image has several."""
    talk = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat."}]
    rows = [{"id": f"{i:03d}", "image": f"coco/{i:03d}.jpg", "conversations": talk} for i in range(100)]
    for i in range(100):
        picture(folder / f"llava/coco/{i:03d}.jpg", i)
    (folder / "llava" / "mix.json").write_text(json.dumps([*rows, {"id": "text", "conversations": talk}]))
    found = {"images": [{"id": 9 + i, "file_name": f"{i:012d}.jpg"} for i in range(3)]}
    found["annotations"] = [{"image_id": 9 + i % 2, "id": i, "caption": f"caption {i}"} for i in range(5)]
    for i in range(3):
        picture(folder / f"coco/train2017/{i:012d}.jpg", i)
    (folder / "coco" / "annotations").mkdir()
    (folder / "coco" / "annotations" / "captions_train2017.json").write_text(json.dumps(found))


def audio(folder: Path) -> None:
    """LJSpeech, and Common Voice."""
    speech, voice = folder / "LJSpeech-1.1", folder / "cv"
    (speech / "wavs").mkdir(parents=True)
    (voice / "clips").mkdir(parents=True)
    (speech / "README").write_text("x")
    with (speech / "metadata.csv").open("w") as table:
        for i in range(80):
            name, ms = f"LJ001-{i:04d}", 400 + 97 * (i % 37)
            with wave.open(str(speech / "wavs" / f"{name}.wav"), "wb") as f:
                f.setnchannels(1)
                f.setsampwidth(2)
                f.setframerate(8000)
                f.writeframes(np.zeros(8 * ms, "<i2").tobytes())
            table.write(f'{name}|in 18{i:02d}, "so|in eighteen, "so\n')
    clips = [f"common_voice_{i}.mp3" for i in range(3)]
    rows = [f'c\t{clip}\tsaid "so\t2\n' for clip in clips[:2]]
    (voice / "validated.tsv").write_text("client_id\tpath\tsentence\tup_votes\n" + "".join(rows))
    (voice / "clip_durations.tsv").write_text("clip\tduration[ms]\n" + "".join(f"{clip}\t{900 + i}\n" for i, clip in enumerate(clips)))
    for clip in clips:
        (voice / "clips" / clip).write_bytes(clip.encode())


def tables(folder: Path) -> None:
    """Criteo: a label, 13 numbers and 26 texts, with nulls."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / "raw").mkdir()
    rnd = np.random.default_rng(1)
    n = 2000
    for file in range(2):
        columns = {"label": arrow.array(rnd.integers(0, 2, n), "int32")}
        for i in range(1, 14):
            columns[f"I{i}"] = arrow.array(rnd.integers(-3, 999, n), "int32", mask=rnd.random(n) < (0.3 if i > 1 else 0))
        for i in range(1, 27):
            texts = [f"{v:08x}" for v in rnd.integers(0, 50, n)]
            columns[f"C{i}"] = arrow.array(texts, mask=rnd.random(n) < (1 if i == 26 else 0.2))  # one has no value
        parquet.write_table(arrow.table(columns), folder / "raw" / f"part-{file:05d}.parquet")


# What the data sets of each page have, beside what the loop got.
LOOKS = {
    "start-language.md": "print(sum(len(shardtool.open(f'tokens/{s}')) for s in ('web', 'code')))",
    "start-images.md": "print([shardtool.open('train/')[0].number, len(shardtool.open('train/'))])",
    "start-vision-language.md": "c = shardtool.open('captions/')\n"
    "print(len(shardtool.open('photos/')), c['9']['captions'], c['11']['captions'])",
    "start-audio.md": "v, c = shardtool.open('voice/'), shardtool.open('clips/')\n"
    "print(len(v), v[1]['audio.mp3'], v[1]['ms'], v[1]['txt'] == c[1]['txt'], c[1]['audio.mp3'] == v[1]['audio.mp3'])",
    "start-tables.md": "r, m = shardtool.open('rows/')[0], shardtool.open('numbers/')\n"
    "print(int(r['sparse'][25]), tuple(r['null'].shape), len(m), sorted(m[0]))",
}


@pytest.mark.parametrize(
    "page, made, steps, first, look",
    [
        ("start-language.md", language, 11, [(4, 512)] * 3, "360"),
        ("start-images.md", images, 6, [(32, 3, 64, 64), (32,)], "[0, 70]"),
        ("start-vision-language.md", vision_language, 5, [(16, 3, 64, 64), 16], "100 ['caption 0', 'caption 2', 'caption 4'] []"),
        ("start-audio.md", audio, None, None, "2 b'common_voice_1.mp3' 901 True True"),
        (
            "start-tables.md",
            tables,
            16,
            [(256, 13), (256, 13), (256, 26), (256,)],
            "0 (13,) 4000 ['I1.npy', 'I2.mask.npy', 'I2.npy', 'label.npy']",
        ),
    ],
)
def test_page(tmp_path: Path, page: str, made: Callable[[Path], None], steps: int | None, first: object, look: str) -> None:
    made(tmp_path)
    parts = [*blocks(page), ("python", "print(len(steps), steps[0])"), ("python", LOOKS[page])]
    out = run_blocks(parts, tmp_path, TRAIN).splitlines()
    assert out[-1] == look
    if steps is not None:
        assert out[-2] == f"{steps} {first}"
    else:  # batches of similar length
        assert int(out[-2].split()[0]) > 10
