#!/usr/bin/env python3
"""A second implementation of the order lane-delay/1, written from section 9 of SPEC.md and from nothing else.

    python3 python/order_check.py testdata/order/order-vectors.json    checks the vectors
    python3 python/order_check.py --compare < cases.jsonl              answers cases, for a test of another implementation

It is slow and plain on purpose: a whole epoch is laid out in memory, rule by rule. Only the standard library, Python 3.9 or
later. Exit codes: 0 all agrees, 1 something differs, 2 usage.
"""

import hashlib
import json
import struct
import sys
import zlib

ALGORITHM = "lane-delay/1"
LOW32 = 2**32 - 1
MAX_LANES = 2**24
EPOCHS = 2**32
TAILS = ("short", "drop", "wrap", "pad")
AFFINITIES = ("epoch", "run")


class Refused(Exception):
    """What the text says is refused."""


def ceil_div(a, b):
    return -(-a // b)


# 9.4 Random words


def philox(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for i in range(10):
        if i > 0:
            k0 = (k0 + 0x9E3779B9) & LOW32
            k1 = (k1 + 0xBB67AE85) & LOW32
        p = 0xD2511F53 * c0
        s = 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (s >> 32) ^ c1 ^ k0, s & LOW32, (p >> 32) ^ c3 ^ k1, p & LOW32
    return c0, c1, c2, c3


def words(key, dom, lane, epoch, obj):
    block = 0
    while True:
        yield from philox((block, obj, epoch, dom * 2**24 + lane), (key & LOW32, key >> 32))
        block += 1


def bounded(source, n):
    while True:
        m = next(source) * n
        if m % 2**32 >= (2**32 - n) % n:
            return m // 2**32


def shuffle(a, source):
    for i in range(len(a) - 1, 0, -1):
        j = bounded(source, i + 1)
        a[i], a[j] = a[j], a[i]


# 9.5 An epoch


def prime_factors(v):
    factors, p = [], 2
    while v > 1:
        while v % p == 0:
            factors.append(p)
            v //= p
        p += 1
    return factors


def make_turn(v):
    factors, turn = prime_factors(v), [0] * v
    for i in range(v):
        l, w, x = 0, v, i
        for p in factors:
            w //= p
            l += (x % p) * w
            x //= p
        turn[l] = i
    return turn


class Params:
    """The frozen parameters (9.1)."""

    def __init__(self, seed, shuffle, V, E, W, H, affinity, tail, T=0):
        self.seed, self.shuffle, self.V, self.E, self.W, self.H, self.T = seed, shuffle, V, E, W, H, T
        self.affinity, self.tail = affinity, tail
        if not (1 <= V <= MAX_LANES and 0 <= E <= LOW32 and 1 <= W <= LOW32 and 1 <= H <= W and 0 <= T <= LOW32):
            raise Refused("V, E, W, H or T out of range")
        if not shuffle and (W != 1 or H != 1):
            raise Refused("W or H without shuffling")
        if affinity not in AFFINITIES or tail not in TAILS:
            raise Refused("affinity or tail")
        if not 0 <= seed < 2**64:
            raise Refused("seed")


class Order:
    """A table and frozen parameters. shards: for each shard the samples of its blocks."""

    def __init__(self, shards, params):
        self.shards, self.p = shards, params
        self.N = sum(sum(blocks) for blocks in shards)
        self.turn = make_turn(params.V)
        self.epochs = {}

    def runs(self):
        runs, number = [], 0
        for blocks in self.shards:
            size = self.p.E or max(len(blocks), 1)
            for first in range(0, len(blocks), size):
                samples = sum(blocks[first : first + size])
                if samples > LOW32:
                    raise Refused("a run of 2^32 samples")
                if samples > 0:
                    runs.append(range(number, number + samples))
                number += samples
        return runs

    def lane_length(self, l):
        return (self.N + self.p.V - 1 - self.turn[l]) // self.p.V

    def slots(self, epoch):
        """The slots of each lane, as ranges of sample numbers."""
        p, runs = self.p, self.runs()
        if p.shuffle:
            shuffle(runs, words(p.seed, 1, 0, 0 if p.affinity == "run" else epoch, 0))
        lanes, run, used = [], 0, 0
        for l in range(p.V):
            left, slots = self.lane_length(l), []
            while left > 0:
                piece = runs[run][used : used + left]
                slots.append(piece)
                left -= len(piece)
                used += len(piece)
                if used == len(runs[run]):
                    run, used = run + 1, 0
            if p.shuffle and p.affinity == "run" and epoch > 0:
                shuffle(slots, words(p.seed, 1, l, epoch, 1))
            lanes.append(slots)
        return lanes

    def lane(self, l, epoch, slots):
        p, m = self.p, len(slots)
        if m == 0:
            return []
        t0 = min(p.H, p.W, m) - 1
        ticks = [[] for _ in range(m)]
        for q, piece in enumerate(slots):
            samples = list(piece)
            if p.shuffle:
                shuffle(samples, words(p.seed, 2, l, epoch, q))
            for u, x in enumerate(samples):
                ticks[min(max(q + u * p.W // len(samples), t0), m - 1)].append(x)
        out = []
        for t, tick in enumerate(ticks):
            if p.shuffle:
                shuffle(tick, words(p.seed, 3, l, epoch, t))
            out += tick
            if len(out) != self.through(slots, t0, t):
                raise AssertionError("9.6: lane %d has %d samples through tick %d" % (l, len(out), t))
        return out

    def through(self, slots, t0, t):
        """S(t) of 9.6."""
        m, w = len(slots), self.p.W
        if t == m - 1:
            return sum(len(s) for s in slots)
        if t < t0:
            return 0
        whole = sum(len(s) for s in slots[: max(t - w + 2, 0)])
        return whole + sum(ceil_div((t - q + 1) * len(slots[q]), w) for q in range(max(t - w + 2, 0), t + 1))

    def lanes(self, epoch):
        if epoch not in self.epochs:
            slots = self.slots(epoch)
            self.epochs[epoch] = [self.lane(l, epoch, s) for l, s in enumerate(slots)]
        return self.epochs[epoch]

    # 9.6, 9.7

    def count(self, x, l):
        return x // self.p.V + (1 if self.turn[l] < x % self.p.V else 0)

    def place(self, epoch, position):
        if not 0 <= position <= self.N:
            raise Refused("position")
        if self.N > 0 and position == self.N:
            epoch, position = epoch + 1, 0
        if epoch > EPOCHS or (epoch == EPOCHS and position > 0):
            raise Refused("epoch")
        return epoch, position

    def part(self, epoch, position, n):
        lanes, out = self.lanes(epoch), []
        for l in range(self.p.V):
            out += lanes[l][self.count(position, l) : self.count(position + n, l)]
        return out

    # 9.8

    def check_batch(self, g):
        if not 1 <= g < 2**31:
            raise Refused("global batch")
        if self.p.tail == "drop" and g > self.N:
            raise Refused("global batch above N with drop")

    def batch(self, epoch, position, g, bound=EPOCHS):
        """None at the end, else (place, next place, list, how many of the list are no padding)."""
        self.check_batch(g)
        n, tail = self.N, self.p.tail
        if n == 0:
            return None
        if tail == "drop" and n - position < g:
            epoch, position = epoch + 1, 0
        if epoch >= min(bound, EPOCHS):
            return None
        place, left = (epoch, position), n - position
        if tail == "wrap" and g > left and epoch + ceil_div(g - left, n) > EPOCHS - 1:
            return None
        out = self.part(epoch, position, min(g, left))
        real = len(out)
        if tail == "pad":
            for k in range(real, g):
                out.append(out[k % real])
        epoch, position = self.place(epoch, position + real)
        while tail == "wrap" and len(out) < g:
            more = self.part(epoch, 0, min(g - len(out), n))
            out += more
            real += len(more)
            epoch, position = self.place(epoch, len(more))
        return place, (epoch, position), out, real


def share(length, r, world):
    return r * length // world, (r + 1) * length // world


# 9.3 Parameters from a shuffle memory


def choose(shards, decoded, c):
    """shards: blocks of each shard. c: what the user gave; a member missing or 0 was not given."""
    p = {"seed": c.get("seed", 0), "shuffle": c["shuffle"]}
    v, e, w, h = (c.get(name, 0) for name in "VEWH")
    if c.get("whole_shards"):
        if e:
            raise Refused("whole shards and E")
    elif e == 0:
        e = 1
        while e < max(shards, default=0) and sum(ceil_div(n, e) for n in shards) > 2**24:
            e *= 2
    if not p["shuffle"]:
        v = v or (96 if c.get("world_size", 0) > 1 else 1)
        w, h = w or 1, h or 1
    else:
        fixed, v = v != 0, v or 96
        if w == 0:
            parts = len(shards) if e == 0 else sum(shards)
            size = max(e, 1) * ceil_div(decoded, parts) if decoded and parts else 1
            fit = (c.get("memory", 0) or 2**31) // size
            while fit // v < 5 and not fixed and v > 1:
                v = next(d for d in range(v - 1, 0, -1) if v % d == 0)
            if fit // v < 5:
                raise Refused("shuffle memory: at least %d bytes" % (5 * v * size))
            w = min(fit // v - 4, 4096)
        h = h or min(4, w)
    g = c.get("global_batch", 0)
    return Params(
        p["seed"], p["shuffle"], v, e, w, h, c.get("affinity") or "epoch", c.get("tail") or "wrap",
        min(max(1, g // v), 2**31) if g > 0 else 0,
    )


# 9.10 Checkpoint

MEMBERS = (
    "version", "algorithm", "seed", "epoch", "position", "shuffle", "V", "E", "W", "H", "T", "affinity", "tail",
    "global_batch", "sources", "tables", "skip_hash", "skipped",
)
SOURCE_MEMBERS = ("digest", "N", "weight", "key")


def plain_text(c):
    ordered = {name: c[name] for name in MEMBERS}
    ordered["sources"] = [{name: s[name] for name in SOURCE_MEMBERS} for s in c["sources"]]
    return json.dumps(ordered, separators=(",", ":"))


def write_checkpoint(c):
    text = plain_text(c)
    check = "%08x" % zlib.crc32(text.encode("ascii"))
    return text[:-1] + ',"check":"' + check + '"}'


def read_checkpoint(text):
    if len(text) > 16384:
        raise Refused("too long")

    def once(pairs):
        if len(dict(pairs)) != len(pairs):
            raise Refused("a member twice")
        return dict(pairs)

    def no_float(_):
        raise Refused("not an integer")

    def integer(digits):
        if digits.startswith("-"):
            raise Refused("negative")
        return int(digits)

    try:
        c = json.loads(text, object_pairs_hook=once, parse_int=integer, parse_float=no_float, parse_constant=no_float)
    except (ValueError, RecursionError) as e:
        raise Refused("not JSON: %s" % e) from e
    if not isinstance(c, dict):
        raise Refused("no object")
    if type(c.get("version")) is not int or c["version"] != 1:
        raise Refused("version %r" % c.get("version"))
    if c.get("algorithm") != ALGORITHM:
        raise Refused("algorithm %r" % c.get("algorithm"))
    if set(c) != set(MEMBERS) | {"check"}:
        raise Refused("members")
    src = c["sources"]
    if type(src) is not list or len(src) != 1 or type(src[0]) is not dict or set(src[0]) != set(SOURCE_MEMBERS):
        raise Refused("sources")
    src = src[0]

    def integers(have, **limits):
        for name, top in limits.items():
            if type(have[name]) is not int or not 0 <= have[name] <= top:
                raise Refused(name)

    def names(have, *which):
        for name in which:
            s = have[name]
            if type(s) is not str or len(s) > 128 or any(not " " <= x <= "~" or x in '"\\<>&' for x in s):
                raise Refused(name)

    integers(c, epoch=EPOCHS, position=2**63 - 1, V=MAX_LANES, E=LOW32, W=LOW32, H=LOW32, T=LOW32,
             global_batch=2**31 - 1, skipped=2**64 - 1)
    integers(src, N=2**63 - 1, weight=1)
    names(c, "tables", "skip_hash", "check", "seed", "affinity", "tail")
    names(src, "digest", "key")
    if type(c["shuffle"]) is not bool:
        raise Refused("shuffle")
    if not c["seed"].isdigit() or str(int(c["seed"])) != c["seed"]:
        raise Refused("seed")
    if src["key"] != c["seed"] or src["weight"] != 1:
        raise Refused("key or weight")
    if c["position"] > 0 and (c["position"] >= src["N"] or c["epoch"] == EPOCHS):
        raise Refused("position")
    Params(int(c["seed"]), c["shuffle"], c["V"], c["E"], c["W"], c["H"], c["affinity"], c["tail"], c["T"])
    if c["check"] != "%08x" % zlib.crc32(plain_text(c).encode("ascii")):
        raise Refused("check")
    return c


# 9.11 Skipped samples


def skip_hash(blocks):
    """blocks: (shard name, block number)."""
    if not blocks:
        return ""
    text = b"".join(b"%s\0%d\n" % (s, b) for s, b in sorted({(s.encode(), b) for s, b in blocks}))
    return hashlib.sha256(text).hexdigest()[:32]


# 9.14 Vectors


def crc(numbers):
    return zlib.crc32(struct.pack("<%dQ" % len(numbers), *numbers))


def cut_shards(blocks, first):
    ends = first[1:] + [len(blocks)]
    return [blocks[a:b] for a, b in zip(first, ends)]


def check_vectors(path):
    with open(path, encoding="utf-8") as f:
        v = json.load(f)
    checks, faults = 0, []

    def equal(what, got, want):
        nonlocal checks
        checks += 1
        if got != want:
            faults.append("%s: got %s, want %s" % (what, got, want))

    def hexes(texts):
        return tuple(int(x, 16) for x in texts)

    for x in v["philox"]:
        equal("philox of %s" % x["counter"], philox(hexes(x["counter"]), hexes(x["key"])), hexes(x["out"]))
    x = v["words"]
    start = [int(x["key"], 16), x["dom"], x["lane"], x["epoch"], x["obj"]]
    source = words(*start)
    equal("words", [next(source) for _ in x["first"]], x["first"])
    ten = list(range(10))
    shuffle(ten, words(*start))
    equal("shuffle10", ten, v["shuffle10"])
    for n, want in v["turn"].items():
        equal("turn of %s" % n, make_turn(int(n)), want)
    for c in v["cases"]:
        params = Params(int(c["seed"]), True, c["lanes"], c["run_blocks"], c["delay"], c["head"], c["affinity"], c["tail"])
        order = Order(cut_shards(c["blocks"], c["shard_first_block"]), params)
        batches, place = [], (c["epoch"], 0)
        while True:
            b = order.batch(*place, c["global_batch"], c["epoch"] + 1)
            if b is None:
                break
            place = b[1]
            batches.append(b[2])
        name = c["name"]
        equal(name + ": first batch", batches[0][:24], c["first_batch"])
        equal(name + ": last batch", batches[-1][:24], c["last_batch"])
        equal(name + ": epoch", crc(sum(batches, [])), c["crc32_epoch"])
        for r, want in enumerate(c["crc32_ranks"]):
            mine = []
            for b in batches:
                low, high = share(len(b), r, c["world_size"])
                mine += b[low:high]
            equal("%s: rank %d of %d" % (name, r, c["world_size"]), crc(mine), want)
    for fault in faults:
        print(fault)
    print("%d cases, %d checks, %d differ" % (len(v["cases"]), checks, len(faults)))
    return 1 if faults or checks == 0 else 0


# Comparing with another implementation, a JSON object a line in and out


def answer(case):
    """Members of a case: blocks and shard_first_block as in the vectors; params; epoch, position, bound; steps, each with
    global_batch and world_size; checkpoint, the members of one that params and place do not tell; read, texts to
    read as checkpoints; choose, with shards, decoded and what the user gave; skipped, pairs of shard and block. All but the
    first three are optional. A member of the answer is null where the case is refused."""
    out = {}
    if "params" in case:
        p = dict(case["params"])
        p["seed"] = int(p["seed"])
        order = Order(cut_shards(case["blocks"], case["shard_first_block"]), Params(**p))
        place, out["steps"] = order.place(case["epoch"], case["position"]), []
        for step in case["steps"]:
            b = order.batch(*place, step["global_batch"], case.get("bound", EPOCHS))
            if b is None:
                out["steps"].append(None)
                continue
            at, place, numbers, real = b
            parts = [share(len(numbers), r, step["world_size"]) for r in range(step["world_size"])]
            out["steps"].append({"place": at, "next": place, "real": real, "ranks": [numbers[a:z] for a, z in parts]})
        if "checkpoint" in case:
            more = case["checkpoint"]
            c = dict(p, version=1, algorithm=ALGORITHM, seed=str(p["seed"]), epoch=place[0], position=place[1])
            c["sources"] = [{"digest": more["digest"], "N": order.N, "weight": 1, "key": c["seed"]}]
            for name in ("global_batch", "tables", "skip_hash", "skipped"):
                c[name] = more[name]
            out["checkpoint"] = write_checkpoint(c)
            read_checkpoint(out["checkpoint"])
    if "read" in case:
        out["read"] = []
        for text in case["read"]:
            try:
                read_checkpoint(text)
                out["read"].append("")
            except Refused as e:
                out["read"].append(str(e))
    if "choose" in case:
        asked = dict(case["choose"])
        try:
            p = choose(asked["shards"], asked["decoded"], asked)
            out["choose"] = dict(vars(p), seed=str(p.seed))
        except Refused:
            out["choose"] = None
    if "skipped" in case:
        out["skip_hash"] = skip_hash(case["skipped"])
    return out


def main(arguments):
    if sys.version_info < (3, 9):
        print("order_check: this is Python %s, it needs 3.9 or later" % sys.version.split()[0], file=sys.stderr)
        return 2
    if arguments == ["--compare"]:
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), flush=True)
        return 0
    if len(arguments) == 1 and not arguments[0].startswith("-"):
        return check_vectors(arguments[0])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
