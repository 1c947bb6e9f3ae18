"""The programs of pages that no other file runs, as they are printed but for names of buckets."""

from __future__ import annotations

import io
import itertools
import json
import os
import types
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import run
from pages_help import blocks

import shardtool

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def programs(page: str) -> List[str]:
    return [text.replace("s3://bucket/", "") for kind, text in blocks(page) if kind == "python"]


def play(text: str, **names: Any) -> Dict[str, Any]:
    """Runs a program that has these names, and returns all that it has then."""
    exec(compile(text, "page", "exec"), names)
    return names


def shown(text: str, what: str) -> str:
    """A program that shows parts of batches, and keeps them in ``shown``."""
    head, body = text.split(what, 1)
    kept = "".join(f"    shown.append(({line.split('#')[0].strip().rstrip(',')},))\n" for line in body.splitlines() if line.strip())
    return head + what + "\n" + kept


def documents(path: str, **more: Any) -> None:
    rows = ({"id": f"d{i}", "input_ids": list(range(900 + 50 * i)), "labels": list(range(900 + 50 * i)), **more} for i in range(40))
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("pack", "rows.jsonl", path, "--key", "id", "--attr", "tokens=len(input_ids.npy)", "--name", path)


def test_sequences(folder: Path) -> None:
    one, mask, _, turns, bucket, mix = programs("packing.md")
    documents("docs")
    names = play(shown(one, "for batch in loader:"), shown=[])
    ids, labels, position, document, (cu, longest), fill = names["shown"][:6]
    assert [tuple(a[0].shape) for a in (ids, labels, position, document)] == [(4, 8192)] * 4
    assert longest <= 8192 and cu[-1] == 4 * 8192 and 0.5 < float(fill[0]) <= 1
    assert tuple(play(mask, batch=names["batch"])["same"].shape)[1:] == (8192, 8192)

    said = [("a", [([1, 2], False), ([3], True)]), ("b", [([4, 5, 6], True), ([7, 8], False)])]
    play(turns, LENGTH=4, json=json, conversations=lambda: said)
    assert [json.loads(line) for line in Path("chats.jsonl").read_text().splitlines()] == [
        {"id": "a-0", "input_ids": [1, 2, 3], "labels": [-100, -100, 3]},
        {"id": "b-0", "input_ids": [4, 5, 6], "labels": [4, 5, 6]},
        {"id": "b-1", "input_ids": [7, 8], "labels": [-100, -100]},
    ]

    with shardtool.Writer("speech", attrs={"frames": "frames"}) as w:
        for i in range(50):
            w.write({"__key__": f"{i}", "flac": b"f" * i, "txt": f"text {i}", "frames": 1000 + 200 * i})
    names = play(shown(bucket, "for batch in loader:"), shardtool=shardtool, shown=[])
    lengths = [np.asarray(length).tolist() for (length,) in names["shown"][1::2]]
    assert all(each == sorted(each) for each in lengths) and sorted(itertools.chain(*lengths)) == [1000 + 200 * i for i in range(50)]

    documents("chats")
    Path("mix.yaml").write_text("sources:\n  docs: {data: docs, weight: 2}\n  chats: {data: chats, weight: 1}\n")
    names = play(mix.replace("for batch in loader:", "for batch in itertools.islice(loader, 5):"), shardtool=shardtool, itertools=itertools)
    assert set(names["batch"].sources) <= {"docs", "chats"} and len(names["batch"].sources) > 0
    names["loader"].close()


def test_views(folder: Path) -> None:
    Path("rows.jsonl").write_text(
        "".join(json.dumps({"id": str(i), "score": i / 100, "lang": ["de", "fr", "en"][i % 3]}) + "\n" for i in range(100))
    )
    run("pack", "rows.jsonl", "train", "--key", "id", "--attr", "score=score", "--attr", "lang=lang")
    run("select", "train", "--where", "score >= 0.5 and lang in (de, fr)", "--name", "clean")
    for text in programs("curating.md"):
        loader = play(text.replace("shuffle=True", "shuffle=True, epochs=1"), shardtool=shardtool)["loader"]
        assert sorted(int(i) for batch in loader for i in batch.numbers) == [i for i in range(50, 100) if i % 3 < 2]


