"""Tests checkpointers as values."""

import gc
import os
import pathlib

import pytest

from reverb.platform import checkpointers_lib
from reverb.platform.default import checkpointers


def test_default_checkpointer(tmp_path):
    checkpointer = checkpointers.DefaultCheckpointer(tmp_path / "root", fallback_checkpoint_path="/old/one")
    assert checkpointer.path == str(tmp_path / "root")
    assert checkpointer.group == ""
    assert checkpointer.fallback_checkpoint_path == "/old/one"
    assert not pathlib.Path(checkpointer.path).exists()  # created by the first save
    assert checkpointer.internal_checkpointer() == checkpointers_lib.CheckpointerOptions(
        str(tmp_path / "root"), "", "/old/one"
    )
    assert checkpointers.DefaultCheckpointer("p", "g").group == "g"
    more = checkpointers.DefaultCheckpointer("p", interval=60, on_stop=True, keep_latest=3, load_latest=False)
    assert more.internal_checkpointer() == checkpointers_lib.CheckpointerOptions(
        "p", interval=60, on_stop=True, keep_latest=3, load_latest=False, restore=checkpointers.Restore()
    )
    assert checkpointers.DefaultCheckpointer("p").fallback_checkpoint_path is None


def test_temporary_directories():
    first, second = checkpointers.default_checkpointer(), checkpointers.default_checkpointer(group="g")
    assert isinstance(first, checkpointers.TempDirCheckpointer)
    assert first.path != second.path
    assert os.path.isdir(first.path)


def test_an_empty_temporary_directory_goes_and_another_stays():
    empty, used = checkpointers.TempDirCheckpointer(), checkpointers.TempDirCheckpointer()
    kept = pathlib.Path(used.path) / "saved"
    kept.touch()
    paths = empty.path, used.path
    del empty, used
    gc.collect()
    assert [os.path.isdir(path) for path in paths] == [False, True]
    kept.unlink()
    kept.parent.rmdir()


def test_own_checkpointers_derive_from_the_base():
    with pytest.raises(TypeError, match="abstract"):
        checkpointers.CheckpointerBase()

    class Mirrored(checkpointers.CheckpointerBase):
        def internal_checkpointer(self):
            return checkpointers.DefaultCheckpointer("/mirror").internal_checkpointer()

    assert Mirrored().internal_checkpointer().path == "/mirror"
    assert checkpointers.CheckpointerBase is checkpointers_lib.CheckpointerBase
