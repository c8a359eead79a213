"""Tests objects that change or call back while they are read, uninitialised objects, extreme sizes."""

# ruff: noqa: E501 - programs inside strings
from __future__ import annotations

from hostile_values import check_program
import pytest

GROUPS = {}

# Containers that change while they are read, and objects that call back into their reader.
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

    # Objects that call the writer or client that reads them.
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
    # The only reference is dropped during the call.
    held = {"writer": each.trajectory_writer(1)}
    attempt("the writer is dropped", lambda: held.pop("writer").append(Treacherous(gc.collect)))
    short_lived = {"client": connect(server, "in_process" if each is client else "grpc")}
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
reverb.set_wait_log_after(0.1)
logging.getLogger("reverb").addHandler(Handler())
logging.raiseExceptions = False
sys.unraisablehook = lambda unraisable: None
logging.getLogger("reverb").propagate = False
attempt("a log handler that raises", lambda: (each.writer(1).__del__(), reverb.Client("localhost:1").server_info(timeout=0.5)))
"""

# Containers that Python code clears while they are read: the values from the start of the call are stored.
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
    watch()
    each.reset("table")
    others.clear()
    call()
    found = each.peek("table", 100, timeout=5)
    assert found, f"{name}: no item"
    for item in found:
        values = [np.asarray(column) for column in reverb._tree.flatten(item.data)]
        assert len(values) == 4, (name, values)
        for value, expected in zip(values, EXPECTED):
            assert (value == expected).all(), f"{name}: {value} was stored, {expected} was given"

def trajectory(each, make):
    with each.trajectory_writer(2) as writer:
        for step in range(2):  # the first step defines the structure, the second one must match it
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

    # Lists of indices that shrink: the remaining indices count.
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

    # An object that becomes a different array at each conversion.
    class Shrinking:
        looks = 0
        def __array__(self, *_, **__):
            self.looks += 1
            return np.ones(4 if self.looks == 1 else 1, np.int64)
    four = each.vector_writer(4, 2)
    four.append(np.ones(4))
    must_raise("priorities that shrink", lambda: four.create_items("table", Shrinking(), four.history[-1]), ValueError)

    # Classes that declare more fields than they have, or are not tuples.
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

    # A class with the name and interface of torch's, but less data: nothing beyond its bytes is read.
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
        # A subclass that does not call __init__.
        class Forgetful(kind):
            def __init__(self): pass
        def forgetful():
            thing = Forgetful()
            for attribute in ("insert", "server_info", "append", "flush", "close", "stop", "port", "info", "name", "history", "name",
                              "sample", "create_item", "end_episode", "numpy", "shape"):
                attempt(f"{name}.{attribute}, forgotten", lambda: getattr(thing, attribute)(*[1] * 0))
            repr(thing)
        attempt(f"{name}, forgetful", forgetful)
# Initialised twice.
for thing, arguments in ((connect(server, "in_process"), ("localhost:1",)), (connect(server, "grpc"), ("localhost:1",)),
                         (make_server(make_table()), ([make_table()],)), (client.trajectory_writer(1), (client, 1)), (reverb.selectors.Fifo(), ()),
                         (reverb.selectors.Prioritized(1.0), (2.0,)), (make_table(), ())):
    attempt(f"{type(thing).__name__}, twice", lambda: thing.__init__(*arguments))
for thing in (connect(server, "in_process"), reverb.selectors.Fifo(), client.trajectory_writer(1), client.sample("table"),
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
vast = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**50,), (0,))  # claims to have a petabyte
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
def test_hostile_objects(group):
    check_program(GROUPS[group])
