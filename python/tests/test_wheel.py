"""The wheel: its bytes, and installing and using it with only Python."""

from __future__ import annotations

import base64
import csv
import fnmatch
import hashlib
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import List

import pytest
from conftest import ROOT, run


def build(out: Path, kind: str = "wheel", **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **env}
    return subprocess.run(command, cwd=ROOT / "python", env=env, capture_output=True, text=True, timeout=300, check=False)


def built(out: Path, **env: str) -> Path:
    done = build(out, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


class Installed:
    """A virtual environment without access to anything but Python, with the wheel in it."""

    def __init__(self, base: Path, wheel: Path) -> None:
        self.work = base / "work"
        self.work.mkdir()
        self.bin = base / "venv" / "bin"
        # What a shell of a user has, and no way to find this repository.
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(base), "LC_ALL": "C.UTF-8"}
        subprocess.run([sys.executable, "-m", "venv", str(base / "venv")], check=True, timeout=300)
        self.run(self.bin / "python", "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel)

    def run(self, *args: object, code: int = 0) -> str:
        done = subprocess.run(list(map(str, args)), cwd=self.work, env=self.env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def python(self, text: str) -> str:
        return self.run(self.bin / "python", "-W", "error", "-c", text)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    env = Installed(tmp_path_factory.mktemp("installed"), wheel)
    env.run("shardtool", "pack", ROOT / "testdata" / "demo", "out/demo", "--quiet")
    return env


def test_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """Neither the clock nor the builder's settings are in it."""
    old = os.umask(0o077)
    try:
        again = built(tmp_path, TZ="Asia/Tokyo", LC_ALL="C")
    finally:
        os.umask(old)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def go(name: str) -> str:
    return subprocess.run(["go", "env", name], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout.strip()


def test_contents(wheel: Path) -> None:
    """RECORD has every file, the tags match the name, the program is static, and everything linked
    into it has its licence."""
    with zipfile.ZipFile(wheel) as z:
        assert z.testzip() is None
        names = z.namelist()
        (info,) = {n.split("/")[0] for n in names if ".dist-info/" in n}
        record = {row[0]: row[1:] for row in csv.reader(io.StringIO(z.read(f"{info}/RECORD").decode()))}
        assert sorted(record) == sorted(names)
        for name, (digest, size) in record.items():
            if name != f"{info}/RECORD":
                data = z.read(name)
                assert size == str(len(data))
                assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        tags = re.findall("(?m)^Tag: (.*)$", z.read(f"{info}/WHEEL").decode())
        machine = {"amd64": "x86_64", "arm64": "aarch64"}[go("GOARCH")]
        assert sorted(tags) == [f"py3-none-manylinux_2_17_{machine}", f"py3-none-musllinux_1_1_{machine}"]
        assert "Root-Is-Purelib: false" in z.read(f"{info}/WHEEL").decode()
        assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}.whl")
        assert z.getinfo("shardtool/bin/shardtool").external_attr >> 16 & 0o777 == 0o755
        assert sorted(segments(z.read("shardtool/bin/shardtool"))) == [1]  # PT_LOAD; neither PT_INTERP nor PT_DYNAMIC
        assert "py.typed" in {n.split("/")[-1] for n in names}
        assert "shardtool/_read/stream.py" in names and not any("oracle" in n for n in names)  # which is for tests
        linked = z.read(f"{info}/licenses/THIRD_PARTY").decode()
        for module in ("golang.org/x/sys ", "github.com/klauspost/compress ", "github.com/spf13/cobra ", "github.com/apache/arrow/go/v17 "):
            assert f"\n{module}v" in linked
        assert z.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def segments(elf: bytes) -> "set[int]":
    """The kinds of segments that bear on loading: PT_LOAD, PT_DYNAMIC, PT_INTERP."""
    assert elf[:6] == b"\x7fELF\x02\x01"
    (at,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    return {kind for kind in (struct.unpack_from("<I", elf, at + size * i)[0] for i in range(count)) if kind in (1, 2, 3)}


def test_version(installed: Installed, wheel: Path) -> None:
    """File, package and program have one version, SemVer to Go and PEP 440 to Python; the package
    finds its own program."""
    said = json.loads(installed.run("shardtool", "version", "--json"))
    made = re.fullmatch(r"(\d+\.\d+\.\d+)(-dev0(\+(g[0-9a-f]{12}|unknown)(\.dirty)?))?", said["version"])
    assert made is not None and made[1] == (ROOT / "VERSION").read_text().strip()
    version = made[1] + (".dev0" + made[3] if made[2] else "")
    assert wheel.name.split("-")[1] == version
    assert installed.python("import shardtool; print(shardtool.__version__)").strip() == version
    assert installed.run(installed.bin / "python", "-m", "shardtool", "version") == installed.run("shardtool", "version")
    found = installed.python("from shardtool._wire import program; print(program.find())").strip()
    assert found.endswith("/site-packages/shardtool/bin/shardtool")


def test_old_wheels_are_removed(wheel: Path) -> None:
    """`make wheel` deletes wheels of other versions, and keeps that of this one, whose name has
    Python's spelling."""
    plan = subprocess.run(["make", "-n", "wheel"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout
    (kept,) = re.findall(r"-name 'shardtool-\*\.whl' ! -name '([^']*)' -delete", plan)
    assert fnmatch.fnmatch(wheel.name, kept)
    assert not fnmatch.fnmatch(wheel.name.replace("-0.", "-9.", 1), kept)


def test_make_wheel_installs_little() -> None:
    """`make wheel` in a new clone installs what pyproject.toml requires, and no tools of tests."""
    plan = subprocess.run(["make", "-n", "-B", "wheel"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout
    assert re.findall(r"pip install .*-r (\S+)", plan) == ["python/requirements-wheel.txt"]
    listed = [x for x in (ROOT / "python/requirements-wheel.txt").read_text().splitlines() if not x.startswith("#")]
    (required,) = re.findall(r"(?m)^requires = \[(.*?)\]", (ROOT / "python/pyproject.toml").read_text())
    assert [f'"{x}"' for x in listed] == required.split(", ")


def test_command(installed: Installed) -> None:
    """The command is the program: its exit codes and words, also without the program."""
    assert "no sample" in installed.run("shardtool", "get", "out/demo", "nobody", code=6)
    program = Path(installed.python("from shardtool._wire import program; print(program.find())").strip())
    program.rename(program.with_name("away"))
    try:
        assert "install the wheel for this system" in installed.run("shardtool", "version", code=2)
    finally:
        program.with_name("away").rename(program)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_install_line(installed: Installed, wheel: Path, tmp_path: Path, page: str) -> None:
    """The line that installs, as the page has it, in a dist/ with the wheels of both processors and
    the folders of their builds."""
    (line,) = re.findall(r"pip install dist/[^`#\n]*", (ROOT / page).read_text("utf-8"))
    (tmp_path / "dist" / "amd64").mkdir(parents=True)
    for machine in ("x86_64", "aarch64"):
        shutil.copy(wheel, tmp_path / "dist" / re.sub("x86_64|aarch64", machine, wheel.name))
    line = line.replace("pip install", "python -m pip install --no-index --disable-pip-version-check --force-reinstall")
    said = installed.run("bash", "-ec", f"cd '{tmp_path}' && {line}")
    assert f"Processing ./dist/{wheel.name}" in said
    assert "Successfully installed shardtool" in said


def examples(page: Path) -> List[str]:
    """The Python that a page shows, block by block."""
    return [textwrap.dedent(b) for b in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S)]


def test_five_lines(installed: Installed) -> None:
    """The README's first program, unchanged, on the data set that the README packs."""
    (text,) = [b for b in examples(ROOT / "README.md") if "Loader(" in b]
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 6
    out = installed.python(text)
    assert [int(line.split()[0]) for line in out.splitlines()] == 6 * [32] + [13]  # each of the 205 samples once


def test_package_page(installed: Installed) -> None:
    """The page of the package itself."""
    (text,) = examples(ROOT / "python" / "README.md")
    # Its data set has photos; the demo's are drawings, and no Pillow is here.
    before = "n = []\ndef step(images, texts):\n    assert len(images) == len(texts)\n    n.extend(texts)\n"
    text = text.replace("out/", "out/demo").replace('"jpg": "image"', '"png": "bytes"').replace('batch["jpg"]', 'batch["png"]')
    assert installed.python(before + text + "print(len(n), saved['version'])") == "205 1\n"


def test_python_page(tmp_path: Path) -> None:
    """Every program of docs/python.md, unchanged, in order."""
    run("pack", ROOT / "testdata" / "demo", tmp_path / "out" / "demo", "--quiet")
    blocks = examples(ROOT / "docs" / "python.md")
    assert len(blocks) >= 7
    before = [
        "def train(*fields): assert len(set(map(len, fields))) == 1",
        "def generate(texts): return texts",
        "import shardtool",
        "with shardtool.Writer('prompts/') as w: w.write({'text': 'why?'})",
    ]
    text = "\n".join([*before, *blocks])
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    waited, nobody = done.stdout.splitlines()[:2]
    assert waited.startswith("waited 0.") and nobody == "nobody"


def test_no_source_distribution(tmp_path: Path) -> None:
    done = build(tmp_path, "sdist")
    assert done.returncode != 0
    assert "no source distribution" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_unknown_machine(tmp_path: Path) -> None:
    done = build(tmp_path, GOOS="linux", GOARCH="riscv64")
    assert done.returncode != 0
    assert "no wheel for linux/riscv64: GOOS/GOARCH must be one of linux/amd64, linux/arm64, darwin/amd64, darwin/arm64" in done.stderr


#: Writes the beginning of a program for macOS in place of compiling one, which takes minutes: `make
#: lint` checks the types of all files for macOS, and a release compiles them.
COMPILER = """#!/bin/sh
if [ "$1" != build ] || [ "$GOOS" != darwin ]; then exec {go} "$@"; fi
while [ "$1" != -o ]; do shift; done
printf '\\317\\372\\355\\376' > "$2"
"""


def test_macos(tmp_path: Path) -> None:
    """The wheel for macOS has its tag, and the program that is made for it."""
    compiler = tmp_path / "go"
    compiler.write_text(COMPILER.format(go=shutil.which("go")))
    compiler.chmod(0o755)
    wheel = built(tmp_path, GOOS="darwin", PATH=f"{tmp_path}:{os.environ['PATH']}")
    machine = {"amd64": "x86_64", "arm64": "arm64"}[go("GOARCH")]
    assert wheel.name.endswith(f"-py3-none-macosx_12_0_{machine}.whl")
    with zipfile.ZipFile(wheel) as z:
        assert z.read("shardtool/bin/shardtool") == b"\xcf\xfa\xed\xfe"  # Mach-O of 64 bits


def test_outside_the_repository(tmp_path: Path) -> None:
    """The folder of the package alone does not build; the error gives the reason."""
    shutil.copytree(ROOT / "python", tmp_path / "python", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    done = subprocess.run(command, cwd=tmp_path / "python", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "install a wheel, or build one with `make wheel`" in done.stderr
