"""Checks the mixes of the oracle, oracle.Mix, which are written from sections 9.13, 9.15 and 9.16
of ORDER.md alone.

usage: python3 mix_check.py vectors.json       check the vectors (testdata/order/mix-vectors.json)
       python3 mix_check.py --compare < cases  answer cases, a JSON object a line, with a JSON
                                               object a line

With vectors it prints a line for each difference and last "N mixes, M checks, K differ".
Exit codes: 0 all agrees (and after --compare), 1 something differs, 2 usage, or a file that cannot
be read. Python 3.9 or later, standard library only.
"""

import hashlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "src"))

from fractions import Fraction

from oracle import (
    Classed,
    Mix,
    MixCheckpoint,
    MixSource,
    Need,
    Order,
    Parameters,
    Subset,
    Table,
    UnitParameters,
    Units,
    Weighted,
    divide,
    parse_share,
    per_token,
    quantize,
    read_mix_checkpoint,
    sample_seed,
    source_key,
    split,
    temperature_share,
)
from oracle.mix import MAX_EPOCH, MAX_POSITION, split_tree, tree_counts
from order_check import attempt, main


def view_of(v):
    """The view of a source of a case, or None."""
    if not v:
        return None
    if v.get("classes"):
        return Classed(v["weights"], v["classes"], v["draws"])
    return Subset(v["subset"]) if v.get("subset") is not None else Weighted(v["weights"], v["draws"])


def mix_of(c):
    """The mix of a case, and the tables of its sources."""
    sources, tables = [], []
    for s in c["sources"]:
        tables.append(Table(s["blocks"], s["shards"], view=view_of(s.get("view"))))
        parameters = Parameters(0, True, s["V"], s["E"], s["W"], s["H"], affinity=s["affinity"])
        made = MixSource(s["name"], tables[-1].samples, parameters, s.get("digest", ""), "", s["max_epochs"] or MAX_EPOCH)
        sources.append(made._replace(view=s.get("view_id", "")))
        if s.get("units"):
            u = s["units"]
            unit = UnitParameters(u["kind"], u["size"], u["window"], u["long"])
            packed = b"".join(n.to_bytes(4, "little") for n in u["lengths"])
            sources[-1] = sources[-1]._replace(unit=unit, by=u["by"], lengths=hashlib.sha256(packed).hexdigest()[:32])
    mix = Mix(sources, c["segments"], int(c.get("epoch", MAX_POSITION - 1)), int(c["seed"]), True, c.get("tail", "short"))
    for i, s in enumerate(c["sources"]):
        if s.get("units"):
            line = Units(Order(tables[i], mix.parameters(i)), s["units"]["lengths"], sources[i].unit)
            sources[i] = sources[i]._replace(line=line, samples=line.count(0))
    mix.check()
    return mix, tables


def orders_of(mix, tables):
    return [Order(table, mix.parameters(i)) for i, table in enumerate(tables)]


# ---- Vectors ----
def mix_checks(i, c):
    """Yields (name, value in the vectors, value computed) for a mix."""
    mix, tables = mix_of(c)
    for position, counts in c["counts_at"]:
        yield f"mix {i}: counts at {position}", counts, mix.counts(position)
    if c["end"] is not None:
        yield f"mix {i}: end", c["end"], mix.end()
    orders = orders_of(mix, tables)
    for b in c["batches"]:
        entries = [list(entry) for entry in mix.batch(orders, b["position"], b["size"]).samples]
        parts = split(entries, b["ranks"])
        yield f"mix {i}: batch at {b['position']}", b["entries"], entries
        yield f"mix {i}: ranks at {b['position']}", b["rank_sizes"], [len(part) for part in parts]
        yield f"mix {i}: last rank at {b['position']}", b["last_rank"], list(parts[-1])


def counts_of(weights, position):
    given = dict(tree_counts(split_tree(weights), position))
    return [given.get(s, 0) for s in range(len(weights))]


