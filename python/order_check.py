"""A second implementation of the order `lane-delay/1`, from section 9 of SPEC.md alone. Plain and slow on purpose.

usage: python3 order_check.py vectors.json       check the vectors (SPEC.md 9.14)
       python3 order_check.py --compare < cases  answer cases, a JSON object a line, with a JSON object a line

With vectors it prints a line for each difference and last "N cases, M checks, K differ".
Exit codes: 0 all agrees (and after --compare), 1 something differs, 2 usage, or a file that cannot be read.
Section numbers in comments are those of SPEC.md. Python 3.9 or later, standard library only.
"""

import hashlib
import itertools
import json
import re
import sys
import zlib

U32, U64 = 2**32, 2**64
MAX_BATCH, MAX_EPOCH = 2**31 - 1, 2**32  # 9.2; epoch 2^32 with position 0 stands for "after the last"
AFFINITIES, TAILS = ("epoch", "run"), ("short", "drop", "wrap", "pad")


class Refused(Exception):
    """What the specification says must be refused."""


def demand(condition, reason):
    if not condition:
        raise Refused(reason)


def attempt(function, *arguments):
    """(the result, None), or (None, the reason of a refusal)."""
    try:
        return function(*arguments), None
    except Refused as e:
        return None, str(e)


# ---- 9.4 Random words ----
def philox(counter, key):
    """Philox4x32-10."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p, s = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (s >> 32) ^ c1 ^ k0, s % U32, (p >> 32) ^ c3 ^ k1, p % U32
        k0, k1 = (k0 + 0x9E3779B9) % U32, (k1 + 0xBB67AE85) % U32
    return c0, c1, c2, c3


def words(key, dom, lane, epoch, obj):
    """WORDS: an endless sequence of u32."""
    for block in itertools.count():
        yield from philox((block, obj, epoch, dom * 2**24 + lane), (key % U32, key // U32))


def bounded(n, sequence):
    """BOUNDED: a number of 0..n-1."""
    while True:
        m = next(sequence) * n
        if m % U32 >= (U32 - n) % n:
            return m // U32


def shuffle(values, sequence):
    """SHUFFLE, returned as a new list."""
    a = list(values)
    for i in range(len(a) - 1, 0, -1):
        j = bounded(i + 1, sequence)
        a[i], a[j] = a[j], a[i]
    return a


# ---- 9.1, 9.2 Parameters, table, limits ----
def check_parameters(p):
    """9.1. p is a dictionary with seed (an integer), shuffle, V, E, W, H, T, affinity, tail."""
    for name, low, high in (("seed", 0, U64 - 1), ("V", 1, 2**24), ("E", 0, U32 - 1), ("W", 1, U32 - 1),
                            ("H", 1, p["W"]), ("T", 0, U32 - 1)):
        demand(low <= p[name] <= high, f"{name} is out of its limits")
    demand(isinstance(p["shuffle"], bool), "shuffle is no bool")
    demand(p["shuffle"] or p["W"] == p["H"] == 1, "W or H is not 1 without shuffle")
    demand(p["affinity"] in AFFINITIES and p["tail"] in TAILS, "affinity or tail is unknown")


def check_table(blocks, shard_first_block):
    """9.2, and the shape that 9.14 gives a table."""
    demand(len(blocks) < U32 and all(0 <= n < U32 for n in blocks), "too many blocks, or samples of a block")
    demand(sum(blocks) < 2**63, "N is out of its limits")
    f = shard_first_block
    demand(len(f) > 0 and f[0] == 0 and f[-1] == len(blocks) and f == sorted(f), "shard_first_block does not fit")


def cut_runs(blocks, shard_first_block, E):
    """9.5 Runs: ranges of sample numbers in storage order, those without samples removed."""
    runs, sample = [], 0
    for begin, end in zip(shard_first_block, shard_first_block[1:]):
        size = E or max(1, end - begin)
        for b in range(begin, end, size):
            n = sum(blocks[b:min(b + size, end)])
            demand(n < U32, "a run has too many samples")
            if n > 0:
                runs.append(range(sample, sample + n))
            sample += n
    return runs


# ---- 9.5 An epoch ----
def prime_factors(v):
    """Ascending, each as often as it divides v."""
    factors, p = [], 2
    while v > 1:
        if v % p == 0:
            factors.append(p)
            v //= p
        else:
            p += 1
    return factors


def lanes_in_turn(factors, V, count):
    """9.5 Turn: for i = 0..count-1 the lane l with turn[l] = i."""
    lanes = []
    for i in range(count):
        l, w, x = 0, V, i
        for p in factors:
            w //= p
            l += x % p * w
            x //= p
        lanes.append(l)
    return lanes


def cut_arcs(pieces, lengths):
    """9.5 Lanes and slots: the line of runs, cut into arcs of these lengths; an arc is a list of slots."""
    arcs, queue = [], list(reversed(pieces))
    for length in lengths:
        slots = []
        while length > 0:
            piece = queue.pop()
            slots.append(piece[:length])
            if len(piece) > length:
                queue.append(piece[length:])
            length -= len(slots[-1])
        arcs.append(slots)
    return arcs


def order_lane(p, l, epoch, slots):
    """9.5 from Slots to Ticks: the samples of a lane in their order."""
    if not p["shuffle"]:
        return slots[0]
    seed, W, m = p["seed"], p["W"], len(slots)
    if p["affinity"] == "run" and epoch > 0:
        slots = shuffle(slots, words(seed, 1, l, epoch, 1))
    t0 = min(p["H"], W, m) - 1
    ticks = [[] for _ in range(m)]
    for q, slot in enumerate(slots):
        for u, sample in enumerate(shuffle(slot, words(seed, 2, l, epoch, q))):
            t = q + u * W // len(slot)
            ticks[min(max(t, t0), m - 1)].append(sample)
    lane = []
    for t, listed in enumerate(ticks):
        lane += shuffle(listed, words(seed, 3, l, epoch, t))
    return lane


class Order:
    """The order of a table under frozen parameters (9.1)."""

    def __init__(self, blocks, shard_first_block, parameters):
        check_parameters(parameters)
        check_table(blocks, shard_first_block)
        self.p, self.N, self.V = parameters, sum(blocks), parameters["V"]
        self.runs = cut_runs(blocks, shard_first_block, parameters["E"])
        # Only lanes with samples (9.5: lane l has some where turn[l] < N): an empty lane changes nothing.
        self.in_turn = lanes_in_turn(prime_factors(self.V), self.V, min(self.V, self.N))
        self.cache = {}

    def lanes(self, epoch):
        """9.5: lane number to its samples in their order."""
        if epoch not in self.cache:
            ascending = sorted((l, (self.N + self.V - 1 - turn) // self.V) for turn, l in enumerate(self.in_turn))
            arcs = cut_arcs(self.line(epoch), [length for _, length in ascending])
            self.cache = {epoch: {l: order_lane(self.p, l, epoch, slots) for (l, _), slots in zip(ascending, arcs)}}
        return self.cache[epoch]

    def line(self, epoch):
        """9.5 Runs, and Unshuffled: then the cuts between runs do not matter."""
        if not self.p["shuffle"]:
            return [range(self.N)]
        return shuffle(self.runs, words(self.p["seed"], 1, 0, 0 if self.p["affinity"] == "run" else epoch, 0))

    def part(self, epoch, P, n):
        """9.7: the samples at the positions P..P+n-1, lane by lane."""
        lanes = self.lanes(epoch)
        where = sorted((self.in_turn[g % self.V], g // self.V) for g in range(P, P + n))
        return [lanes[l][k] for l, k in where]

    def place(self, epoch, position):
        """9.6: position N is position 0 of the next epoch (but 9.10: position 0 stays where N is 0)."""
        inside = 0 <= epoch < MAX_EPOCH and 0 <= position <= self.N
        demand(inside or (epoch, position) == (MAX_EPOCH, 0), "the place is out of its limits")
        return (epoch + 1, 0) if position == self.N > 0 else (epoch, position)

    def batch(self, epoch, P, G, bound=MAX_EPOCH):
        """9.8: (its place, the next place, its list, how much of it is no padding); None at the end of the order."""
        demand(1 <= G <= MAX_BATCH, "the global batch is out of its limits")
        N, tail = self.N, self.p["tail"]
        demand(tail != "drop" or G <= N, "drop: a batch larger than the data set")
        if tail == "drop" and N - P < G:
            epoch, P = epoch + 1, 0
        n = min(G, N - P)
        if n == 0 or epoch >= min(bound, MAX_EPOCH) or tail == "wrap" and epoch + (P + G - 1) // N >= MAX_EPOCH:
            return None
        samples, following = self.part(epoch, P, n), self.place(epoch, P + n)
        while tail == "wrap" and len(samples) < G:
            n = min(G - len(samples), N)
            samples += self.part(following[0], 0, n)
            following = self.place(following[0], n)
        real = len(samples)
        if tail == "pad":
            samples = [samples[k % real] for k in range(G)]
        return (epoch, P), following, samples, real


def split(samples, R):
    """9.7: the parts of the ranks 0..R-1."""
    demand(R >= 1, "no ranks")
    return [samples[r * len(samples) // R:(r + 1) * len(samples) // R] for r in range(R)]


# ---- 9.3 Parameters from a shuffle memory ----
def choose_run_blocks(shards, explicit, whole_shards):
    """9.3 step 1."""
    demand(not (whole_shards and explicit), "whole shards and blocks of a run are both given")
    if whole_shards or explicit:
        return explicit  # 0 for whole shards
    E = 1
    while E < max(shards, default=0) and sum(-(-blocks // E) for blocks in shards) > 2**24:
        E *= 2
    return E


def choose_window(shards, D, E, explicit_V, M):
    """9.3 step 4 without an explicit W: V and W. The "next smaller divisors" are those of 96, as its list shows."""
    number = sum(shards) if E else len(shards)
    S = max(E, 1) * -(-D // number) if D and number else 1
    for V in [explicit_V] if explicit_V else [d for d in range(96, 0, -1) if 96 % d == 0]:
        f = M // (V * S)
        if f >= 5:
            return V, min(f - 4, 4096)
    raise Refused(f"the shuffle memory is too small: {5 * V * S} bytes would do")


def choose(c):
    """9.3. Members of c that are 0, "" or absent are not given; E = 0 is asked for as whole_shards."""
    c = {name: value for name, value in c.items() if value}
    shards, G, R = c.get("shards", []), c.get("global_batch", 0), c.get("world_size", 1)
    shuffled, V, W, H = c.get("shuffle", False), c.get("V"), c.get("W"), c.get("H")
    demand(sum(shards) < U32 and 0 <= G <= MAX_BATCH and R >= 1, "out of the limits of 9.2")
    demand(all(c.get(name, 0) >= 0 for name in ("V", "E", "W", "H", "memory")), "a negative parameter")
    E = choose_run_blocks(shards, c.get("E", 0), c.get("whole_shards"))  # step 1
    if not shuffled:  # step 2
        V, W, H = V or (96 if R > 1 else 1), W or 1, H or 1
    elif not W:  # steps 3 and 4
        V, W = choose_window(shards, c.get("decoded", 0), E, V, c.get("memory", 2**31))
    V, H = V or 96, H or min(4, W)  # steps 3 and 5
    T = min(max(1, G // V), 2**31) if G else 0  # step 6
    p = {"seed": c.get("seed", 0), "shuffle": shuffled, "V": V, "E": E, "W": W, "H": H, "T": T,
         "affinity": c.get("affinity", "epoch"), "tail": c.get("tail", "wrap" if shuffled else "short")}
    check_parameters(p)  # step 7
    return {**p, "seed": str(p["seed"])}


# ---- 9.10 Checkpoint ----
class Number(str):
    """A JSON number as it is written."""


# Printable ASCII without " \ < > &, at most 128 bytes
PRINTABLE = r"[ !#-%'-;=?-\[\]-~]{0,128}"


def checkpoint_text(p, N, place, m):
    """9.10 Writing: the plain text. m: the members that neither the parameters nor the place tell."""
    seed = str(p["seed"])
    values = {"version": 1, "algorithm": "lane-delay/1", "seed": seed, "epoch": place[0], "position": place[1]}
    values.update((name, p[name]) for name in ("shuffle", "V", "E", "W", "H", "T", "affinity", "tail"))
    values["global_batch"] = m["global_batch"]
    values["sources"] = [{"digest": m["digest"], "N": N, "weight": 1, "key": seed}]
    values.update((name, m[name]) for name in ("tables", "skip_hash", "skipped"))
    text = json.dumps(values, separators=(",", ":"))
    return f'{text[:-1]},"check":"{zlib.crc32(text.encode("ascii")):08x}"}}'


def no_duplicates(pairs):
    demand(len(dict(pairs)) == len(pairs), "a member is given twice")  # 9.10: a reader may
    return dict(pairs)


def read_integer(values, name, high):
    v = values.get(name)
    demand(isinstance(v, Number) and re.fullmatch("0|[1-9][0-9]{0,19}", v), f"{name} is missing or no integer")
    demand(int(v) <= high, f"{name} is out of its limits")
    return int(v)


def read_string(values, name, pattern):
    v = values.get(name)
    demand(type(v) is str and re.fullmatch(pattern, v), f"{name} is missing, no string or out of its limits")
    return v


def read_u64_string(values, name):
    v = int(read_string(values, name, "0|[1-9][0-9]{0,19}"))
    demand(v < U64, f"{name} is out of its limits")
    return v


def read_members(values):
    """9.10 the table: parameters, N, place, and a dictionary of the rest."""
    demand(type(values.get("sources")) is list and len(values["sources"]) == 1, "not one source")
    source = values["sources"][0]
    demand(isinstance(source, dict) and read_integer(source, "weight", 1) == 1, "no source of weight 1")
    p = {name: read_integer(values, name, U32) for name in ("V", "E", "W", "H", "T")}
    p["seed"] = read_u64_string(values, "seed")
    p["shuffle"] = values.get("shuffle")
    p["affinity"] = read_string(values, "affinity", "|".join(AFFINITIES))
    p["tail"] = read_string(values, "tail", "|".join(TAILS))
    check_parameters(p)
    demand(read_u64_string(source, "key") == p["seed"], "key is not the seed")
    m = {name: read_string(values, name, PRINTABLE) for name in ("tables", "skip_hash")}
    m["digest"] = read_string(source, "digest", PRINTABLE)
    m["global_batch"] = read_integer(values, "global_batch", MAX_BATCH)
    m["skipped"] = read_integer(values, "skipped", U64 - 1)
    place = read_integer(values, "epoch", MAX_EPOCH), read_integer(values, "position", U64)
    return p, read_integer(source, "N", 2**63 - 1), place, m


def read_checkpoint(text):
    """9.10 Reading: its members as read_members gives them, or Refused."""
    demand(len(text.encode("utf-8", "surrogatepass")) <= 16384, "longer than 16,384 bytes")
    try:
        values = json.loads(text, object_pairs_hook=no_duplicates, parse_int=Number, parse_float=Number)
    except (ValueError, RecursionError) as e:
        raise Refused(f"no JSON: {e}") from None
    demand(isinstance(values, dict), "no JSON object")
    demand(read_integer(values, "version", U64) == 1, "unknown version")  # before any other member
    demand(read_string(values, "algorithm", r"(?s:.*)") == "lane-delay/1", "unknown algorithm")
    p, N, place, m = read_members(values)
    demand(place[1] < max(N, 1) and (place[0] < MAX_EPOCH or place[1] == 0), "the position is out of its limits")
    written = json.loads(checkpoint_text(p, N, place, m))
    source, known = values["sources"][0], written["sources"][0]
    demand(set(values) == set(written) and set(source) == set(known), "members are missing or unknown")
    demand(read_string(values, "check", "[0-9a-f]{8}") == written["check"], "the check differs")
    return p, N, place, m


# ---- 9.11 Skipped samples ----
def skip_hash(pairs):
    """pairs: (shard name, number of the block in its shard)."""
    blocks = sorted({(name.encode("utf-8"), block) for name, block in pairs})
    if not blocks:
        return ""
    return hashlib.sha256(b"".join(b"%s\0%d\n" % b for b in blocks)).hexdigest()[:32]


# ---- 9.14 Vectors ----
def crc_of_samples(samples):
    return zlib.crc32(b"".join(s.to_bytes(8, "little") for s in samples))


def epoch_batches(c):
    """All global batches of a case, from position 0 to the end of its epoch."""
    p = {"seed": int(c["seed"]), "shuffle": True, "V": c["lanes"], "E": c["run_blocks"], "W": c["delay"],
         "H": c["head"], "T": 0, "affinity": c["affinity"], "tail": c["tail"]}
    order = Order(c["blocks"], c["shard_first_block"], p)
    place, batches = (c["epoch"], 0), []
    while batch := order.batch(*place, c["global_batch"], c["epoch"] + 1):
        place = batch[1]
        batches.append(batch[2])
    return batches


def case_answers(c):
    batches = epoch_batches(c) or [[]]
    parts = [split(samples, c["world_size"]) for samples in batches]
    ranks = [crc_of_samples(sum(rank, [])) for rank in zip(*parts)]
    return batches[0][:24], batches[-1][:24], crc_of_samples(sum(batches, [])), ranks


def case_checks(c):
    """Each (name, what the vectors hold, what is computed) of a case."""
    answers, refusal = attempt(case_answers, c)
    *got, ranks = answers or [refusal, refusal, refusal, []]
    for member, x in zip(("first_batch", "last_batch", "crc32_epoch"), got):
        yield f"{c['name']}: {member}", c[member], x
    for r, want in enumerate(c["crc32_ranks"]):
        yield f"{c['name']}: rank {r}", want, ranks[r] if r < len(ranks) else None


def all_checks(v):
    for e in v["philox"]:
        counter, key, out = ([int(x, 16) for x in e[m]] for m in ("counter", "key", "out"))
        yield f"philox {e['counter']}", out, list(philox(counter, key))
    w = v["words"]
    of = (int(w["key"], 16), w["dom"], w["lane"], w["epoch"], w["obj"])
    yield "words", w["first"], [x for x, _ in zip(words(*of), w["first"])]
    yield "shuffle10", v["shuffle10"], shuffle(range(10), words(*of))
    for V, turn in v["turn"].items():
        lanes = lanes_in_turn(prime_factors(int(V)), int(V), int(V))
        yield f"turn of {V}", turn, sorted(range(int(V)), key=lanes.__getitem__)
    for c in v["cases"]:
        yield from case_checks(c)


def check_vectors(v):
    checks = list(all_checks(v))
    differ = [check for check in checks if check[1] != check[2]]
    for name, want, got in differ:
        print(f"{name}: the vectors have {want}, here it is {got}")
    print(f"{len(v['cases'])} cases, {len(checks)} checks, {len(differ)} differ")
    return 1 if differ else 0


# ---- the protocol of --compare (cases.txt) ----
def answer_place(c, answer):
    """Steps and checkpoint. A step that has no batch, or is refused (9.8: drop with G > N), does not move the place."""
    p = {**c["params"], "seed": read_u64_string(c["params"], "seed")}
    order = Order(c["blocks"], c["shard_first_block"], p)
    place, steps = order.place(c.get("epoch", 0), c.get("position", 0)), []
    for step in c.get("steps", []):
        batch, _ = attempt(order.batch, *place, step["global_batch"], c.get("bound", MAX_EPOCH))
        if batch:
            at, place, samples, real = batch
            batch = {"place": at, "next": place, "real": real, "ranks": split(samples, step["world_size"])}
        steps.append(batch)
    if "steps" in c:
        answer["steps"] = steps
    if "checkpoint" in c:
        text = checkpoint_text(p, order.N, place, c["checkpoint"])
        read_checkpoint(text)  # what a reader refuses must not be written
        answer["checkpoint"] = text


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
        answer["choose"], _ = attempt(choose, c["choose"])
    if "skipped" in c:
        answer["skip_hash"] = skip_hash(c["skipped"])
    return answer


def main(arguments):
    if arguments == ["--compare"]:
        for line in sys.stdin.buffer:
            print(json.dumps(answer_case(json.loads(line)), separators=(",", ":")), flush=True)
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with open(arguments[0], encoding="utf-8") as f:
            vectors = json.load(f)
    except (OSError, ValueError) as e:
        print(f"{arguments[0]}: {e}", file=sys.stderr)
        return 2
    return check_vectors(vectors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
