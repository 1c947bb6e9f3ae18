"""Prints the milliseconds from making a loader to its first batch of 256, imports not counted.

first.py shardtool DATASET        shuffled, with the defaults
first.py webdataset ARCHIVE…      shuffle(5000, initial=5000), plain tars
"""

import importlib
import sys
import time

name, *sources = sys.argv[1:]
module = importlib.import_module(name)
begin = time.perf_counter()
if name == "shardtool":
    loader = module.Loader(sources[0], batch_size=256, shuffle=True, seed=1, fields={"txt": "bytes"})
else:
    loader = module.WebDataset(sources, shardshuffle=len(sources), empty_check=False).shuffle(5000, initial=5000).to_tuple("txt").batched(256)
assert next(iter(loader))
print(1000 * (time.perf_counter() - begin))
