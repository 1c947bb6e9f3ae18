"""Answers the prompts of a data set, and writes the answers to another one, under the same keys. It
can be killed at any moment: the same command continues.

    python answer.py prompts/ answers/
    python -m torch.distributed.run --standalone --nproc_per_node 8 answer.py prompts/ answers/

Each rank answers its part of the prompts and writes a part of the answers. The last rank to finish
publishes all of them; nobody sees a part. Answers in complete shards are never computed again.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import List

import pyarrow as pa

import shardtool


def generate(prompts: List[str], seconds: float) -> List[str]:
    """Put your model here. It must give the same answer to the same prompt: fix its seed."""
    time.sleep(seconds)
    return [" ".join(reversed(prompt.split())) for prompt in prompts]


def main() -> None:
    """Answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", help="data set with a field of text")
    parser.add_argument("answers", help="data set to write; folder or s3://bucket/prefix")
    parser.add_argument("--field", default="text", help="field of the prompt (text)")
    parser.add_argument("--batch-size", type=int, default=64, help="prompts of a call of the model (64)")
    parser.add_argument("--shard-samples", type=int, default=10_000, help="answers of a shard: what a kill costs at most (10000)")
    parser.add_argument("--seconds", type=float, default=0, help="pretend that a batch takes so long (0)")
    args = parser.parse_args()

    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))  # of torchrun
    # The order of the prompts is fixed, and so are those of each rank.
    loader = shardtool.Loader(
        args.prompts,
        args.batch_size,
        epochs=1,
        fields={args.field: "txt"},
        rank=rank,
        world_size=world,
        tail="short",  # each prompt once: ranks need no equal number of batches
        format="arrow",
    )
    writer = shardtool.Writer(
        args.answers, rank=rank, world_size=world, source=args.prompts, samples_per_shard=args.shard_samples, duplicate_keys="fail"
    )
    with loader, writer as w:
        done = w.resume_from  # answers of this rank that the store has
        print(f"rank {rank}: {done} answers are stored", flush=True)
        for batch in loader:
            rest = batch.slice(min(done, batch.num_rows))
            done -= batch.num_rows - rest.num_rows
            if rest.num_rows:
                answers = generate(rest[args.field].to_pylist(), args.seconds)
                w.write_table(pa.table({"__key__": rest["__key__"], "answer": answers}))
        assert w.samples >= w.resume_from
    assert writer.result is not None
    if writer.result["published"]:
        print(f"published {writer.result['samples']} answers", flush=True)


if __name__ == "__main__":
    main()
