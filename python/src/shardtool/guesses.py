"""Answers to what users of other loaders try: names, arguments and attributes that are called
otherwise here."""

from __future__ import annotations

import abc
import dataclasses
import difflib
import functools
import inspect
import re
import types
import typing
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Type, TypeVar, cast

from . import errors
from ._others import MODULE, PACKS, WORDS

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C")

#: What has no end, and what the last batch of an epoch is.
_ENDLESS = "each loop is one epoch: `while True: for batch in loader` has no end; epochs=0 lets batches run over the ends of epochs"
_TAIL = "give tail='drop' to leave out a last batch that is smaller, or tail='short' to keep it"
_READER = "a child process reads and decompresses in threads, as many as tuning=Tuning(workers=...)"
_MIX = 'a mix has several: Loader({"sources": {"web": {"data": url, "weight": 3}, "code": {"data": url2}}}, batch_size), see docs/mixing.md'

#: What to write instead, by the attribute of a loader.
LOADING: Mapping[str, str] = {
    "batched": "give batch_size to the loader",
    "checkpoint": "loader.state_dict() is the place after the last batch",
    "dataset": "loader.info has facts of the data set, and shardtool.open(url) its samples",
    "get_state": "loader.state_dict() is the place after the last batch",
    "num_samples": "loader.info['samples'] is their number",
    "sampler": "each loop is the next epoch, and loader.set_epoch(2) chooses one; give shuffle=True and a seed; where=, or"
    " Source(url, keys=FILE), chooses samples",
    **dict.fromkeys(
        ("save", "dump", "save_checkpoint"), "save loader.state_dict() with the model; loader.load_state_dict(state) continues"
    ),
    "save_state_dict": "loader.state_dict() is the place after the last batch; save it as a checkpoint of the model is saved",
    "state": "loader.state_dict() is the place after the last batch",
    "stop": "leave the loop with break; loader.close() ends the child",
    "batch": "give batch_size to the loader",
    "decode": "give the types of fields to the loader: fields={'jpg': 'image', 'cls': 'int'}",
    "filter": "give where='score >= 3' to the loader, an expression over attributes",
    "map": "give map_batch=FUNCTION to the loader, which is called with each batch",
    **dict.fromkeys(("steps_per_epoch", "num_steps"), "len(loader) is the number of batches of an epoch"),
    "class_to_idx": "loader.info has facts of the data set; `shardtool inspect DATASET` prints the names of classes",
    "num_batches": "len(loader) is the number of batches of an epoch",
    "repeat": _ENDLESS,
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
    "batches": "iterate: `for batch in loader` is one epoch",
    "iter": "iterate: `for batch in loader` is one epoch",
    "peek": "next(iter(loader)) is a first batch; its position is forgotten with the iterator",
    "head": "next(iter(loader)) is a first batch, and shardtool.open(url)[:3] are samples",
    "next": "it = iter(loader), and then next(it)",
    "workers": _READER,
    "to_torch": "give format='torch' to the loader; it is the default where torch is installed",
    "format": "give format='torch', 'numpy', 'arrow' or 'bytes' to the loader",
    "prefetch": "it is done: tuning=Tuning(prefetch=..., memory=...) says how far ahead",
    "compose": "give map_batch=FUNCTION to the loader, which is called with each batch",
    "pipe": "give map_batch=FUNCTION to the loader, which is called with each batch",
    "apply": "give map_batch=FUNCTION to the loader, which is called with each batch",
    "unbatched": "shardtool.open(url) has samples one by one, and `for i in range(batch.size)` counts those of a batch",
    "node": "give rank=... and world_size=..., unless torchrun or Slurm says them",
    "shard": "give rank=... and world_size=..., unless torchrun or Slurm says them",
    "split": "give rank=... and world_size=... for the ranks of a job; shares of the data are views: url#name",
    "features": "loader.fields are the names, and loader.info has the types",
    "columns": "loader.fields are the names, and fields=[...] chooses them",
    "column": "give fields=['jpg', 'cls'] to choose fields; `shardtool pack DATASET OUT --rename a=b` renames one",
    "keys": "batch.sample_keys are the keys of a batch, and loader.fields the names of the fields",
    "resume": "loader.load_state_dict(state) continues at the place that state_dict() returned",
    "restore": "loader.load_state_dict(state) continues at the place that state_dict() returned",
    "cycle": "give epochs=0 to the loader for an order without end",
    "repeated": "give epochs=0 to the loader for an order without end",
    "concat": _MIX,
    "mix": _MIX,
    "interleave": _MIX,
    "zip": "give layers=['NAME'] to the loader for fields that another data set adds",
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
    **dict.fromkeys(("key", "__keys__", "ids", "names"), "batch.sample_keys are the keys of the samples"),
    **dict.fromkeys(
        ("unbatch", "rows", "tolist", "to_list", "iterrows"),
        "batch.to_arrow().to_pylist() has a dict for each sample; batch['jpg'][0] is a field of the first",
    ),
    **dict.fromkeys(("pop", "update", "setdefault"), "a batch does not change: fields = dict(batch) is a dict of its fields"),
    **dict.fromkeys(("to_torch", "as_tensor", "tensor", "tensors"), "give format='torch' to the loader: fields are tensors then"),
    **dict.fromkeys(("detach", "clone", "copy"), "a batch is yours to keep: dict(batch) has the fields by name"),
    **dict.fromkeys(("collate", "stack"), "batches are complete: batch['x'] is an array where all samples have one shape"),
    **dict.fromkeys(("labels", "targets", "inputs", "images"), "fields have the names of the data set: list(batch)"),
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

#: What to write instead, by the attribute of a Layer.
ROWS: Mapping[str, str] = {
    name: answer.replace("w.", "layer.").replace("'jpg': image", "'caption': text") for name, answer in WRITER.items()
}

#: What to write instead, by the argument.
READING: Mapping[str, str] = {
    "bucket_by": "give units=Bucket(60_000, 'frames'), with the attribute that has the lengths",
    "handler": "give faults=Faults(on_error='skip')",
    **dict.fromkeys(("image_size", "resize", "img_size", "crop_size"), "give fields={'jpg': shardtool.Image(224)}"),
    "pack": "give units=Pack(8192, fields=['input_ids'])",
    "map": "give map_batch=FUNCTION, which is called with each batch, not with each sample",
    "rename": "give map_batch=lambda batch: {'pixel_values': batch['jpg'], 'labels': batch['cls']}",
    "skip": "call load_state_dict(state), with what state_dict() returned",
    "pad": "fields of several lengths are lists: pad them in map_batch=, or give units=Pack(8192, ['input_ids']) for sequences;"
    " tail='pad' fills the last batch of an epoch",
    **dict.fromkeys(("indices", "order_by", "sort_by"), "give where=, or Source(url, keys=FILE): they choose samples, and keep the order"),
    **dict.fromkeys(
        ("fraction", "share"), "pack it again: `shardtool pack DATASET OUT --share 0%..10%` takes a part; where= chooses by attributes"
    ),
    "with_keys": "leave it out: batch.sample_keys are the keys of a batch",
    "return_index": "leave it out: batch.numbers are the numbers of the samples of a batch",
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
    "drop_last": _TAIL,
    "filter": "give where='score >= 3', an expression over attributes",
    "generator": "give seed=...: the order depends on nothing else",
    "keys": "give Source(url, keys=FILE) as the first argument, with one key in each line",
    "local": "give cache=FOLDER, a local folder that keeps what is read",
    "num_canonical_nodes": "leave it out: the order is the same for any number of ranks",
    "num_epochs": "give epochs=..., for as many loops: each loop is one epoch",
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
    "lazy": "leave it out: nothing is read before the first batch",
    "return_dict": "leave it out: a batch is a mapping; map_batch=lambda batch: (batch['jpg'], batch['cls']) makes tuples",
    "as_tuple": "leave it out: a batch is a mapping; map_batch=lambda batch: (batch['jpg'], batch['cls']) makes tuples",
    **dict.fromkeys(
        ("replacement", "sample_weights", "class_weights"),
        "give the name of a view: `shardtool select DATASET --weight COLUMN --name NAME` draws samples more often, url#name",
    ),
    "key": "fields have the names of the data set: fields={'jpg': 'image', 'cls': 'int'}",
    "image_field": "fields have the names of the data set: fields={'jpg': 'image', 'cls': 'int'}",
    "label": "fields have the names of the data set: fields={'jpg': 'image', 'cls': 'int'}",
    **dict.fromkeys(
        ("nodesplitter", "workersplitter", "splitter", "shardshuffle", "detshuffle"),
        "leave it out: each rank gets its part, and shuffle=True shuffles all data",
    ),
    **dict.fromkeys(("batching_method", "batching"), "leave it out: the batches of a mix have the weights of its sources"),
    **dict.fromkeys(
        ("epoch_size", "steps_per_epoch", "num_steps", "max_steps", "num_samples", "max_samples", "limit"),
        "leave it out: an epoch is all samples; end a loop by break, and read a part by where= or a view",
    ),
    **dict.fromkeys(
        ("max_length", "seq_len", "sequence", "block_size", "max_samples_per_sequence"),
        "give units=Pack(8192, ['input_ids']) for sequences",
    ),
    **dict.fromkeys(
        ("shuffle_algo", "shuffle_algorithm", "algo", "algorithm"),
        "leave it out: there is one order; order=Order(shuffle_memory='2GiB') gives the memory to shuffle in",
    ),
    "tokenizer": "data sets have token ids: make them with shardtool.optimize, and give units=Pack(8192, ['input_ids'])",
    **dict.fromkeys(("repeat", "infinite", "loop", "resampled"), _ENDLESS),
    **dict.fromkeys(
        ("distributed", "process_group", "num_nodes", "local_rank", "ddp"),
        "leave it out: torch.distributed, torchrun and Slurm say the rank; else give rank=... and world_size=...",
    ),
    **dict.fromkeys(
        ("batch_size_per_gpu", "per_device_batch_size", "micro_batch_size"), "give batch_size=..., the samples of a batch on a rank"
    ),
    **dict.fromkeys(
        ("pad", "padding", "partial", "last_batch"), "give tail='drop', 'short', 'pad' or 'wrap', for what is left at the end of an epoch"
    ),
    **dict.fromkeys(("start_step", "start", "checkpoint", "initial_state"), "call load_state_dict(state), with what state_dict() returned"),
    **dict.fromkeys(
        ("bucket_boundaries", "bucket", "buckets"), "give units=Bucket(60_000, 'frames'), with the attribute that has the lengths"
    ),
    **dict.fromkeys(("endpoint", "region", "profile"), "leave it out: the environment has it, as AWS_ENDPOINT_URL_S3 and AWS_REGION"),
    "read_options": "give tuning=Tuning(workers=..., memory=...)",
    **dict.fromkeys(
        ("dp_rank", "data_parallel_rank", "process_index", "shard_index"), "give rank=... and world_size=..., the data-parallel ones"
    ),
    **dict.fromkeys(
        ("dp_size", "data_parallel_size", "process_count", "num_shards", "num_ranks"),
        "give rank=... and world_size=..., the data-parallel ones",
    ),
    **dict.fromkeys(
        ("trust_remote_code", "token", "use_auth_token", "storage_options", "credentials"),
        "leave it out: credentials come from the environment, as for other programs; see docs/object-stores.md",
    ),
    **dict.fromkeys(
        ("storage", "client", "session", "fs", "filesystem"), "give an address: s3://bucket/prefix, gs://, az://, hf:// or https://"
    ),
    **dict.fromkeys(
        ("verbose", "progress"), 'leave it out: the log "shardtool" says what happens, and tuning=Tuning(stats_every=10) reports'
    ),
    **dict.fromkeys(("dtype", "precision"), "give the type of a field: fields={'x': ('float16', (128,))}"),
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
    **dict.fromkeys(("with_format", "set_format", "to_torch"), "give format='torch' or 'numpy': shardtool.open(url, format='torch')"),
    "to_pandas": "a Loader delivers tables: format='arrow', and then batch.to_pandas()",
    **dict.fromkeys(("head", "take", "first", "limit"), "ds[:3] are the first samples"),
    **dict.fromkeys(("sample", "random", "choice"), "ds[random.randrange(len(ds))] is one"),
    **dict.fromkeys(("samples", "num_samples", "size", "count"), "len(ds) is the number of samples"),
    **dict.fromkeys(
        ("batch", "batches", "iter_batches", "iter"), "a Loader has batches: shardtool.Loader(url, batch_size); ds[8:16] are samples"
    ),
    **dict.fromkeys(
        ("to_list", "tolist", "to_dict", "all", "items", "values"), "iterate: [dict(s) for s in ds], or a Loader, which is faster"
    ),
    **dict.fromkeys(("split", "train_test_split", "subset"), "each split is a data set, or a view: shardtool.open('out/#name')"),
    **dict.fromkeys(("sort", "group_by", "unique"), "attributes are in the index: where= here, and `shardtool select` for views"),
    **dict.fromkeys(
        ("add_column", "write", "append", "update", "save"),
        "it is for reading: shardtool.Layer adds fields, and Writer(url, on_exists='append') samples",
    ),
    **dict.fromkeys(
        ("lookup", "find", "index", "search"), "ds['key'] is the sample with a key; where= gives those for which an expression holds"
    ),
}
#: What to write instead, by the attribute of a sample.
SAMPLE: Mapping[str, str] = {
    **dict.fromkeys(("to_dict", "asdict", "as_dict", "items", "data", "fields"), "dict(sample) has the fields by name"),
    **dict.fromkeys(("id", "name", "__key__", "path", "filename"), "sample.key is its key"),
    **dict.fromkeys(("index", "idx"), "sample.number is its number in storage order"),
    **dict.fromkeys(("decode", "show", "image"), "give the types of fields: shardtool.open(url, fields={'jpg': 'image'})"),
}
#: What to write instead, by the argument, for random access.
OPENING: Mapping[str, str] = {
    **READING,
    "batch_size": "a Loader has batches; ds[8:16] and ds[[0, 5]] are lists of samples",
    "epochs": "a Loader has epochs; here samples are read by number and key",
    **dict.fromkeys(("map", "transform", "transforms"), RANDOM["map"]),
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
_LOADERS = "it is an argument of the loader"
_LONG = "give what becomes of longer samples: long='truncate', 'split' or 'drop'"
_BY = "give by=..., the attribute of the index that has the lengths"
_WEIGHTS = 'a mix gives shares: Mix({"sources": {"web": {"data": url, "weight": 3}, "code": {"data": url2, "weight": 1}}})'

#: The same for the classes of arguments.
IMAGE: Mapping[str, str] = {
    **dict.fromkeys(("resize", "shape", "image_size", "img_size"), "give the size first: Image(224), or Image((224, 320))"),
    **dict.fromkeys(("height", "width", "h", "w"), "give height and width first: Image((224, 320))"),
    **dict.fromkeys(
        ("normalize", "mean", "std", "dtype", "to_tensor", "scale_pixels"),
        "leave it out: images are uint8; normalise a batch on the device, (x.float() / 255 - mean) / std",
    ),
    **dict.fromkeys(("mode", "channels", "num_channels", "color", "convert"), "leave it out: images are RGB"),
    **dict.fromkeys(("interpolation", "antialias", "resample", "filter"), "leave it out: the filter is Pillow's BILINEAR"),
    **dict.fromkeys(("random_crop", "random_resized_crop", "augment"), "give crop='random'"),
    "center_crop": "give crop='center'",
    **dict.fromkeys(("hflip", "horizontal_flip", "random_flip", "mirror"), "give flip=True"),
    **dict.fromkeys(("data_format", "channels_last", "channels_first", "format", "memory_format"), "give layout='NHWC' or 'NCHW'"),
    **dict.fromkeys(("workers", "num_workers", "num_threads"), "give threads=..."),
    **dict.fromkeys(("device", "gpu"), "give decode='cuda' to decode on the GPU"),
    "backend": "give decoder='simplejpeg', 'cv2', 'torchvision' or 'Pillow'",
    **dict.fromkeys(("transform", "transforms"), "give map_batch=FUNCTION to the loader, which is called with each batch"),
    "seed": "give seed=... to the loader: crops and flips follow from it",
}
PACKING: Mapping[str, str] = {
    **dict.fromkeys(
        ("seq_len", "seq_length", "sequence_length", "max_length", "max_seq_len", "max_seq_length", "context_length", "block_size", "size"),
        "give the length first: Pack(8192, ['input_ids'])",
    ),
    **dict.fromkeys(("columns", "keys", "field", "column"), "give the fields with one value for each token: Pack(8192, ['input_ids'])"),
    **dict.fromkeys(("pad", "pad_token", "pad_token_id", "padding", "padding_value", "pad_value"), "give pad_id=..."),
    **dict.fromkeys(
        ("eos_token_id", "eos_id", "sep", "separator"),
        "leave it out: cu_seqlens has where samples begin; `shardtool pack --pack-tokens 8192 --separator ID` joins documents by an id",
    ),
    **dict.fromkeys(("truncate", "truncation", "split", "overflow", "drop_long"), _LONG),
    **dict.fromkeys(("length_column", "length_key", "lengths", "key"), _BY),
    "buffer_size": "give window=..., the samples that are packed together",
    **dict.fromkeys(("batch_size", "seed", "shuffle"), _LOADERS),
    "drop_last": f"{_TAIL} to the loader",
}
BUCKETS: Mapping[str, str] = {
    **dict.fromkeys(
        ("tokens", "frames", "max_tokens", "max_frames", "batch_tokens", "token_budget", "max_batch_tokens", "size"),
        "give the budget first, most samples times the longest of them: Bucket(60_000, by='frames')",
    ),
    **dict.fromkeys(
        ("boundaries", "bucket_boundaries", "buckets", "num_buckets", "bucket_sizes", "bucket_batch_sizes"),
        "leave it out: samples of similar length come together, of which the budget allows more where they are short",
    ),
    **dict.fromkeys(("length_column", "length_key", "lengths", "key", "sort_by", "length_fn"), _BY),
    **dict.fromkeys(("max_length", "truncate", "truncation", "drop_long"), _LONG),
    "buffer_size": "give window=..., the samples that micro-batches are formed from",
    **dict.fromkeys(("batch_size", "seed", "shuffle", "fields"), _LOADERS),
    "drop_last": f"{_TAIL} to the loader",
}
SOURCES: Mapping[str, str] = {
    **dict.fromkeys(("weight", "weights", "proportion", "ratio", "repeat", "choose", "probability"), _WEIGHTS),
    **dict.fromkeys(("path", "remote", "data", "dataset", "address", "uri"), "give the address first: Source('s3://bucket/train')"),
    **dict.fromkeys(("local", "cache_dir"), "give cache=FOLDER to the loader"),
    **dict.fromkeys(("fields", "columns", "cache", "shuffle", "seed", "batch_size"), _LOADERS),
    "split": "each split is a data set of its own, or a view of one: give its address, or view='NAME'",
    **dict.fromkeys(("filter", "condition", "query"), "give where='score >= 3', an expression over attributes"),
    **dict.fromkeys(("generation", "version", "revision"), "give the generation behind the address: Source('out/@0123456789abcdef')"),
}
MIXING: Mapping[str, str] = {
    **dict.fromkeys(("weights", "probabilities", "ratios", "shares", "datasets", "streams", "data"), _WEIGHTS),
    **dict.fromkeys(("seed", "shuffle", "batch_size", "fields", "cache"), _LOADERS),
    **dict.fromkeys(
        ("stopping_strategy", "stop", "epochs"),
        "leave it out: a source that ends begins again, and epochs= of the loader says when the mix ends; see docs/mixing.md",
    ),
}
LAYERING: Mapping[str, str] = {
    **{name: answer for name, answer in WRITING.items() if name not in ("pattern", "out", "output_dir")},
    **dict.fromkeys(("key", "keys", "on"), "rows have their key as '__key__': layer.write({'__key__': key, 'caption': text})"),
    **dict.fromkeys(("base", "dataset", "url"), "give the data set first and the name of the layer second: Layer('out/', 'captions')"),
    **dict.fromkeys(("update", "mode"), "give on_exists='update', 'overwrite' or 'append'"),
    **dict.fromkeys(("allow_missing", "partial", "strict"), "give missing='allow'"),
    "batch_size": "leave it out: layer.write_batch takes as many rows as it is given",
}
ORDERING: Mapping[str, str] = {
    **dict.fromkeys(("seed", "shuffle", "epochs", "batch_size", "rank", "world_size", "tail"), _LOADERS),
    **dict.fromkeys(("buffer_size", "shuffle_buffer", "shuffle_size", "shuffle_block_size", "buffer"), "give shuffle_memory='2GiB'"),
    **dict.fromkeys(("accumulate", "grad_accumulation", "gradient_accumulation_steps"), "give micro_batches=..., and cost= to the loader"),
    "drop_last": f"{_TAIL} to the loader",
    "algorithm": "leave it out: there is one order, which shuffle_memory bounds",
}
TUNINGS: Mapping[str, str] = {
    **dict.fromkeys(("num_workers", "threads", "num_threads"), "give workers=..., threads that decompress and check"),
    **dict.fromkeys(("prefetch_factor", "prefetch_batches", "num_prefetch"), "give prefetch=..., the complete batches that wait"),
    **dict.fromkeys(("predownload", "read_ahead", "readahead", "buffer_size", "max_memory"), "give memory='4GiB', for what is read ahead"),
    **dict.fromkeys(("concurrency", "max_connections", "num_connections"), "give requests=..., the requests in flight to a store"),
    **dict.fromkeys(("cache", "cache_dir", "cache_limit", "shuffle", "seed", "batch_size"), _LOADERS),
    **dict.fromkeys(("timeout", "retries", "max_retries"), "leave it out: a store that fails is asked again, and is an error in the end"),
    **dict.fromkeys(("pin_memory", "device"), "shardtool.torch.Prefetcher(loader, device) copies ahead of the loop, through pinned memory"),
    "persistent_workers": "leave it out: the child process stays until close()",
}
PREFETCHING: Mapping[str, str] = {
    **dict.fromkeys(
        ("depth", "prefetch", "num_prefetch", "queue_size", "buffer_size", "size", "n"), "give ahead=..., batches on the device"
    ),
    **dict.fromkeys(
        ("pin_memory", "non_blocking", "stream", "streams"), "leave it out: it copies through pinned memory, in a stream of its own"
    ),
    **dict.fromkeys(("num_workers", "workers", "transform"), "it is for the loader, or the DataLoader, that it is given"),
}
ON_FAULTS: Mapping[str, str] = {
    **dict.fromkeys(("skip", "ignore", "ignore_errors", "handler", "skip_errors", "errors", "strict", "warn"), "give on_error='skip'"),
    **dict.fromkeys(
        ("max_errors", "limit", "tolerance", "max_skips"), "give max_skipped=..., a number of samples or a share such as 0.001"
    ),
    **dict.fromkeys(("retries", "max_retries", "retry", "timeout"), "leave it out: what fails is read again, and is an error in the end"),
}
LANES: Mapping[str, str] = {
    **dict.fromkeys(("lanes", "n", "num", "count", "num_lanes"), "give number=..."),
    **dict.fromkeys(("blocks", "run", "run_length"), "give run_blocks=..."),
    "shuffle_memory": "it is a member of the group above: order=Order(shuffle_memory='2GiB')",
}
ANNOTATING: Mapping[str, str] = {
    **dict.fromkeys(
        ("fn", "func", "map", "callback", "model"), "give the function third: annotate('out/', 'captions', FUNCTION, batch_size=32)"
    ),
    **dict.fromkeys(("columns", "input_columns", "input_fields"), "give fields={'jpg': 'image'}, what the function gets"),
    **dict.fromkeys(
        ("output", "out", "url", "output_dir", "layer"),
        "give the name of the layer second: annotate('out/', 'captions', FUNCTION, batch_size=32)",
    ),
    **dict.fromkeys(("num_proc", "num_workers", "processes"), "give workers=..., processes of this machine"),
    **dict.fromkeys(
        ("batched", "keep_in_memory", "load_from_cache_file"),
        "leave it out: the function always gets batches, and what it returned is kept",
    ),
    **dict.fromkeys(("remove_columns", "keep"), "leave it out: the layer has what the function returns, and the data set stays as it is"),
    "overwrite": "give on_exists='overwrite'",
    "resume": "leave it out: a run continues where it was killed",
    "shuffle": "leave it out: each sample is read once, in storage order",
    "epochs": "leave it out: each sample is read once",
}


def answering(known: Mapping[str, str], *more: Callable[..., Any], written: str = "", most: Optional[int] = None) -> Callable[[F], F]:
    """Returns a decorator of a function, or of a method, whose arguments users guess. A TypeError
    says what to write instead of an argument that neither it nor one of ``more`` has, of one that
    is missing, and of one that needs its name; ``written`` is a call as it should be, where CLASS
    stands for the name of the class. Of more than ``most`` arguments the others need their names,
    whatever the signature says."""

    def decorate(function: F) -> F:
        own = inspect.signature(function).parameters
        accepted = dict(own)
        for other in more:
            accepted.update(inspect.signature(other).parameters)
        method = "self" in accepted and not more
        called = method and function.__name__ != "__init__"
        places = [p.name for p in own.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
        if most is not None:
            places = places[: most + method]
        needed = [p.name for p in own.values() if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        named = [p.name for p in own.values() if p.kind == p.KEYWORD_ONLY]

        def answer(args: Tuple[Any, ...], given: Mapping[str, Any]) -> str:
            owner = type(args[0]).__name__ if method and args else function.__name__
            write = written.replace("CLASS", owner)
            if called:
                owner += "." + function.__name__
            for name in given:
                if name not in accepted:
                    return f"{owner} has no argument {name!r}: write {write}" if called else _sentence(owner, name, known, accepted)
            here = places[: len(args)]
            absent = [name for name in needed if name not in here and name not in given]
            if absent:
                return f"{owner} needs {_and(absent)}: write {write or _call(owner, needed[method:], named)}"
            if len(args) > len(places):
                if called:
                    return f"{owner} takes {_and(places[method:])} alone: write {write}"
                follows = write or ", ".join(f"{name}=..." for name in named[:3])
                if len(places) == method:
                    return f"{owner} takes its arguments by name, as in {follows}"
                whose = "their names" if len(places) - method > 1 else "its name"
                return f"{owner} takes {_and(places[method:])} without {whose}: give what follows by name, as in {follows}"
            return ""

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            text = answer(args, given) if more or len(args) > len(places) else ""  # a function with **options takes any name
            try:
                if not text:
                    return function(*args, **given)
            except TypeError as err:
                if err.__traceback__ is None or err.__traceback__.tb_next is not None:  # of the function itself
                    raise
                text = answer(args, given) or str(err)
            raise TypeError(text)

        call.written = written  # type: ignore[attr-defined]
        return cast(F, call)

    return decorate


def answered(known: Mapping[str, str], write: str, most: int = 1) -> Callable[[Type[C]], Type[C]]:
    """Returns ``answering`` for a class whose __init__ a decorator has made. The first ``most``
    arguments need no name."""

    def decorate(of: Type[C]) -> Type[C]:
        init: Any = of.__init__
        made: Any = of
        made.__init__ = answering(known, written=write, most=most)(init)
        return of

    return decorate


def _and(names: List[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _call(owner: str, needed: List[str], named: List[str]) -> str:
    return f"{owner}({', '.join(f'{name}=...' if name in named else name for name in needed)})"


def absent(module: str, name: str, has: Iterable[str], caller: types.FrameType, answer: str = "") -> Exception:
    """Returns the error of a package that lacks a name and has others, for its __getattr__, which
    has a caller. ``answer`` is what to write instead, whatever the name."""
    kind = re.findall(r"[A-Z][a-z]+$", name)  # the noun of a class: Writer of WebDatasetWriter
    if kind and kind[0] in ("Error", "Exception"):
        all = [n for n in vars(errors) if n.endswith("Error")]
        answer = f"shardtool.errors has {', '.join(difflib.get_close_matches(name, all, 1, 0.6) or all)}"
    else:
        answer = answer or MODULE.get(name) or WORDS.get(kind[0].lower() if kind else "") or by_words(name, WORDS)
    text = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    if answer and caller.f_code.co_name == "_handle_fromlist":  # of "from shardtool import NAME", which says
        return ImportError(f"{text}: {answer}")  # nothing of an AttributeError, and looks for a module of that name
    return absence(f"{text}: {answer or 'it has ' + ', '.join(has)}")


#: What a constructor that takes a place is called elsewhere.
_PLACES = dict.fromkeys(
    ("state", "checkpoint", "resume", "restore", "load"), "loader.load_state_dict(state), with what loader.state_dict() returned"
)


class Named(abc.ABCMeta):
    """The class of classes whose constructors users guess, such as Loader.from_folder."""

    if not typing.TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            written = "" if name.startswith("_") else getattr(cls.__init__, "written", "").replace("CLASS", cls.__name__)
            text = f"{cls.__name__} has no {name!r}" + (f": write {written}" if written else "")
            if name != "load_state_dict" and (place := by_words(name, _PLACES)) and hasattr(cls, "load_state_dict"):
                raise absence(f"{text}, and then {place}")
            raise absence(text + (f"; {PACKS}" if written and by_words(name, WORDS) == PACKS else ""))


class _Attribute:
    """What users take for a method."""

    def __call__(self) -> Any:
        raise TypeError("it is an attribute and not a method: write it without ()")


class Facts(_Attribute, Dict[str, Any]):
    """A dict that is an attribute."""


class Names(_Attribute, List[str]):
    """A list that is an attribute."""


def missing(owner: object, name: str, known: Mapping[str, str], title: str) -> Any:
    """Raises AttributeError for an attribute that an object does not have: with what to write
    instead, or else with what it has. Names that begin with an underscore are for Python."""
    answer = known.get(name) or ("" if name.startswith("_") or hasattr(type(owner), name) else by_words(name, known))
    if answer:
        raise absence(f"{title} has no {name!r}: {answer}")
    if not name.startswith("_") and not hasattr(type(owner), name):  # else a property has failed
        has = [n for n in dir(type(owner)) if not n.startswith("_")]
        like = [word for word in name.split("_") if word in has] or difflib.get_close_matches(name, has, 1, 0.75)
        raise absence(f"{title} has no {name!r}: " + (f"did you mean {like[0]}?" if like else f"it has {', '.join(has)}"))
    return object.__getattribute__(owner, name)


def absence(text: str) -> AttributeError:
    """Returns an AttributeError to which Python adds no name that is spelt alike."""
    err: Any = AttributeError(text)
    err.name = ""
    return cast(AttributeError, err)


def by_words(name: str, known: Mapping[str, str]) -> str:
    """Returns the answer to the longest run of words of a name that is known, such as buffer_size
    in worker_buffer_size; empty if there is none."""
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)
    for length in range(len(words), 0, -1):
        for at in range(len(words) - length + 1):
            run = words[at : at + length]
            for known_as in ("_".join(run).lower(), "".join(word.capitalize() for word in run)):
                if known_as in known:
                    return known[known_as]
    return ""


def _groups(accepted: Mapping[str, Any]) -> Tuple[Dict[str, str], List[str]]:
    """The names of the groups of options that arguments are, by their members, and the members of
    Lanes."""
    grouped, lanes = {}, []
    for parameter in accepted.values():
        group = type(parameter.default)
        if dataclasses.is_dataclass(group):
            grouped.update({member.name: group.__name__ for member in dataclasses.fields(group)})
            of = typing.get_args(typing.get_type_hints(group).get("lanes"))
            lanes += [member.name for kind in of if dataclasses.is_dataclass(kind) for member in dataclasses.fields(kind)]
    return grouped, lanes


def _sentence(owner: str, name: str, known: Mapping[str, str], accepted: Mapping[str, Any]) -> str:
    has = f"{owner} has no argument {name!r}"
    if name in known:
        return f"{has}: {known[name]}"
    grouped, lanes = _groups(accepted)
    near = difflib.get_close_matches(name, [*accepted, *grouped], 1, 0.85)
    if not near and (answer := by_words(name, known)):
        return f"{has}: {answer}"
    for like in (name, *difflib.get_close_matches(name, [*accepted, *grouped], 1, 0.75)):
        if like in grouped:
            if like in lanes:
                return f"{has}: it is a member of a group: order=Order(lanes=Lanes({like}=...))"
            group = grouped[like]
            return f"{has}: it is a member of a group: {group.lower()}={group}({like}=...)"
        if like in accepted:
            return f"{has}: did you mean {like}=?"
    return f"{has}: it has {', '.join(p for p in accepted if p not in ('self', 'options'))}"
