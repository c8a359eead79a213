"""Scenarios: assumptions of programs: where names are, what may be subclassed, copied, compared, and large sizes."""

import copy
import importlib
import io
import itertools
import pickle
import pydoc
import types

from conftest import make_table
import numpy as np
import pytest

import reverb
from reverb import rate_limiters, reverb_types, selectors


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("reverb", "Client Server Table Writer TrajectoryWriter TrajectoryColumn ReplaySample SampleInfo"),
        ("reverb", "ReverbError DeadlineExceededError selectors rate_limiters checkpointers structured"),
        ("reverb", "TrajectoryDataset TimestepDataset PatternDataset TFClient"),
        ("reverb.rate_limiters", "RateLimiter MinSize SampleToInsertRatio Queue Stack"),
        ("reverb.item_selectors", "Fifo Lifo Uniform Prioritized MinHeap MaxHeap"),
        ("reverb.structured_writer", "create_config create_reference_step pattern_from_transform infer_signature"),
        ("reverb.structured_writer", "Condition Config Pattern ReferenceStep PatternTransform td_error unpack_pattern"),
        ("reverb.reverb_types", "TableInfo SelectorType SpecNest"),
        ("reverb.replay_sample", "ReplaySample SampleInfo"),
        ("reverb.errors", "ReverbError DeadlineExceededError"),
        ("reverb.client", "Client Writer"),
        ("reverb.server", "Server Table TableExtensionBase"),
        ("reverb.trajectory_writer", "TrajectoryWriter TrajectoryColumn"),
        ("reverb.pybind", "Server Client Table selector_from_proto"),
        ("reverb.platform.checkpointers_lib", "DefaultCheckpointer TempDirCheckpointer CheckpointerBase"),
        ("reverb.platform.default.checkpointers", "default_checkpointer DefaultCheckpointer"),
        ("reverb.tf_client", "TFClient"),
    ],
)
def test_names_are_where_programs_look_for_them(module, names):
    found = importlib.import_module(module)
    for name in names.split():
        assert getattr(found, name) is not None
    part = reverb
    for name in module.split(".")[1:]:  # also as attributes after `import reverb` alone
        part = getattr(part, name)
    assert part is found


def test_a_lazy_loader_finds_everything():
    """Simulates loaders that copy the module's dict and use the module's attributes for the rest."""

    class Loader(types.ModuleType):
        def __getattr__(self, name):
            module = importlib.import_module(self.__name__)
            self.__dict__.update(module.__dict__)
            return getattr(module, name)

    lazy = Loader("reverb")
    assert lazy.Table is reverb.Table
    assert lazy.TrajectoryDataset.__name__ == "TrajectoryDataset"
    with pytest.raises(AttributeError, match="no attribute 'ReplayDataset'"):
        lazy.ReplayDataset
    assert set(reverb.__all__) <= set(dir(reverb))


def test_programs_look_at_native_objects(serve):
    server = serve(make_table())
    client = server.localhost_client()
    assert isinstance(server._server, reverb.pybind.Server)
    assert isinstance(client._client, reverb.pybind.Client)
    assert (client.server_address, str(client)) == (
        f"localhost:{server.port}",
        f"Client, server_address=localhost:{server.port}",
    )
    again = pickle.loads(pickle.dumps(client))
    assert again._server_address == client._server_address == client.server_address
    assert not hasattr(client, "NewSampler")
    with pytest.raises(AttributeError, match=r"no native NewSampler\(\); use Client.sample\(\)"):
        client._client.NewSampler("table", 1, 1)
    help_text = io.StringIO()
    pydoc.Helper(output=help_text)(reverb.Client)
    assert "sample_batches" in help_text.getvalue()


def test_a_fake_writer_for_tests():
    class FakeWriter(reverb.TrajectoryWriter):
        def __init__(self):
            self.steps = []

        def append(self, data, *, partial_step=False):
            self.steps.append((data, partial_step))

        def __del__(self):
            pass

    fake = FakeWriter()
    fake.append({"x": 1}, partial_step=True)
    assert isinstance(fake, reverb.TrajectoryWriter)
    assert fake.steps == [({"x": 1}, True)]


