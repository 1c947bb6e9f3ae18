"""Folders in the layouts of well-known data sets: read right, or packed by what doctor prints."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import textwrap
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import run
from test_writer import read


def put(files: Dict[str, Any]) -> None:
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())


def advice(folder: str) -> str:
    """What doctor prints for a folder that pack refuses with the same words."""
    refused = [run(*command, check=False) for command in (["doctor", folder], ["pack", folder, "none"])]
    assert [r.returncode for r in refused] == [2, 2] and refused[0].stderr == refused[1].stderr, refused
    return refused[0].stderr


def typed(folder: str) -> List[Dict[str, Any]]:
    """The samples of the data set that the advice makes."""
    text = advice(folder)
    command = re.search(r"`shardtool ([^`]*)`", text)
    if command is not None:
        run(*shlex.split(command[1]))
    else:
        program = text[text.index("in Python:\n") + len("in Python:\n") :]
        exec(compile(textwrap.dedent(program), folder, "exec"), {})
    run("verify", "out", "--deep")
    return read(Path("out"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_llava() -> None:
    """https://github.com/haotian-liu/LLaVA: docs/Finetune_Custom_Data.md."""
    talk = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat."}]
    rows = [
        {"id": "1", "image": "coco/1.jpg", "conversations": talk},
        {"id": "2", "conversations": talk},
        {"id": "3", "image": "gqa/1.jpg", "conversations": talk},
    ]
    put({"data/mix.json": json.dumps(rows, indent=1), "data/coco/1.jpg": "one", "data/gqa/1.jpg": "two", "data/gqa/2.jpg": "three"})
    got = typed("data")
    assert [row["image.jpg"] for row in got] == [b"one", b"two"]
    assert got[1]["conversations.json"] == talk


def test_common_voice() -> None:
    """The README of a release of Common Voice: .tsv files, and clips/."""
    head = "client_id\tpath\tsentence\tup_votes\n"
    row = 'c\tclip_{}.mp3\tsaid "so\t2\n'
    put({f"cv/{split}.tsv": head + row.format(0) for split in ("dev", "invalidated", "other", "reported", "test", "train")})
    put({"cv/validated.tsv": head + row.format(0) + row.format(1), **{f"cv/clips/clip_{i}.mp3": f"sound {i}" for i in range(3)}})
    got = typed("cv")
    assert [(row["audio.mp3"], row["sentence.txt"]) for row in got] == [(b"sound 0", 'said "so'), (b"sound 1", 'said "so')]


def test_ljspeech() -> None:
    """https://keithito.com/LJ-Speech-Dataset/: metadata.csv without a header, and wavs/."""
    put({"lj/README": "x", "lj/metadata.csv": 'LJ001-0001|Printing, "so|Printing, so\nLJ001-0002|in 1850|in eighteen fifty\n'})
    put({f"lj/wavs/LJ001-000{i}.wav": f"sound {i}" for i in (1, 2)})
    got = typed("lj")
    assert [(row["wav"], row["txt"], row["normalized.txt"]) for row in got] == [
        (b"sound 1", 'Printing, "so', "Printing, so"),
        (b"sound 2", "in 1850", "in eighteen fifty"),
    ]


def test_kitti() -> None:
    """https://www.cvlibs.net/datasets/kitti/eval_object.php: a folder for each kind of file."""
    put(
        {
            f"kitti/training/{folder}/00000{i}.{ext}": f"{folder} {i}"
            for i in range(2)
            for folder, ext in (("image_2", "png"), ("label_2", "txt"), ("calib", "txt"), ("velodyne", "bin"))
        }
    )
    got = typed("kitti")
    assert [row["image_2.png"] for row in got] == [b"image_2 0", b"image_2 1"]
    assert got[1]["label_2.txt"] == b"label_2 1" and got[1]["calib.txt"] == b"calib 1" and got[1]["velodyne.bin"] == b"velodyne 1"


def test_cityscapes() -> None:
    """https://github.com/mcordts/cityscapesScripts: README, "Dataset Structure"."""
    for i in range(2):
        name = f"aachen_00000{i}_000019"
        put(
            {
                f"cs/leftImg8bit/train/aachen/{name}_leftImg8bit.png": f"image {i}",
                f"cs/gtFine/train/aachen/{name}_gtFine_labelIds.png": f"ids {i}",
                f"cs/gtFine/train/aachen/{name}_gtFine_polygons.json": f'{{"n": {i}}}',
            }
        )
    got = typed("cs")
    assert [(row["png"], row["labelIds.png"], row["polygons.json"]) for row in got] == [
        (b"image 0", b"ids 0", b'{"n": 0}'),
        (b"image 1", b"ids 1", b'{"n": 1}'),
    ]


