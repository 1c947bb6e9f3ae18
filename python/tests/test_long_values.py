"""Errors that name a value are short, however long the value is."""

import pytest

import shardtool


def test_a_list_of_keys_in_place_of_a_file():
    with pytest.raises(
        shardtool.ConfigError, match=r"^keys=\['000000000', .*…: give text or a path or None, as in keys='keys.txt', a file"
    ) as caught:
        shardtool.Loader(shardtool.Source("nowhere", keys=[f"{i:09d}" for i in range(100_000)]), 8)
    assert len(str(caught.value)) < 300
