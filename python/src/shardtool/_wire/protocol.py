"""The messages of cmd/shardtool/internal/serve/PROTOCOL.md that a parent needs."""

from __future__ import annotations

import struct

PROTOCOL = 2
MAGIC = int.from_bytes(b"SHRDSRV1", "little")
FRAME = 64
MAX_BODY = 4 << 20

HELLO, INFO, STARTED, SEGMENT, RETIRE, BATCH, END, SAMPLE, ERROR, HEARTBEAT = range(1, 11)
OPEN, START, NEXT, RELEASE, GET, STOP, PEERS, JOIN, BYE, LEAVE = range(33, 43)

#: Flags of BATCH, GET and HEARTBEAT.
LAST, LEDGER, BY_KEY, FOR_PEERS = 1, 2, 1, 1

#: kind, flags, body, number, segment, samples, offset, length, then three of 64 bits, for BATCH.
#: Other kinds use some of them.
frame = struct.Struct("<HHIQIIQQQQQ")
#: The same for frames that have only 64-bit fields.
words = struct.Struct("<HHIQQQQQQQ")

#: The header of a batch's region: epoch, position, next epoch, next position; global size, first,
#: samples, holes, columns, padding; checkpoint, its length, ledger's length, ledger; numbers, keys,
#: columns, account, seeds, origins.
header = struct.Struct("<QQQQIIIIIIQIIQQQQQQQ")
#: The account: batches, samples, bytes; eight causes of waits in nanoseconds; blocks, stored bytes,
#: evicted, reread, skipped, held.
account = struct.Struct("<17Q")
#: What follows it for each source of a mix: samples and bytes.
PER_SOURCE = 16
#: A column's row: kind, flags, type's length; type, data, data's length, pairs, stride.
row = struct.Struct("<HHIQQQQQ")
ROW = 64

#: Kinds of columns, and flags.
BYTES, ARRAY, ARRAYS, NPY, WHOLE = range(5)
FIXED, ABSENT = 1, 2


def pack(kind: int, a: int = 0, b: int = 0, c: int = 0, *, flags: int = 0, body: bytes = b"") -> bytes:
    """Packs a frame of words, with its body."""
    return words.pack(kind, flags, len(body), a, b, c, 0, 0, 0, 0) + body


def pack_release(segment: int, offset: int) -> bytes:
    """Packs a RELEASE."""
    return frame.pack(RELEASE, 0, 0, 0, segment, 0, offset, 0, 0, 0, 0)


def pack_open(body: bytes) -> bytes:
    """Packs an OPEN."""
    return frame.pack(OPEN, 0, len(body), 0, PROTOCOL, 0, 0, 0, 0, 0, 0) + body
