"""Runs the tests with what users have, and writes docs/compatibility.md.

    python compat.py ENVIRONMENT [PART...]

ENVIRONMENT is a virtual environment with requirements-compat.txt; `make test-compat` makes it. The
suite without torch also runs on all versions of Python 3 that are installed, each in an environment
next to it. Results are kept in ENVIRONMENT/results.json: the page has the latest of each part.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "compatibility.md"
PACKAGES = ("torch", "torchvision", "torchdata", "lightning", "accelerate", "transformers", "numpy", "pillow", "simplejpeg",
            "opencv-python-headless", "pyarrow", "ipykernel", "nbclient", "polars", "duckdb", "datasets", "webdataset", "litdata",
            "mosaicml-streaming", "grain", "ray",
            "megatron-core", "megatron-energon", "mlcroissant", "wids", "tfrecord", "lmdb", "h5py", "netCDF4", "zarr")  # fmt: skip
#: The oldest is that of pyproject.toml.
MINORS = range(9, 20)

#: What the page says of macOS, which this program does not run on.
MACOS = """\
## macOS

The binary and the wheel build for macOS 12 and newer, on Intel and Apple processors. **Nothing has been run on a Mac yet.**
Continuous integration compiles everything for macOS, checks the wheel's tag and program, and runs `make test-portable`: tests on
Linux with `SHARDTOOL_PORTABLE=1`, where package and program use what macOS has. `.github/workflows/macos.yml` runs the same tests
on a Mac, by hand and for each release.

