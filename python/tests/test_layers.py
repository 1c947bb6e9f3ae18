"""Layers: fields of other data sets, delivered with the samples of their base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import run

import shardtool

N = 300


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of the field img and two layers: caption, for all samples, and tag, for half."""
    base = tmp_path_factory.mktemp("photos")
    (base / "in").mkdir()
    for i in range(N):
        (base / "in" / f"{i:04}.img").write_bytes(b"img%04d" % i * 300)
    run("pack", base / "in", base / "out", "--quiet", "--block-size", "8KiB", "--shard-size", "100KiB")
    for name, step in (("caption", 1), ("tag", 2)):
        rows = [json.dumps({"id": f"{i:04}", name: f"{name} of {i:04}"}) for i in range(0, N, step)]
        (base / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
        run("layer", "add", base / "out", name, base / f"{name}.jsonl", "--key", "id", "--columns", name, "--missing", "allow")
    return base / "out"


FIELDS = {"img": "bytes", "caption.txt": "str", "tag.txt": "str?"}


def keyed(batch: shardtool.Batch) -> "list[str]":
    """Returns the keys of a batch whose fields all carry the key of their sample."""
    for i, key in enumerate(batch["__key__"]):
        number = int(key)
        if "img" in batch:
            assert bytes(batch["img"][i]) == b"img%04d" % number * 300
        if "caption.txt" in batch:
            assert batch["caption.txt"][i] == f"caption of {key}"
        if "tag.txt" in batch:
            assert batch["tag.txt"][i] == (None if number % 2 else f"tag of {key}")
    return list(batch["__key__"])


def test_fields(photos: Path) -> None:
    """Each sample has the fields of its layers, in the order of the data set alone; without the
    base's field its shards are not read."""
    alone = [key for batch in shardtool.Loader(photos, 32, shuffle=True, seed=5, epochs=1) for key in batch["__key__"]]
    with shardtool.Loader(photos, 32, shuffle=True, seed=5, epochs=1, layers=["caption", "tag"], fields=FIELDS) as loader:
        assert [key for batch in loader for key in keyed(batch)] == alone
        assert [f["name"] for f in loader.info["fields"]] == ["caption.txt", "img", "tag.txt"]
    source = shardtool.Source(photos, layers=[photos / "layers" / "caption"])
    with shardtool.open(source, fields={"caption.txt": "str"}) as ds:
        assert ds["0007"]["caption.txt"] == "caption of 0007"
    mix = {"sources": {"a": {"data": str(photos), "layers": ["caption"]}}}
    with shardtool.Loader(mix, 32, epochs=1, fields={"caption.txt": "str"}) as loader:
        assert sum(len(keyed(batch)) for batch in loader) == N


def test_names(photos: Path) -> None:
    """A name may lack the extension. A name that no sample has is an error that lists the fields of
    base and layers, with a question mark too."""
    for name, spec in (("caption", "str"), ("caption", "str?"), ("caption", "auto"), ("caption.txt", "str")):
        with shardtool.Loader(photos, 32, epochs=1, layers=["caption"], fields={"img": "bytes", name: spec}) as loader:
            assert {text.split()[0] for batch in loader for text in batch[name]} == {"caption"}
        with shardtool.open(photos, layers=["caption"], fields={name: spec}) as ds:
            assert ds["0007"] == {name: "caption of 0007"}
    with shardtool.open(photos, layers=["caption"], fields=["caption"]) as ds:
        assert ds["0007"]["caption"] == "caption of 0007"
    for name in ("capt", "cap.txt", "txt"):
        for spec in ("str", "str?"):
            with (
                pytest.raises(shardtool.ConfigError, match=rf'no( sample has the)? field "{name}"; .*caption\.txt, img$'),
                shardtool.Loader(photos, 32, epochs=1, layers=["caption"], fields={"img": "bytes", name: spec}) as loader,
            ):
                list(loader)
        with pytest.raises(shardtool.ConfigError, match=f'field "{name}"'), shardtool.open(photos, fields={name: "str?"}) as ds:
            ds["0007"]


def test_base_is_not_read(photos: Path, tmp_path: Path) -> None:
    """With the fields of a layer alone the shards of the data set need not be there."""
    copy = tmp_path / "copy"
    shutil.copytree(photos, copy)
    for shard in copy.glob("*.tar*"):
        shard.unlink()
    with shardtool.Loader(copy, 32, shuffle=True, epochs=1, layers=["caption"], fields={"caption.txt": "str"}) as loader:
        assert sum(len(keyed(batch)) for batch in loader) == N
    fields = {"img": "bytes", "caption": "str"}
    with pytest.raises(shardtool.errors.CorruptError), shardtool.Loader(copy, 32, epochs=1, layers=["caption"], fields=fields) as loader:
        list(loader)


def test_states(photos: Path, tmp_path: Path) -> None:
    """A state has the generations of the layers. Layers may be added and removed at a state, and
    gone generations replaced by the current ones: the order stays."""
    options = {"shuffle": True, "seed": 1, "epochs": 1}
    want = [key for batch in shardtool.Loader(photos, 20, **options) for key in batch["__key__"]]
    got, state = [], None
    for layers in ([], ["caption"], ["tag", "caption"], ["tag"], []) * 3:
        fields = {name: spec for name, spec in FIELDS.items() if name.partition(".")[0] in ("img", *layers)}
        with shardtool.Loader(photos, 20, layers=layers, fields=fields, **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for batch in loader:
                got += keyed(batch)
                break
            state = loader.state_dict()
            assert sorted(state.get("layers", {}).get("", {})) == sorted(layers)
    assert got == want
    state = {**state, "layers": {"": {"caption": "manifest-0123456789abcdef.bin"}}, "begin": 0}
    with shardtool.Loader(photos, 20, layers=["caption"], fields={"caption.txt": "str"}, **options) as loader:
        loader.load_state_dict(state)
        assert sum(len(keyed(batch)) for batch in loader) == N


def test_refused(photos: Path) -> None:
    with pytest.raises(shardtool.errors.NotFoundError, match="layer none"):
        list(shardtool.Loader(photos, 8, epochs=1, layers=["none"]))
    with pytest.raises(shardtool.errors.ConfigError, match="give a list of names"):
        shardtool.Loader(photos, 8, layers="caption")
    with pytest.raises(shardtool.errors.ConfigError, match="a mix has them for each source"):
        shardtool.Loader({"sources": {"a": {"data": str(photos)}}}, 8, layers=["caption"])
