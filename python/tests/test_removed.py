"""Removed samples: the loader, random access, and a job that resumes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from conftest import SAMPLES, in_groups, run

import shardtool
from shardtool import Loader

REMOVED = [0, 17, 18, 400, 999]
OPTIONS: Dict[str, Any] = {"global_batch": 60, "shuffle": True, "seed": 5, "tail": "short", "fields": ["json"], "rank": 0, "world_size": 1}


def numbers(loader: Loader, batches: int = 0) -> Tuple[List[List[int]], Dict[str, Any]]:
    """The samples of each batch, and the state after the last."""
    out: List[List[int]] = []
    for batch in loader:
        out.append([x["number"] for x in batch["json"]])
        if len(out) == batches:
            break
    return out, loader.state_dict()


def removed_from(small: Path, out: Path, purge: bool) -> None:
    keys = out.parent / "keys"
    keys.write_text("".join(f"s{i:04d}\n" for i in REMOVED))
    run("remove", out, "--keys", keys)
    if purge:
        run("purge", out, "--generations")


@pytest.mark.parametrize("purge", [False, True])
def test_removed(small: Path, tmp_path: Path, purge: bool) -> None:
    out = tmp_path / "out"
    shutil.copytree(small, out)
    with Loader(out, **in_groups(**OPTIONS)) as loader:
        whole, _ = numbers(loader)
    with Loader(out, **in_groups(**OPTIONS)) as loader:
        begun, state = numbers(loader, 4)
    assert begun == whole[:4]
    removed_from(small, out, purge)
    # The job resumes without them, although its checkpoint names the generation before.
    with Loader(out, **in_groups(**OPTIONS)) as loader:
        loader.load_state_dict(state)
        rest, _ = numbers(loader)
    assert rest == [[n for n in batch if n not in REMOVED] for batch in whole[4:]]
    with Loader(out, **in_groups(**OPTIONS)) as loader:
        anew, _ = numbers(loader)
    assert anew == [[n for n in batch if n not in REMOVED] for batch in whole]
    with shardtool.open(out) as ds:
        kept = [i for i in range(SAMPLES) if i not in REMOVED]
        assert len(ds) == SAMPLES and ds.info["removed"] == len(REMOVED)
        assert [s.number for s in ds] == kept
        assert [s.number for s in ds[15:20]] == [15, 16, 19]
        for i in REMOVED:
            with pytest.raises(shardtool.NotFoundError, match="removed"):
                ds[i]
            assert f"s{i:04d}" not in ds
        assert ds["s0001"].number == 1
        with pytest.raises(KeyError):
            ds["s0017"]


def test_restored(small: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A job that resumes delivers samples that came back after its checkpoint."""
    out = tmp_path / "out"
    shutil.copytree(small, out)
    with Loader(out, **in_groups(**OPTIONS)) as loader:
        whole, _ = numbers(loader)
    removed_from(small, out, False)
    with Loader(out, **in_groups(**OPTIONS)) as loader:
        _, state = numbers(loader, 4)
    run("remove", out, "--keys", out.parent / "keys", "--restore")
    with Loader(out, **in_groups(**OPTIONS)) as loader:
        loader.load_state_dict(state)
        rest, after = numbers(loader)
    assert rest == whole[4:]
    assert "continuing on another generation" in caplog.text and "generation=3" in caplog.text
    with shardtool.open(out) as ds:
        assert ds.info["tables"] in json.dumps(after)


def test_appended(small: Path, tmp_path: Path) -> None:
    """A job that resumes on an older generation delivers no sample that was removed later."""
    out, more = tmp_path / "out", tmp_path / "more"
    shutil.copytree(small, out)
    with Loader(out, **in_groups(**OPTIONS)) as loader:
        whole, _ = numbers(loader)
    with Loader(out, **in_groups(**OPTIONS)) as loader:
        _, state = numbers(loader, 4)
    more.mkdir()
    (more / "new.json").write_text('{"number": 5000}')
    run("pack", more, out, "--append", "--quiet")
    removed_from(small, out, False)
    with Loader(out, **in_groups(**OPTIONS)) as loader:
        loader.load_state_dict(state)
        rest, _ = numbers(loader)
    assert rest == [[n for n in batch if n not in REMOVED] for batch in whole[4:]]