def test_lerobot() -> None:
    """https://github.com/huggingface/lerobot: LeRobotDataset has meta/, data/ and videos/."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    sink = io.BytesIO()
    pq.write_table(pa.table({"action": [[0.5, 1.0], [1.5, 2.0]], "episode_index": [0, 0], "frame_index": [0, 1]}), sink)
    put(
        {
            "robot/meta/info.json": json.dumps({"codebase_version": "v2.1", "fps": 30, "features": {}}),
            "robot/meta/episodes.jsonl": '{"episode_index": 0}\n',
        }
    )
    put(
        {
            "robot/data/chunk-000/episode_000000.parquet": sink.getvalue(),
            "robot/videos/chunk-000/observation.images.top/episode_000000.mp4": "clip",
        }
    )
    got = typed("robot")
    assert [(row["action.npy"].tolist(), int(row["frame_index.txt"])) for row in got] == [([0.5, 1.0], 0), ([1.5, 2.0], 1)]


def test_captions() -> None:
    """Captions of COCO have no categories."""
    put(
        {
            "coco/annotations/captions.json": json.dumps(
                {"info": {}, "images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"image_id": 1, "id": 2, "caption": "a cat"}]}
            )
        }
    )
    put({"coco/train/1.jpg": "one"})
    assert "docs/other-formats.md has the program that joins them" in advice("coco")


def test_classes() -> None:
    """ImageNet: a folder for each class, in a folder for each split."""
    put({f"imagenet/{split}/n0{c}/n0{c}_{i}.JPEG": "x" for split in ("train", "val") for c in range(2) for i in range(2)})
    text = advice("imagenet")
    assert "such as imagenet/train" in text
    run("pack", "imagenet/train", "out", "--class-field", "cls")
    assert [row["cls"] for row in read(Path("out"))] == [0, 0, 1, 1]


def test_dicom() -> None:
    """Files of DICOM are named by identifiers with dots (PS3.10)."""
    put({f"dicom/1.2.840.{i}.dcm": "x" * 132 for i in range(3)})
    found = run("doctor", "dicom", check=False)
    assert found.returncode == 1 and "--sample-rule last-dot makes a sample of each" in found.stdout
    run("pack", "dicom", "out", "--sample-rule", "last-dot")
    assert [row["__key__"] for row in read(Path("out"))] == [f"1-2-840-{i}" for i in range(3)]


def test_folder_of_orc() -> None:
    """What Spark writes, with its checksums and its mark: the program reads every part."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    orc = pytest.importorskip("pyarrow.orc", reason="pyarrow is built without ORC")
    put({"spark/_SUCCESS": "", "spark/._SUCCESS.crc": "crc"})
    for part in range(3):
        orc.write_table(pa.table({"n": list(range(part * 10, part * 10 + 10))}), f"spark/part-0000{part}.zstd.orc")
        put({f"spark/.part-0000{part}.zstd.orc.crc": "crc"})
    assert [row["n"] for row in typed("spark")] == list(range(30))


def write_avro(name: str, numbers: Any) -> None:
    import fastavro  # type: ignore[import-not-found,unused-ignore]

    schema = {"type": "record", "name": "row", "fields": [{"name": "x", "type": "double"}]}
    with open(name, "wb") as f:
        fastavro.writer(f, schema, [{"x": x} for x in numbers])


def write_hdf5(name: str, numbers: Any) -> None:
    import h5py  # type: ignore[import-not-found,unused-ignore]

    with h5py.File(name, "w") as f:
        f["x"] = numbers


def write_netcdf(name: str, numbers: Any) -> None:
    import netCDF4  # type: ignore[import-not-found,unused-ignore]

    with netCDF4.Dataset(name, "w") as f:
        f.createDimension("rows", len(numbers))
        f.createVariable("x", "f8", ("rows",))[:] = numbers


def write_safetensors(name: str, numbers: Any) -> None:
    import safetensors.numpy as tensors  # type: ignore[import-not-found,unused-ignore]

    tensors.save_file({"x": numbers}, name)


WRITERS = {"a.avro": write_avro, "a.h5": write_hdf5, "a.nc": write_netcdf, "a.safetensors": write_safetensors}


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("name", WRITERS)
def test_files_of(name: str, files: int) -> None:
    """One file, and two of which one lies deeper."""
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    Path("data/deep").mkdir(parents=True)
    for i, file in enumerate((f"data/{name}", f"data/deep/{name}")[:files]):
        try:
            WRITERS[name](file, numpy.arange(4.0) + 4 * i)
        except ImportError as err:
            pytest.skip(f"{err.name} is not installed")
    assert sorted(float(row["x"]) for row in typed("data")) == list(range(4 * files))


def changed(table: Any) -> List[int]:
    """The column x of a table whose files hold rows that the table has not."""
    return sorted(int(row["x"]) for row in typed(table))


def test_delta() -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    deltalake.write_deltalake("data/table", pa.table({"x": list(range(20))}))
    deltalake.DeltaTable("data/table").delete("x < 5")
    assert changed("data") == list(range(5, 20))


def test_iceberg() -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason="pyiceberg is not installed")
    Path("ice").mkdir()
    catalog = catalogs.SqlCatalog("c", uri="sqlite:///catalog.db", warehouse=Path("ice").absolute().as_uri())
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pa.schema([("x", pa.int64())]))
    for _ in range(11):  # the number in the name of the newest file has two digits
        table.append(pa.table({"x": [0]}))
    table.append(pa.table({"x": list(range(20))}))
    table.delete("x < 5")
    assert changed("ice") == list(range(5, 20))


def test_lance() -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    lance = pytest.importorskip("lance", reason="lance is not installed")
    lance.write_dataset(pa.table({"x": list(range(20))}), "data/table")
    lance.dataset("data/table").delete("x < 5")
    assert changed("data") == list(range(5, 20))


def test_hudi(tmp_path: Path) -> None:
    """HUDI_TABLE names a table of 20 rows x = 10 * i, of which the first 5 were increased by 1.
    Tried with one of Hudi 1.0.2 and Spark 3.5."""
    pytest.importorskip("hudi", reason="hudi is not installed")
    made = os.environ.get("HUDI_TABLE")
    if made is None:
        pytest.skip("HUDI_TABLE names no table: only Java writes one")
    shutil.copytree(made, "data/table")
    assert changed("data") == [10 * i + (i < 5) for i in range(20)]
