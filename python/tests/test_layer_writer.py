"""Layer: rows of a program's own loop."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Dict

import pytest
from annotate_help import check, made, write_base

import shardtool

N = 200


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    write_base(tmp_path / "photos", N)
    return tmp_path / "photos"


def row(n: int) -> Dict[str, Any]:
    return {"__key__": f"{n:06d}", **{name: values[0] for name, values in made([n]).items()}}


def test_any_order(photos: Path) -> None:
    """Rows find their samples by key; what has no row has nothing."""
    numbers = [n for n in range(N) if n % 10 != 3]
    random.Random(1).shuffle(numbers)
    with shardtool.Layer(photos, "mine", attrs={"score": "score"}, missing="allow") as layer:
        for n in numbers[:50]:
            layer.write(row(n))
        rest = numbers[50:]
        layer.write_batch({"__key__": [f"{n:06d}" for n in rest], **made(rest)})
        assert layer.rows == len(numbers)
    assert layer.result is not None and layer.result["missing"] == N // 10 and layer.result["samples"] == N
    check(photos, "mine", N)


def test_arrays(photos: Path) -> None:
    numpy = pytest.importorskip("numpy")
    numbers = list(reversed(range(N)))
    with shardtool.Layer(photos, "emb") as layer:
        layer.write_batch({"__key__": [f"{n:06d}" for n in numbers], "emb": numpy.float16(numbers)[:, None] * numpy.ones((1, 8), "f2")})
    with shardtool.Loader(photos, 50, layers=["emb"], fields={"n": "int", "emb": "npy"}, epochs=1) as loader:
        for batch in loader:
            assert batch["emb"].shape == (50, 8)
            assert batch["emb"][:, 3].tolist() == batch["n"].tolist()


def test_update_and_append(photos: Path) -> None:
    with shardtool.Layer(photos, "mine", attrs={"score": "score"}, missing="allow") as layer:
        for n in range(N):
            layer.write({**row(n), "caption": "old"} if n % 10 != 3 else {"__key__": f"{n:06d}", "caption": "old"})
    with shardtool.Layer(photos, "mine", on_exists="update") as layer:
        layer.write({"__key__": "000007", "caption": "new"})
    with shardtool.Loader(photos, 50, layers=["mine"], fields={"n": "int", "caption": "txt"}, epochs=1) as loader:
        for batch in loader:
            assert list(batch["caption"]) == ["new" if n == 7 else "old" for n in batch["n"].tolist()]
    write_base(photos, 40, "append", N)
    with shardtool.Layer(photos, "mine", on_exists="append") as layer:
        for n in range(N + 40):
            layer.write({"__key__": f"{n:06d}", "caption": "more", "score": 1.0})
    assert layer.result is not None and layer.result["samples"] == N + 40


def test_wrong(photos: Path) -> None:
    def layer(rows: Any, **options: Any) -> Any:
        with shardtool.Layer(photos, "mine", **options) as to:
            for r in rows:
                to.write(r)
        return to.result

    caption = {"caption": "x"}
    with pytest.raises(shardtool.ConfigError, match="without a key"):
        layer([caption])
    with pytest.raises(shardtool.ShardtoolError, match=r"the first is .000000.*missing='allow'"):
        layer([{"__key__": "000005", **caption}])
    with pytest.raises(shardtool.ShardtoolError, match=r"unknown key.*unknown='skip'"):
        layer([{"__key__": "what", **caption}], missing="allow")
    with pytest.raises(shardtool.EncodeError, match="duplicate key"):
        layer([{"__key__": "000005", **caption}] * 2, missing="allow")
    assert not (photos / "layers" / "mine" / "manifest.json").exists()
    assert layer([{"__key__": k, **caption} for k in ("what", "000005")], missing="allow", unknown="skip")["unknown"] == 1
    with pytest.raises(shardtool.ExistsError, match="on_exists='overwrite'"):
        layer([{"__key__": "000005", **caption}], missing="allow")
    with pytest.raises(shardtool.ConfigError, match="a name has 1 to 64"):
        shardtool.Layer(photos, "a/b").__enter__()
    with pytest.raises(RuntimeError), shardtool.Layer(photos, "other") as to:
        to.write({"__key__": "000005", **caption})
        raise RuntimeError
    assert not (photos / "layers" / "other").exists()
