"""The oracle of the tests: the order ``lane-delay/1`` in plain Python, without reading samples.

::

    from oracle import Order

    order = Order.of("out/", shuffle=True, seed=7, global_batch=256)
    for batch in order.batches(256, epochs=2):
        print(batch.epoch, batch.position, batch.part(rank=3, world_size=8))

It is written from section 9 of ORDER.md alone and shares no code with the readers: where both
agree, the specification is complete. ``Mix`` delivers several sources as one stream,
``interleave/1``; ``Units`` forms packed sequences and micro-batches. The code is plain and slow on
purpose, some microseconds a sample. Comments give section numbers of ORDER.md. Only ``Table.of``
and ``Order.of`` need the program ``shardtool``; the rest is arithmetic and runs on any machine.
"""

from .checkpoint import Checkpoint, read_checkpoint, skip_hash
from .costs import cost_of, split_by_cost
from .mix import Mix, MixBatch, MixSource, sample_seed, source_key
from .mix_checkpoint import MixCheckpoint, read_mix_checkpoint
from .order import GlobalBatch, Order, split
from .parameters import Parameters, Table, choose
from .units import Item, UnitBatch, UnitParameters, Units, bucket, choose_units, pack
from .view import Classed, Subset, Weighted
from .weights import Need, divide, parse_share, per_token, quantize, temperature_share

__all__ = [
    "Checkpoint",
    "Classed",
    "GlobalBatch",
    "Item",
    "Mix",
    "MixBatch",
    "MixCheckpoint",
    "MixSource",
    "Need",
    "Order",
    "Parameters",
    "Subset",
    "Table",
    "UnitBatch",
    "UnitParameters",
    "Units",
    "Weighted",
    "bucket",
    "choose",
    "choose_units",
    "cost_of",
    "divide",
    "pack",
    "parse_share",
    "per_token",
    "quantize",
    "read_checkpoint",
    "read_mix_checkpoint",
    "sample_seed",
    "skip_hash",
    "source_key",
    "split",
    "split_by_cost",
    "temperature_share",
]
