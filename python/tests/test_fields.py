"""What fields are decoded to, in each kind of output, copied or not."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, List

import numpy
import pytest
from conftest import ROOT, SAMPLES, payload, run

import shardtool
from shardtool import DecodeError, Loader

FIELDS = {
    "txt": "txt",
    "json": "json",
    "cls": "int",
    "x.npy": "npy",
    "ragged.npy": "npy",
    "tokens": ("int32", (4, 4)),
    "pieces": (numpy.int32, (-1,)),
    "bin": "bytes",
    "extra": "str?",
}


@pytest.mark.usefixtures("memory")
def test_numpy(small: Path) -> None:
    kept = []
    with Loader(small, 30, fields=FIELDS, tuning=shardtool.Tuning(out="numpy"), shuffle=True, seed=1, tail="short") as loader:
        for batch in loader:
            n = batch.size
            want = [payload(i) for i in batch.numbers]
            assert batch["txt"] == [w["txt"].decode() for w in want]
            assert batch["json"] == [json.loads(w["json"]) for w in want]
            assert batch["cls"].dtype == numpy.int64 and batch["cls"].tolist() == [int(w["cls"]) for w in want]
            assert batch["x.npy"].shape == (n, 2, 3) and batch["x.npy"].dtype == numpy.float32
            assert batch["x.npy"].tobytes() == b"".join(w["x.npy"][-24:] for w in want)
            assert [a.tobytes() for a in batch["ragged.npy"]] == [w["ragged.npy"][128:] for w in want]
            assert all(a.dtype == numpy.int16 for a in batch["ragged.npy"])
            assert batch["tokens"].shape == (n, 4, 4) and batch["tokens"].tobytes() == b"".join(w["tokens"] for w in want)
            assert [p.tobytes() for p in batch["pieces"]] == [w["pieces"] for w in want]
            assert [bytes(b) for b in batch["bin"]] == [w["bin"] for w in want]
            assert batch["extra"] == [w["extra"].decode() if "extra" in w else None for w in want]
            assert batch["x.npy"] is batch["x.npy"]
            assert batch["tokens"].ctypes.data % 16 == 0
            kept.append((batch["x.npy"].copy(), batch["x.npy"], [bytes(b) for b in batch["bin"]], batch["bin"]))
    for copied, array, was, values in kept:  # all of them at once, and after close
        assert (copied == array).all() or copied.tobytes() == array.tobytes()
        assert [bytes(v) for v in values] == was


@pytest.mark.usefixtures("memory")
def test_without_numpy(small: Path) -> None:
    with Loader(small, 30, fields=FIELDS, tuning=shardtool.Tuning(out="bytes")) as loader:
        batch = next(iter(loader))
        want = [payload(i) for i in range(30)]
        assert batch["cls"].format == "q" and batch["cls"].tolist() == [int(w["cls"]) for w in want]
        assert batch["x.npy"].shape == (30, 2, 3) and batch["x.npy"].format == "f"
        assert batch["x.npy"].tobytes() == b"".join(w["x.npy"][-24:] for w in want)
        assert batch["tokens"].shape == (30, 4, 4)
        assert [p.tolist() for p in batch["pieces"]] == [list(struct.unpack(f"<{len(w['pieces']) // 4}i", w["pieces"])) for w in want]
        assert [bytes(p) for p in batch.payloads("bin")] == [w["bin"] for w in want]
        assert bytes(batch.data("bin")) == b"".join(w["bin"] for w in want)
        batch.release()
        with pytest.raises(shardtool.ClosedError):
            batch["json"]
        assert batch.size == 30 and batch.position == 0


def test_imports(small: Path) -> None:
    """The package imports neither numpy nor torch by itself."""
    code = f"import sys, shardtool; b = next(iter(shardtool.Loader({str(small)!r}, 5))); b['txt']"
    code += "; print({'numpy', 'torch', 'PIL'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300, env=_environment())
    assert out.stdout == "set()\n"


def _environment() -> "dict[str, str]":
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}


def test_views_are_the_ring(small: Path) -> None:
    """Without a copy an array is in the shared memory, and its place is not reused while
    anything refers to it."""
    with Loader(small, 10, fields={"tokens": ("int32", (16,))}, tuning=shardtool.Tuning(out="numpy")) as loader:
        it = iter(loader)
        first = next(it)["tokens"]
        row = first[3:5, 2:]  # a view of a view
        want = row.tolist()
        del first
        for batch in it:
            batch["tokens"][:] = 0  # ours to write
            del batch
        assert row.tolist() == want


def test_padding(small: Path) -> None:
    with Loader(
        small,
        300,
        fields={"tokens": ("int32", (16,)), "txt": "txt", "cls": "int", "x.npy": "npy"},
        tuning=shardtool.Tuning(out="numpy"),
        tail="pad",
    ) as loader:
        *_, batch = loader
    assert (batch.size, batch.padding, batch.holes, batch.global_size) == (300, 200, 0, 300)
    assert batch.numbers == [*range(900, 1000)] * 3
    assert batch.sample_keys[100:] == batch.sample_keys[:100] * 2 and batch["txt"][100:] == batch["txt"][:100] * 2
    for name in ("cls", "x.npy"):
        assert len(batch[name]) == 300 and batch[name][100:].tobytes() == 2 * batch[name][:100].tobytes()
    assert batch["tokens"].tobytes() == 3 * b"".join(payload(i)["tokens"] for i in range(900, 1000))


def test_empty_batch(small: Path) -> None:
    """With tail short the last batch of some ranks has no samples."""
    with Loader(
        small,
        order=shardtool.Order(global_batch=333),
        rank=0,
        world_size=2,
        fields=FIELDS,
        tail="short",
        tuning=shardtool.Tuning(out="numpy"),
    ) as loader:
        *_, batch = loader
    assert batch.size == 0 and batch.global_size == 1
    assert batch["txt"] == [] and batch["tokens"].shape == (0, 4, 4) and batch["cls"].shape == (0,)
    assert batch["x.npy"].shape == (0, 2, 3) and batch["ragged.npy"] == [] and batch.numbers == []


def test_functions_and_map(small: Path) -> None:
    with Loader(
        small,
        10,
        fields={"bin": len, "txt": "auto", "cls": "auto", "json": "auto"},
        map_batch=lambda b: (b["bin"], b["txt"][0], b["json"][1]),
        tuning=shardtool.Tuning(out="numpy"),
    ) as loader:
        got = next(iter(loader))
    assert got == ([len(payload(i)["bin"]) for i in range(10)], payload(0)["txt"].decode(), {"number": 1, "even": False})


def test_map_that_fails(small: Path) -> None:
    """A batch that map fails on was not delivered: the next iteration begins with it."""
    calls: List[int] = []

    def fails(batch: Any) -> Any:
        calls.append(batch.numbers[0])
        if len(calls) == 3:
            raise RuntimeError("once")
        return batch.numbers[0]

    with Loader(small, 100, fields=[], map_batch=fails) as loader:
        it = iter(loader)
        assert [next(it), next(it)] == [0, 100]
        with pytest.raises(RuntimeError, match="once"):
            next(it)
        with pytest.raises(shardtool.ClosedError, match="start another iteration"):
            next(it)
        assert list(loader) == list(range(200, 1000, 100))


@pytest.mark.parametrize(
    ("field", "spec", "words"),
    [
        ("txt", "int", "whole number"),
        ("json", "float", "no number"),
        ("bin", "npy", "npy file"),
        ("tokens", ("int32", (5,)), "has 20"),
        ("bin", ("int32", (-1,)), "items of 4"),
        ("bin", "json", "field 'bin'"),
        ("bin", "txt", "utf-8"),
    ],
)
def test_not_as_declared(small: Path, field: str, spec: Any, words: str) -> None:
    with Loader(small, 50, fields={field: spec}, tuning=shardtool.Tuning(out="numpy")) as loader:
        with pytest.raises(DecodeError, match=words) as info:
            for batch in loader:
                batch[field]
    assert info.value.field == field and info.value.key is not None and info.value.key.startswith("s0")
    assert str(info.value).count(info.value.key) == 1


def test_npy_kinds(tmp_path: Path) -> None:
    """Files that numpy writes: Fortran's order, big-endian, half floats, strings, no dimensions,
    and what cannot be one array."""
    arrays = {
        "fortran": [numpy.asfortranarray(numpy.arange(24, dtype="<f8").reshape(2, 3, 4) + i) for i in range(6)],
        "big": [numpy.arange(5, dtype=">i4") * i for i in range(6)],
        "half": [numpy.full((3,), i, "f2") for i in range(6)],
        "text": [numpy.array(["ab", f"c{i}"]) for i in range(6)],
        "scalar": [numpy.array(i, "u1") for i in range(6)],
        "none": [numpy.zeros((0, 4), "f4") for _ in range(6)],
        "mixed": [numpy.arange(i, dtype="i4" if i % 2 else "f8") for i in range(6)],
        "mixedorder": [numpy.array([[1, 2], [3, 4]], order="F" if i % 2 else "C") for i in range(6)],
    }
    (tmp_path / "src").mkdir()
    for name, all_of in arrays.items():
        for i, a in enumerate(all_of):
            numpy.save(tmp_path / "src" / f"{i}.{name}.npy", a)
    run("pack", tmp_path / "src", tmp_path / "out", "--quiet")
    for copy in (True, False):
        with Loader(tmp_path / "out", 6, fields={f"{n}.npy": "npy" for n in arrays}, tuning=shardtool.Tuning(out="numpy")) as loader:
            batch = next(iter(loader))
        for name, all_of in arrays.items():
            got = batch[f"{name}.npy"]
            assert isinstance(got, list) == name.startswith("mixed"), name
            for a, b in zip(got, all_of):
                assert a.shape == b.shape and a.dtype == b.dtype and (a == b).all(), name
    with shardtool.open(tmp_path / "out", fields={f"{n}.npy": "npy" for n in arrays}, tuning=shardtool.Tuning(out="numpy")) as ds:
        for i in range(6):
            for name, all_of in arrays.items():
                got = ds[i][f"{name}.npy"]
                assert got.dtype == all_of[i].dtype and (got == all_of[i]).all()


def test_objects_are_refused(tmp_path: Path) -> None:
    """An npy file of Python objects is a pickle, which is a program: it is never run."""
    (tmp_path / "src").mkdir()
    numpy.save(tmp_path / "src" / "a.npy", numpy.array([{}], dtype=object), allow_pickle=True)
    run("pack", tmp_path / "src", tmp_path / "out", "--quiet")
    with (
        Loader(tmp_path / "out", 1, fields={"npy": "npy"}, tuning=shardtool.Tuning(out="numpy")) as loader,
        pytest.raises(DecodeError, match="bytes"),
    ):
        next(iter(loader))["npy"]


def test_odd_names(tmp_path: Path) -> None:
    """Keys and fields that are no UTF-8, and the field without a name."""
    source = bytes(tmp_path) + b"/src"
    import os

    os.mkdir(source)
    for name, data in [(b"\xff\xfe.a\xff", b"1"), (b"plain", b"2"), ("é.ü".encode(), b"3")]:
        with open(source + b"/" + name, "wb") as f:
            f.write(data)
    run("pack", tmp_path / "src", tmp_path / "out", "--quiet")
    with shardtool.open(tmp_path / "out") as ds:
        got = {s.key: dict(s) for s in ds}
        assert got == {"\udcff\udcfe": {"a\udcff": b"1"}, "plain": {"": b"2"}, "é": {"ü": b"3"}}
        assert [ds[k].number for k in got] == list(range(3))
    with Loader(tmp_path / "out", 3, fields={"": "bytes?", "ü": "txt?"}) as loader:
        batch = next(iter(loader))
        assert batch.sample_keys == list(got)
        assert batch[""] == [None, b"2", None] or sorted(batch[""], key=str) == [None, None, b"2"] or b"2" in batch[""]


def test_skipping(damaged: Path) -> None:
    """A damaged block raises an error with its place, after all batches before it; or it is
    skipped, and the state has the ledger."""
    with Loader(damaged, 20, fields=["txt"]) as loader:
        numbers = []
        with pytest.raises(shardtool.CorruptError) as info:
            for batch in loader:
                numbers += batch.numbers
        assert numbers == list(range(len(numbers))) and 0 < len(numbers) < SAMPLES
        err = info.value
        assert err.shard is not None and err.shard in str(err) and err.block is not None and err.offset is not None and err.code == 3
        place = json.loads(loader.state_dict()["checkpoint"])["position"]
        assert place == len(numbers)
        with pytest.raises(shardtool.CorruptError):
            list(loader)
    with Loader(damaged, 20, fields=["txt"], faults=shardtool.Faults(on_error="skip", max_skipped=0.2)) as loader:
        batches = list(loader)
        state = loader.state_dict()
    holes = sum(b.holes for b in batches)
    assert holes > 0 and sum(b.size for b in batches) == SAMPLES - holes
    assert len(state["ledger"].splitlines()) == 1 and json.loads(state["checkpoint"])["skipped"] == holes
    with Loader(damaged, 20, fields=["txt"], faults=shardtool.Faults(on_error="skip", max_skipped=0.2)) as loader:
        loader.load_state_dict(state)
        assert sum(b.holes for b in loader) == holes
        assert loader.state_dict()["ledger"] == state["ledger"]
    with (
        Loader(damaged, 20, fields=["txt"], faults=shardtool.Faults(on_error="skip", max_skipped=1)) as loader,
        pytest.raises(shardtool.SkippedError),
    ):
        list(loader)