On macOS, batches are in files that the system may also write to its disk, the Writer copies samples twice, and every
processor of the machine counts. A worker 0 that is killed leaves an empty socket file in `TMPDIR`.
"""

#: What a part shows, and its tests.
PARTS = {
    "suite": ("the whole suite", "tests"),
    "frameworks": (
        "the programs of [pytorch.md](pytorch.md), Lightning, transformers, Accelerate; jobs that would lose their place are refused",
        "tests/frameworks.py",
    ),
    "contract": (
        "a resumed job sees what an undisturbed one sees: [each framework with each loader](#training-loops-and-loaders)",
        "tests/test_torch_contract.py",
    ),
    "loops": (
        "training loops of plain PyTorch, StatefulDataLoader, Lightning, Accelerate and the HF Trainer: killed twice, resumed,"
        " the same weights to the bit",
        "tests/compat/loops.py",
    ),
    "parallel": (
        "loops in the way of torchtitan and Megatron-LM: data, tensor, pipeline and context parallel, on 8, 6 and 16 processes"
        " in turn, each killed",
        "tests/compat/parallel.py",
    ),
    "exports": (
        "what `export` writes, read by datasets, wids, webdataset, Energon, Megatron Core and mlcroissant",
        "tests/compat/exports.py",
    ),
    "places": ("notebooks, asyncio, torch.compile; processes by spawn, fork and forkserver", "tests/compat/places.py"),
}


_MISSING = " is not installed"


class Result(NamedTuple):
    """What a run of pytest counted, and with what."""

    date: str
    versions: Dict[str, str]
    passed: int
    failed: int
    left_out: Dict[str, int]  # by reason
    contract: Sequence[Tuple[str, str, List[str]]] = ()  # framework, loader, and the places that jobs were resumed from

    def cells(self) -> str:
        """Returns the cells of a table."""
        reasons = [f"{count}: {why}" for why, count in sorted(self.left_out.items()) if not why.endswith(_MISSING)]
        missing = sum(count for why, count in self.left_out.items() if why.endswith(_MISSING))
        if missing:
            reasons.append(f"{missing}: their packages are not installed")
        return f"{self.passed} | {self.failed or '-'} | {'; '.join(reasons) or '-'} | {self.date}"


def pytest(python: Path, *args: str) -> Result:
    """Runs tests by an interpreter."""
    env = {**os.environ, "SHARDTOOL_TEST_TORCH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    env.setdefault("SHARDTOOL_BINARY", str(ROOT / "bin" / "shardtool"))
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        del env["SHARDTOOL_TEST_TORCH"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        done = subprocess.run([python, "-m", "pytest", f"--junitxml={report}", *args], cwd=HERE, env=env, check=False)
        if not report.exists():
            raise SystemExit(f"pytest ended with {done.returncode} and no report")
        return Result(datetime.date.today().isoformat(), versions(python), *read(report))


def read(report: Path) -> "tuple[int, int, Dict[str, int], List[Tuple[str, str, List[str]]]]":
    """Reads the report of pytest: the tests that passed, that failed, why others were left out, and
    what those of the contract recorded."""
    passed = failed = 0
    left_out: Dict[str, int] = {}
    contract = [json.loads(one.get("value", "")) for one in xml.parse(report).getroot().iter("property") if one.get("name") == "contract"]
    for case in xml.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif skipped is not None:
            why = skipped.get("message", "")
            if why == "collection skipped":  # of a file; its text has the reason
                why = (skipped.text or why).rpartition("Skipped: ")[2]
            why = re.sub(r"^could not import '(\w+)'.*", r"\1 is not installed", why, flags=re.S)
            left_out[why] = left_out.get(why, 0) + 1
        else:
            passed += 1
    return passed, failed, left_out, contract


def versions(python: Path) -> Dict[str, str]:
    """Returns the versions of Python and of the packages that an environment has."""
    program = (
        "import importlib.metadata as m, json, platform\n"
        "out = {'Python': platform.python_version()}\n"
        f"for name in {PACKAGES!r}:\n"
        "    try: out[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: pass\n"
        "print(json.dumps(out))"
    )
    out: Dict[str, str] = json.loads(subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout)
    return out


def interpreter(minor: int) -> Optional[str]:
    """Finds an interpreter of a minor version, if there is one that runs."""
    candidates = [shutil.which(f"python3.{minor}"), *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))]
    for path in candidates:
        if path and subprocess.run([path, "-c", "import venv, ssl"], capture_output=True, check=False).returncode == 0:
            return path
    return None


def environment(minor: int) -> Optional[Path]:
    """Makes an environment without torch for a minor version of Python, and returns its
    interpreter."""
    path = interpreter(minor)
    if path is None:
        return None
    folder = ROOT / f".venv-3.{minor}"
    if not (folder / "bin" / "pytest").exists():
        subprocess.run([path, "-m", "venv", "--clear", folder], check=True)
        install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
        subprocess.run([*install, "numpy", "pillow", "pytest"], check=True)
        for package in ("pyarrow", "simplejpeg"):  # where they have a wheel for that Python
            subprocess.run([*install, package], check=False)
    return folder / "bin" / "python"


def page(results: Dict[str, Result]) -> str:
    """Returns the page."""
    parts = {name: results[name] for name in PARTS if name in results}
    minors = sorted((name for name in results if "." in name), key=lambda name: int(name.rpartition(".")[2]))
    pythons = [results[name] for name in minors]
    of = {package: version for result in parts.values() for package, version in result.versions.items()}
    lines = [
        "# Compatibility",
        "",
        "```sh",
        "make test-compat",
        "```",
        "",
        "writes this page. It runs the tests with current releases, as users install them, on a machine",
        "without a GPU. Continuous integration runs the suite with the PyTorch of Debian 12, 1.13.",
        "mosaicml-streaming asks for older releases of numpy, transformers and xxhash than these, but ran with these:",
        "",
        *textwrap.wrap(", ".join(f"{name} {version}" for name, version in of.items()) + ".", 120, break_on_hyphens=False),
        "",
        "| what | passed | failed | left out | date |",
        "|---|---|---|---|---|",
        *(f"| {PARTS[name][0]} | {result.cells()} |" for name, result in parts.items()),
        "",
        *(table(parts["contract"]) if "contract" in parts else []),
        *MACOS.splitlines(),
        "",
        "## Python",
        "",
        "The suite without PyTorch, and without the tests of the wheel:",
        "",
        "| Python | numpy | Pillow | passed | failed | left out | date |",
        "|---|---|---|---|---|---|---|",
        *(f"| {r.versions['Python']} | {r.versions.get('numpy', '-')} | {r.versions.get('pillow', '-')} | {r.cells()} |" for r in pythons),
    ]
    return "\n".join(lines) + "\n"


def table(result: Result) -> List[str]:
    """Returns the section about the contract of training loops."""
    rows: Dict[str, Dict[str, List[str]]] = {}
    for framework, loader, places in result.contract:
        cell = rows.setdefault(framework, {}).setdefault(loader, [])
        cell += [place for place in places if place not in cell]
    loaders = list(dict.fromkeys(loader for cells in rows.values() for loader in cells))
    most = max((cell for cells in rows.values() for cell in cells.values()), key=len, default=[])

    def text(cell: List[str]) -> str:
        missing = [place for place in most if place not in cell]
        if not missing:
            return "all"
        return "; ".join(cell) if len(cell) <= len(missing) else f"all but {', '.join(missing)}"

    return [
        "## Training loops and loaders",
        "",
        f"A job is resumed from a checkpoint, in all these places: {', '.join(most)}. Its batches are those of a job",
        "that was not disturbed, or other words say what becomes of it; - was not tested. [pytorch.md](pytorch.md) has the recipes.",
        f"Run on {result.date}.",
        "",
        f"| framework | {' | '.join(loaders)} |",
        "|---|" + "---|" * len(loaders),
        *(f"| {name} | {' | '.join(text(cells[one]) if one in cells else '-' for one in loaders)} |" for name, cells in rows.items()),
        "",
    ]


def main() -> None:
    """Runs the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path)
    minors = [f"3.{minor}" for minor in MINORS if minor != sys.version_info.minor]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join([*PARTS, *minors])}; all by default")
    args = parser.parse_args()
    python, kept, failed = args.environment.resolve() / "bin" / "python", args.environment / "results.json", 0
    for name in args.parts or [*PARTS, *minors]:
        files = [PARTS[name][1]] if name in PARTS else ["--ignore=tests/test_wheel.py"]  # which needs the tool that builds wheels
        by = python if name in PARTS else environment(int(name.rpartition(".")[2]))
        if by is None:
            continue  # that Python is not installed
        print(f"{name}: {PARTS[name][0] if name in PARTS else 'the suite without torch'}", flush=True)
        result = pytest(by, *files)
        results = {key: Result(*value) for key, value in json.loads(kept.read_text()).items()} if kept.exists() else {}
        results[name] = result
        kept.write_text(json.dumps(results))
        PAGE.write_text(page(results))
        failed += result.failed
    if failed:
        raise SystemExit(f"{failed} tests failed")


if __name__ == "__main__":
    main()
