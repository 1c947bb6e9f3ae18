"""Checks the oracle of the order in python/oracle, which is written from ORDER.md alone.

usage: python3 order_check.py vectors.json       check the vectors (9.14)
       python3 order_check.py --compare < cases  answer cases, a JSON object a line, with a JSON
                                                 object a line

With vectors it prints a line for each difference and last "N cases, M checks, K differ". Exit
codes: 0 all agrees (and after --compare), 1 something differs, 2 usage, or a file that cannot be
read. Python 3.9 or later, standard library only.
"""

import itertools
import json
import pathlib
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "src"))

from oracle import Order, Parameters, Table, choose, read_checkpoint, skip_hash, split
from oracle.order import lanes_in_turn
from oracle.parameters import MAX_EPOCH
from oracle.words import philox, shuffle, words
from shardtool.errors import ShardtoolError


def attempt(function, *arguments, **named):
    """(the result, None), or (None, the reason of a refusal)."""
    try:
        return function(*arguments, **named), None
    except ShardtoolError as e:
        return None, str(e)


# ---- 9.14 Vectors ----
def crc_of_samples(samples):
    return zlib.crc32(b"".join(s.to_bytes(8, "little") for s in samples))


def joined(lists):
    return list(itertools.chain.from_iterable(lists))


def case_answers(c):
    """The members that a case has, for all global batches from position 0 to the end of its
    epoch."""
    p = Parameters(int(c["seed"]), True, c["lanes"], c["run_blocks"], c["delay"], c["head"], 0, c["affinity"], c["tail"])
    order = Order(Table(c["blocks"], c["shard_first_block"]), p)
    batches = [batch.samples for batch in order.batches(c["global_batch"], epoch=c["epoch"])] or [[]]
    ranks = [crc_of_samples(joined(parts)) for parts in zip(*(split(samples, c["world_size"]) for samples in batches))]
    return batches[0][:24], batches[-1][:24], crc_of_samples(joined(batches)), ranks


def case_checks(c):
    """Yields (name, value in the vectors, value computed) for a case."""
    answers, refusal = attempt(case_answers, c)
    *got, ranks = answers or [refusal, refusal, refusal, []]
    for member, x in zip(("first_batch", "last_batch", "crc32_epoch"), got):
        yield f"{c['name']}: {member}", c[member], x
    for r, want in enumerate(c["crc32_ranks"]):
        yield f"{c['name']}: rank {r}", want, ranks[r] if r < len(ranks) else None


def choice_checks(c):
    """What is chosen for a table (9.3); None for a refusal."""
    got = answer_choose(c["choose"])
    yield c["name"], c["want"], got and {name: got[name] for name in "VEWH"}


def all_checks(v):
    for c in v.get("choices", []):
        yield from choice_checks(c)
    if "philox" not in v:
        return
    for e in v["philox"]:
        counter, key, out = ([int(x, 16) for x in e[m]] for m in ("counter", "key", "out"))
        yield f"philox {e['counter']}", out, list(philox(counter, key))
    w = v["words"]
    of = (int(w["key"], 16), w["dom"], w["lane"], w["epoch"], w["obj"])
    yield "words", w["first"], [x for x, _ in zip(words(*of), w["first"])]
    yield "shuffle10", v["shuffle10"], shuffle(range(10), words(*of))
    for lanes, turn in v["turn"].items():
        yield f"turn of {lanes}", turn, sorted(range(int(lanes)), key=lanes_in_turn(int(lanes), int(lanes)).__getitem__)
    for c in v["cases"]:
        yield from case_checks(c)


def check_vectors(v):
    checks = list(all_checks(v))
    differ = [check for check in checks if check[1] != check[2]]
    for name, want, got in differ:
        print(f"{name}: the vectors have {want}, here it is {got}")
    print(f"{len(v.get('cases', v.get('choices')))} cases, {len(checks)} checks, {len(differ)} differ")
    return 1 if differ else 0


# ---- --compare ----
def answer_place(c, answer):
    """Steps and checkpoint. A step that has no batch, or is refused (9.8: drop with G > N), does
    not move the place."""
    p = c["params"]
    parameters = Parameters(int(p["seed"]), *(p[name] for name in ("shuffle", "V", "E", "W", "H", "T", "affinity", "tail")))
    about = c.get("checkpoint", {})
    order = Order(Table(c["blocks"], c["shard_first_block"], digest=about.get("digest", ""), tables=about.get("tables", "")), parameters)
    place, steps = order.place(c.get("epoch", 0), c.get("position", 0)), []
    for step in c.get("steps", []):
        batch, _ = attempt(order.batch, *place, step["global_batch"], c.get("bound", MAX_EPOCH))
        if batch:
            place = batch[2:4]
            batch = {"place": batch[:2], "next": place, "real": batch.real, "ranks": split(batch.samples, step["world_size"])}
        steps.append(batch)
    if "steps" in c:
        answer["steps"] = steps
    if "checkpoint" in c:
        answer["checkpoint"] = order.checkpoint(
            *place, about["global_batch"], skip_hash=about["skip_hash"], skipped=about["skipped"]
        ).text()


def answer_choose(c):
    """Members of c that are 0, "" or absent are not given."""
    names = {"V": "lanes", "E": "run_blocks", "W": "delay", "H": "head", "memory": "shuffle_memory"}
    given = {names.get(name, name): value for name, value in c.items() if name not in ("shards", "samples", "decoded")}
    table = Table((c.get("samples", 0),), [0, *itertools.accumulate(c["shards"])], c["decoded"])
    chosen, _ = attempt(choose, table, **given)
    if chosen is None:
        return None
    return dict(zip(("seed", "shuffle", "V", "E", "W", "H", "T", "affinity", "tail"), (str(chosen.seed), *chosen[1:])))


def answer_case(c):
    """A case whose parameters, table or place are refused gets the member "error"."""
    answer = {}
    if "steps" in c or "checkpoint" in c:
        _, refusal = attempt(answer_place, c, answer)
        if refusal:
            answer["error"] = refusal
    if "read" in c:
        answer["read"] = [attempt(read_checkpoint, text)[1] or "" for text in c["read"]]
    if "choose" in c:
        answer["choose"] = answer_choose(c["choose"])
    if "skipped" in c:
        answer["skip_hash"] = skip_hash(c["skipped"])
    return answer


def main(doc, answer_case, check_vectors, arguments):
    """Runs the command that ``doc`` describes, and returns the exit code."""
    if arguments == ["--compare"]:
        for line in sys.stdin.buffer:
            print(json.dumps(answer_case(json.loads(line)), separators=(",", ":")), flush=True)
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(doc, file=sys.stderr)
        return 2
    try:
        with open(arguments[0], encoding="utf-8") as f:
            vectors = json.load(f)
    except (OSError, ValueError) as e:
        print(f"{arguments[0]}: {e}", file=sys.stderr)
        return 2
    return check_vectors(vectors)


if __name__ == "__main__":
    sys.exit(main(__doc__, answer_case, check_vectors, sys.argv[1:]))
