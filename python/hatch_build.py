"""Builds the wheel with the program inside; hatchling calls it.

The Makefile at the top of the repository has the version and the flags of the build, so building
needs the whole repository, Go and make. Only wheels are distributed: a source distribution would
have no Go sources.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Dict

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent

#: Systems and architectures as Go and wheels name them. A static binary needs only Linux: these are
#: the oldest tags for both C libraries that Python 3.9 knows. Programs of Go 1.26 need macOS 12.
TAGS = {
    **{f"linux/{go}": f"manylinux_2_17_{wheel}.musllinux_1_1_{wheel}" for go, wheel in (("amd64", "x86_64"), ("arm64", "aarch64"))},
    **{f"darwin/{go}": f"macosx_12_0_{wheel}" for go, wheel in (("amd64", "x86_64"), ("arm64", "arm64"))},
}


def run(*command: str, **env: str) -> str:
    """Runs a command at the top of the repository and returns its output."""
    if not (ROOT / "go.mod").exists():
        raise SystemExit(
            f"shardtool is built from its whole repository, and {ROOT} is not that: install a wheel, or build one with `make wheel`"
        )
    try:
        return subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    except FileNotFoundError:
        raise SystemExit(
            f"building shardtool needs {command[0]}: install it, or install a wheel, which needs neither Go nor make"
        ) from None


def version() -> str:
    """The version of the binary, in Python's spelling: 0.1.0.dev0 for 0.1.0-dev0."""
    return run("make", "--silent", "--no-print-directory", "version").replace("-dev", ".dev", 1)


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the binary and the licences into a wheel, and tags it. An editable install has neither:
    see docs/python.md."""

    def initialize(self, version: str, build_data: Dict[str, Any]) -> None:
        """Runs before the wheel is packed."""
        if self.target_name == "sdist":
            raise SystemExit(
                "shardtool has no source distribution: the binary is built from the whole repository. Build the wheel with `make wheel`"
            )
        if version == "editable":
            return
        goos, goarch = run("go", "env", "GOOS", "GOARCH").split()
        target = f"{goos}/{goarch}"
        if target not in TAGS:
            raise SystemExit(f"no wheel for {target}: GOOS/GOARCH must be one of {', '.join(TAGS)}")
        work = ROOT / "dist" / f"{goos}-{goarch}"
        work.mkdir(parents=True, exist_ok=True)
        run("make", "--no-print-directory", "build", f"BIN={work}/shardtool", GOOS=goos, GOARCH=goarch)
        info = f"shardtool-{self.metadata.version}.dist-info/licenses"
        build_data["tag"] = f"py3-none-{TAGS[target]}"
        build_data["pure_python"] = False
        build_data["force_include"].update({
            str(work / "shardtool"): "shardtool/bin/shardtool",
            str(ROOT / "LICENSE"): f"{info}/LICENSE",
            str(ROOT / "cmd/shardtool/licenses.txt"): f"{info}/THIRD_PARTY",
        })  # fmt: skip
