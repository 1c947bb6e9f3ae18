"""Places that a loader is used in: notebooks, asyncio, torch.compile, spawned processes, images.

`make test-compat` runs them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
import torch.multiprocessing as mp
from conftest import ROOT, in_groups

import shardtool

OPTIONS: Dict[str, Any] = {"batch_size": 50, "shuffle": True, "seed": 3, "epochs": 2, "fields": {"tokens": ("uint8", (64,)), "cls": "int"}}


def want(url: Path) -> List[List[int]]:
    with shardtool.Loader(url, **in_groups(**OPTIONS)) as loader:
        return [batch.numbers for _ in range(2) for batch in loader]


# Notebooks


def notebook(cells: List[str], folder: Path) -> Any:
    """Executes cells in a kernel of Jupyter, and returns what the last one printed."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [f"import sys; sys.path.insert(0, {str(ROOT / 'python' / 'src')!r})", *cells]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    for cell in book.cells:
        cell.metadata["tags"] = ["raises-exception"] if "interrupted" in cell.source else []
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return book.cells


@pytest.mark.filterwarnings("ignore")
def test_notebook(small: Path, tmp_path: Path) -> None:
    """A cell that is interrupted in its loop, and another that continues."""
    cells = notebook(
        [
            f"import json, os, signal, shardtool\noptions = {OPTIONS!r}\nloader = shardtool.Loader({str(small)!r}, **options)\nseen = []",
            "for batch in loader:  # interrupted\n"
            "    seen.append(batch.numbers); saved = loader.state_dict()\n"
            "    if len(seen) == 7: os.kill(os.getpid(), signal.SIGINT)",
            "loader.load_state_dict(saved)\n"
            "for _ in range(loader.epoch, 2):\n"
            "    for batch in loader: seen.append(batch.numbers)\n"
            "print(json.dumps(seen))",
        ],
        tmp_path,
    )
    assert [out["ename"] for out in cells[2].outputs if out["output_type"] == "error"] == ["KeyboardInterrupt"]
    (printed,) = (out["text"] for out in cells[3].outputs if out["output_type"] == "stream" and out["name"] == "stdout")
    assert json.loads(printed) == want(small)


# asyncio


def test_asyncio(small: Path) -> None:
    """The loop waits for batches in a thread, and other tasks run meanwhile."""

    async def main() -> "tuple[List[List[int]], int]":
        ticks, got = 0, []

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(tick())
        with shardtool.Loader(small, **in_groups(**OPTIONS)) as loader:
            for _ in range(2):
                batches = iter(loader)
                while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                    got.append(batch.numbers)
        other.cancel()
        return got, ticks

    got, ticks = asyncio.run(main())
    assert got == want(small) and ticks > 0


# torch.compile


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled(small: Path, backend: str) -> None:
    """A compiled step takes tensors of batches, views of shared memory among them, without
    compiling anew for each batch."""
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("inductor needs g++")
    torch._dynamo.reset()
    compiled = 0

    def count(graph: Any, inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward if backend == "eager" else torch._dynamo.lookup_backend(backend)(graph, inputs)

    def step(tokens: torch.Tensor, cls: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(tokens.float() / 255 @ weight, cls)

    fast, weight, losses = torch.compile(step, backend=count), torch.zeros(64, 10), []
    with shardtool.Loader(small, **in_groups(**OPTIONS)) as loader:
        for batch in loader:
            losses.append(torch.allclose(fast(batch["tokens"], batch["cls"], weight), step(batch["tokens"], batch["cls"], weight)))
    assert len(losses) == 20 and all(losses) and compiled == 1


# Processes


def rank(number: int, url: str, folder: str) -> None:
    with shardtool.Loader(url, **in_groups(**OPTIONS), rank=number, world_size=2) as loader:
        Path(folder, f"{number}.json").write_text(json.dumps([batch.numbers for _ in range(2) for batch in loader]))


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes(small: Path, tmp_path: Path, method: str) -> None:
    """A process for each rank, however it was started."""
    mp.start_processes(rank, (str(small), str(tmp_path)), nprocs=2, start_method=method)  # type: ignore[no-untyped-call,unused-ignore]
    parts = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(2)]
    for epoch in range(2):
        numbers = [n for part in parts for batch in part[10 * epoch : 10 * epoch + 10] for n in batch]
        assert sorted(numbers) == list(range(1000))
