"""Checks the costs of the oracle, which are written from section 9.17 of ORDER.md alone.

usage: python3 cost_check.py vectors.json       check the vectors (testdata/order/cost-vectors.json)
       python3 cost_check.py --compare < cases  answer cases, a JSON object a line, with a JSON
                                                object a line

With vectors it prints a line for each difference and last "N costs, M splits, K differ". Exit
codes: 0 all agrees (and after --compare), 1 something differs, 2 usage, or a file that cannot be
read. Python 3.9 or later, standard library only.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "src"))

from oracle import Order, Parameters, Table, cost_of, split_by_cost
from oracle.parameters import MAX_EPOCH
from order_check import attempt, main


def parts_of(c):
    return split_by_cost([int(x) for x in c["costs"]], c["real"], c["world_size"], c["group"], c.get("micro_batches", 1))


# ---- Vectors ----
def all_checks(v):
    for c in v["costs"]:
        cost, _ = attempt(cost_of, c["cost"], {name: int(x) for name, x in c["values"].items()})
        yield f"{c['cost']} of {c['values']}", c["want"], None if cost is None else str(cost)
    for i, c in enumerate(v["splits"]):
        yield f"split {i}", c["ranks"], parts_of(c)


def check_vectors(v):
    differ = [check for check in all_checks(v) if check[1] != check[2]]
    for name, want, got in differ:
        print(f"{name}: the vectors have {want}, here it is {got}")
    print(f"{len(v['costs'])} costs, {len(v['splits'])} splits, {len(differ)} differ")
    return 1 if differ else 0


# ---- --compare ----
def answer_case(c):
    """The entries of each rank as [place in the batch, sample], batch by batch."""
    p = c["params"]
    parameters = Parameters(int(p["seed"]), *(p[name] for name in ("shuffle", "V", "E", "W", "H", "T", "affinity", "tail")))
    order = Order(Table(c["blocks"], c["shard_first_block"]), parameters)
    costs = [cost_of(c["cost"], {"a": a, "b": b}) for a, b in c["values"]]
    place, batches = order.place(c["epoch"], c["position"]), []
    for step in c["steps"]:
        batch, _ = attempt(order.batch, *place, step["global_batch"], MAX_EPOCH)
        if batch is None:
            break
        place = batch[2:4]
        parts = split_by_cost([costs[n] for n in batch.samples], batch.real, step["world_size"], step["group"], step["micro_batches"])
        batches.append({"next": place, "ranks": [[[k, batch.samples[k]] for k in part] for part in parts]})
    return {"batches": batches}


if __name__ == "__main__":
    sys.exit(main(__doc__, answer_case, check_vectors, sys.argv[1:]))
