"""Grain's pipelines over data sets: order, place, workers, checkpoints. They run with the real
package."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List

import pytest
from conftest import ROOT, SAMPLES, children, run

import shardtool
from shardtool import CheckpointError, ConfigError, Loader, Order, Tuning

grain = pytest.importorskip("grain", reason="Grain is not installed: pip install grain", exc_type=ImportError)

from grain_help import as_process, keyed  # noqa: E402

import shardtool.grain as sg  # noqa: E402

OPTIONS: Dict[str, Any] = {"fields": ["cls"], "shuffle": True, "seed": 5, "epochs": 1}
#: Processes that are started find what this one finds.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that set JAX's processes change this entry."""
    monkeypatch.setitem(sys.modules, "jax", None)


def order_of(url: Any, batch: int, **options: Any) -> List[List[str]]:
    """The keys of the batches of a Loader."""
    with Loader(url, batch, **{**OPTIONS, **options}) as loader:
        epochs = options.get("epochs", 1)
        return [[str(key) for key in b.sample_keys] for _ in range(epochs) for b in loader]


def keys(it: Any, most: int = 1 << 30) -> List[List[str]]:
    out = []
    for element in it:
        out.append(element["key"])
        if len(out) == most:
            break
    return out


def joined(lists: Iterable[List[str]]) -> List[str]:
    return [key for inner in lists for key in inner]


def key_of(element: Dict[str, Any]) -> str:
    """Tells samples of `small` apart by their bytes."""
    return bytes(element["bin"]).hex() + str(element["txt"])


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 8])
def test_order(small: Path, workers: int) -> None:
    """It is the one of a Loader over all epochs, with any number of workers."""
    ds: Any = sg.IterDataset(small, 50, map_batch=keyed, **{**OPTIONS, "epochs": 2})
    ds = ds.map(lambda element: {**element, "more": 1})
    if workers:
        ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    got = keys(it := iter(ds))
    it.close()
    assert got == order_of(small, 50, epochs=2)


def test_elements(small: Path) -> None:
    """Batches are dicts of arrays of numpy and lists, as a Loader has them."""
    import numpy

    fields = {"x.npy": "npy", "txt": "str", "cls": "int", "extra": "bytes?"}
    with Loader(small, 16, fields=fields, tuning=Tuning(out="numpy"), epochs=1) as loader:
        want = next(iter(loader))
    it = iter(sg.IterDataset(small, 16, fields=fields, epochs=1))
    got = next(it)
    it.close()
    assert type(got) is dict and list(got) == list(fields)
    assert isinstance(got["x.npy"], numpy.ndarray) and (got["x.npy"] == want["x.npy"]).all()
    assert (got["txt"], got["extra"]) == (want["txt"], want["extra"]) and got["cls"].tolist() == want["cls"].tolist()


