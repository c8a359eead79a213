"""Tests tables from messages, and the server program."""

import subprocess
import sys

import pytest

pytest.importorskip("reverb._core", reason="needs the extension")
pytest.importorskip("google.protobuf", reason="needs protobuf")

from reverb.cc import schema_pb2
from reverb.cc.checkpointing import checkpoint_pb2
from reverb.server_executable import server_from_proto


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"fifo": True}, "FifoSelector"),
        ({"lifo": True}, "LifoSelector"),
        ({"uniform": True}, "UniformSelector"),
        ({"heap": {"min_heap": True}}, "HeapSelector(sign=1)"),
        ({"heap": {}}, "HeapSelector(sign=-1)"),
        ({"prioritized": {"priority_exponent": 0.5}}, "PrioritizedSelector(priority_exponent=0.5)"),
    ],
)
def test_selectors(options, shown):
    selector = server_from_proto.selector_from_proto(schema_pb2.KeyDistributionOptions(**options))
    assert repr(selector) == shown


def test_no_selector():
    with pytest.raises(ValueError, match="lifo"):
        server_from_proto.selector_from_proto(schema_pb2.KeyDistributionOptions(lifo=False))
    with pytest.raises(NotImplementedError):
        server_from_proto.selector_from_proto(schema_pb2.KeyDistributionOptions())


def test_tables():
    limiter = {"samples_per_insert": 2.0, "min_size_to_sample": 3, "min_diff": -4.0, "max_diff": 50.0}
    proto = checkpoint_pb2.PriorityTableCheckpoint(
        table_name="trips",
        sampler={"uniform": True},
        remover={"fifo": True},
        max_size=77,
        max_times_sampled=5,
        rate_limiter={**limiter, "insert_count": 9},
    )
    (table,) = server_from_proto.tables_from_proto([proto])
    info = table.info
    assert (info.name, info.max_size, info.max_times_sampled, info.current_size) == ("trips", 77, 5, 0)
    assert info.sampler_options.WhichOneof("distribution") == "uniform"
    assert info.remover_options.WhichOneof("distribution") == "fifo"
    assert {name: getattr(info.rate_limiter_info, name) for name in limiter} == limiter
    assert info.rate_limiter_info.insert_stats.completed == 0


def test_the_program_needs_a_config():
    done = subprocess.run(
        [sys.executable, "-m", "reverb.server_executable.server_main"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "--config" in done.stderr
