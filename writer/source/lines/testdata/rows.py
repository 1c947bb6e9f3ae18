"""Makes files of rows that are hard to read, and checks what was read of them against Python's json and csv.

    rows.py make DIR SEED     writes DIR/rows.jsonl and DIR/rows-N.csv
    rows.py check DIR         reads them again, and DIR/<name>.out: for each sample or bad row a line
                              {"line": n, "fields": {name: base64}} or {"line": n, "error": text}
"""

import ast, base64, csv, io, json, os, random, struct, sys

WORDS = ["", "a", "é", "😀", '"', "\\", "\n", "\r\n", "\t", ",", "\x00", "\x7f", "\u2028", "null", "1", "-0", "日本", "'", "{", "]", " x "]


def text(rng):
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(6)))


def value(rng, depth=0):
    kind = rng.randrange(12 if depth < 4 else 7)
    if kind < 2:
        return text(rng)
    if kind == 2:
        return rng.choice([0, 1, -1, 2**31, -(2**63), 2**63 - 1, 2**63, 10**30, rng.randrange(-1000, 1000)])
    if kind == 3:
        return rng.choice([0.0, -0.0, 1e300, 5e-324, 0.1, rng.random(), -1e22])
    if kind < 6:
        return rng.choice([True, False])
    if kind == 6:
        return None
    if kind < 10:
        same = rng.choice([None, lambda: rng.randrange(100), lambda: rng.random(), lambda: rng.choice([True, False])])
        if same and rng.random() < 0.5:
            n, m = rng.randrange(4), rng.randrange(4)
            return [[same() for _ in range(m)] for _ in range(n)]
        return [same() if same else value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {text(rng): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def make(folder, seed):
    rng = random.Random(seed)
    with open(os.path.join(folder, "rows.jsonl"), "wb") as f:
        for _ in range(3000):
            row = {rng.choice(["k", "label", "é", "a b", "x.jpg", "npy"]) + str(i): value(rng) for i in range(rng.randrange(5))}
            line = json.dumps(row, ensure_ascii=rng.random() < 0.5, separators=rng.choice([(",", ":"), (", ", ": "), (" ,\t", " : ")]))
            line = bytearray(line.encode())
            if rng.random() < 0.3:  # damage
                for _ in range(rng.randrange(1, 3)):
                    at = rng.randrange(len(line)) if line else 0
                    what = rng.randrange(4)
                    if what == 0 and line:
                        del line[at]
                    elif what == 1:
                        line.insert(at, rng.choice(b'"\\{}[],:0-.eEu\x80\xff\x01 \t'))
                    elif what == 2 and line:
                        line[at] ^= 1 << rng.randrange(8)
                    else:
                        line[at:at] = rng.choice([b"\\ud800", b"\\ude00", b"\\ud83d\\ude00", b"NaN", b"\\u00", b",\"k0\":1"])
            f.write(bytes(line).replace(b"\n", b"") + rng.choice([b"\n", b"\n", b"\r\n", b"\n\n"]))
    for n in range(8):
        quoting = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC][n % 3]
        with open(os.path.join(folder, f"rows-{n}.csv"), "w", newline="", encoding="utf-8-sig" if n % 2 else "utf-8") as f:
            w = csv.writer(f, quoting=quoting, lineterminator=rng.choice(["\n", "\r\n"]))
            columns = ["first", "sec,ond", 'th"ird', "label"][: n % 4 + 1]
            w.writerow(columns)
            for _ in range(500):
                w.writerow([text(rng) if rng.random() < 0.8 else rng.randrange(-9, 9) for _ in columns])


class Number(str):
    """A number as it stands in the file."""


class Integer(Number):
    pass


class Pairs(list):
    """An object."""


def refuse(word):
    raise ValueError(word)


def parse(line):
    line.decode("utf-8")
    row = json.loads(line.decode("utf-8"), parse_int=Integer, parse_float=Number, parse_constant=refuse, object_pairs_hook=Pairs)
    if not isinstance(row, Pairs):
        raise ValueError("no object")
    names = [k for k, _ in row]
    if len(set(names)) < len(names):
        raise ValueError("a member twice")
    for k, v in row:
        k.encode()
        if type(v) is str:
            v.encode()
    return row


def shape(v):
    """The dimensions of a list of numbers or of truth values, None where it is none."""
    if not isinstance(v, list) or isinstance(v, Pairs):
        return ()
    if not v:
        return None
    inner = {shape(x) for x in v}
    if len(inner) > 1 or None in inner:
        return None
    return (len(v),) + inner.pop()


def flat(v):
    return [y for x in v for y in flat(x)] if isinstance(v, list) and not isinstance(v, Pairs) else [v]


def array(v):
    """The dtype, shape and numbers of a list that becomes an array."""
    dims, leaves = shape(v), flat(v)
    if not dims or not leaves:
        return None
    if all(isinstance(x, bool) for x in leaves):
        return "|b1", dims, leaves
    if not all(isinstance(x, Number) for x in leaves):
        return None
    if any(isinstance(x, Integer) and not -(2**63) <= int(x) < 2**63 for x in leaves):
        return None
    if all(isinstance(x, Integer) for x in leaves):
        return "<i8", dims, [int(x) for x in leaves]
    numbers = [float(x) for x in leaves]
    return None if any(x in (float("inf"), float("-inf")) for x in numbers) else ("<f8", dims, numbers)


def read_array(data):
    assert data[:8] == b"\x93NUMPY\x01\x00"
    (n,) = struct.unpack("<H", data[8:10])
    assert (10 + n) % 64 == 0
    head = ast.literal_eval(data[10 : 10 + n].decode())
    assert head["fortran_order"] is False
    code = {"|b1": "?", "<i8": "q", "<f8": "d"}[head["descr"]]
    count = 1
    for d in head["shape"]:
        count *= d
    return head["descr"], head["shape"], list(struct.unpack(f"<{count}{code}", data[10 + n :]))


def name(base, ext):
    if base == "npy":
        return "json" if ext == "json" else base
    return base if "." in base else f"{base}.{ext}"


def check_row(row, fields):
    want = 0
    for k, v in row:
        if v is None:
            continue
        want += 1
        if isinstance(v, list):
            a = None if isinstance(v, Pairs) else array(v)
            data = fields[name(k, "npy" if a else "json")]
            if a:
                assert repr(read_array(data)) == repr(a), (read_array(data), a)
            else:
                again = json.loads(data, parse_int=Integer, parse_float=Number, object_pairs_hook=Pairs)
                assert again == v and type(again) is type(v), (data, v)
        elif isinstance(v, bool):
            assert fields[name(k, "txt")] == (b"true" if v else b"false")
        else:
            assert fields[name(k, "cls" if k == "label" and type(v) is Integer else "txt")] == v.encode(), (k, v, fields)
    assert want == len(fields), (row, fields)
    return want


def results(path):
    with open(path + ".out") as f:
        for line in f:
            out = json.loads(line)
            if "fields" in out:
                out["fields"] = {k: base64.b64decode(v) for k, v in out["fields"].items()}
            yield out["line"], out


def check(folder):
    path = os.path.join(folder, "rows.jsonl")
    got, good, bad = dict(results(path)), 0, 0
    with open(path, "rb") as f:
        for n, line in enumerate(f.read().split(b"\n"), 1):
            if not line.strip(b" \t\r"):
                assert n not in got, (n, line)
                continue
            try:
                row = parse(line)
                if all(v is None for _, v in row) or any("/" in k or "\0" in k for k, _ in row):
                    row = None
            except ValueError:
                row = None
            out = got.pop(n)
            if row is None:
                bad += 1
                assert "error" in out, (n, line, out)
            else:
                good += 1
                assert "fields" in out, (n, line, out)
                check_row(row, out["fields"])
    assert not got and good > 1000 and bad > 300, (got, good, bad)
    for n in range(8):
        path = os.path.join(folder, f"rows-{n}.csv")
        out = [o for _, o in results(path)]
        with open(path, newline="", encoding="utf-8-sig") as f:
            columns, *rows = [r for r in csv.reader(f) if r]
        assert len(rows) == len(out), (path, len(rows), len(out))
        for row, o in zip(rows, out):
            if "error" in o:
                assert not any(row), (row, o)
                continue
            fields = {k.rsplit(".", 1)[0]: v for k, v in o["fields"].items()}
            for c, cell in zip(columns, row):
                assert fields.pop(c, b"") == cell.encode(), (row, o)
            assert not fields, (row, o)
    print("checked", good, "rows,", bad, "bad ones")


if sys.argv[1] == "make":
    make(sys.argv[2], int(sys.argv[3]))
else:
    check(sys.argv[2])
