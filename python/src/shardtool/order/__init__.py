"""Which sample comes when, without reading samples: the order ``lane-delay/1`` in plain Python.

::

    from shardtool.order import Order

    order = Order.of("out/", shuffle=True, seed=7, global_batch=256)
    for batch in order.batches(256, epochs=2):
        print(batch.epoch, batch.position, batch.part(rank=3, world_size=8))

It is written from section 9 of SPEC.md alone, and not by the code that the readers are made of: where both agree, the text says what they
do. Plain and slow on purpose, some microseconds a sample. Section numbers in comments are those of SPEC.md. Only ``Table.of`` and
``Order.of`` need the program ``shardtool``; the rest is arithmetic, on any machine.
"""

from ._checkpoint import Checkpoint, read_checkpoint, skip_hash
from ._order import GlobalBatch, Order, split
from ._parameters import Parameters, Table, choose

__all__ = ["Checkpoint", "GlobalBatch", "Order", "Parameters", "Table", "choose", "read_checkpoint", "skip_hash", "split"]
