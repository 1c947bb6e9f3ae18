"""Ctrl-C in the middle of Writer.write leaves a whole sample or none, and loses none unnoticed."""

import itertools
import sys

import shardtool
from shardtool._write.encode import Slots
from shardtool._write.rows import Rows


def interrupted(call, after, codes):
    """Calls, with a KeyboardInterrupt at the n-th call or return in functions. Returns whether
    there were so many."""
    left = itertools.count(after, -1)

    def stop(frame, event, what):
        if frame.f_code in codes and event != "return" and next(left) == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(stop)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def lengths(data, fields):
    """Divides a run into samples, and returns what they take."""
    at, out = 0, []
    while at < len(data):
        sizes = memoryview(data)[at : at + 4 * fields].cast("I").tolist()
        at += 4 * fields + sum(sizes)
        out.append(sizes)
    assert at == len(data)
    return out


def test_a_sample_is_added_whole():
    for after in itertools.count():
        rows = Rows(Slots(None, None))
        rows.add({"__key__": "first", "a": b"12", "b": b"345"})
        more = interrupted(lambda: rows.add({"__key__": "second", "a": b"6789", "b": b"x"}), after, {Rows.add.__code__})
        rows.add({"__key__": "third", "a": b"", "b": b"yz"})
        (run,) = rows.take()
        whole = lengths(run.data, 3)
        assert len(whole) == run.samples
        assert whole in ([[5, 2, 3], [5, 0, 2]], [[5, 2, 3], [6, 4, 1], [5, 0, 2]])
        if not more:
            assert after > 5 and run.samples == 3
            return


def test_no_sample_is_lost_unnoticed(tmp_path):
    """A program that is interrupted while samples go to the child, and then publishes, has all of
    them, or an error."""
    codes = {f.__code__ for f in (shardtool.Writer._flush, shardtool.Writer._gather, shardtool.Writer._take, shardtool.Writer._send)}
    for after in itertools.count():
        w = shardtool.Writer(tmp_path / str(after))
        w.write({"a": b"1"})
        w.write({"b": b"2"})
        more = interrupted(w._flush, after, codes)
        try:
            assert w.close()["samples"] == 2
        except shardtool.ClosedError as err:
            assert "KeyboardInterrupt" in str(err)
            w.abort()
        if not more:
            assert after > 8
            return