def test_writing(folder: Path) -> None:
    first, batches, *_ = programs("writing.md")
    source = [
        types.SimpleNamespace(name=f"{i}", pil=Image.new("RGB", (8, 8), (i, 0, 0)), tensor=torch.full((3,), float(i)), label=i % 5)
        for i in range(128)
    ]
    got: List[Any] = []
    play(first, source=source, train=lambda *parts: got.append(parts))
    assert [tuple(emb.shape) for emb, _ in got] == [(64, 3)] * 2 and sorted(torch.cat([c for _, c in got]).tolist()) == sorted(
        i % 5 for i in range(128)
    )

    pa = pytest.importorskip("pyarrow")
    with shardtool.Writer("more/") as w:
        play(batches, w=w, keys=["a", "b"], array_of_n_rows=np.eye(2), labels=np.arange(2), table=pa.table({"id": ["c"], "text": ["d"]}))
    assert [s.key for s in shardtool.open("more/")] == ["a", "b", "c"]


def test_resumed(folder: Path) -> None:
    *_, again, state, optimized, ranks = programs("writing.md")

    def make(i: int) -> Dict[str, Any]:
        return {"__key__": f"{i}", "n": i}

    play(again, shardtool=shardtool, url="a", n=10, make=make)
    assert len(shardtool.open("a")) == 10

    class At:
        def at(self, n: int) -> Any:
            return (make(i) for i in range(n, 20))

    before, after = state.split("\n\n", 1)
    saved: List[Any] = []
    w = shardtool.Writer("b", on_exists="resume", samples_per_shard=4)
    for i in range(10):
        w.write(make(i))
    play(before, w=w, source=At(), save=lambda *what: saved.append(what))
    w.abort()
    play(
        after.replace('on_exists="resume"', 'on_exists="resume", samples_per_shard=4'),
        shardtool=shardtool,
        url="b",
        state=saved[0][1],
        source=At(),
    )
    assert len(shardtool.open("b")) == 20

    Path("raw").mkdir()
    for name in ("x", "y"):
        Path(f"raw/{name}.json").write_text(json.dumps(["one", "two"]))
    play(
        optimized,
        shardtool=shardtool,
        Path=Path,
        read=lambda path: [types.SimpleNamespace(text=t) for t in json.loads(path.read_text())],
        embed=lambda row: np.ones(2, "f4"),
    )
    assert len(shardtool.open("train")) == 4

    for rank in reversed(range(8)):  # the first publishes
        play(ranks, shardtool=shardtool, url="c", rank=rank, mine=range(rank, 40, 8), make=make)
    assert len(shardtool.open("c")) == 40


def test_documents(folder: Path) -> None:
    documents("docs")
    Path("rows.jsonl").write_text("".join(json.dumps({"input_ids": list(range(7 * i % 50 + 1))}) + "\n" for i in range(60)))
    run("pack", "rows.jsonl", "out", "--pack-tokens", "64", "--separator", "99")
    (decode,) = (play(text)["decode"] for text in programs("tokens.md"))
    for sample in shardtool.Loader("out", 1, fields={"tokens.npy": "bytes", "documents.json": "bytes"}, epochs=1):
        tokens, cu, document, position = decode({name: sample[name][0] for name in ("tokens.npy", "documents.json")})
        assert len(tokens) == len(document) == len(position) == cu[-1] <= 64


def test_lists_of_pictures(folder: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    png = io.BytesIO()
    Image.new("RGB", (4, 4)).save(png, "png")
    rows = [[{"bytes": png.getvalue(), "path": "a.png"}] * n for n in (0, 1, 2)]
    pq.write_table(pa.table({"images": rows, "caption": ["a", "b", "c"]}), "t.parquet")
    run("pack", "t.parquet", "out")
    names = play(*programs("parquet.md"), shardtool=shardtool)
    assert [len(pictures) for pictures in names["batch"]["images"]] == [0, 1, 2]


def test_from_mosaicml(folder: Path) -> None:
    streaming = pytest.importorskip("streaming")
    with streaming.MDSWriter(out="mds", columns={"t": "str", "n": "int"}) as w:
        for i in range(10):
            w.write({"t": f"{i}", "n": i})
    play(*programs("mosaicml.md"))
    assert len(shardtool.open("out/")) == 10


def test_of_webdataset(folder: Path) -> None:
    pytest.importorskip("webdataset")
    documents("out")
    (text,) = programs("webdataset.md")
    text = text.replace("pipe:shardtool", "pipe:" + os.environ["SHARDTOOL_BINARY"]).replace("/data/out", "out")
    assert len(list(itertools.islice(play(text)["ds"], 5))) == 5
