"""Tests wrong arguments of every kind for every call: each raises an ordinary error; none crashes or hangs."""

# ruff: noqa: E501 - programs inside strings
from __future__ import annotations

from hostile_values import check_program
import pytest

GROUPS = {}

GROUPS["tables"] = """
def table(name="t", sampler=None, remover=None, max_size=10, rate_limiter=None, max_times_sampled=0, extensions=(),
          signature=None):
    return reverb.Table(name, sampler, remover, max_size, rate_limiter, max_times_sampled, extensions, signature)
good = dict(name="t", sampler=reverb.selectors.Fifo(), remover=reverb.selectors.Lifo(), max_size=10,
            rate_limiter=reverb.rate_limiters.MinSize(1), max_times_sampled=0, extensions=(), signature=None)
each_argument("Table", table, **good)
each_argument("Table, keywords", lambda max_age: reverb.Table(**good, max_age=max_age), max_age=1.5)
each_argument("Table.queue", reverb.Table.queue, name="q", max_size=3)
each_argument("Table.stack", reverb.Table.stack, name="q", max_size=3)
made = table(**good)
each_argument("can_sample", made.can_sample, num_samples=1)
each_argument("can_insert", made.can_insert, num_inserts=1)
each_argument("set_rate_limiter", made.set_rate_limiter, rate_limiter=reverb.rate_limiters.MinSize(1))
each_argument("replace", made.replace, **{**good, "max_size": 5})
must_raise("max_size nan", lambda: table(**{**good, "max_size": float("nan")}), TypeError)
must_raise("name bytes", lambda: table(**{**good, "name": b"t"}), TypeError)
must_raise("one limiter, two uses of a selector", lambda: table(**{**good, "sampler": "Fifo"}), TypeError)
for method in ("pickle.dumps", "copy.copy", "copy.deepcopy"):
    attempt(method, lambda: eval(method)(made))
    attempt(method, lambda: eval(method)(server))
"""

GROUPS["limiters_and_selectors"] = """
each_argument("RateLimiter", reverb.rate_limiters.RateLimiter, samples_per_insert=1.0, min_size_to_sample=1, min_diff=0.0,
              max_diff=5.0)
each_argument("SampleToInsertRatio", reverb.rate_limiters.SampleToInsertRatio, samples_per_insert=1.0,
              min_size_to_sample=1, error_buffer=5.0)
each_argument("MinSize", reverb.rate_limiters.MinSize, min_size_to_sample=1)
each_argument("Queue", reverb.rate_limiters.Queue, size=1)
each_argument("Stack", reverb.rate_limiters.Stack, size=1)
each_argument("Prioritized", reverb.selectors.Prioritized, priority_exponent=1.0)
for kind in ("Fifo", "Lifo", "Uniform", "MinHeap", "MaxHeap"):
    each_argument(kind, getattr(reverb.selectors, kind))
each_argument("selector_from_proto", reverb.pybind.selector_from_proto, options=b"")
for number in (0, -1, 10**100): must_raise("MinSize", lambda: reverb.rate_limiters.MinSize(number))
for bad in ((0, 1), (1, 0), (float("nan"), 1), (float("inf"), 1)):
    must_raise("RateLimiter", lambda: reverb.rate_limiters.RateLimiter(bad[0], bad[1], 0.0, 5.0))
# An odd exponent yields odd probabilities or an error, never a crash.
for exponent in (0.0, -1.0, 1e308, float("nan"), float("inf"), -float("inf")):
    def use(exponent=exponent):
        table = reverb.Table("t", reverb.selectors.Prioritized(exponent), reverb.selectors.Fifo(), 10,
                             reverb.rate_limiters.MinSize(1))
        with reverb.Server([table]) as server:
            client = server.localhost_client()
            for priority in (0.0, 1e-308, 1.0, 1e308):
                attempt(f"insert {priority}", lambda: client.insert(1, {"t": priority}, timeout=2))
                attempt("sample", lambda: next(client.sample("t", timeout=0.2)))
    attempt(f"a table with exponent {exponent}", use)
"""

