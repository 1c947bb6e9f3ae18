"""Reads token arrays in batches, packed or as samples of one length, and prints a line of JSON:

python units.py "packed|samples copies|views" DATASET SHUFFLE_MEMORY PLANS
"""

import json
import resource
import sys
import time

import numpy  # before the clock starts
import shardtool


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


mode, dataset, memory, plans = sys.argv[1:]
kind, copies = mode.split()
options = {"pack": shardtool.Pack(8192, ["ids"], long="split", plans=plans)} if kind == "packed" else {"fields": {"ids.npy": "npy"}}
field = "ids" if kind == "packed" else "ids.npy"
spent, tokens = cpu(), 0
loader = shardtool.Loader(
    dataset, 16, shuffle=True, seed=1, tail="short", epochs=2, out="numpy",
    order=shardtool.Order(shuffle_memory=memory), tuning=shardtool.Tuning(workers=2, copy=copies == "copies"), **options,
)
with loader:
    begin = time.perf_counter()
    for _ in range(2):
        for batch in loader:
            if copies == "copies":
                for name in batch:
                    batch[name]  # as a step does, which moves them to a device
            tokens += numpy.size(batch[field])
    seconds = time.perf_counter() - begin
print(json.dumps({"Tokens": tokens, "Seconds": seconds, "CPU": cpu() - spent}))
