"""Attention over packed sequences: a small transformer sees each document as if it were alone, by
every way that PyTorch has to keep documents apart."""

from __future__ import annotations

import json
import random
from typing import Any, Callable, Dict, List, Tuple

import pytest
import torch
from conftest import run
from torch import nn
from torch.nn import functional

from shardtool import Loader, Pack

if not hasattr(functional, "scaled_dot_product_attention"):
    pytest.skip(f"torch {torch.__version__} has no scaled_dot_product_attention: it needs torch 2", allow_module_level=True)

SAMPLES, L, VOCABULARY, HEADS, WIDTH = 60, 128, 97, 2, 32

#: What keeps documents apart: the queries, keys and values of the tokens of a batch, (rows, L,
#: heads, width of a head), to those that come out.
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def tokens_of(i: int) -> List[int]:
    rng = random.Random(i)
    return [rng.randrange(VOCABULARY) for _ in range(1 + int(rng.expovariate(1 / 40)))]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: Any) -> Any:
    """Four packed sequences of documents; long ones are split."""
    folder = tmp_path_factory.mktemp("attention")
    rows = folder / "rows.jsonl"
    with open(rows, "w") as f:
        for i in range(SAMPLES):
            f.write(json.dumps({"id": f"d{i:03}", "input_ids": tokens_of(i), "tokens": len(tokens_of(i))}) + "\n")
    run("pack", rows, folder / "docs", "--key", "id", "--attr", "tokens=tokens", "--block-size", "8KiB", "--quiet")
    with Loader(folder / "docs", 4, shuffle=True, epochs=1, units=Pack(L, ["input_ids"], long="split", plans="none")) as loader:
        return next(iter(loader))


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, attend: Attention) -> torch.Tensor:
        q, k, v = self.project(self.before(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).unbind(-3)
        x = x + self.out(attend(q, k, v).flatten(-2))
        return x + self.feed(self.after(x))


class Transformer(nn.Module):
    """Two layers, with the position of each token in its document."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(L, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, attend: Attention) -> torch.Tensor:
        x = self.words(ids) + self.places(positions.long())
        for block in self.blocks:
            x = block(x, attend)
        return x


def alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = (t.transpose(-3, -2) for t in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-3, -2)


def by_mask(batch: Any) -> Attention:
    document = batch["document"]
    same = document[:, :, None] == document[:, None, :]
    mask = (same & torch.ones(L, L, dtype=torch.bool).tril())[:, None]

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)

    return attend


def by_limits(batch: Any) -> Attention:
    """A call for each stretch of cu_seqlens: what kernels for sequences of variable length do."""
    limits = batch["cu_seqlens"].tolist()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        flat = [t.flatten(0, 1) for t in (q, k, v)]
        parts = [alone(*(t[a:b] for t in flat)) for a, b in zip(limits, limits[1:])]
        return torch.cat(parts).view(q.shape)

    return attend


def by_flex(batch: Any) -> Attention:
    """flex_attention with documents as its mask."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="flex_attention needs torch 2.5")
    document = batch["document"]

    def same(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (document[b, q] == document[b, k])

    mask = flex.create_block_mask(same, len(document), None, L, L, device="cpu")

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return flex.flex_attention(q, k, v, block_mask=mask).transpose(1, 2)

    return attend


def by_varlen(batch: Any) -> Attention:
    """PyTorch's kernel for sequences of variable length."""
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="varlen_attn needs torch 2.10")
    if not torch.cuda.is_available():
        pytest.skip("varlen_attn needs a GPU: no CUDA device here")
    limits, longest = batch["cu_seqlens"].cuda(), batch["max_seqlen"]

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        flat = [t.flatten(0, 1).cuda().half() for t in (q, k, v)]
        return varlen.varlen_attn(*flat, limits, limits, longest, longest, window_size=(-1, 0)).to(q).view(q.shape)

    return attend


WAYS: Dict[str, Tuple[Callable[[Any], Attention], float]] = {
    "mask": (by_mask, 1e-9),
    "cu_seqlens": (by_limits, 1e-9),
    "flex": (by_flex, 1e-9),
    "varlen": (by_varlen, 2e-2),  # in half precision
}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("way", WAYS)
def test_documents_are_apart(batch: Any, way: str) -> None:
    make, tolerance = WAYS[way]
    torch.manual_seed(1)
    model = Transformer().double().eval()
    ids, positions, document = batch["input_ids"].long(), batch["position_ids"], batch["document"]
    attend = make(batch)
    with torch.no_grad():
        packed = model(ids, positions, attend)
        assert packed.shape == (4, L, WIDTH)
        documents = 0
        for row in range(len(ids)):
            for d in range(int(document[row].max()) + 1):
                here = document[row] == d
                length = int(here.sum())
                want = model(ids[row][here][None], torch.arange(length)[None], alone)[0]
                assert torch.allclose(packed[row][here], want, rtol=tolerance, atol=tolerance), f"row {row}, document {d}"
                documents += 1
    assert documents == len(batch.numbers) > 8  # each sequence has several


def test_crossing_is_seen(batch: Any) -> None:
    """Attention over whole sequences is not that of documents: the test above can fail."""
    torch.manual_seed(1)
    model = Transformer().double().eval()
    ids, positions, document = batch["input_ids"].long(), batch["position_ids"], batch["document"]
    with torch.no_grad():
        crossing, apart = model(ids, positions, alone), model(ids, positions, by_mask(batch))
    first = document == 0
    assert torch.allclose(crossing[first], apart[first])
    assert not torch.allclose(crossing[document > 0], apart[document > 0], rtol=1e-3, atol=1e-3)


def test_transformers(batch: Any) -> None:
    """A model of transformers keeps documents apart by their positions, without a mask."""
    transformers = pytest.importorskip("transformers", minversion="4.53")
    torch.manual_seed(1)
    sizes = {
        "hidden_size": WIDTH,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
    }
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, attn_implementation="sdpa", **sizes)
    model = transformers.LlamaForCausalLM(config).double().eval()
    ids, document = batch["input_ids"], batch["document"]
    with torch.no_grad():
        packed = model(input_ids=ids, position_ids=batch["position_ids"].long(), use_cache=False).logits
        for row in range(len(ids)):
            for d in range(int(document[row].max()) + 1):
                here = document[row] == d
                want = model(input_ids=ids[row][here][None], use_cache=False).logits[0]
                assert torch.allclose(packed[row][here], want, rtol=1e-9, atol=1e-9), f"row {row}, document {d}"