GROUPS["servers"] = """
def is_one(value):
    try: return float(value) == 1
    except Exception: return False
fresh = lambda: [make_table()]
attempts = itertools.count()
for weird, value in WEIRD.items():
    attempt(f"Server(tables={weird})", lambda: reverb.Server(value))
    attempt(f"Server(tables=[{weird}])", lambda: reverb.Server([value]))
    attempt(f"Server(port={weird})", lambda: reverb.Server(fresh(), port=value).stop())
    attempt(f"Server(host={weird})", lambda: reverb.Server(fresh(), host=value).stop())
    attempt(f"Server(checkpointer={weird})", lambda: reverb.Server(fresh(), None, value).stop())
    if not (value is None or isinstance(value, (int, float)) and (value != value or value > 1) or is_one(value)):
        attempt(f"wait(timeout={weird})", lambda: server.wait(timeout=value))
taken = make_table()
first = reverb.Server([taken])
must_raise("one table, two servers", lambda: reverb.Server([taken]))
must_raise("the port is taken", lambda: reverb.Server(fresh(), port=first.port), ValueError)
must_raise("port 70000", lambda: reverb.Server(fresh(), port=70000))
must_raise("no tables", lambda: reverb.Server([]), ValueError)
first.stop()
first.stop()
attempt("wait after stop", first.wait)
for weird, value in WEIRD.items():  # returns at once, where a running server would wait for a second
    if is_one(value): attempt(f"wait(timeout={weird}) after stop", lambda: first.wait(timeout=value))
attempt("client of a stopped server", lambda: first.localhost_client().server_info(timeout=0.2))
attempt("repr", lambda: repr(first))
attempt("again", lambda: first.__init__(fresh()))
"""

GROUPS["clients"] = """
for weird, value in WEIRD.items():
    attempt(f"Client({weird})", lambda: reverb.Client(value))
    attempt(f"Client(in_process={weird})", lambda: reverb.Client("localhost:1", in_process=value))
for address in ("", ":", ":1", "localhost", "localhost:", "localhost:x", "localhost:-1", "localhost:99999999999", "[::1", "[::1]:1",
                "a b:1", "http://localhost:1", "unix:/nowhere", "dns:///localhost:1", "localhost:1\\n", "x" * 70_000 + ":1",
                "\\u2603:1", "inproc:nowhere", "ipv4:1.2.3.4:5,1.2.3.4:6", "%00:1"):
    attempt(f"an address {address[:30]!r}", lambda: reverb.Client(address).server_info(timeout=0.03))
for each in (client, remote):
    each_argument("insert", each.insert, data={"x": 1.0}, priorities={"table": 1.0}, timeout=2)
    for weird, value in WEIRD.items():
        attempt(f"a priority {weird}", lambda: each.insert({"x": 1.0}, {"table": value}, timeout=2))
        attempt(f"a leaf {weird}", lambda: each.insert({"x": value}, {"table": 1.0}, timeout=2))
        attempt(f"a leaf in a list {weird}", lambda: each.insert([1, [value]], {"table": 1.0}, timeout=2))
        try: attempt(f"a table {weird}", lambda: each.insert({"x": 1.0}, {value: 1.0}, timeout=2))
        except TypeError: pass
    each_argument("mutate_priorities", each.mutate_priorities, table="table", updates={1: 1.0}, deletes=[1], timeout=2)
    each_argument("update_priorities", each.update_priorities, table="table", keys=[1], priorities=[1.0], timeout=2)
    for weird, value in WEIRD.items():
        attempt(f"a key {weird}", lambda: each.mutate_priorities("table", deletes=[value]))
        attempt(f"an update to {weird}", lambda: each.mutate_priorities("table", updates={1: value}))
        attempt(f"keys, one {weird}", lambda: each.update_priorities("table", [1, value], [1.0, 1.0]))
        attempt(f"priorities, one {weird}", lambda: each.update_priorities("table", [1, 2], [1.0, value]))
    must_raise("lengths differ", lambda: each.update_priorities("table", [1, 2], [1.0]))
    each_argument("reset", each.reset, table="queue", timeout=2)
    each_argument("set_rate_limiter", each.set_rate_limiter, table="empty", rate_limiter=reverb.rate_limiters.MinSize(1), timeout=2)
    each_argument("create_table", each.create_table, table=reverb.Table.queue("made", 3), exist_ok=True, timeout=2)
    change_made = lambda **limits: each.change_table("made", **limits)
    each_argument("change_table", change_made, max_size=4, max_times_sampled=2, max_age=1e3,
                  rate_limiter=reverb.rate_limiters.MinSize(1), timeout=2)
    each_argument("remove_table", lambda timeout: each.remove_table("made", timeout=timeout), timeout=2)
    must_raise("no table to remove", lambda: each.remove_table(None), TypeError)
    must_raise("no table to change", lambda: each.change_table(b"made", max_size=1), TypeError)
    each_argument("server_info", each.server_info, timeout=1)
    each_argument("checkpoint", each.checkpoint, timeout=1)
    each_argument("peek", each.peek, table="table", n=1, timeout=1)
    must_raise("endless", lambda: each.insert({"x": Endless()}, {"table": 1.0}, timeout=2), TypeError)
    must_raise("no priorities", lambda: each.insert(1, {}), ValueError)
    must_raise("no such table", lambda: each.insert(1, {"no such": 1.0}), ValueError)
for _ in range(3):
    attempt("pickle", lambda: pickle.loads(pickle.dumps(client)).server_info(timeout=2))
attempt("copy", lambda: copy.copy(client).server_info(timeout=2))
attempt("deepcopy", lambda: copy.deepcopy(client).server_info(timeout=2))
kind, arguments = client.__reduce__()
for weird, value in WEIRD.items():
    attempt(f"rebuilt with {weird}", lambda: kind(*(value for _ in arguments)))
attempt("an odd pickle", lambda: pickle.loads(pickle.dumps(client).replace(b"localhost", b"l\\xff\\x00calhos")))
"""

