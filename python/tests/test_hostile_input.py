"""Wrong arguments of every kind, everywhere: each is an error of Python, none a crash, none a hang.

Every group is a process of its own. It prints what it does before it does it, so that a crash shows which call it was.
"""

# ruff: noqa: E501 - programs inside strings
from __future__ import annotations

import interpreters
import pytest

BATTERY = (
    interpreters.PRELUDE
    + r"""
import array, collections, copy, datetime, decimal, enum, fractions, io, itertools, logging, pickle, types, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
sys.stdout = io.TextIOWrapper(open(1, "wb", 0, closefd=False), write_through=True)
SECONDS_A_CALL = 15

server = make_server(make_table(), make_table("empty"), reverb.Table.queue("queue", 2))
client = server.localhost_client()
remote = connect(server, False)
client.insert({"x": 1.0}, {"table": 1.0})

outcomes = collections.Counter()

def attempt(name, call):
    '''The call may return, or raise what Python code may raise.'''
    print(name)
    faulthandler.dump_traceback_later(SECONDS_A_CALL, exit=True)
    try:
        call()
        outcomes["returned"] += 1
    except SystemError as error:
        raise AssertionError(f"{name}: a fault of the extension: {error!r}") from error
    except Exception as error:
        outcomes[type(error).__name__] += 1
    finally:
        faulthandler.cancel_dump_traceback_later()

def must_raise(name, call, *kinds):
    '''The call raises one of `kinds`, and says something.'''
    print(name)
    faulthandler.dump_traceback_later(SECONDS_A_CALL, exit=True)
    try:
        result = call()
    except SystemError:
        raise
    except kinds or (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError, OverflowError,
                     NotImplementedError, RecursionError, reverb.ReverbError) as error:
        assert str(error), f"{name}: no word about what is wrong: {error!r}"
        outcomes[type(error).__name__] += 1
    else:
        raise AssertionError(f"{name}: returned {result!r}")
    finally:
        faulthandler.cancel_dump_traceback_later()

class Evil:
    '''Raises whatever it is asked.'''
    def _raise(self, *_, **__): raise LookupError("evil")
    __array__ = __len__ = __getitem__ = __iter__ = __float__ = __int__ = __index__ = __bool__ = __eq__ = __lt__ = _raise
    __hash__ = __repr__ = __str__ = __call__ = __enter__ = __contains__ = __dlpack__ = __next__ = __format__ = _raise
    __array_interface__ = property(_raise)
    __array_struct__ = property(_raise)

class Liar:
    '''Answers, but nonsense.'''
    def __array__(self, *_, **__): return "no array"
    def __len__(self): return 3
    def __getitem__(self, i): raise IndexError
    def __iter__(self): return self
    def __next__(self): raise StopIteration
    def __float__(self): return float("nan")
    def __index__(self): return -1
    def __repr__(self): return "\ud800"

class Endless:
    def __iter__(self): return itertools.count()

class ShortTuple(collections.namedtuple("ShortTuple", "a b")):
    _fields = ("a", "b", "c")

class OddFields(tuple):
    _fields = 7

class FakeAttrs:
    __attrs_attrs__ = (types.SimpleNamespace(name="nothing"), 3)

class GrowingDict(dict):
    def keys(self):
        self[len(self)] = 1
        return dict.keys(self)
    __iter__ = lambda self: iter(self.keys())

class RaisingDict(dict):
    def __getitem__(self, key): raise LookupError("raising")
    def items(self): raise LookupError("raising")
    def keys(self): raise LookupError("raising")

class ManyFaces(enum.IntEnum):
    A = 1

recursive_list = []
recursive_list.append(recursive_list)
recursive_dict = {}
recursive_dict["again"] = recursive_dict
deep = []
for _ in range(100_000): deep = [deep]
deep_dict = {}
for _ in range(100_000): deep_dict = {"d": deep_dict}

WEIRD = {
    "None": None, "True": True, "-1": -1, "0": 0, "1": 1, "2**31": 2**31, "2**31-1": 2**31 - 1, "-2**31": -(2**31),
    "2**63": 2**63, "2**64": 2**64, "10**100": 10**100, "-10**100": -(10**100), "1.5": 1.5, "nan": float("nan"),
    "inf": float("inf"), "-inf": -float("inf"), "-0.0": -0.0, "1e308": 1e308, "1j": 1j, "empty str": "", "str": "no such",
    "NUL": "a\0b", "surrogate": "\ud800", "long str": "x" * 100_000, "table": "table", "bytes": b"\xff\x00", "[]": [], "{}": {},
    "()": (), "set": {1}, "object": object(), "class": int, "function": len, "...": ..., "NotImplemented": NotImplemented,
    "iterator": iter([1]), "range": range(3), "memoryview": memoryview(b"ab"), "bytearray": bytearray(b"ab"),
    "array.array": array.array("d", [1.0]), "decimal": decimal.Decimal(1), "fraction": fractions.Fraction(1, 3),
    "date": datetime.datetime(2020, 1, 1), "enum": ManyFaces.A, "module": sys, "exception": ValueError("x"),
    "slice": slice(None), "slice of nonsense": slice("a", {}, 1.5), "evil": Evil(), "liar": Liar(),
    "short tuple": ShortTuple(1, 2), "odd fields": OddFields((1, 2)), "fake attrs": FakeAttrs(), "growing": GrowingDict(a=1),
    "raising": RaisingDict(a=1), "recursive list": recursive_list, "recursive dict": recursive_dict, "deep": deep,
    "deep dict": deep_dict, "mixed keys": {1: 1, "a": 2}, "odd keys": {None: 1, (1, 2): 2}, "evil key": {"\ud800": 1},
    "array": np.zeros(3), "empty array": np.zeros((0, 3)), "0-d": np.array(1), "64 dims": np.zeros((1,) * 32),
    "objects": np.array([object()]), "none array": np.array([None]), "structured": np.zeros(2, [("a", "i4"), ("b", "f8")]),
    "datetime64": np.array(["2020-01-01"], "M8[D]"), "timedelta64": np.timedelta64(1, "s"), "void": np.zeros(1, "V5"),
    "longdouble": np.longdouble(1), "clongdouble": np.zeros(2, np.clongdouble), "big endian": np.zeros(2, ">f4"),
    "record": np.rec.array([(1, 2.0)]), "masked": np.ma.masked, "matrix": np.matrix([[1]]), "huge stride":
    np.lib.stride_tricks.as_strided(np.zeros(1), (2, 2), (0, 0)), "str array": np.array(["a\ud800"]), "client": client,
    "server": server, "read only": np.broadcast_to(np.zeros(1), (3,)), "numpy dtype": np.dtype("f4"), "nan key": {float("nan"): 1},
    "selector": reverb.selectors.Fifo(), "limiter": reverb.rate_limiters.MinSize(1), "spec": reverb.TensorSpec((1,), np.float32),
}
try:
    WEIRD["65 dims"] = np.zeros((1,) * 64)
except ValueError:
    pass  # NumPy 1 has 32 at most

def each_argument(what, function, /, **good):
    '''Calls function with one argument after the other replaced by every weird value.'''
    attempt(f"{what}, good", lambda: function(**good))
    for argument in good:
        for weird, value in WEIRD.items():
            attempt(f"{what}({argument}={weird})", lambda: function(**{**good, argument: value}))
    attempt(f"{what}()", lambda: function())
    attempt(f"{what}(nonsense=1)", lambda: function(nonsense=1))
    attempt(f"{what}, too many", lambda: function(*range(50)))

def still_works():
    '''After all that: the server, the clients, a writer.'''
    faulthandler.dump_traceback_later(60, exit=True)
    for each in (client, remote):
        each.reset("table")
        each.insert({"x": 1.0}, {"table": 1.0}, timeout=20)
        assert next(each.sample("table", timeout=20))[0].data[0] == 1.0
        with each.trajectory_writer(1, timeout=20) as writer:
            writer.append(1)
            writer.create_item("table", 1.0, writer.history[-1:])
        each.server_info(timeout=20)
    faulthandler.cancel_dump_traceback_later()
    server.stop()
    sys.stderr.flush()
    print("outcomes:", dict(outcomes))
    print("end")
"""
)

