"""Checks the units of the oracle, oracle.Units, which are written from section 9.16 of ORDER.md
alone.

usage: python3 units_check.py vectors.json       check the vectors (testdata/order/mix-vectors.json)
       python3 units_check.py --compare < cases  answer cases, a JSON object a line, with a JSON
                                                 object a line

With vectors it prints a line for each difference and last "N epochs, M checks, K differ". Exit
codes: 0 all agrees (and after --compare), 1 something differs, 2 usage, or a file that cannot be
read. Python 3.9 or later, standard library only.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "src"))

from oracle import Order, Parameters, Table, UnitParameters, Units, choose_units, pack, split
from order_check import attempt, main


def units_of(c):
    """The units of a case."""
    more = {"affinity": c.get("affinity", "epoch"), "tail": c.get("tail", "short")}
    parameters = Parameters(int(c["key"]), c.get("shuffle", True), *(c[name] for name in "VEWH"), **more)
    order = Order(Table(c["blocks"], c["shards"]), parameters)
    return Units(order, c["lengths"], UnitParameters(c["kind"], c["size"], c["window"], c["long"]))


def listed(units):
    return [[list(item) for item in unit] for unit in units]


# ---- Vectors ----
def all_checks(v):
    for c in v["best_fit"]:
        yield f"best fit of {c['lengths']}", c["sequences"], pack(c["lengths"], c["size"])
    for i, c in enumerate(v["units"]):
        units, epoch = units_of(c), c["epoch"]
        count = units.count(epoch)
        yield f"units {i}: number", c["units"], count
        yield f"units {i}: first", c["first"], listed(units.part(epoch, 0, 5))
        yield f"units {i}: last", c["last"], listed(units.part(epoch, count - 4, 4))


def check_vectors(v):
    checks = list(all_checks(v))
    differ = [check for check in checks if check[1] != check[2]]
    for name, want, got in differ:
        print(f"{name}: the vectors have {want}, here it is {got}")
    print(f"{len(v['units'])} epochs, {len(checks)} checks, {len(differ)} differ")
    return 1 if differ else 0


# ---- --compare ----
def answer_case(c):
    if "choose" in c:
        chosen, error = attempt(
            choose_units,
            Table(c["blocks"], c["shards"], c["decoded"]),
            c["kind"],
            c["size"],
            window=c["window"],
            long=c["long"],
            **c["choose"],
        )
        return {"error": error} if error else {"chosen": [chosen[0].lanes, chosen[0].run_blocks, chosen[0].delay, chosen[1].window]}
    units, error = attempt(units_of, c)
    if units is None:
        return {"error": error}
    epoch, position, batches = c["epoch"], c["position"], []
    for step in c["steps"]:
        batch, error = attempt(units.batch, epoch, position, step["global_batch"], c["until"])
        if error:
            return {"error": error}
        if batch is None:
            break
        ranks = [listed(part) for part in split(batch.units, step["world_size"])]
        batches.append({"epoch": batch.epoch, "position": batch.position, "real": batch.real, "ranks": ranks})
        epoch, position = batch.next_epoch, batch.next_position
    return {"batches": batches, "epoch": epoch, "position": position}


if __name__ == "__main__":
    sys.exit(main(__doc__, answer_case, check_vectors, sys.argv[1:]))
