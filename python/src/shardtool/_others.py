"""Answers to names that other packages have, and earlier versions of this one had.

It imports nothing: the package asks it while its modules are being imported.
"""

from __future__ import annotations

from typing import Mapping

_WRITES = "with shardtool.Writer(url) as w: w.write({'__key__': key, 'jpg': image, 'cls': 3})"
_READS = "shardtool.Loader(url, batch_size, shuffle=True, seed=7)"
_MIXES = (
    """write shardtool.Loader({"sources": {"web": {"data": url, "weight": 3}, "code": {"data": url2}}}, batch_size), or give it mix.yaml"""
)
PACKS = "`shardtool pack SOURCE url` on the command line packs files, tables and data sets of other systems"

#: What to write instead, by the name in the module.
MODULE: Mapping[str, str] = {
    "DataLoader": f"{_READS} needs no DataLoader; for the one of torch there is shardtool.Dataset",
    "Reader": f"write {_READS}, or shardtool.open(url) for single samples",
    "ShardWriter": f"write {_WRITES}",
    "TarWriter": f"write {_WRITES}",
    "MDSWriter": f"write {_WRITES}",
    "IterableDataset": f"write {_READS}, or shardtool.Dataset for torch's DataLoader",
    "StreamingDataLoader": f"write {_READS}",
    "StreamingDataset": f"write {_READS}, or shardtool.Dataset for torch's DataLoader; `shardtool pack` reads MDS and LitData",
    "TokensLoader": "write shardtool.Loader(url, 8, units=shardtool.Pack(2048, fields=['input_ids'])), which reads sequences of tokens",
    "WebDataset": f"write {_READS}; `shardtool pack` reads tars of WebDataset",
    "WebLoader": f"write {_READS}",
    "create": f"write {_WRITES}",
    "load": f"write {_READS}, or shardtool.open(url) for single samples",
    "load_dataset": f"write {_READS}, or shardtool.open(url) for single samples; `shardtool pack` reads data sets of the Hub",
    "merge_states": "loader.load_state_dict(states) takes the list of the states of all ranks",
    **dict.fromkeys(
        (
            "CombinedStreamingDataset",
            "RandomMix",
            "Mixture",
            "mix",
            "blend",
            "concat",
            "Stream",
            "concatenate_datasets",
            "interleave_datasets",
        ),
        _MIXES,
    ),
    **dict.fromkeys(("ImageFolder", "from_folder", "pack"), PACKS),
    "Prefetcher": "it is shardtool.torch.Prefetcher",
    "inspect": "`shardtool inspect url` on the command line, or the info of a Loader",
    "map": "write shardtool.optimize(fn, inputs, url), which makes samples in many processes, or give map_batch=FUNCTION to a Loader",
    "walk": "write shardtool.optimize(fn, inputs, url) with the inputs themselves, such as sorted(Path('raw').rglob('*.json'))",
}
#: What to write instead, by words in the name.
WORDS: Mapping[str, str] = {
    **MODULE,
    **dict.fromkeys(
        ("dataset", "loader", "reader", "read", "dataloader", "stream", "datapipe", "pipe", "DataPipe"),
        f"write {_READS}, or shardtool.open(url) for single samples",
    ),
    **dict.fromkeys(("writer", "write", "save", "dump", "to"), f"write {_WRITES}"),
    **dict.fromkeys(("pretrained", "hub", "disk"), f"write {_READS}; `shardtool pack` reads data sets of the Hub and of save_to_disk"),
    **dict.fromkeys(("folder", "convert", "from", "parquet", "csv", "json"), PACKS),
    **dict.fromkeys(("sampler", "shuffle", "split", "shuffler"), f"write {_READS}: each rank gets its part"),
    **dict.fromkeys(
        ("collate", "batch", "batched", "collator"), f"batches are complete: write {_READS}, and map_batch=FUNCTION to change them"
    ),
    **dict.fromkeys(
        ("decode", "decoder", "transform", "transforms"),
        "give the types of fields to a loader: fields={'jpg': shardtool.Image(224), 'cls': 'int'}",
    ),
    **dict.fromkeys(
        ("tokenizer", "tokenize", "tokens", "text"),
        "tokenize in shardtool.optimize(fn, inputs, url); shardtool.Loader(url, 8, units=shardtool.Pack(8192, ['ids'])) reads sequences",
    ),
    **dict.fromkeys(("stats", "metrics", "monitor"), "loader.stats() has what a loop waits for"),
    **dict.fromkeys(("cache", "local"), "give cache=FOLDER to a loader"),
    **{
        name: f"`shardtool {name} ...` on the command line: see `shardtool {name} --help`"
        for name in (
            "bench",
            "doctor",
            "export",
            "index",
            "prune",
            "purge",
            "remove",
            "select",
            "simulate",
            "stage",
            "unpack",
            "verify",
            "view",
        )
    },
}
