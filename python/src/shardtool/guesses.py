"""Answers to what users of other loaders try: names, arguments and attributes that are called
otherwise here."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
from typing import Any, Callable, Dict, Mapping, TypeVar, cast

from .options import Faults, Lanes, Order, Tuning

F = TypeVar("F", bound=Callable[..., Any])

_READER = "a child process reads and decompresses in threads, as many as tuning=Tuning(workers=...)"
_MIX = 'a mix has several: Loader({"sources": {"web": {"data": url, "weight": 3}, "code": {"data": url2}}}, batch_size), see docs/mixing.md'

#: What to write instead, by the attribute of a loader.
LOADING: Mapping[str, str] = {
    "batched": "give batch_size to the loader",
    "checkpoint": "loader.state_dict() is the place after the last batch",
    "dataset": "loader.info has facts of the data set, and shardtool.open(url) its samples",
    "get_state": "loader.state_dict() is the place after the last batch",
    "num_samples": "loader.info['samples'] is their number",
    "sampler": "give shuffle=True and a seed; where=, or Source(url, keys=FILE), chooses samples",
    "save_state_dict": "loader.state_dict() is the place after the last batch; save it as a checkpoint of the model is saved",
    "state": "loader.state_dict() is the place after the last batch",
    "stop": "leave the loop with break; loader.close() ends the child",
    "batch": "give batch_size to the loader",
    "decode": "give the types of fields to the loader: fields={'jpg': 'image', 'cls': 'int'}",
    "filter": "give where='score >= 3' to the loader, an expression over attributes",
    "map": "give map_batch=FUNCTION to the loader, which is called with each batch",
    "num_batches": "len(loader) is the number of batches of an epoch",
    "repeat": "give epochs=... to the loader; each loop is one epoch",
    "reset": "each loop is the next epoch; loader.set_epoch(0) makes the next one begin at the first",
    "samples": "loader.info['samples'] is their number, and shardtool.open(url) has them one by one",
    "seek": "loader.load_state_dict(state) continues at the place that state_dict() returned",
    "select": "a Loader reads Source(url, keys=FILE); shardtool.open(url)[[0, 5]] are samples by number",
    "shuffle": "give shuffle=True and a seed to the loader: Loader(url, batch_size, shuffle=True, seed=7)",
    "skip": "loader.load_state_dict(state) continues at the place that state_dict() returned",
    "take": "leave the loop with break, or give where= or Source(url, keys=FILE) for a part of the data",
    "to": "batch.to(device) moves the tensors of a batch; shardtool.torch.Prefetcher(loader, device) copies ahead of the loop",
    "to_tuple": "give the loader a function that makes them: map_batch=lambda batch: (batch['jpg'], batch['cls'])",
    "with_epoch": "give epochs=... to the loader; each loop is one epoch",
}
#: What to write instead, by the attribute of a batch.
BATCH: Mapping[str, str] = {
    "index": "batch.numbers are the numbers of the samples in storage order",
    "numpy": "give format='numpy' to the loader",
    "samples": "batch.size is the number of samples, and batch['jpg'][0] a field of the first",
    "to_dict": "dict(batch) has the fields by name",
    "batch_size": "batch.size is the number of samples",
    "columns": "list(batch) has the names of the fields",
    "column_names": "list(batch) has the names of the fields",
    "cuda": "batch.to('cuda') moves the tensors",
    "features": "list(batch) has the names of the fields",
    "shape": "batch.size is the number of samples",
    "to_pandas": "batch.to_arrow().to_pandas()",
    "to_pylist": "batch.to_arrow().to_pylist()",
}
#: What to write instead, by the attribute of a Writer.
WRITER: Mapping[str, str] = {
    **dict.fromkeys(
        ("add", "add_sample", "append", "put", "save", "send", "write_sample"),
        "w.write({'__key__': key, 'jpg': image}) writes a sample",
    ),
    **dict.fromkeys(
        ("commit", "end", "finalize", "finish", "flush", "publish"),
        "w.close(), or the end of `with shardtool.Writer(url) as w`, publishes",
    ),
    **dict.fromkeys(
        ("write_many", "write_samples", "writerows"),
        "w.write_batch([{'__key__': key, 'jpg': image}, ...]) writes many samples",
    ),
}

#: What to write instead, by the argument.
READING: Mapping[str, str] = {
    "bucket_by": "give units=Bucket(60_000, 'frames'), with the attribute that has the lengths",
    "handler": "give faults=Faults(on_error='skip')",
    "image_size": "give fields={'jpg': Image(224)}",
    "pack": "give units=Pack(8192, fields=['input_ids'])",
    "resampled": "leave epochs out for loops of one epoch each, or give epochs=0 for an order without end",
    "resume_from": "call load_state_dict(state), with what state_dict() returned",
    "state_dict": "call load_state_dict(state), with what state_dict() returned",
    "subsample": "give where=, or the name of a view: url#name",
    "validate_hash": "leave it out: each block has a checksum, which is always compared",
    "buffer_size": "give the memory to shuffle in: order=Order(shuffle_memory='2GiB')",
    "cache_dir": "give cache=FOLDER",
    "cache_limit": "give cache_size='100GiB'",
    "collate_fn": "batches are complete when they come: change them in map_batch=FUNCTION, which is called with each batch",
    "columns": "give fields=['jpg', 'cls'], or a dict of names and types",
    "datasets": _MIX,
    "data_files": "give the address of a packed data set as the first argument: `shardtool pack` makes one",
    "dataset": "give the address as the first argument",
    "decode": "give the types of fields: fields={'jpg': 'image', 'cls': 'int'}",
    "device": "tensors are on the CPU: shardtool.torch.Prefetcher(loader, device) copies them",
    "drop_last": "give tail='drop'",
    "filter": "give where='score >= 3', an expression over attributes",
    "generator": "give seed=...: the order depends on nothing else",
    "keys": "give Source(url, keys=FILE) as the first argument, with one key in each line",
    "local": "give cache=FOLDER, a local folder that keeps what is read",
    "num_canonical_nodes": "leave it out: the order is the same for any number of ranks",
    "num_epochs": "give epochs=...",
    "num_replicas": "give world_size=...",
    "num_workers": f"{_READER}. Python functions run in parallel in the workers of torch's DataLoader: see shardtool.Dataset",
    "output": "give the type of arrays: format='numpy'",
    "path": "give the address as the first argument",
    "persistent_workers": "leave it out: the child process stays until close()",
    "pin_memory": "call pin_memory() on a tensor of the batch, or give pin_memory=True to the DataLoader of a shardtool.Dataset",
    "predownload": "give how far to read ahead: tuning=Tuning(memory='4GiB')",
    "prefetch_factor": "give the complete batches that wait: tuning=Tuning(prefetch=...)",
    "remote": "give the address as the first argument, and cache=FOLDER to keep what is read",
    "resume": "call load_state_dict(state), with what state_dict() returned",
    "sampler": "give shuffle=True and a seed; where=, or Source(url, keys=FILE), chooses samples",
    "shuffle_buffer": "give the memory to shuffle in: order=Order(shuffle_memory='2GiB')",
    "shuffle_buffer_size": "give the memory to shuffle in: order=Order(shuffle_memory='2GiB')",
    "shuffle_seed": "give seed=...",
    "split": "each split is a data set of its own, or a view of one: give its address, or url#name",
    "streaming": "leave it out: data is always streamed, and cache=FOLDER keeps what is read",
    "streams": _MIX,
    "subset": "give where=, or the name of a view: url#name",
    "timeout": "leave it out: a store that stops answering is asked again, and is an error in the end",
    "transform": "give map_batch=FUNCTION, which is called with each batch; shardtool.Dataset calls it in the DataLoader's workers",
    "transforms": "give map_batch=FUNCTION, which is called with each batch; shardtool.Dataset calls it in the DataLoader's workers",
    "urls": _MIX,
    "view": "give url#name, or Source(url, view=...) as the first argument",
    "weights": _MIX,
    "worker_init_fn": "leave it out: there are no worker processes here. The workers of a DataLoader take theirs from it",
}
#: What to write instead, by the attribute of a data set opened for random access.
RANDOM: Mapping[str, str] = {
    "classes": "ds.info has the features of fields, with the names of classes",
    "get": "ds['key'] is the sample with a key, ds[5] the one with a number",
    "num_rows": "len(ds) is the number of samples",
    "read": "ds['key'] is the sample with a key, ds[5] the one with a number",
    "column_names": "ds.fields has the names",
    "columns": "ds.fields has the names",
    "features": "ds.fields has the names, and ds.info the types",
    "filter": "shardtool.open(url, where='score >= 3') has the samples for which an expression holds",
    "keys": "iterate: [s.key for s in ds], or `shardtool ls` prints them",
    "map": "call the function on samples as they are read, or give map_batch= to a Loader",
    "select": "ds[[0, 5]] and ds[['key1', 'key2']] are lists of samples; a Loader reads Source(url, keys=FILE)",
    "shape": "len(ds) is the number of samples",
    "shuffle": "a Loader shuffles: shardtool.Loader(url, batch_size, shuffle=True, seed=7)",
    "to_pandas": "a Loader delivers tables: format='arrow', and then batch.to_pandas()",
}
#: What to write instead, by the argument, for random access.
OPENING: Mapping[str, str] = {
    **READING,
    "batch_size": "a Loader has batches; ds[8:16] and ds[[0, 5]] are lists of samples",
    "epochs": "a Loader has epochs; here samples are read by number and key",
    "map": RANDOM["map"],
    "seed": RANDOM["shuffle"],
    "shuffle": RANDOM["shuffle"],
}
WRITING: Mapping[str, str] = {
    "compress": "leave it out: shards are compressed with zstd, and level='better' compresses more",
    "exist_ok": "give on_exists='append', 'overwrite' or 'resume'",
    "hashes": "leave it out: each block has a checksum",
    "keep_local": "leave it out: a Writer puts shards where they belong, and keeps none",
    "chunk_bytes": "give shard_size='256MiB'",
    "chunk_size": "give samples_per_shard=..., or shard_size='256MiB'",
    "columns": "give fields={'image': 'jpg:92', 'cls': 'int'}",
    "compression": "leave it out: shards are compressed with zstd, and level='better' compresses more",
    "maxcount": "give samples_per_shard=...",
    "maxsize": "give shard_size='256MiB'",
    "mode": "give on_exists='append', 'overwrite' or 'resume'",
    "num_workers": "give workers=..., threads that compress; shardtool.optimize runs a function in many processes",
    "out": "give the address as the first argument",
    "output_dir": "give the address as the first argument",
    "overwrite": "give on_exists='overwrite'",
    "pattern": "give the address as the first argument, and name= for the beginning of the shards' names",
    "schema": "give fields={'image': 'jpg:92', 'cls': 'int'}",
    "size_limit": "give shard_size='256MiB'",
}
#: The same for optimize, which takes those of a Writer too.
OPTIMIZING: Mapping[str, str] = {
    **WRITING,
    "batch_size": "leave it out: fn may return a table, or yield samples, as many as it likes for an input",
    "chunk_size": "give samples_per_shard=..., or shard_size='256MiB'",
    "input_dir": "give the inputs themselves as the second argument: sorted(Path('raw').glob('*.json'))",
    "num_nodes": "give engine='ray', 'dask' or 'spark' and parts=..., or start the program on each node with parts=...",
    "num_workers": "give workers=..., processes of this machine",
    "out": "give the address as url=..., the third argument",
    "output_dir": "give the address as url=..., the third argument",
    "pattern": "give the address as url=..., the third argument, and name= for the beginning of the shards' names",
}
#: Members of groups of options, by their names.
_GROUPED: Mapping[str, str] = {member.name: group.__name__ for group in (Order, Tuning, Faults) for member in dataclasses.fields(group)}
_LANES = frozenset(member.name for member in dataclasses.fields(Lanes))


def answering(known: Mapping[str, str], *more: Callable[..., Any]) -> Callable[[F], F]:
    """Returns a decorator of a function, or of the __init__ of a class, whose keyword arguments
    users guess. A TypeError for one that neither it nor one of ``more`` has says what to write
    instead."""

    def decorate(function: F) -> F:
        accepted = dict(inspect.signature(function).parameters)
        for other in more:
            accepted.update(inspect.signature(other).parameters)
        method = "self" in accepted and not more

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in accepted:
                    owner = type(args[0]).__name__ if method else function.__name__
                    raise TypeError(_sentence(owner, name, known, accepted))
            return function(*args, **given)

        return cast(F, call)

    return decorate


def missing(owner: object, name: str, known: Mapping[str, str], title: str) -> Any:
    """Raises AttributeError for an attribute that an object does not have: with what to write
    instead, or as Python says it."""
    if name in known:
        raise AttributeError(f"{title} has no {name!r}: {known[name]}")
    return object.__getattribute__(owner, name)


def _sentence(owner: str, name: str, known: Mapping[str, str], accepted: Mapping[str, Any]) -> str:
    has = f"{owner} has no argument {name!r}"
    if name in known:
        return f"{has}: {known[name]}"
    grouped = _GROUPED if "tuning" in accepted else {}
    groups: Dict[str, str] = {"Order": "order", "Tuning": "tuning", "Faults": "faults"}
    for like in (name, *difflib.get_close_matches(name, [*accepted, *grouped], 1, 0.75)):
        if like in grouped and groups[grouped[like]] in accepted:
            group = grouped[like]
            if like in _LANES:
                return f"{has}: it is a member of a group: order=Order(lanes=Lanes({like}=...))"
            return f"{has}: it is a member of a group: {groups[group]}={group}({like}=...)"
        if like in accepted:
            return f"{has}: did you mean {like}=?"
    return f"{has}: it has {', '.join(p for p in accepted if p not in ('self', 'options'))}"
