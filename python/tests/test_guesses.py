"""What users of other loaders try works, or is answered by what to write instead."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
import re
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping

import pytest

import shardtool
from shardtool import (
    Bucket,
    CheckpointError,
    ConfigError,
    EncodeError,
    KeyNotFoundError,
    Loader,
    NotFoundError,
    Pack,
    Samples,
    Source,
    Tuning,
    Writer,
    _others,
    guesses,
)
from shardtool._checks import installed
from shardtool._wire import program

np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("guesses") / "out"
    with Writer(out) as w:
        for i in range(20):
            w.write({"__key__": f"k{i:02d}", "txt": f"t{i}", "cls": i})
    return out


@pytest.mark.parametrize("name", sorted(guesses.READING))
def test_arguments_of_loaders(data: Path, name: str) -> None:
    with pytest.raises(TypeError, match=f"Loader has no argument '{name}': [a-z]"):
        Loader(data, 4, **{name: 1})
    assert name not in inspect.signature(Loader).parameters
    with pytest.raises(TypeError, match=f"Samples has no argument '{name}': [a-z]"):
        shardtool.open(data, **{name: 1})


@pytest.mark.parametrize("name", sorted(guesses.WRITING))
def test_arguments_of_writers(tmp_path: Path, name: str) -> None:
    with pytest.raises(TypeError, match=f"Writer has no argument '{name}': [a-z]"):
        Writer(tmp_path / "out", **{name: 1})
    assert name not in inspect.signature(Writer).parameters


#: The classes and functions whose arguments are guessed, with the table of each.
GUESSED = (
    (shardtool.Image, guesses.IMAGE), (Pack, guesses.PACKING), (Bucket, guesses.BUCKETS), (shardtool.Source, guesses.SOURCES),
    (shardtool.Mix, guesses.MIXING), (shardtool.Layer, guesses.LAYERING), (shardtool.Order, guesses.ORDERING), (Tuning, guesses.TUNINGS),
    (shardtool.Faults, guesses.ON_FAULTS), (shardtool.Lanes, guesses.LANES), (shardtool.annotate, guesses.ANNOTATING),
)  # fmt: skip


@pytest.mark.parametrize(("asked", "answer"), [
    (lambda d: Loader(d, 4, worker_buffer_size=9), r"no argument 'worker_buffer_size': .*shuffle_memory="),
    (lambda d: Loader(d, 4, image_key="jpg"), "no argument 'image_key': fields have the names"),
    (lambda d: Loader(d, 4).split_by_node(0, 2), "no 'split_by_node': give rank="),
    (lambda d: Loader(d, 4).with_format("torch"), "no 'with_format': give format='torch'"),
    (lambda d: shardtool.open(d).iter_batches(4), "no 'iter_batches': a Loader has batches"),
    (lambda d: shardtool.open(d)[0].to_dict(), r"no 'to_dict': dict\(sample\)"),
    (lambda d: next(iter(Loader(d, 4))).iterrows(), "no 'iterrows': batch.to_arrow"),
    (lambda d: next(iter(Loader(d, 4)))[0], r"batch\['NAME'\]\[0\] is a field of the first sample"),
    (lambda d: Loader(f"{d}/data-{{000000..000003}}.tar.zst", 4), "a data set is a folder, which names its shards: give .*out$"),
    (lambda d: shardtool.SimpleShuffle(), "no attribute 'SimpleShuffle': write .*Loader"),
    (lambda d: shardtool.read_parquet(d), "no attribute 'read_parquet': "),
    (lambda d: shardtool.verify(d), "`shardtool verify ...` on the command line"),
])  # fmt: skip
def test_words_in_names(data: Path, asked: Callable[[Path], Any], answer: str) -> None:
    """A name that no table has is answered by the words in it."""
    with pytest.raises((TypeError, AttributeError, KeyError, KeyNotFoundError, NotFoundError), match=answer):
        asked(data)


def test_commands_in_answers() -> None:
    """An answer names commands of the program and names of the package that are there."""
    texts = [text for table in (_others.WORDS, guesses.LOADING, guesses.READING, guesses.RANDOM, guesses.BATCH) for text in table.values()]
    help = subprocess.run([program.find(), "--help"], capture_output=True, text=True, check=True).stdout
    for text in texts:
        for name in re.findall(r"`shardtool (\w+)", text):
            assert re.search(rf"^  {name} ", help, re.M), text
        for name in re.findall(r"shardtool\.(\w+)", text):
            assert name in ("torch", "Dataset") or hasattr(shardtool, name), text


@pytest.mark.parametrize(("of", "known"), GUESSED)
def test_arguments_of_the_rest(of: Callable[..., Any], known: Mapping[str, str]) -> None:
    for name in known:
        assert name not in inspect.signature(of).parameters
        with pytest.raises(TypeError, match=f"^{of.__name__} has no argument '{name}': [a-z]"):
            of(**{name: 1})


@pytest.mark.parametrize("of", [*(of for of, _ in GUESSED), Loader, Writer, Samples, shardtool.optimize])
def test_missing_arguments(of: Callable[..., Any]) -> None:
    """An argument that is missing, or that needs its name, is answered by a call that works."""
    needed = [p for p in inspect.signature(of).parameters.values() if p.default is p.empty and p.kind != p.VAR_KEYWORD]
    if needed:
        with pytest.raises(
            TypeError, match=rf"^{of.__name__} needs {needed[0].name}.*: write .*{of.__name__.replace('Samples', 'open')}\("
        ) as info:
            of()
        call = (
            str(info.value)
            .partition(": write ")[2]
            .partition(", or ")[0]
            .replace("shardtool.", "")
            .replace("FUNCTION", "len")
            .replace("inputs", "[]")
        )
        bound = call.replace(f"{of.__name__}(", "bind(").replace("open(", "bind(")
        eval(bound, {"bind": inspect.signature(of).bind, "url": "out/"})
    if of is not shardtool.optimize:  # its further arguments are those of a Writer
        with pytest.raises(
            TypeError,
            match=rf"^{of.__name__} takes (its arguments by name, as in|.* without (its name|their names): give what follows by name)",
        ) as info:
            of(*range(20), **{p.name: 1 for p in needed if p.kind == p.KEYWORD_ONLY})


def test_dicts_of_options(data: Path) -> None:
    """A dict in place of a group of options is answered by the call that it stands for."""
    for name, given in (("order", {"lanes": 2}), ("tuning", {"memory": "1GiB", "workers": 2}), ("faults", {"on_error": "skip"})):
        with pytest.raises(ConfigError, match=rf"write {name.capitalize()}\(") as info:
            Loader(data, 4, **{name: given})
        group = eval(str(info.value).partition(": write ")[2], vars(shardtool))
        Loader(data, 4, **{name: group})


def test_what_answers_name_exists() -> None:
    """An argument, or a member of a group, that an answer names with = is one."""
    tables = [guesses.READING, guesses.WRITING, guesses.RANDOM, *(known for _, known in GUESSED)]
    words = " ".join(answer for table in tables for answer in table.values())
    named = set(re.findall(r"\b([a-z_]+)=", words)) - {"pin_memory"}  # of a DataLoader
    groups = [Loader, Writer, *(of for of, _ in GUESSED)]
    assert named <= {p for group in groups for p in inspect.signature(group).parameters}


@pytest.mark.parametrize(("name", "answer"), [
    ("global_batch", r"order=Order\(global_batch=...\)"), ("shuffle_memroy", r"order=Order\(shuffle_memory=...\)"),
    ("batchsize", "batch_size="),
    ("feilds", "fields="), ("max_skipped", r"faults=Faults\(max_skipped=...\)"), ("xyzzy", "it has url, batch_size, fields"),
])  # fmt: skip
def test_near_names(data: Path, name: str, answer: str) -> None:
    with pytest.raises(TypeError, match=answer):
        Loader(data, 4, **{name: 1})


def test_numbers_in_arrays(data: Path) -> None:
    with shardtool.open(data) as ds:
        for which in (np.array([3, 1]), [3, 1], np.array([3, 1], dtype="uint8")):
            assert [s.number for s in ds[which]] == [3, 1]
        mask = np.arange(20) % 5 == 2
        for which in (mask, mask.tolist()):
            assert [s.number for s in ds[which]] == [2, 7, 12, 17]
        assert ds[np.int64(4)].number == 4 and ds[np.array(4)].number == 4 and ds[[]] == []
        with pytest.raises(IndexError, match="a mask of 3 bools: the data set has 20"):
            ds[[True, False, True]]


def test_tensors(data: Path) -> None:
    torch = pytest.importorskip("torch")
    with shardtool.open(data) as ds:
        assert [s.number for s in ds[torch.tensor([3, 1])]] == [3, 1]
        assert [s.number for s in ds[torch.arange(20) < 2]] == [0, 1]


def test_names_of_fields(data: Path) -> None:
    with shardtool.open(data) as ds, Loader(data, 4) as loader:
        assert ds.fields == loader.fields == ["cls", "txt"] and loader.batch_size == 4
        with pytest.raises(KeyNotFoundError, match=r"'txt' is a field: ds\[i\]\['txt'\]"):
            ds["txt"]
        with pytest.raises(KeyNotFoundError, match=r"ds\['k03'\]\['txt'\] is the field 'txt'"):
            ds["k03.txt"]
        with pytest.raises(KeyError, match="no field 'jpg': there are 'cls', 'txt'"):
            ds[3]["jpg"]
        with pytest.raises(KeyError, match="no field 'jpg': there are 'cls', 'txt'"):
            next(iter(loader))["jpg"]
        for payloads in (next(iter(loader)).payloads, next(iter(loader)).data):
            with pytest.raises(KeyError, match="no field 'jpg': there are 'cls', 'txt'"):
                payloads("jpg")
        with pytest.raises(TypeError, match=r"shardtool\.Dataset"):
            loader[0]
        for which in (1.5, None, b"k03", np.zeros((2, 2), int)):
            with pytest.raises(TypeError, match=r"is neither a number nor a key: ds\[0\]"):
                ds[which]
        for name in guesses.RANDOM:
            with pytest.raises(AttributeError, match=f"no '{name}': "):
                getattr(ds, name)
    assert Loader(data, 4, fields=["txt"]).fields == ["txt"]
    assert Loader(data, 4, units=Pack(8, ["x"])).fields == ["x", "position_ids", "document", "cu_seqlens", "max_seqlen", "fill"]


def test_a_loader_in_a_dataloader(data: Path) -> None:
    torch = pytest.importorskip("torch.utils.data")
    with pytest.raises(TypeError, match=r"DataLoader\(Dataset\(url, batch_size\), batch_size=None\)"):
        next(iter(torch.DataLoader(Loader(data, 4))))


@pytest.mark.parametrize(("asked", "answer"), [
    (lambda d: Loader([d, d], 4), r'"a": \{"data": ".*out", "weight": 1\}'),
    (lambda d: next(iter(Loader({"sources": {"a": {"url": str(d)}}}, 4))), r"sources\.a\.url: no such member: write data"),
    (lambda d: next(iter(Loader({"sources": {"a": {"data": str(d), "probability": 1}}}, 4))), "no such member: write weight"),
    (lambda d: next(iter(Loader({"url": str(d)}, 4))), r'"a": \{"data": ".*out", "weight": 1\}'),
    (lambda d: Loader({str(d): 0.7}, 4), r'"a": \{"data": ".*out", "weight": 0\.7\}'),
    (lambda d: Loader({"web": str(d), "code": str(d)}, 4), r'"b": \{"data": ".*out", "weight": 1\}'),
    (lambda d: Loader([(d, 0.7), (d, 0.3)], 4), r'"b": \{"data": ".*out", "weight": 0\.3\}'),
    (lambda d: Loader({"web": {"data": str(d), "weight": 2}}, 4), r'"a": \{"data": ".*out", "weight": 2\}'),
    (lambda d: next(iter(Loader({"sources": {"a": {"data": str(d)}}, "sequence": 1}, 4))), "no such member: write one of sources, "),
    (lambda d: next(iter(Loader("s3:bucket/x", 4))), "write s3://bucket/x, or ./ before the name of a folder"),
    (lambda d: Writer("gs:/bucket/x?sig=secret").write({}), "write gs://bucket/x, or ./ before the name of a folder"),
    (lambda d: Source(d, keys=["a"]), "keys='keys.txt', a file with one key in each line"),
    (lambda d: Loader(d, 4, fields={"txt": "tensor"}), "write 'npy', or one of "),
    (lambda d: Loader(d, 4, fields={"txt": "int32"}), r"write 'npy' for a \.npy, \('int32', shape\) for bytes"),
    (lambda d: Loader(d, 4, fields={"txt": np.int32}), r"write 'npy' for a \.npy, \('int32', shape\) for bytes"),
    (lambda d: Loader(d, 4, fields={"txt": np.dtype("float16")}), r"write 'npy' for a \.npy, \('float16', shape\) for bytes"),
    (lambda d: Loader(d, 4, fields={"cls": bool}), "field 'cls': the class bool: write the word 'int'"),
    (lambda d: Loader(d, 4, fields={"cls": int}), "field 'cls': the class int: write the word 'int'"),
    (lambda d: Loader(d, 4, fields={"jpg": shardtool.Image}), r"the class Image: write shardtool\.Image\(224\)"),
    (lambda d: Loader(d, 4, fields={"x": np.ndarray}), "the class ndarray: write the word 'npy'"),
    (lambda d: Loader(d, 4, fields={"image": ("jpg", "bytes")}), "map_batch=FUNCTION, which gets values, may return others"),
    (lambda d: shardtool.optimize(len, "photos", d / "o"), r"inputs='photos': give several, such as a list of paths or range\(20\)"),
    (lambda d: shardtool.optimize(len, 20, d / "o"), r"inputs=20: give several"),  # type: ignore[arg-type]
    (lambda d: Loader(d, 4, fields={"txt": "uint8[32,32]"}), r"write 'npy' for a \.npy, \('uint8', shape\) for bytes"),
    (lambda d: Loader({"sources": [str(d)]}, 4), r'"a": \{"data": ".*out", "weight": 1\}'),
    (lambda d: shardtool.Mix([d]), r'"a": \{"data": ".*out", "weight": 1\}'),  # type: ignore[arg-type]
    (lambda d: Loader(d, 4, fields={"txt": str}), "field 'txt': the class str: write the word 'txt'"),
    (lambda d: Loader(d, 4).set_epoch(1.5), "epoch=1.5: give a whole number"),  # type: ignore[arg-type]
    (lambda d: next(iter(Loader(d, 4, cache=d / "manifest.json"))), "^cache: "),
    (lambda d: next(iter(Loader(d, 4, tuning=Tuning(metrics="x")))), '^metrics="x": write an address'),
    (lambda d: next(iter(Loader(d))), "give batch_size, a number of samples"),
    (lambda d: next(iter(Loader(d, units=Bucket(9)))), "give batch_size, a number of micro-batches; 1 is one for each rank"),
    (lambda _: Tuning(memory="1MB"), "memory='1MB': the least is '1MiB'"),
])  # fmt: skip
def test_sentences(data: Path, asked: Callable[[Path], Any], answer: str) -> None:
    with pytest.raises(ConfigError, match=answer):
        asked(data)


def test_iterators_and_batches(data: Path) -> None:
    with Loader(data, 4) as loader:
        it = iter(loader)
        for name in ("state_dict", "get_state", "batch_size"):
            with pytest.raises(AttributeError, match=r"ask the loader, as in loader\.state_dict\(\)"):
                getattr(it, name)
        assert not hasattr(it, "__length_hint__")
        with pytest.raises(TypeError, match=r"\{\*\*batch, 'x': values\} is a dict"):
            next(it)["x"] = 1
        assert {**next(iter(loader)), "x": 1}["x"] == 1
        for name in ("from_state", "load", "from_checkpoint"):
            with pytest.raises(AttributeError, match=r"loader\.load_state_dict\(state\)"):
                getattr(Loader, name)
        with pytest.raises(shardtool.ClosedError, match="a Loader of its own"):
            for _ in loader:
                for _ in loader:
                    pass


def test_names_of_parts_that_a_loader_has_imported(data: Path) -> None:
    assert next(iter(Loader(data, 4))).size == 4
    for name, answer in (("read", "shardtool.Loader"), ("write", "shardtool.Writer"), ("TokensLoader", "units=shardtool.Pack")):
        with pytest.raises(AttributeError, match=re.escape(f"has no attribute {name!r}: w") + ".*" + re.escape(answer)):
            getattr(shardtool, name)


@pytest.mark.parametrize("name", ["batch_size", "epochs", "map", "seed", "shuffle"])
def test_arguments_of_random_access(data: Path, name: str) -> None:
    with pytest.raises(TypeError, match=f"Samples has no argument '{name}': .*Loader"):
        shardtool.open(data, **{name: 1})


@pytest.mark.parametrize(("state", "answer"), [
    (None, "but NoneType: give the dict"), (3, "but int: "), ("ckpt.json", "but str: "), ({}, "no 'version', it has nothing"),
    ({"loader": {}}, "no 'version', it has 'loader'"), ([None], "but NoneType: "), ([], "no states to merge"),
])  # fmt: skip
def test_states_of_something_else(data: Path, state: Any, answer: str) -> None:
    with pytest.raises(CheckpointError, match=answer):
        Loader(data, 4).load_state_dict(state)


def test_samples_that_are_no_dicts(tmp_path: Path) -> None:
    with Writer(tmp_path / "out") as w:
        w.write({"x": 1})
        for sample in ([1, 2], ("a", {"x": 1}), "x"):
            with pytest.raises(EncodeError, match="a sample is a dict"):
                w.write(sample)  # type: ignore[arg-type]


VALUES: List[Any] = [b"x", "x", 1, 1.5, True, {"a": 1}, np.zeros(2)]


@pytest.mark.parametrize("first", VALUES, ids=repr)
@pytest.mark.parametrize("second", VALUES, ids=repr)
def test_the_declaration_of_an_error_is_accepted(tmp_path: Path, first: Any, second: Any) -> None:
    """What an EncodeError says to declare takes both values."""
    with Writer(tmp_path / "one") as w:
        w.write({"x": first})
        try:
            w.write({"x": second})
        except EncodeError as err:
            declared = re.search(r"fields=\{'x': '(\w+)'\}", str(err))
            if declared is None:
                assert "convert the value" in str(err)
                return
            with Writer(tmp_path / "two", fields={"x": declared[1]}) as again:
                again.write({"x": first})
                again.write({"x": second})


def test_samples_in_a_list(tmp_path: Path) -> None:
    with Writer(tmp_path / "out") as w:
        w.write_batch([{"__key__": "a", "x": 1}, {"__key__": "b", "x": 2}])
    with shardtool.open(tmp_path / "out") as ds:
        assert [(s.key, s["x"]) for s in ds] == [("a", 1), ("b", 2)]
    assert isinstance(ds, Samples)


class HubTable:
    """The part of a datasets.Dataset that write_table uses."""

    column_names = ("x",)

    def __init__(self, table: Any, kind: str = "") -> None:
        self.table, self.kind = table, kind

    def with_format(self, kind: str) -> HubTable:
        return HubTable(self.table, kind)

    def __getitem__(self, which: slice) -> Any:
        assert self.kind == "arrow"
        return self.table[which]


def test_a_table_of_datasets(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with Writer(tmp_path / "out") as w:
        w.write_table(HubTable(pa.table({"x": [1, 2, 3]})))
    with shardtool.open(tmp_path / "out") as ds:
        assert [s["x"] for s in ds] == [1, 2, 3]


# Names


def test_names_of_the_module() -> None:
    listed = [name for name in dir(shardtool) if not name.startswith("__")]
    assert {"Dataset", "Loader", "errors", "grain", "open", "torch"} <= set(listed)
    assert not {"Any", "TYPE_CHECKING", "wire", "ConfigError", "batch"} & set(listed)
    for name in listed:
        if name not in ("Dataset", "torch") or installed("torch"):
            assert getattr(shardtool, name) is not None
    assert set(shardtool.__all__) < set(listed)
    for name in dir(shardtool.errors):
        if name.endswith("Error") and name in vars(shardtool.errors):
            assert getattr(shardtool, name) is getattr(shardtool.errors, name)


def test_all_names_at_once() -> None:
    """They replace nothing that a program has of its own."""
    names: dict[str, Any] = {"open": open, "torch": 1}
    exec("from shardtool import *", names)
    assert names["open"] is open and names["torch"] == 1 and names["Loader"] is Loader and names["errors"] is shardtool.errors


@pytest.mark.parametrize("name", sorted(_others.MODULE))
def test_names_of_other_packages(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': "):
        getattr(shardtool, name)
    with pytest.raises(ImportError, match=f"has no attribute '{name}': "):
        exec(f"from shardtool import {name}", {})
    assert not hasattr(shardtool, name)


@pytest.mark.parametrize("where", ["shardtool", "shardtool.torch", "shardtool.grain"])
def test_kinds_of_other_packages(where: str) -> None:
    """A class that no package has is answered by what it is, in every package of this one."""
    if where == "shardtool.torch":
        pytest.importorskip("torch")
    package = importlib.import_module(where)
    for name, answer in {
        "WebDatasetWriter": "shardtool.Writer(",
        "RandomSampler": "each rank gets its part",
        "ArrowReader": "shardtool.Loader(",
    }.items():
        answer = "shardtool.grain.Source(url)" if where == "shardtool.grain" else answer
        with pytest.raises(AttributeError, match=re.escape(answer)):
            getattr(package, name)
        with pytest.raises(ImportError, match=re.escape(answer)):
            exec(f"from {package.__name__} import {name}", {})
    assert not hasattr(package, "xyzzy")
    with pytest.raises(AttributeError, match=r"shardtool\.errors has NotFoundError$"):
        package.DatasetNotFoundError
    with pytest.raises(AttributeError, match=r"has no attribute 'xyzzy': (it has |grain\.MapDataset)"):
        package.xyzzy
    for module in ("streaming", "pytorch", "utils"):
        with pytest.raises(ModuleNotFoundError, match=r": shardtool has .*Loader.*, torch"):
            exec(f"import shardtool.{module}", {})
    if where != "shardtool.grain":
        with pytest.raises(ModuleNotFoundError, match=rf": {package.__name__} has .*Dataset"):
            exec(f"from {package.__name__} import Xyzzy", {})


@pytest.mark.parametrize("of", [Loader, Writer, Samples, shardtool.Layer])
def test_constructors_of_others(of: Any) -> None:
    with pytest.raises(
        AttributeError, match=rf"{of.__name__} has no 'from_folder': write .*{of.__name__.replace('Samples', 'open')}\(.*shardtool pack"
    ):
        of.from_folder
    with pytest.raises(AttributeError, match=rf"{of.__name__} has no '_xyzzy'$"):
        of._xyzzy


class Unhashable(Dict[str, Any]):
    def items(self) -> Any:
        raise TypeError("unhashable")

    __iter__ = items


def test_calls_of_others(data: Path, tmp_path: Path) -> None:
    """What other writers take, attributes as methods, and values in the form of other loaders."""
    with Writer(tmp_path / "out") as w:
        for call in (lambda: w.write("a", {"txt": "b"}), lambda: w.write(key="a", txt="b"), lambda: w.write()):
            with pytest.raises(TypeError, match=r"Writer\.write .*: write w\.write\(\{'__key__': key"):
                call()
        with pytest.raises(TypeError, match="unhashable"):  # of what it does itself
            w.write(Unhashable())
        w.write({"__key__": "a", "txt": "b"})
    with Loader(data, 4) as loader, shardtool.open(data) as ds:
        for attribute in (loader.info, loader.fields, ds.info, ds.fields):
            with pytest.raises(TypeError, match=r"an attribute and not a method: write it without \(\)"):
                attribute()
        assert type(pickle.loads(pickle.dumps(ds.info))) is type(ds.info) and json.dumps(ds.info)
    for tuning in (lambda: Tuning(4), lambda: shardtool.Order("random")):
        with pytest.raises(TypeError, match="takes its arguments by name, as in"):
            tuning()
    with pytest.raises(AttributeError) as info:
        Loader(data, 4).prefetch
    assert getattr(info.value, "name", "") == ""  # Python adds a name that is spelt alike to another
    with pytest.raises(AttributeError, match=r"a Layer has no 'add': layer\.write\(\{'__key__'"):
        shardtool.Layer(data, "more").add
    for wrong, right in (
        ({"where": lambda sample: True}, "where='score >= 3'"),
        ({"shuffle": 1000}, "shuffle_memory='2GiB'"),
        ({"order": "random"}, "Order("),
    ):
        with pytest.raises(ConfigError, match=re.escape(right)):
            Loader(data, 4, **wrong)
    pytest.importorskip("torch")
    assert "from_folder" not in dir(shardtool.Dataset) and not hasattr(shardtool.Dataset, "from_folder")
    with pytest.raises(TypeError, match=r"Prefetcher has no argument 'depth': give ahead="):
        shardtool.torch.Prefetcher(Loader(data, 4), "cpu", depth=4)


def test_attributes_of_loaders(data: Path) -> None:
    loader = Loader(data, 4, epochs=1)
    for name in guesses.LOADING:
        with pytest.raises(AttributeError, match=f"a Loader has no '{name}': "):
            getattr(loader, name)
    with pytest.raises(AttributeError, match=r"a Loader has no 'xyzzy': it has .*, state_dict, "):
        loader.xyzzy
    with pytest.raises(TypeError, match=r"it = iter\(loader\), and then next\(it\)"):
        next(loader)
    it = iter(loader)
    assert next(it).size == 4
    copy = pickle.loads(pickle.dumps(Loader(data, 4, epochs=1)))
    assert sum(batch.size for batch in copy) == 20
    for one in (loader, copy):
        one.close()


def test_attributes_of_batches(data: Path, tmp_path: Path) -> None:
    with Writer(tmp_path / "out") as w:
        w.write_batch({"__key__": ["a", "b"], "emb.npy": np.arange(6, dtype="f4").reshape(2, 3), "cls": [1, 2]})
        with pytest.raises(AttributeError, match=r"a Writer has no 'add_sample': w\.write\("):
            w.add_sample
    with Loader(tmp_path / "out", 2, format="numpy", fields=["emb.npy", "cls"]) as loader:
        (batch,) = loader
        assert list(batch) == ["emb.npy", "cls"] and len(batch) == 2 == batch.size
        assert batch["emb"] is batch["emb.npy"] and "emb" in batch and batch.get("embed") is None
        assert len(batch.payloads("emb")) == 2 and list(dict(batch)) == ["emb.npy", "cls"]
        assert batch.to("cpu")["emb"] is batch["emb"]  # arrays of numpy stay
        assert batch.to("cpu").sample_keys == ["a", "b"]
        for name in ("emb", "cls"):
            with pytest.raises(AttributeError, match=rf"it is a field: batch\['{name}'\]"):
                getattr(batch, name)
        for name in guesses.BATCH:
            with pytest.raises(AttributeError, match=f"a batch has no '{name}': "):
                getattr(batch, name)
        again = pickle.loads(pickle.dumps(batch))
        assert (again["emb"] == batch["emb"]).all() and again.numbers == batch.numbers
        with pytest.raises(AttributeError, match=r"'emb.npy' is the name of a field, and has no 'to'.*map_batch=lambda batch"):
            for x, _ in [batch]:
                x.to("cuda")
    with Loader(tmp_path / "out", 2, format="numpy", map_batch=lambda batch: (batch["emb"], batch["cls"])) as pairs:
        for x, y in pairs:
            assert x.shape == (2, 3) and list(y) == [1, 2]
    with shardtool.open(tmp_path / "out") as ds:
        assert ds[0]["emb"] is not None and ds[1]["__key__"] == "b"
        with pytest.raises(AttributeError, match=r"it is a field: sample\['cls'\]"):
            ds[0].cls


def test_names_with_several_extensions(tmp_path: Path) -> None:
    with Writer(tmp_path / "out") as w:
        w.write({"__key__": "a", "x.txt": "a", "x.json": {}})
    with Loader(tmp_path / "out", 1) as loader, shardtool.open(tmp_path / "out") as ds:
        for fields in (*loader, ds[0]):
            with pytest.raises(KeyError, match=r"no field 'x': there are 'x\.json', 'x\.txt'"):
                fields["x"]
            assert "x" not in fields


def test_tensors_of_batches(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from shardtool.torch import state_of
    from shardtool.torch.named import named

    with Writer(tmp_path / "out") as w:
        w.write_batch({"__key__": ["a", "b"], "emb.npy": np.arange(6, dtype="f4").reshape(2, 3), "txt": ["x", "y"]})
        w.write({"__key__": "c", "emb.npy": np.arange(2, dtype="f4"), "txt": "z"})
    with Loader(tmp_path / "out", 2, epochs=1) as loader:
        for batch in loader:
            for one in (batch, named(batch, batch)):
                moved = one.to("meta")
                assert moved.sample_keys == batch.sample_keys and moved["txt"] == batch["txt"]
                assert state_of(moved) == batch.state_dict()
                emb = moved["emb"]
                assert all(e.device.type == "meta" for e in emb) if isinstance(emb, list) else emb.device.type == "meta"
                assert one.to(torch.float64)["emb"][0].dtype == torch.float64


@pytest.mark.parametrize("name", sorted(guesses.OPTIMIZING))
def test_arguments_of_optimize(tmp_path: Path, name: str) -> None:
    arguments = {"fn": str, "inputs": ["a"], name: "out"}
    with pytest.raises(TypeError, match=f"optimize has no argument '{name}': [a-z]"):
        shardtool.optimize(**arguments)


def test_the_answers_of_optimize_are_right(tmp_path: Path) -> None:
    def fn(name: str) -> Any:
        return {"__key__": name, "x": name}

    shardtool.optimize(fn, ["a", "b"], url=tmp_path / "out", workers=0, shard_size="1MiB", samples_per_shard=1)
    with shardtool.open(tmp_path / "out") as ds:
        assert [s["x"] for s in ds] == ["a", "b"]
    with pytest.raises(TypeError, match=r"optimize has no argument 'wrokers': did you mean workers=\?"):
        shardtool.optimize(fn, ["a"], tmp_path / "two", wrokers=1)


def test_new_names(data: Path, tmp_path: Path) -> None:
    """map_batch, cache_size and Lanes; the names before them work."""
    lanes = shardtool.Lanes(number=3, delay=2, run_blocks=1, head=1, affinity="run")
    orders = [shardtool.Order(lanes=lanes), shardtool.Order(lanes=3, delay=2, run_blocks=1, head=1, affinity="run")]
    states = []
    for order in orders:
        with Loader(data, 4, shuffle=True, order=order, map_batch=len) as loader:
            assert list(loader) == [2] * 5
            states.append(loader.state_dict())
    assert states[0] == states[1] and '"V":3' in str(states[0]["checkpoint"])
    with pytest.raises(ConfigError, match=r"lanes=Lanes\(...\) and delay: give Lanes\(delay=...\)"):
        shardtool.Order(lanes=lanes, delay=2)
    with pytest.raises(ConfigError, match="number=-1: the least is 0"):
        shardtool.Lanes(number=-1)
    with pytest.raises(TypeError, match=r"order=Order\(lanes=Lanes\(delay=...\)\)"):
        Loader(data, 4, delay=2)
    asked = [Loader(data, 4, cache=tmp_path, **options) for options in ({"cache_size": "1GiB"}, {"tuning": Tuning(cache_size="1GiB")})]
    assert asked[0]._asked.opening == asked[1]._asked.opening and asked[0]._asked.opening["cache_size"] == 1 << 30
    assert shardtool.open(data, cache=tmp_path, cache_size=5)._open["cache_size"] == 5
    with pytest.raises(ConfigError, match="leave the second out"):
        Loader(data, 4, cache_size=1, tuning=Tuning(cache_size=1))
    with pytest.raises(ConfigError, match="cache_size='many': give bytes"):
        Loader(data, 4, cache_size="many")


def _no_more(batch: Any) -> Any:
    raise StopIteration


def test_functions_of_batches(small: Path) -> None:
    """A function that returns nothing, that ends an iterator of its own, or that takes a batch for
    one sample, ends the loop with an error that says so."""
    with pytest.raises(ConfigError, match="map_batch returned None for a batch: did it forget to return"):
        next(iter(Loader(small, 10, fields=["cls"], map_batch=lambda batch: None)))
    with pytest.raises(RuntimeError, match="map_batch raised StopIteration"):
        list(Loader(small, 10, fields=["cls"], epochs=1, map_batch=_no_more))
    with pytest.raises(RuntimeError, match="the function of field 'cls' raised StopIteration"):
        for batch in Loader(small, 10, fields={"cls": _no_more}, map_batch=dict):
            assert batch["cls"]
    with pytest.raises(RuntimeError, match="the function of field 'cls' raised StopIteration"):
        list(shardtool.open(small, fields={"cls": _no_more}))
    with pytest.raises(AttributeError) as failed:
        next(iter(Loader(small, 10, fields={"txt": "str"}, map_batch=lambda sample: sample["txt"].split())))
    if hasattr(failed.value, "add_note"):
        assert "a batch of 10 samples" in failed.value.__notes__[0]
    with pytest.raises(TypeError, match="has no argument 'map': give map_batch=FUNCTION, which is called with each batch, not with each"):
        Loader(small, 10, map=len)  # type: ignore[call-arg]


def test_samples_become_a_dict(small: Path) -> None:
    """torch makes a dict of samples, with all their keys."""
    data = pytest.importorskip("torch.utils.data")
    if not hasattr(data._utils.collate, "default_collate_fn_map"):
        pytest.skip("this torch has no table of functions that collate")
    batch = next(iter(data.DataLoader(shardtool.open(small, fields={"cls": "int"}), batch_size=3)))
    assert type(batch) is dict and batch["__key__"] == ["s0000", "s0001", "s0002"] and list(batch["cls"].shape) == [3]


def test_samples_keep_their_keys(small: Path, tmp_path: Path) -> None:
    """A sample of one data set is written to another with its key."""
    with shardtool.Writer(tmp_path / "out") as w:
        for sample in shardtool.open(small, fields={"txt": "str"})[:3]:
            w.write(sample)
    assert [sample.key for sample in shardtool.open(tmp_path / "out")] == ["s0000", "s0001", "s0002"]


def half(payload: Any) -> Any:
    return bytes(payload[:1])


def test_words_for_what_is_meant(small: Path) -> None:
    """Functions are functions whatever their names; names of fields do not compute; a mix is not
    iterated."""
    assert len(next(iter(Loader(small, 4, fields={"txt": half})))["txt"][0]) == 1
    for x, _ in Loader(small, 2, fields={"cls": "int", "txt": "str"}):
        for compute in (lambda x: x / 255, lambda x: x * 2, lambda x: x + 1, lambda x: -x):
            with pytest.raises(TypeError, match="is the name of a field, and no array"):
                compute(x)
        assert x + "s" == "clss"
        break
    with pytest.raises(ConfigError, match=r"the question mark is of the type: fields={'txt': 'str\?'}"):
        Loader(small, 2, fields={"txt?": "str"})
    mix = shardtool.Mix({"sources": {"a": {"data": str(small)}}})
    with pytest.raises(TypeError, match="a Mix says what to read"):
        iter(mix)  # type: ignore[call-overload]
    with pytest.raises(AttributeError, match="a loader has"):
        mix.set_weights({"a": 1})  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="tail='short' to keep it"):
        Loader(small, 2, drop_last=False)  # type: ignore[call-arg]