GROUPS = {}

GROUPS["tables"] = """
def table(name="t", sampler=None, remover=None, max_size=10, rate_limiter=None, max_times_sampled=0, extensions=(),
          signature=None):
    return reverb.Table(name, sampler, remover, max_size, rate_limiter, max_times_sampled, extensions, signature)
good = dict(name="t", sampler=reverb.selectors.Fifo(), remover=reverb.selectors.Lifo(), max_size=10,
            rate_limiter=reverb.rate_limiters.MinSize(1), max_times_sampled=0, extensions=(), signature=None)
each_argument("Table", table, **good)
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
# An odd exponent is a table with odd probabilities, or an error; never a fault.
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
fresh = lambda: [make_table()]
attempts = itertools.count()
for weird, value in WEIRD.items():
    attempt(f"Server(tables={weird})", lambda: reverb.Server(value))
    attempt(f"Server(tables=[{weird}])", lambda: reverb.Server([value]))
    attempt(f"Server(port={weird})", lambda: reverb.Server(fresh(), port=value).stop())
    attempt(f"Server(host={weird})", lambda: reverb.Server(fresh(), host=value).stop())
    attempt(f"Server(checkpointer={weird})", lambda: reverb.Server(fresh(), None, value).stop())
    if not (value is None or isinstance(value, (int, float)) and (value != value or value > 1)):
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
    attempt(f"an address {address[:30]!r}", lambda: reverb.Client(address).server_info(timeout=0.1))
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
# An iterator that is asked by a log handler or another iterator's consumer, at the same time, from threads.
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

# Containers that change while they are read, and objects that call back into whoever reads them.
GROUPS["treachery"] = """
class Treacherous:
    '''Does something when it is made an array.'''
    def __init__(self, act): self.act = act
    def __array__(self, *_, **__):
        self.act()
        return np.ones(3)