def all_checks(v):
    for c in v["source_key"]:
        yield f"key of {c['name']}", int(c["key"]), source_key(int(c["seed"]), c["name"])
    for c in v["tree"]:
        weights = c["weights"]
        first = [counts_of(weights, q) for q in range(len(c["first"]) + 1)]
        yield f"weights {weights}", c["first"], [[b > a for a, b in zip(*pair)].index(True) for pair in zip(first, first[1:])]
        for position, given in c["counts_at"]:
            yield f"weights {weights}: counts at {position}", given, counts_of(weights, position)
    for i, c in enumerate(v["mix"]):
        yield from mix_checks(i, c)
    for c in v["quantize"]:
        yield f"quantize {c['shares']}", c["weights"], quantize([parse_share(x) for x in c["shares"]])
    for c in v["temperature"]:
        yield f"temperature {c['p']}/{c['q']}", int(c["share"]), temperature_share(c["n"], c["p"], c["q"])
    for c in v["sample_seed"]:
        yield f"seed of {c['number']}", int(c["seed"]), sample_seed(int(c["key"]), c["epoch"], c["number"], c["draw"])


def check_vectors(v):
    checks = list(all_checks(v))
    differ = [check for check in checks if check[1] != check[2]]
    for name, want, got in differ:
        print(f"{name}: the vectors have {want}, here it is {got}")
    print(f"{len(v['mix'])} mixes, {len(checks)} checks, {len(differ)} differ")
    return 1 if differ else 0


# ---- --compare ----
def answer_mix(c):
    mix, tables = mix_of(c)
    answer = {"end": str(mix.end()), "lengths": [str(attempt(mix.length, rule)[0] or 0) for rule in ("first", "all")]}
    asked = None
    if "change" in c:
        asked, their_tables = mix_of(dict(c, **c["change"]))
    position, batches = 0, []
    orders = orders_of(mix, tables)
    for k, step in enumerate(c["steps"]):
        if asked and k == len(c["steps"]) // 2 and position < MAX_POSITION:
            mine = {**dict(zip((s.name for s in mix.sources), tables)), **dict(zip((s.name for s in asked.sources), their_tables))}
            mix = mix.change(position, asked)
            mix.check()
            orders = orders_of(mix, [mine[s.name] for s in mix.sources])
        for weights in step.get("weights") or ():  # set before the batch, in mid-run
            mix = mix.steer(position, quantize([parse_share(x) for x in weights]))
            mix.check()
        batch, _ = attempt(mix.batch, orders, position, step["global_batch"], left_out=c["left_out"])
        if batch is None:
            batches.append(None)
            continue
        position = batch.next_position
        ranks = [[list(entry) for entry in part] for part in split(batch.samples, step["world_size"])]
        batches.append({"position": batch.position, "next": position, "real": batch.real, "ranks": ranks})
    more = {"global_batch": 5, "step": 3, "step_position": 2, "left_out": c["left_out"], "skip_hash": "ab", "skipped": 2**64 - 1}
    answer.update(batches=batches, checkpoint=MixCheckpoint.at(mix, position, **more).text())
    return answer


def answer_case(c):
    answer = answer_mix(c) if "sources" in c else {}
    if "read" in c:
        answer["read"] = [attempt(read_mix_checkpoint, text)[1] or "" for text in c["read"]]
    if "shares" in c:
        shares = [attempt(parse_share, text)[0] for text in c["shares"]]
        if "tokens" in c:
            shares = [None if x is None else attempt(per_token, x, *n)[0] for x, n in zip(shares, c["tokens"])]
        answer["weights"] = None if None in shares else attempt(quantize, shares)[0]
    if "temperature" in c:
        answer["share"] = str(temperature_share(*c["temperature"]))
    if "needs" in c:
        needs = [Need(n[0], n[1], Fraction(n[2], n[3]), n[4]) for n in c["needs"]]
        answer["parts"] = attempt(divide, c["memory"], needs)[0]
    return answer


if __name__ == "__main__":
    sys.exit(main(__doc__, answer_case, check_vectors, sys.argv[1:]))
