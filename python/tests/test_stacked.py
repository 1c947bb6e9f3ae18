"""Rows: arrays of one type and shape, written stacked and read on every path."""

import io
import subprocess
import tarfile

import pytest

import shardtool

np = pytest.importorskip("numpy")


def rows(n):
    rng = np.random.default_rng(7)
    return {"x": rng.integers(0, 60_000, (n, 5), dtype=np.int32), "y.npy": np.arange(n, dtype=np.float32)}


def write(url, n, **options):
    columns = rows(n)
    with shardtool.Writer(url, block_size="4KiB", shard_size="16KiB", **options) as out:
        out.write_batch({"x": columns["x"], "y.npy": columns["y.npy"].reshape(n, 1)})
    return columns


@pytest.mark.parametrize("layout", ["stacked", "auto"])
def test_loader(tmp_path, layout):
    columns = write(tmp_path / "rows", 2000, layout=layout)
    write(tmp_path / "old", 2000)
    seen = {}
    for batch in shardtool.Loader(tmp_path / "rows", batch_size=64, shuffle=True, seed=3, epochs=1, tuning=shardtool.Tuning(out="numpy")):
        for key, x in zip(batch["__key__"], batch["x"]):
            seen[key] = np.asarray(x).copy()
    assert len(seen) == 2000
    for i, key in enumerate(sorted(seen)):
        assert (seen[key] == columns["x"][i]).all()


def test_random_access(tmp_path):
    columns = write(tmp_path / "rows", 500, layout="stacked")
    write(tmp_path / "old", 500)
    with (
        shardtool.open(tmp_path / "rows", tuning=shardtool.Tuning(out="numpy")) as new,
        shardtool.open(tmp_path / "old", tuning=shardtool.Tuning(out="numpy")) as old,
    ):
        assert len(new) == len(old) == 500
        for i in (0, 1, 99, 499):
            a, b = new[i], old[i]
            assert a.key == b.key
            assert (np.asarray(a["x"]) == columns["x"][i]).all() and (np.asarray(b["x"]) == columns["x"][i]).all()


def test_another_shape(tmp_path):
    with pytest.raises(shardtool.EncodeError, match="earlier samples have"):
        with shardtool.Writer(tmp_path / "rows", layout="stacked") as out:
            out.write({"x": np.zeros(3, np.int16)})
            out.write({"x": np.zeros(4, np.int16)})
    with shardtool.Writer(tmp_path / "auto", layout="auto") as out:
        out.write({"x": np.zeros(3, np.int16)})
        out.write({"x": np.zeros(4, np.int16)})
    assert out.result["samples"] == 2
    with pytest.raises(shardtool.ConfigError, match="layout"):
        shardtool.Writer(tmp_path / "other", layout="rows")


@pytest.mark.filterwarnings("ignore:.*unclosed file:pytest.PytestUnraisableExceptionWarning")  # WebDataset closes its files late
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_numpy_and_tar_read_a_block(tmp_path):
    """A plain shard is a tar of NPY files, one array a field and block."""

    columns = rows(300)
    with shardtool.Writer(tmp_path / "rows", layout="stacked") as out:
        out.write_batch({"x": columns["x"]})

    tar = tmp_path / "rows.tar"
    shard = next((tmp_path / "rows").glob("*.tar.zst"))
    try:
        tar.write_bytes(subprocess.run(["zstd", "-dcq", str(shard)], check=True, capture_output=True).stdout)
    except FileNotFoundError:
        pytest.skip("the zstd command is not installed")
    with tarfile.open(tar) as archive:
        names = archive.getnames()
        assert names == ["000000000.x.npy"]
        assert (np.load(io.BytesIO(archive.extractfile(names[0]).read())) == columns["x"]).all()
    webdataset = pytest.importorskip("webdataset")
    (sample,) = list(webdataset.WebDataset(str(tar), shardshuffle=False).decode())
    assert sample["__key__"] == "000000000" and (sample["x.npy"] == columns["x"]).all()