GROUPS["samples"] = """
def sample(each):
    def call(table="table", num_samples=2, emit_timesteps=True, unpack_as_table_signature=False, exact=False, timeout=0.05):
        iterator = each.sample(table, num_samples, emit_timesteps=emit_timesteps, exact=exact,
                               unpack_as_table_signature=unpack_as_table_signature, timeout=timeout)
        for _ in range(3): next(iterator)
    return call
for each in (client, remote):
    each_argument("sample", sample(each), table="table", num_samples=2, emit_timesteps=True,
                  unpack_as_table_signature=False, exact=False, timeout=0.05)
    must_raise("0 samples", lambda: next(each.sample("table", 0)), ValueError)
    must_raise("-2 samples", lambda: next(each.sample("table", -2)), ValueError)
    must_raise("no such table", lambda: next(each.sample("no such")), RuntimeError)
    must_raise("nan", lambda: each.sample("table", timeout=float("nan")), ValueError)
iterator = client.sample("table", 3)
attempt("again", lambda: iterator.__init__(client, "table", 3, True, None, False, None))
for name in ("send", "throw", "__next__", "close", "__iter__", "__reduce__", "__copy__"):
    attempt(name, lambda: getattr(iterator, name)(1, 2, 3))
attempt("copy", lambda: copy.copy(iterator))
attempt("pickle", lambda: pickle.dumps(iterator))
iterator.close()
iterator.close()
attempt("closed", lambda: next(iterator))
# An iterator that several threads, log handlers and other iterators use at the same time.
shared = client.sample("table", 200)
def take():
    while True:
        try: next(shared)
        except StopIteration: return
threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join(30)
assert not any(thread.is_alive() for thread in threads)
"""

