"""Sections of the format and the columns in them (SPEC 4.1), for a second reader of it.

The modules format_* are written from SPEC.md alone. They are for checking, not for speed.
"""

import struct
import subprocess


class Corrupt(Exception):
    """The bytes are not what a writer put there."""


class Version(Exception):
    """A newer format, or a critical part that is unknown."""


def need(ok, why):
    if not ok:
        raise Corrupt(why)


def make_crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CRC_TABLE = make_crc_table()


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = CRC_TABLE[(c ^ b) & 0xFF] ^ c >> 8
    return c ^ 0xFFFFFFFF


def unzstd(data):
    done = subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=False)
    need(done.returncode == 0, "zstd: " + done.stderr.decode(errors="replace").strip())
    return done.stdout


class Fields:
    """Fixed fields from the front of bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        need(0 <= n <= len(self.data) - self.at, "cut")
        self.at += n
        return self.data[self.at - n : self.at]

    def u8(self):
        return self.take(1)[0]

    def u16(self):
        return struct.unpack("<H", self.take(2))[0]

    def u32(self):
        return struct.unpack("<I", self.take(4))[0]

    def u64(self):
        return struct.unpack("<Q", self.take(8))[0]

    def text(self):
        return self.take(self.u32())

    def planes(self, n):
        mask = self.u8()
        out = [0] * n
        for p in range(8):
            if mask >> p & 1:
                for i, c in enumerate(self.take(n)):
                    out[i] |= c << 8 * p
        return out

    def strings(self, n):
        shared, more = self.planes(n), self.planes(n)
        out, last = [], b""
        for s, m in zip(shared, more):
            need(s <= len(last), "string shares too much")
            last = last[:s] + self.take(m)
            out.append(last)
        return out

    def end(self):
        need(self.at == len(self.data), "bytes left over")


class Sections:
    """A directory and the sections it names (4.1)."""

    def __init__(self, data, magic, known, origin=0, payload=None):
        f = Fields(data)
        need(f.take(8) == magic, "magic")
        major, _minor, n = f.u16(), f.u16(), f.u32()
        if major != 1:
            raise Version("major %d" % major)
        need(n * 32 + 4 <= len(data) - f.at, "directory is cut")
        self.rows, self.by = [], {}
        for _ in range(n):
            kind, flags, codec, encoding, zero = f.take(4).decode("latin-1"), f.u8(), f.u8(), f.u8(), f.u8()
            row = (kind, codec, encoding, f.u32(), f.u64(), f.u32(), f.u32(), f.u32(), flags, zero)
            self.rows.append(row)
        self.length = f.at + 4
        need(len({(r[0], r[3]) for r in self.rows}) == n, "section twice")
        need(f.u32() == crc32c(data[: self.length - 4]), "directory checksum")
        for row in self.rows:
            kind, codec, encoding, part, _off, stored, raw, _crc, flags, zero = row
            if kind not in known:
                if flags & 1:
                    raise Version("section " + kind)
                continue
            need(flags < 2 and zero == 0, "section " + kind)
            if codec > 1 or encoding > 1:
                raise Version("section %s codec" % kind)
            need(raw <= 32768 * stored and (codec or raw == stored), "lengths of section " + kind)
            self.by[kind, part] = row
        self.data, self.origin, self.payload = data, origin, payload

    def get(self, kind, part=0):
        row = self.by.get((kind, part))
        if row is None:
            return None
        _, codec, _, _, off, stored, raw, crc, _, _ = row
        data = self.payload(off, stored)
        need(len(data) == stored and crc32c(data) == crc, "checksum of " + kind)
        if codec == 1:
            data = unzstd(data)
        need(len(data) == raw, "length of " + kind)
        return data

    def want(self, kind, part=0):
        data = self.get(kind, part)
        need(data is not None, "no section " + kind)
        return data

    def column(self, kind, n, part=0):
        data = self.want(kind, part)
        f = Fields(data)
        if self.by[kind, part][2] == 0:
            out = f.planes(n)
        else:
            values = [0] * (f.u8() + 1)
            for i in range(len(values)):
                values[i] = f.u64()
            need(values == sorted(set(values)), "dictionary")
            index = f.take(n)
            need(not index or max(index) < len(values), "dictionary index")
            out = [values[i] for i in index]
        f.end()
        return out

    def contiguous(self, begin, end):
        for row in self.rows:
            if begin <= row[4] < end or (row[5] == 0 and row[4] == begin):
                need(row[4] == begin, "gap before " + row[0])
                begin += row[5]
        need(begin == end, "sections end elsewhere")