def containers():
    step = []
    step += [np.zeros(1000), Treacherous(lambda: step.clear()), np.zeros(1000)]
    yield "a list that is cleared", step
    longer = []
    longer += [1.0, Treacherous(lambda: longer.extend([1.0] * 1000)), 2.0]
    yield "a list that grows", longer
    mapping = {}
    mapping.update(a=np.zeros(1000), b=Treacherous(lambda: mapping.clear()), c=np.zeros(1000))
    yield "a dict that is cleared", mapping
    other = {}
    other.update(a=1.0, b=Treacherous(lambda: other.update({str(i): i for i in range(1000)})), c=2.0)
    yield "a dict that grows", other
    inner = [1.0, 2.0]
    outer = {"a": Treacherous(lambda: inner.clear()), "b": inner, "c": 1.0}
    yield "an inner list that is cleared", outer
    replaced = {"a": 1.0, "b": None}
    replaced["b"] = Treacherous(lambda: replaced.__setitem__("c", {"new": 1}))
    replaced["c"] = np.zeros(1000)
    yield "a leaf that becomes a dict", replaced
    class Key(str):
        def __lt__(self, other):
            keyed.clear()
            return str.__lt__(self, other)
        __hash__ = str.__hash__
    keyed = {}
    for name in "cab": keyed[Key(name)] = np.zeros(1000)
    yield "keys that clear their dict when they are compared", keyed
    class Shrinking(list):
        def __len__(self):
            return super().__len__() + 5
    yield "a list that says it is longer", Shrinking([1.0, 2.0])
    class Property(dict):
        __class__ = property(lambda self: (_ for _ in ()).throw(LookupError("class")))
    yield "a class that raises", Property(a=1.0)
    array = np.zeros(1000)
    def resize():
        try: array.resize(10_000_000, refcheck=False)
        except ValueError: pass
    yield "an array that is resized", [array, Treacherous(resize)]
    text = np.array(["a" * 100, "b"], object)
    def empty(): text[:] = None
    yield "strings that are taken away", [text, Treacherous(empty)]
    yield "garbage is collected", [1.0, Treacherous(gc.collect)]
    yield "an error inside", [1.0, Treacherous(lambda: 1 / 0)]
    yield "an exit inside", [1.0, Treacherous(lambda: (_ for _ in ()).throw(GeneratorExit()))]