GROUPS["trajectory_writers"] = """
for each in (client, remote):
    def make(num_keep_alive_refs=1, validate_items=True, timeout=2):
        return each.trajectory_writer(num_keep_alive_refs, validate_items=validate_items, timeout=timeout)
    each_argument("trajectory_writer", make, num_keep_alive_refs=2, validate_items=True, timeout=2)
    writer = each.trajectory_writer(3)
    def append(data={"x": 1.0}, partial_step=False): writer.append(data, partial_step=partial_step)
    writer.append({"x": 1.0})
    for weird, value in WEIRD.items():
        for step in ({"x": value}, value, {"x": 1.0, "y": value}, [value], (value, value), {"x": {"y": value}}):
            fresh = each.trajectory_writer(1)
            attempt(f"a first step {weird}", lambda: fresh.append(step))
            attempt(f"the writer's, {weird}", lambda: writer.append(step))
            attempt("history", lambda: fresh.history)
    writer = each.trajectory_writer(3)
    for i in range(4): writer.append({"x": 1.0, "y": [1, 2]})
    each_argument("append", append, data={"x": 1.0}, partial_step=False)
    history = writer.history
    column = history["x"]
    other = each.trajectory_writer(3)
    other.append({"x": 1.0, "y": [1, 2]})
    for weird, value in WEIRD.items():
        attempt(f"history[{weird}]", lambda: history[value])
        attempt(f"column[{weird}]", lambda: column[value])
        attempt(f"column[{weird}:]", lambda: column[value:])
        attempt(f"column[::{weird}]", lambda: column[::value])
        attempt(f"TrajectoryColumn({weird})", lambda: reverb.TrajectoryColumn(value))
        attempt(f"TrajectoryColumn([{weird}])", lambda: reverb.TrajectoryColumn([value]))
        attempt(f"TrajectoryColumn(squeeze={weird})", lambda: reverb.TrajectoryColumn([column[-1]], squeeze=value))
        attempt(f"TrajectoryColumn(path={weird})", lambda: reverb.TrajectoryColumn([column[-1]], path=value))
        attempt(f"a trajectory {weird}", lambda: writer.create_item("table", 1.0, value))
        attempt(f"a trajectory with {weird}", lambda: writer.create_item("table", 1.0, {"x": column[-1:], "y": value}))
        attempt(f"configure({weird})", lambda: writer.configure(value, num_keep_alive_refs=1, max_chunk_length=1))
        attempt(f"configure(({weird},))", lambda: writer.configure((value,), num_keep_alive_refs=1, max_chunk_length=1))
        attempt(f"configure, refs {weird}", lambda: writer.configure(("z",), num_keep_alive_refs=value, max_chunk_length=1))
        attempt(f"configure, length {weird}", lambda: writer.configure(("z",), num_keep_alive_refs=1, max_chunk_length=value))
        attempt(f"flush({weird})", lambda: writer.flush(value, 500))
        attempt(f"end_episode({weird})", lambda: other.end_episode(value, 500))
    each_argument("create_item", writer.create_item, table="table", priority=1.0, trajectory={"x": column[-1:]})
    must_raise("of another writer", lambda: writer.create_item("table", 1.0, {"x": other.history["x"][-1:]}))
    must_raise("no such table", lambda: writer.create_item("no such", 1.0, {"x": column[-1:]}), ValueError)
    must_raise("nothing", lambda: writer.create_item("table", 1.0, {}))
    must_raise("too old", lambda: writer.create_item("table", 1.0, {"x": column[-100:]}))
    attempt("the step is closed", lambda: writer.append({}))
    for i in range(10): attempt("more steps", lambda: writer.append({"x": 1.0, "y": [1, 2]}))
    attempt("an old reference", lambda: column[0].numpy())
    attempt("old references", lambda: column[:].numpy())
    attempt("again", lambda: writer.__init__(each, 1))
    attempt("reduce", lambda: pickle.dumps(writer))
    attempt("reduce", lambda: pickle.dumps(column))
    attempt("copy", lambda: copy.copy(writer))
    attempt("copy", lambda: copy.deepcopy(column))
    attempt("flush", lambda: writer.flush(timeout_ms=2000))
    for _ in range(2): writer.close()
    must_raise("closed: append", lambda: writer.append({"x": 1.0}), RuntimeError)
    must_raise("closed: flush", lambda: writer.flush(), RuntimeError)
    must_raise("closed: end_episode", lambda: writer.end_episode(), RuntimeError)
    must_raise("closed: create_item", lambda: writer.create_item("table", 1.0, {"x": column[-1:]}), RuntimeError)
    attempt("closed: history", lambda: writer.history["x"][-1].numpy())
    attempt("closed: configure", lambda: writer.configure(("x",), num_keep_alive_refs=1, max_chunk_length=1))
    for kind in ("TrajectoryWriter", "Writer", "StructuredWriter", "WeakCellRef", "Client", "Server", "Table"):
        kind = getattr(reverb.pybind, kind)
        for weird, value in WEIRD.items():
            attempt(f"pybind.{kind.__name__}({weird})", lambda: kind(value))
            attempt(f"pybind.{kind.__name__}({weird}, ...)", lambda: kind(value, value, value))
"""