def test_a_table_is_rebuilt_from_its_info(serve):
    """Rebuilds a table from the options in its info, by name, as tools do that copy the tables of a server."""
    table = reverb.Table(
        "table",
        selectors.Prioritized(0.7),
        selectors.MinHeap(),
        10,
        rate_limiters.SampleToInsertRatio(2.0, 3, 9.0),
        max_times_sampled=4,
        signature={"x": reverb.TensorSpec((2,), np.float32)},
    )
    info = serve(table).localhost_client().server_info()["table"]
    assert isinstance(info, reverb_types.TableInfo)

    def selector(options):
        kind = options.WhichOneof("distribution")
        if kind == "prioritized":
            return selectors.Prioritized(options.prioritized.priority_exponent)
        if kind == "heap":
            return selectors.MinHeap() if options.heap.min_heap else selectors.MaxHeap()
        return {"fifo": selectors.Fifo, "lifo": selectors.Lifo, "uniform": selectors.Uniform}[kind]()

    limiter = info.rate_limiter_info
    rebuilt = reverb.Table(
        name=info.name,
        sampler=selector(info.sampler_options),
        remover=selector(info.remover_options),
        max_size=info.max_size,
        max_times_sampled=info.max_times_sampled,
        rate_limiter=rate_limiters.RateLimiter(
            limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff, limiter.max_diff
        ),
        signature=info.signature,
    ).info
    rebuilt.table_worker_time.sleeping_ms = info.table_worker_time.sleeping_ms
    assert rebuilt == info
    assert [
        getattr(info.table_worker_time, name)
        for name in ("sampling_ms", "inserting_ms", "waiting_for_inserts_ms", "waiting_for_sampling_ms")
    ] == [0, 0, 0, 0]


def test_iterators_go_with_itertools(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 10)))
    for i in range(6):
        client.insert(i, {"queue": 1.0})
    one, other = itertools.tee(client.sample("queue", 3))
    assert [step[0].data[0] for step in one] == [step[0].data[0] for step in other] == [0, 1, 2]
    assert [step[0].data[0] for step in itertools.islice(client.sample("queue", 3), 3)] == [3, 4, 5]


def test_clients_may_be_copied(serve):
    client = serve(make_table()).localhost_client()
    for other in (copy.copy(client), copy.deepcopy({"client": client})["client"]):
        other.insert(1, {"table": 1.0})
    assert client.server_info()["table"].current_size == 2


@pytest.mark.parametrize("name", ["tä/b", 'with "quotes" and\nlines', "0", " ", "表", "a" * 500])
def test_tables_of_any_name(serve, connect, name):
    client = connect(serve(make_table(name)))
    client.insert(1, {name: 1.0})
    assert next(client.sample(name))[0].data == [1]
    assert list(client.server_info()) == [name]


def test_a_value_of_fifty_megabytes(serve, connect):
    client = connect(serve(make_table()))
    value = np.random.default_rng(0).integers(0, 256, (50, 1000, 1000), dtype=np.uint8)
    client.insert(value, {"table": 1.0}, timeout=60)
    (step,) = next(client.sample("table", timeout=60))
    assert (step.data[0] == value).all()


def test_a_step_of_a_thousand_leaves(serve, connect):
    client = connect(serve(make_table()))
    writer = client.trajectory_writer(3)
    for i in range(3):
        writer.append({f"{k:04}": np.float32(i * k) for k in range(1000)})
    writer.create_item("table", 1.0, {name: column[:] for name, column in writer.history.items()})
    writer.flush()
    sample = next(client.sample("table", emit_timesteps=False))
    assert [column.tolist() for column in sample.data] == [[0, k, 2 * k] for k in range(1000)]


def test_fifty_tables_and_fifty_writers(serve, connect):
    names = [f"table{i}" for i in range(50)]
    client = connect(serve(*(make_table(name) for name in names)))
    writers = [client.trajectory_writer(1) for _ in names]
    for i, writer in enumerate(writers):
        writer.append(i)
        for name in names[: i + 1]:
            writer.create_item(name, 1.0, writer.history[-1])
    for writer in writers:
        writer.end_episode()
        writer.close()
    sizes = {name: info.current_size for name, info in client.server_info().items()}
    assert sizes == {name: 50 - i for i, name in enumerate(names)}