for each in (client, remote):
    for name, _ in containers():
        find = lambda: next(value for other, value in containers() if other == name)
        def trajectory():
            writer = each.trajectory_writer(2)
            try: writer.append(find())
            finally:
                try: writer.append(find())
                finally: attempt("and then", lambda: writer.append([1.0, 1.0]))
        def legacy():
            writer = each.writer(2)
            try: writer.append(find())
            finally: writer.close(timeout=2)
        def structured():
            value = find()
            shape = {key: None for key in value} if isinstance(value, dict) else [None] * len(value)
            pattern = reverb.structured.pattern_from_transform(shape, lambda step: [step[key][-1:] for key in list(shape)]
                                                               if isinstance(shape, dict) else [step[0][-1:]])
            each.structured_writer([reverb.structured.create_config(pattern, "table", [])]).append(find())
        for call in (lambda: each.insert(find(), {"table": 1.0}, timeout=2), trajectory, legacy, structured):
            def guarded(call=call):
                try: call()
                except GeneratorExit as error: raise RuntimeError("ended") from error
            attempt(name, guarded)

    # Those who come back.
    writer = each.trajectory_writer(2)
    writer.append([1.0, np.zeros(3)])
    for name, act in {
        "append": lambda: writer.append([2.0, np.zeros(3)]),
        "flush": lambda: writer.flush(timeout_ms=100),
        "create_item": lambda: writer.create_item("table", 1.0, writer.history[0][-1:]),
        "end_episode": lambda: writer.end_episode(timeout_ms=100),
        "history": lambda: writer.history[0][-1].numpy(),
        "insert": lambda: each.insert(1, {"table": 1.0}, timeout=2),
        "sample": lambda: next(each.sample("table", timeout=2)),
        "another writer": lambda: each.trajectory_writer(1).append(1),
        "another thread": lambda: threading.Thread(target=lambda: writer.append([2.0, np.zeros(3)]), daemon=True).start(),
        "close": lambda: writer.close(),
    }.items():
        attempt(f"append calls {name}", lambda: writer.append([1.0, Treacherous(act)]))
        attempt("and then", lambda: writer.append([1.0, np.zeros(3)]))
    legacy = each.writer(2)
    for name, act in {
        "append": lambda: legacy.append([1.0]),
        "flush": lambda: legacy.flush(timeout=0.1),
        "close": lambda: legacy.close(timeout=0.1),
    }.items():
        attempt(f"legacy append calls {name}", lambda: legacy.append([Treacherous(act)]))
    # The only reference goes while the call runs.
    held = {"writer": each.trajectory_writer(1)}
    attempt("the writer is dropped", lambda: held.pop("writer").append(Treacherous(gc.collect)))
    short_lived = {"client": connect(server, each is client)}
    attempt("the client is dropped", lambda: short_lived.pop("client").insert(Treacherous(gc.collect), {"table": 1.0}, timeout=2))
    attempt("a priority that calls", lambda: each.insert(1, {"table": Treacherous(lambda: each.reset("table"))}, timeout=2))
    updates = {}
    class Number:
        def __float__(self):
            updates.clear()
            return 1.0
    updates.update({1: Number(), 2: Number(), 3: Number()})
    attempt("updates that vanish", lambda: each.mutate_priorities("table", updates, timeout=2))
    deletes = []
    class Index:
        def __index__(self):
            deletes.clear()
            return 1
    deletes += [Index(), Index(), Index()]
    attempt("deletes that vanish", lambda: each.mutate_priorities("table", deletes=deletes, timeout=2))
    attempt("keys that vanish", lambda: each.update_priorities("table", deletes, [1.0], timeout=2))