GROUPS["legacy_writers"] = """
for each in (client, remote):
    each_argument("writer", each.writer, max_sequence_length=2, delta_encoded=False, chunk_length=1, max_in_flight_items=5,
                  timeout=2)
    writer = each.writer(3)
    writer.append([1.0])
    for weird, value in WEIRD.items():
        fresh = each.writer(1)
        attempt(f"append({weird})", lambda: fresh.append(value))
        attempt(f"append([{weird}])", lambda: writer.append([value]))
        attempt(f"append_sequence({weird})", lambda: fresh.append_sequence(value))
        attempt(f"append_sequence([{weird}])", lambda: fresh.append_sequence([value]))
        fresh.close(timeout=2)
        attempt(f"flush(timeout={weird})", lambda: writer.flush(timeout=value))
    each_argument("create_item", writer.create_item, table="table", num_timesteps=1, priority=1.0)
    attempt("repr", lambda: repr(writer))
    attempt("again", lambda: writer.__init__(each, 1, False, 1, 1, None))
    writer.close(timeout=5)
    must_raise("closed: close", writer.close, ValueError)
    must_raise("closed: append", lambda: writer.append([1.0]))
    must_raise("closed: create_item", lambda: writer.create_item("table", 1, 1.0))
    must_raise("closed: flush", lambda: writer.flush())
"""

GROUPS["structured_writers"] = """
structured = reverb.structured
pattern = structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][-2:]})
config = structured.create_config(pattern, "table", [])
each_argument("create_config", structured.create_config, pattern=pattern, table="table", conditions=[], priority=None)
for weird, value in WEIRD.items():
    attempt(f"pattern_from_transform({weird})", lambda: structured.pattern_from_transform(value, lambda step: step[-1:]))
    attempt(f"a transform {weird}", lambda: structured.pattern_from_transform({"x": None}, value))
    attempt(f"a transform to {weird}", lambda: structured.pattern_from_transform({"x": None}, lambda step: value))
    attempt(f"a reference [{weird}]", lambda: structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][value]}))
    attempt(f"a reference [{weird}:]", lambda: structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][value:]}))
    attempt(f"create_reference_step({weird})", lambda: structured.create_reference_step(value))
    attempt(f"structured_writer({weird})", lambda: client.structured_writer(value))
    attempt(f"structured_writer([{weird}])", lambda: client.structured_writer([value]))
    attempt(f"conditions [{weird}]", lambda: client.structured_writer([structured.create_config(pattern, "table", [value])]))
    attempt(f"constant_priority_fn({weird})", lambda: structured.constant_priority_fn(value))
    attempt(f"step_index() >= {weird}", lambda: structured.Condition.step_index() >= value)
    attempt(f"step_index() % {weird} == 0", lambda: structured.Condition.step_index() % value == 0)
    attempt(f"step_index() % 2 == {weird}", lambda: structured.Condition.step_index() % 2 == value)
    attempt(f"Condition.data({weird})", lambda: structured.Condition.data(value))
    attempt(f"td_error({weird})", lambda: structured.td_error(value, pattern["y"]))
    attempt(f"td_error(1, {weird})", lambda: structured.td_error(1.0, value))
    attempt(f"infer_signature({weird})", lambda: structured.infer_signature(value, {"x": reverb.TensorSpec((), np.float32)}))
    attempt(f"infer_signature(, {weird})", lambda: structured.infer_signature([config], value))
    attempt(f"unpack_pattern({weird})", lambda: structured.unpack_pattern(value))
    attempt(f"bytes as a config {weird}", lambda: structured.Config.FromString(value))
    writer = client.structured_writer([config])
    attempt(f"a first step {weird}", lambda: writer.append(value))
    attempt(f"a first step of {weird}", lambda: writer.append({"x": value}))
    writer = client.structured_writer([config])
    for _ in range(3): writer.append({"x": 1.0})
    attempt(f"a step {weird}", lambda: writer.append(value))
    attempt(f"a step of {weird}", lambda: writer.append({"x": value}))
    attempt(f"flush({weird})", lambda: writer.flush(value, 500))
    attempt(f"end_episode({weird})", lambda: writer.end_episode(value, 500))
    attempt("close", lambda: writer.close())
    attempt("closed", lambda: writer.append({"x": 1.0}))
for numbers in itertools.product((None, 0, -1, 1, -5, 2**31 - 1, -(2**31)), repeat=3):
    def odd(numbers=numbers):
        node = structured.PatternNode(flat_source_index=0, **{name: number for name, number
               in zip(("start", "stop", "step"), numbers) if number is not None})
        other = structured.Config(flat=[node], pattern_structure=config.pattern_structure, table="table", priority=config.priority)
        writer = client.structured_writer([other])
        for _ in range(5): writer.append({"x": 1.0})
        writer.flush(0, 500)
    attempt(f"a pattern node {numbers}", odd)
for data in (b"", b"\\x00", b"\\xff" * 20, b"\\x0a\\xff\\xff\\xff\\xff\\x0f", config.SerializeToString()[:-1]):
    attempt(f"bytes {data[:10]}", lambda: client.structured_writer([structured.Config.FromString(data)]))
    attempt(f"bytes {data[:10]}", lambda: client.structured_writer([data]))
"""

