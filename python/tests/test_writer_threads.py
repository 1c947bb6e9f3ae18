"""A writer is for one thread at a time."""

import threading

import pytest

import shardtool


def test_two_threads_at_once(tmp_path):
    """The second one gets an error that names the reason, and nothing is published."""
    w = shardtool.Writer(tmp_path / "out")
    w.write({"a": b"1"})
    send, inside, leave = w._child.send, threading.Event(), threading.Event()

    def slow(*frame):
        inside.set()
        assert leave.wait(300)
        send(*frame)

    w._child.send = slow
    first = threading.Thread(target=w._flush)
    first.start()
    assert inside.wait(300)
    try:
        w.write({"a": b"2"})
        with pytest.raises(shardtool.ConfigError, match="two threads use the writer at once"):
            w._flush()
    finally:
        leave.set()
        first.join()
    with pytest.raises(shardtool.ClosedError, match="two threads"):
        w.close()
    w.abort()
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_one_thread_after_another(tmp_path):
    with shardtool.Writer(tmp_path / "out") as w:
        for i in range(3):
            thread = threading.Thread(target=lambda i=i: w.write_batch({"n": [i, i]}))
            thread.start()
            thread.join()
    assert w.result["samples"] == 6