class Handler(logging.Handler):
    def emit(self, record): raise LookupError("a handler")
logging.disable(logging.NOTSET)
logging.getLogger("reverb").addHandler(Handler())
logging.raiseExceptions = False
sys.unraisablehook = lambda unraisable: None
logging.getLogger("reverb").propagate = False
attempt("a log handler that raises", lambda: (each.writer(1).__del__(), reverb.Client("localhost:1").server_info(timeout=3)))
"""

# Containers that Python code empties while they are read: what is stored is what they held when the call began.
GROUPS["vanishing_values"] = """
others = []
class Clearing:
    '''Empties its container when it becomes an array, and fills the memory that is freed with other values.'''
    def __init__(self, clear, shape=(3,)):
        self.clear = clear
        self.shape = shape
    def __array__(self, *_, **__):
        self.clear()
        gc.collect()
        for i in range(200):
            others.append((np.full(self.shape, -1.0 - i), -1.0 - i, str(i) * 3))
        return np.full(self.shape, 5.0)

SHAPE = (4,)  # a row for each environment of the vector writer
def dict_step():
    step = {}
    step.update(a=Clearing(step.clear, SHAPE), b=np.full(SHAPE, 7.0), c=np.float64(8.0) * np.ones(SHAPE), d=np.full(SHAPE, 9.0))
    return step
def nested_step():
    inner = {}
    outer = {"a": inner, "b": [np.full(SHAPE, 8.0), np.full(SHAPE, 9.0)]}
    def clear():
        outer["b"].clear()
        inner.clear()
        outer.clear()
    inner.update(x=Clearing(clear, SHAPE), y=np.full(SHAPE, 7.0))
    return outer
def list_step():
    step = []
    step += [Clearing(step.clear, SHAPE), np.full(SHAPE, 7.0), [np.full(SHAPE, 8.0)], np.full(SHAPE, 9.0)]
    return step
EXPECTED = [5.0, 7.0, 8.0, 9.0]

def check(name, each, call, rows=1):
    print(name)
    faulthandler.dump_traceback_later(SECONDS_A_CALL, exit=True)
    each.reset("table")
    others.clear()
    call()
    found = each.peek("table", 100, timeout=5)
    assert found, f"{name}: no item"
    for item in found:
        values = [np.asarray(column) for column in item.data]
        assert len(values) == 4, (name, values)
        for value, expected in zip(values, EXPECTED):
            assert (value == expected).all(), f"{name}: {value} was stored, {expected} was given"
    faulthandler.cancel_dump_traceback_later()

def trajectory(each, make):
    with each.trajectory_writer(2) as writer:
        for step in range(2):  # one that is new to the writer, one that is walked
            writer.append(make())
            column = reverb._tree.map_structure(lambda column: column[-1:], writer.history)
            writer.create_item("table", 1.0, column)
def vector(each, make):
    with each.vector_writer(SHAPE[0], 2) as writer:
        for step in range(2):
            writer.append(make())
            writer.create_items("table", 1.0, reverb._tree.map_structure(lambda column: column[-1], writer.history))
def legacy(each, make):
    writer = each.writer(2)
    for step in range(2):
        writer.append(make())
        writer.create_item("table", 1, 1.0)
    writer.close(timeout=5)
def structured(each, make):
    pattern = reverb.structured.pattern_from_transform(
        reverb._tree.map_structure(lambda _: None, make()),
        lambda step: reverb._tree.map_structure(lambda leaf: leaf[-1:], step))
    writer = each.structured_writer([reverb.structured.create_config(pattern, "table", [])])
    for step in range(2): writer.append(make())
    writer.flush()
def insert(each, make):
    for step in range(2): each.insert(make(), {"table": 1.0}, timeout=5)

for each in (client, remote):
    for make in (dict_step, nested_step, list_step):
        for write in (trajectory, vector, legacy, structured, insert):
            for _ in range(5): check(f"{write.__name__} of a {make.__name__}", each, lambda: write(each, make))

    # Priorities of a dict that is cleared: each table gets its own.
    class Priority:
        def __float__(self):
            priorities.clear()
            others.extend("x" * 60 for _ in range(200))
            return 2.0
    for _ in range(5):
        each.reset("table"); each.reset("empty")
        priorities = {}
        priorities.update(table=Priority(), empty=float("3.25"))
        each.insert(1.0, priorities, timeout=5)
        assert [each.peek(name, 1)[0].info.priority for name in ("table", "empty")] == [2.0, 3.25]

    # Lists of indices that shrink: those that are left count.
    writer = each.trajectory_writer(10)
    many = each.vector_writer(1, 10)
    for i in range(10):
        writer.append(float(i))
        many.append(np.array([float(i)]))
    class Index:
        def __init__(self, value): self.value = value
        def __index__(self):
            del indices[1:]
            others.extend(object() for _ in range(200))
            return self.value
    for indexed in (writer.history, writer.history[:]):
        indices = [Index(3)] + [Index(4) for _ in range(1000)]
        assert indexed[indices].numpy().tolist() == [3.0]
    indices = [Index(3)] + [Index(4) for _ in range(1000)]
    each.reset("table")
    many.create_items("table", 1.0, many.history[indices])
    many.flush()
    assert each.peek("table", 1)[0].data[0].tolist() == [3.0]

    # What is another array at each look.
    class Shrinking:
        looks = 0
        def __array__(self, *_, **__):
            self.looks += 1
            return np.ones(4 if self.looks == 1 else 1, np.int64)
    four = each.vector_writer(4, 2)
    four.append(np.ones(4))
    must_raise("priorities that shrink", lambda: four.create_items("table", Shrinking(), four.history[-1]), ValueError)

    # Classes that declare more than they have, or are no tuples at all.
    class Long(collections.namedtuple("Long", "a b")):
        _fields = ("a", "b", "c", "d", "e")
        c = d = e = property(lambda self: 1.0)
    class NoTuple:
        _fields = ("a", "b")
        __class__ = tuple
        a = b = property(lambda self: 1.0)
    for make in (lambda: Long(1.0, 2.0), NoTuple):
        fresh = each.trajectory_writer(2)
        for _ in range(3): attempt("fields that are not there", lambda: fresh.append(make()))
        for _ in range(3): attempt("fields that are not there", lambda: fresh.append({"x": make()}))

    # A class that is called as torch's, whose bits are bytes: nothing beyond them is read.
    class Tensor:
        dtype = "torch.bfloat16"
        def detach(self): return self
        def contiguous(self): return self
        def view(self, *_): return self
        def numpy(self): return np.ones(3, np.uint8)
    sys.modules.setdefault("torch", types.SimpleNamespace(int16=None))
    writer = each.trajectory_writer(1)
    writer.append(Tensor())
    try: import ml_dtypes
    except ImportError: continue
    assert writer.history[-1].numpy().view(np.uint16).tolist() == [1, 1, 1]
"""

GROUPS["objects_that_were_not_made"] = """
import inspect
for module in (reverb, reverb.pybind):
    for name in module.__all__:
        kind = getattr(module, name)
        if not inspect.isclass(kind): continue
        for make in (lambda: kind.__new__(kind), lambda: object.__new__(kind), lambda: copy.copy(kind)):
            try: thing = make()
            except Exception: continue
            if inspect.isclass(thing): continue
            for attribute in dir(thing):
                attempt(f"{name}.{attribute}, not made", lambda: getattr(thing, attribute))
                if attribute in ("__class__", "__init_subclass__", "__subclasshook__", "wait"): continue
                attempt(f"{name}.{attribute}(), not made", lambda: getattr(thing, attribute)())
                attempt(f"{name}.{attribute}(1), not made", lambda: getattr(thing, attribute)(1))
            del thing
            gc.collect()
        # A class of one's own that forgets to call __init__.
        class Forgetful(kind):
            def __init__(self): pass
        def forgetful():
            thing = Forgetful()
            for attribute in ("insert", "server_info", "append", "flush", "close", "stop", "port", "info", "name", "history", "name",
                              "sample", "create_item", "end_episode", "numpy", "shape"):
                attempt(f"{name}.{attribute}, forgotten", lambda: getattr(thing, attribute)(*[1] * 0))
            repr(thing)
        attempt(f"{name}, forgetful", forgetful)
# Made twice.
for thing, arguments in ((connect(server, True), ("localhost:1",)), (connect(server, False), ("localhost:1",)),
                         (make_server(make_table()), ([make_table()],)), (client.trajectory_writer(1), (client, 1)), (reverb.selectors.Fifo(), ()),
                         (reverb.selectors.Prioritized(1.0), (2.0,)), (make_table(), ())):
    attempt(f"{type(thing).__name__}, twice", lambda: thing.__init__(*arguments))
for thing in (connect(server, True), reverb.selectors.Fifo(), client.trajectory_writer(1), client.sample("table"),
              make_server(make_table()), make_table()):
    for name in ("__dict__", "__class__", "nonsense"):
        attempt(f"{type(thing).__name__}.{name} = 1", lambda: setattr(thing, name, 1))
        attempt(f"del {type(thing).__name__}.{name}", lambda: delattr(thing, name))
"""

GROUPS["sizes"] = """
for shape in ((0,), (0, 2**40), (2**40, 0), (1,) * 32, (0,) * 32):
    def odd(shape=shape):
        value = np.zeros(shape, np.float32)
        for each in (client, remote):
            each.reset("table")
            each.insert(value, {"table": 1.0}, timeout=5)
            assert next(each.sample("table", emit_timesteps=False, timeout=5)).data[0].shape == (1, *shape)
    attempt(f"a shape {shape[:3]}, {len(shape)} dims", odd)
vast = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**50,), (0,))  # says it has a petabyte
for each in (client, remote):
    must_raise("a petabyte", lambda: each.insert(vast, {"table": 1.0}, timeout=5), MemoryError, ValueError, IndexError, RuntimeError)
    attempt("a petabyte, written", lambda: each.trajectory_writer(1).append(vast))
    for many in (2**31 - 1, 2**40, 2**62):
        attempt(f"{many} refs", lambda: each.trajectory_writer(many).append(1))
        attempt(f"a sequence of {many}", lambda: each.writer(many, chunk_length=many).append([1]))
        attempt(f"a chunk of {many}", lambda: (w := each.trajectory_writer(1), w.configure((), num_keep_alive_refs=1,
                                               max_chunk_length=many), w.append(1)))
        attempt(f"{many} samples", lambda: next(each.sample("table", many, timeout=2)))
        attempt(f"peek {many}", lambda: each.peek("table", many, timeout=2))
    attempt("many columns", lambda: each.insert([1] * 20_000, {"table": 1.0}, timeout=10))
    attempt("many names", lambda: each.insert(1, {f"table {i}": 1.0 for i in range(10_000)}, timeout=10))
    attempt("a long string", lambda: each.insert("x" * 10_000_000, {"table": 1.0}, timeout=10))
    attempt("many strings", lambda: each.insert(np.array([""] * 100_000, object), {"table": 1.0}, timeout=10))
    attempt("many updates", lambda: each.update_priorities("table", np.arange(200_000), np.ones(200_000), timeout=10))
    attempt("an odd update", lambda: each.update_priorities("table", np.zeros((2, 2), int), np.zeros((2, 2)), timeout=10))
    attempt("floats as keys", lambda: each.update_priorities("table", np.zeros(2), np.zeros(2), timeout=10))
for size in (2**31 - 1, 2**30):
    attempt(f"a table of {size}", lambda: reverb.Table("t", reverb.selectors.Prioritized(1.0), reverb.selectors.Uniform(), size,
                                                       reverb.rate_limiters.MinSize(1)).info)
"""


@pytest.mark.parametrize("group", GROUPS)
def test_wrong_arguments(group):
    out = interpreters.run(GROUPS[group] + "\nstill_works()\n", prelude=BATTERY, seconds=60, quiet=False)
    assert out.endswith("end\n")