def test_samples(small: Path) -> None:
    """Without batch_size, elements are samples, which Grain makes batches of. Ranks read each n-th
    sample."""
    fields = {"x.npy": "npy", "txt": "str", "bin": "bytes"}
    with Loader(small, 1, **{**OPTIONS, "fields": fields}) as loader:
        want = [b["txt"][0] for b in loader]
    ds = sg.IterDataset(small, **{**OPTIONS, "fields": fields})
    batches = list(it := iter(ds.batch(30)))
    it.close()
    assert [str(text) for b in batches for text in b["txt"]] == want
    assert batches[0]["x.npy"].shape == (30, 2, 3) and batches[0]["x.npy"].dtype == "float32"
    split = [[str(e["txt"]) for e in sg.IterDataset(small, rank=r, world_size=3, **{**OPTIONS, "fields": fields})] for r in range(3)]
    assert [split[i % 3][i // 3] for i in range(999)] + [s[333] for s in split if len(s) > 333] == want


def test_state(small: Path) -> None:
    """It is exact after each element, through Grain's stages, and the one of a Loader."""
    want = order_of(small, 64)
    ds = sg.IterDataset(small, 64, map_batch=keyed, **OPTIONS).map(lambda e: e).filter(lambda e: True)
    it = iter(ds)
    states = [it.get_state()]
    for _ in want:
        next(it)
        states.append(json.loads(json.dumps(it.get_state())))
    with pytest.raises(StopIteration):
        next(it)
    for at in (0, 1, len(want) // 2, len(want)):
        it.set_state(states[at])
        assert keys(it) == want[at:]
    it.close()
    with Loader(small, 64, **OPTIONS) as loader:
        inner = iter(loader)
        next(inner)
        next(inner)
        assert sg.IterDataset(small, 64, **OPTIONS).__iter__().get_state()["checkpoint"] is None
        other = iter(sg.IterDataset(small, 64, map_batch=keyed, **OPTIONS))
        other.set_state(loader.state_dict())
        assert keys(other) == want[2:]
        other.close()
    with pytest.raises(ValueError, match="closed"):
        next(other)
    with pytest.raises(CheckpointError, match="not a state of a shardtool"):
        iter(sg.IterDataset(small, 64, **OPTIONS)).set_state({"next_index": 5})


def test_mixes(small: Path) -> None:
    mix = {"sources": {"a": {"data": str(small), "weight": 3}, "b": {"data": str(small), "weight": 1}}}
    whole = {"shuffle": True, "seed": 5, "fields": ["cls"]}
    with Loader(mix, 20, **whole) as loader:
        want = [[str(k) for k in b.sample_keys] for b, _ in zip(loader, range(30))]
    it = iter(sg.IterDataset(mix, 20, map_batch=keyed, **whole))
    assert keys(it, 11) == want[:11]
    state = it.get_state()
    it.close()
    parts = [iter(sg.IterDataset(mix, 5, map_batch=keyed, rank=r, world_size=4, **whole)) for r in range(4)]
    for part in parts:
        part.set_state(state)
    got = [keys(part, 19) for part in parts]
    assert [joined(got[r][i] for r in range(4)) for i in range(19)] == want[11:]
    for part in parts:
        part.close()


def test_units(tmp_path: Path) -> None:
    """Packed sequences are units."""
    from test_units import write

    docs = write(tmp_path / "docs")
    packed: Dict[str, Any] = {"shuffle": True, "seed": 5, "epochs": 1, "units": shardtool.Pack(96, ["input_ids"], long="split")}
    with Loader(docs, 4, tuning=Tuning(out="numpy"), **packed) as loader:
        want = [b["input_ids"].tolist() for b in loader]
    it = iter(sg.IterDataset(docs, 4, **packed))
    assert [b["input_ids"].tolist() for b in it] == want
    it.close()


@pytest.mark.parametrize("samples", [False, True])
def test_workers_resume(small: Path, samples: bool) -> None:
    """With workers, Grain's state is exact after any element."""
    given: Dict[str, Any] = {**OPTIONS, "fields": ["bin", "txt"]} if samples else OPTIONS
    ds: Any = sg.IterDataset(small, **given).map(key_of).batch(25) if samples else sg.IterDataset(small, 25, map_batch=keyed, **given)
    ds = ds.map(lambda e: [str(k) for k in (e if samples else e["key"])]).mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    it = iter(ds)
    want = [next(it) for _ in range(3)]
    state = json.loads(json.dumps(it.get_state()))
    want += list(it)
    it.close()
    again = iter(ds)
    again.set_state(state)
    assert list(again) == want[3:]
    again.close()
    assert sorted(k for b in want for k in b) == sorted({k for b in want for k in b}) and sum(map(len, want)) == SAMPLES


def job(url: Path, count: int, load: Any, save: Path, steps: int) -> List[List[str]]:
    """Runs the processes of a job, and returns what each step read over all of them."""
    program = [sys.executable, str(Path(__file__).with_name("grain_help.py")), str(url)]
    made = [
        subprocess.Popen([*program, str(i), str(count), str(load or ""), str(save), str(steps)], stdout=subprocess.PIPE, env=ENVIRONMENT)
        for i in range(count)
    ]
    said = [p.communicate()[0].decode().splitlines() for p in made]
    assert [p.returncode for p in made] == [0] * count
    return [joined(map(json.loads, lines)) for lines in zip(*said)]


def test_processes(small: Path, tmp_path: Path) -> None:
    """2, then 4, then 1 processes continue each other through Grain's checkpoints: each sample
    once, in the order of an uninterrupted Loader."""
    got = job(small, 2, None, tmp_path / "a", 6)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["process_0-of-2.json", "process_1-of-2.json"]
    got += job(small, 4, tmp_path / "a", tmp_path / "b", 7)
    got += job(small, 1, tmp_path / "b", tmp_path / "c", 1000)
    assert got == order_of(small, 40)


def test_processes_with_workers(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with mp_prefetch, after any element."""

    def begin(index: int, count: int) -> Any:
        ds = sg.IterDataset(small, map_batch=keyed, order=Order(global_batch=20), rank=index, world_size=count, **OPTIONS)
        return iter(ds.map(lambda e: {"key": e["key"]}).mp_prefetch(grain.MultiprocessingOptions(num_workers=2)))

    def save(it: Any, index: int, count: int, name: str) -> Path:
        monkeypatch.delitem(sys.modules, "jax")
        as_process(index, count)
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        grain.checkpoint.CheckpointHandler().save(folder, it)
        return folder

    its = [begin(i, 2) for i in range(2)]
    got = [keys(it, 6) for it in its]
    for i, it in enumerate(its):
        folder = save(it, i, 2, "even")
    for i, it in enumerate(its):
        got[i].append(next(it)["key"])
        odd = save(it, i, 2, "odd")
        it.close()
    as_process(0, 1)
    want = order_of(small, 20)
    assert [a + b for a, b in zip(*got)] == want[:7]
    for saved, steps in ((folder, 6), (odd, 7)):
        one = begin(0, 1)
        sg.restore(saved, one)
        assert keys(one) == want[steps:]
        one.close()


def test_other_sizes_with_workers(small: Path, tmp_path: Path) -> None:
    """With workers, batches of another size need restore; their number of workers stays."""

    def begin(size: int, workers: int = 3) -> Any:
        ds: Any = sg.IterDataset(small, size, map_batch=keyed, **OPTIONS)
        return iter(ds.map(lambda e: e["key"]).mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)))

    it = begin(20)
    got = [next(it) for _ in range(5)]
    state = json.loads(json.dumps(it.get_state()))
    grain.checkpoint.CheckpointHandler().save(tmp_path, it)
    it.close()
    it = begin(30)
    it.set_state(state)
    with pytest.raises(CheckpointError, match="restore"):
        list(it)
    it.close()
    it = begin(30)
    sg.restore(tmp_path, it)
    rest = list(it)
    it.close()
    assert joined(got + rest) == joined(order_of(small, 20)) and [len(keys) for keys in rest] == [30] * 30
    it = begin(20, 2)
    with pytest.raises(Exception, match=r"number of workers stays|[Ii]ndex|[Ss]tate|length"):
        it.set_state(state)
        list(it)
    it.close()


def test_states_of_the_version_before(small: Path, tmp_path: Path) -> None:
    """States in which workers had a part in the order: refused, or continued by restore where all
    workers were at one place."""
    with Loader(small, 75, **OPTIONS) as loader:  # three workers with batches of 25 were as many ranks
        numbers = next(iter(loader)).numbers
        old = {**loader.state_dict(), "part": [1, 3, 1]}
    worker = sg.IterDataset(small, 25, **OPTIONS)
    worker.set_slice(slice(1, None, 3))
    with pytest.raises(CheckpointError, match="earlier version"):
        iter(worker).set_state(old)
    ds: Any = sg.IterDataset(small, 25, map_batch=lambda batch: {"numbers": batch.numbers}, **OPTIONS)
    it = iter(ds.map(lambda e: e["numbers"]).mp_prefetch(grain.MultiprocessingOptions(num_workers=3)))
    for _ in range(3):
        next(it)
    state = it.get_state()
    for place in places(state):
        place.update({**old, "part": [place["part"]["worker"], 3, 1]})
    (tmp_path / "process_0-of-1.json").write_text(json.dumps(state))
    sg.restore(tmp_path, it)
    rest = list(it)
    it.close()
    with Loader(small, 25, **OPTIONS) as loader:
        want = [batch.numbers for batch in loader]
    assert rest == want[3:] and sorted(numbers) == sorted(joined(want[:3]))


def places(state: Any) -> Iterable[Dict[str, Any]]:
    """The states of workers in one of a pipeline."""
    if isinstance(state, dict) and "part" in state:
        yield state
    elif isinstance(state, (dict, list)):
        for inner in state.values() if isinstance(state, dict) else state:
            yield from places(inner)


def test_one_reader(small: Path) -> None:
    """All workers have one child process, of the process that iterates, and it ends with them. Two
    iterators at a time have the same batches."""
    ds: Any = sg.IterDataset(small, 20, map_batch=keyed, **OPTIONS)
    ds = ds.map(lambda e: e["key"]).mp_prefetch(grain.MultiprocessingOptions(num_workers=4))
    want = order_of(small, 20)
    its = [iter(ds)]
    got = [next(its[0]) for _ in range(11)]
    assert len(children()) == 1
    its.append(iter(ds))
    assert list(its[1]) == want
    assert got + list(its[0]) == want
    for it in its:
        it.close()
    while children():  # the threads end them
        time.sleep(0.05)


def test_workers_of_one_epoch(small: Path, damaged: Path) -> None:
    """Errors reach the loop, and end the workers."""
    ds: Any = sg.IterDataset(damaged, 20, map_batch=keyed, **OPTIONS)
    it = iter(ds.map(lambda e: e["key"]).mp_prefetch(grain.MultiprocessingOptions(num_workers=2)))
    with pytest.raises(shardtool.CorruptError, match="block"):
        list(it)
    it.close()


def test_bad_checkpoints(small: Path, tmp_path: Path) -> None:
    it = iter(sg.IterDataset(small, 10, **OPTIONS))
    with pytest.raises(CheckpointError, match="found none"):
        sg.restore(tmp_path, it)
    (tmp_path / "process_0-of-2.json").write_text(json.dumps(it.get_state()))
    with pytest.raises(CheckpointError, match=r"found process_0-of-2\.json"):
        sg.restore(tmp_path, it)
    next(it)
    (tmp_path / "process_1-of-2.json").write_text(json.dumps(it.get_state()))
    with pytest.raises(CheckpointError, match="different steps"):
        sg.restore(tmp_path, it)
    for i in range(2):
        (tmp_path / f"process_{i}-of-2.json").write_text(json.dumps({"parent": it.get_state(), "next_index": i}))
    with pytest.raises(CheckpointError, match="save all after the same step"):
        sg.restore(tmp_path, it)
    it.close()


def test_ranks(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are JAX's processes where nothing else says them, also in a copy for a worker."""
    as_process(1, 2)
    ds = sg.IterDataset(small, 10, map_batch=keyed, **OPTIONS)
    copied = pickle.loads(pickle.dumps(ds))
    it = iter(ds)
    assert keys(it, 3) == [batch[10:] for batch in order_of(small, 20)[:3]]
    it.close()
    as_process(0, 1)
    assert copied._ranks() == (1, 2)
    alone = pickle.loads(pickle.dumps(sg.IterDataset(small, 10, map_batch=keyed, **OPTIONS)))

    def taken() -> int:
        raise AssertionError("a worker asked JAX, which would take an accelerator")

    monkeypatch.setattr(sys.modules["jax"], "process_count", taken)
    assert alone._ranks() == (None, None)
    it = iter(alone)
    next(it)
    it.close()


def test_errors_of_functions(small: Path) -> None:
    """After an error of map or of a field, the next call has the same batch."""
    failing = [False]

    def work(batch: Any) -> Any:
        if failing[0]:
            raise ValueError("no")
        return keyed(batch)

    want = order_of(small, 50)
    it = iter(sg.IterDataset(small, 50, map_batch=work, **OPTIONS))
    got = [next(it)["key"]]
    state = it.get_state()
    failing[0] = True
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            next(it)
        assert it.get_state() == state
    failing[0] = False
    assert got + keys(it) == want
    it.close()


def test_source(small: Path) -> None:
    """Random access: Grain's own shuffle, batches, workers; removed samples are left out."""
    source = sg.Source(small, fields={"txt": "str", "x.npy": "npy"})
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    with shardtool.open(small, fields=["txt"]) as ds:
        want = [s["txt"] for s in ds]
    assert len(source) == SAMPLES and source[5]["txt"] == want[5] and type(source[5]) is dict
    assert [e["txt"] for e in source._getitems([7, 3])] == [want[7], want[3]]
    assert repr(source) == repr(pickle.loads(pickle.dumps(source))) and str(small) in repr(source)
    assert repr(source) != repr(sg.Source(small, fields={"txt": "bytes", "x.npy": "npy"}))
    ds = grain.MapDataset.source(source).shuffle(seed=1).batch(100).to_iter_dataset(grain.ReadOptions(num_threads=4))
    got = list(it := iter(ds))
    it.close()
    assert sorted(str(t) for b in got for t in b["txt"]) == sorted(want) and got[0]["x.npy"].shape == (100, 2, 3)
    ds = grain.MapDataset.source(source).to_iter_dataset().batch(100).mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    got = list(it := iter(ds))
    it.close()
    assert sorted(str(t) for b in got for t in b["txt"]) == sorted(want)
    source.close()


def test_removed(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("pack", small, out, "--quiet")
    with shardtool.open(out) as ds:
        gone = ds[3].key
    (tmp_path / "keys").write_text(gone + "\n")
    run("remove", out, f"--keys={tmp_path / 'keys'}")
    source = sg.Source(out, fields=["txt"])
    assert source[3] is None and len(source) == SAMPLES
    assert sum(1 for _ in grain.MapDataset.source(source).to_iter_dataset()) == SAMPLES - 1
    source.close()


def test_loader_of_grain(small: Path) -> None:
    """Grain's DataLoader reads a Source, also from its checkpoint."""
    source = sg.Source(small, fields=["txt"])
    sampler = grain.samplers.IndexSampler(SAMPLES, shuffle=True, seed=1, num_epochs=1, shard_options=grain.sharding.NoSharding())
    loader = grain.DataLoader(data_source=source, sampler=sampler, operations=[grain.transforms.Batch(10)], worker_count=0)
    it = iter(loader)
    next(it)
    state = it.get_state()
    want = [list(map(str, b["txt"])) for b in it]
    again = iter(loader)
    again.set_state(state)
    assert [list(map(str, b["txt"])) for b in again] == want
    source.close()


def test_errors(small: Path, damaged: Path) -> None:
    with pytest.raises(ConfigError, match="numpy arrays"):
        sg.IterDataset(small, 10, tuning=Tuning(out="arrow"))
    with pytest.raises(ConfigError, match="units are"):
        sg.IterDataset(small, units=shardtool.Pack(96, ["input_ids"]))
    with pytest.raises(ConfigError, match=r"ds\.map"):
        sg.IterDataset(small, map_batch=keyed)
    with pytest.raises(TypeError, match="it is a member of a group"):
        sg.IterDataset(small, 10, out="numpy")  # type: ignore[call-arg]
    it = iter(sg.IterDataset(damaged, 10, **OPTIONS))
    with pytest.raises(shardtool.CorruptError, match="block"):
        keys({"key": 1} for _ in it)
    it.close()


def test_without_grain(tmp_path: Path) -> None:
    """The module is imported without Grain; the class says what to install."""
    program = (
        "import sys; sys.modules['grain'] = None; sys.modules['etils'] = None\n"
        "import shardtool.grain\n"
        "shardtool.grain.Source\n"
        "for use in (lambda: shardtool.grain.IterDataset, lambda: shardtool.grain.restore('x', None)):\n"
        "    try: use()\n"
        "    except ImportError as err: print(err)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout
    assert said.count("is not installed: pip install grain") == 2


def test_page(small: Path, tmp_path: Path) -> None:
    """The program of docs/grain.md runs."""
    page = (ROOT / "docs" / "grain.md").read_text()
    match = re.search(r"<!-- tested: grain -->\n```python\n(.*?)```", page, re.S)
    assert match is not None
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train").symlink_to(small)
    command = [sys.executable, "-c", match[1]]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout.splitlines()
    assert len(said) == 126 and said[0].startswith("0 (8, 2, 3) ")
    assert said[-1].split()[-1] == said[5].split()[-1]