GROUPS["specs_and_other_values"] = """
each_argument("TensorSpec", reverb.TensorSpec, shape=(1,), dtype=np.float32, name="x")
each_argument("BoundedTensorSpec", reverb.BoundedTensorSpec, shape=(1,), dtype=np.float32, minimum=0.0, maximum=1.0, name="x")
each_argument("importance_weights", reverb.importance_weights, samples=[], beta=1.0)
for weird, value in WEIRD.items():
    attempt(f"importance_weights({weird})", lambda: reverb.importance_weights(value))
    attempt(f"TFClient({weird})", lambda: reverb.TFClient(value))
    attempt(f"DefaultCheckpointer({weird})", lambda: reverb.checkpointers.DefaultCheckpointer(value))
    for name in ("interval", "on_stop", "keep_latest", "load_latest", "restore", "fallback_checkpoint_path"):
        attempt(f"a server with {name}={weird}", lambda: reverb.Server([make_table()],
            checkpointer=reverb.checkpointers.DefaultCheckpointer("/dev/null/nowhere", **{name: value})).stop())
    for function in (reverb.checkpoints.read, reverb.checkpoints.info, reverb.checkpoints.verify, reverb.checkpoints.find):
        attempt(f"{function.__name__}({weird})", lambda: function(value))
    attempt(f"convert({weird})", lambda: reverb.checkpoints.convert("/nowhere", value))
    attempt(f"_round_trip({weird})", lambda: reverb._core._round_trip(value))
    def signed(value=value):
        with reverb.Server([make_table(signature=value)]) as server:
            client = server.localhost_client()
            client.server_info(timeout=2)
            client.insert(value, {"table": 1.0}, timeout=2)
            next(client.sample("table", unpack_as_table_signature=True, timeout=0.1))
    attempt(f"a signature {weird}", signed)
    attempt(f"a spec of dtype {weird}", lambda: make_table(signature=reverb.TensorSpec((), value)))
for shape in ((-1,), (2**62, 2**62), (2**63,), (1,) * 65, (1,) * 10_000, ("a",), (1.5,), (None,) * 64):
    attempt(f"a shape {shape[:3]}", lambda: make_table(signature=reverb.TensorSpec(shape, np.float32)))
wide = {str(i): reverb.TensorSpec((), np.float32) for i in range(20_000)}
attempt("a wide signature", lambda: make_table(signature=wide))
"""


@pytest.mark.parametrize("group", GROUPS)
def test_wrong_arguments(group):
    check_program(GROUPS[group])
