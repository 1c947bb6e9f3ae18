"""Random access from several threads."""

import threading

import pytest

import shardtool


@pytest.fixture
def numbers(tmp_path):
    with shardtool.Writer(tmp_path / "numbers", block_size="4KiB") as w:
        w.write_batch({"n": list(range(5000))})
    return tmp_path / "numbers"


def test_threads_share_a_data_set(numbers):
    """Each thread gets the samples that it asked for, also where the threads start the child."""
    with shardtool.open(numbers) as ds:
        wrong, begin = [], threading.Barrier(4)

        def read(thread):
            begin.wait()
            try:
                for i in range(thread, 5000, 53):
                    wrong.extend((s.number, s["n"], i) for s in (ds[i], ds[f"{i:09d}"], *ds[[i]]) if (s.number, s["n"]) != (i, i))
                assert len(ds) == 5000
            except BaseException as err:
                wrong.append(err)

        threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong
