"""What the tests of reverb.formats share: tables on disk, and comparisons of what comes back."""

import collections

from conftest import make_table
import ml_dtypes
import numpy as np

import reverb
from reverb import checkpointers, checkpoints, formats

Pair = collections.namedtuple("Pair", ["second", "first"])


def save(root, *tables, write):
    checkpointer = checkpointers.DefaultCheckpointer(root)
    with reverb.Server(list(tables) or [make_table(max_size=100_000)], checkpointer=checkpointer) as server:
        client = server.localhost_client()
        write(client)
        return client.checkpoint()


def items_of(path, table="table"):
    return list(checkpoints.read(path, table))


def assert_same(ours, theirs):
    """Checks that items have the same priorities, structures and values, bit by bit."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.priority == other.priority
        assert reverb._tree.map_structure(lambda _: 0, one.data) == reverb._tree.map_structure(lambda _: 0, other.data)
        for path, first in reverb._tree.flatten_with_path(one.data):
            second = dict(reverb._tree.flatten_with_path(other.data))[path]
            assert (first.dtype, first.shape) == (second.dtype, second.shape), path
            if first.dtype == object:
                assert first.tolist() == second.tolist()
            else:
                assert first.tobytes() == second.tobytes(), path


def round_trip(folder, path, format, table="table", **options):
    file = folder / f"data.{format}"
    count = formats.export_table(path, file, format=format, table=table, options=options)
    back = formats.import_table(file, folder / "back", format=format)
    assert isinstance(back, str)
    before, after = items_of(path, table), items_of(back, table)
    assert count == len(before)
    assert_same(before, after)
    return file, back


def write_mixed(client, lengths=(3, 1, 4, 4, 2)):
    """Writes items of several dtypes, nests and lengths."""
    random = np.random.default_rng(1)
    with client.trajectory_writer(num_keep_alive_refs=8) as writer:
        for number, length in enumerate(lengths):
            for step in range(length):
                writer.append(
                    {
                        "frame": random.integers(0, 256, (3, 2), np.uint8),
                        "f16": np.float16(step),
                        "bf16": np.array([step, 0.5], ml_dtypes.bfloat16),
                        "done": np.bool_(step == length - 1),
                        "text": f"step {number}/{step} ä\0".encode(),
                        "z": np.complex64(step + 1j),
                        "empty": np.zeros((2, 0), np.float32),
                        "u64": np.uint64(2**64 - 1 - step),
                    }
                )
            history = writer.history
            trajectory = {
                "obs": {"frames": history["frame"][-length:], "half": [history["f16"][-1:], history["bf16"][-length:]]},
                "last": Pair(history["u64"][-1], (history["frame"][-1], history["text"][-1])),
                "ends": history["done"][-length:],
                "texts": history["text"][-length:],
                "z": history["z"][-length:],
                "empty": history["empty"][-length:],
            }
            writer.create_item("table", float(number) + 0.25, trajectory)
            writer.end_episode()
