"""Values that no caller should pass, and programs that pass them to each call of the package.

A program runs in a process of its own. It prints each call before it makes it, so that a crash shows which call it was.
"""

# ruff: noqa: E501 - programs inside strings
from __future__ import annotations

import interpreters

BATTERY = (
    interpreters.PRELUDE
    + r"""
import array, collections, copy, datetime, decimal, enum, fractions, io, itertools, logging, pickle, types, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
sys.stdout = io.TextIOWrapper(open(1, "wb", 0, closefd=False), write_through=True)
SECONDS_A_CALL = 15

server = make_server(make_table(), make_table("empty"), reverb.Table.queue("queue", 2, layout="any"))
client = server.localhost_client()
remote = connect(server, "grpc")
client.insert({"x": 1.0}, {"table": 1.0})

outcomes = collections.Counter()
watched_from = -1.0

def watch():
    '''Ends the process if the next call hangs. Setting the timer starts a thread, so it is set once a second.'''
    global watched_from
    if time.monotonic() > watched_from + 1:
        watched_from = time.monotonic()
        faulthandler.dump_traceback_later(SECONDS_A_CALL, exit=True)

def attempt(name, call):
    '''The call may return, or raise what Python code may raise.'''
    print(name)
    watch()
    try:
        call()
        outcomes["returned"] += 1
    except SystemError as error:
        raise AssertionError(f"{name}: a fault of the extension: {error!r}") from error
    except Exception as error:
        outcomes[type(error).__name__] += 1

def must_raise(name, call, *kinds):
    '''The call raises one of `kinds`, and says something.'''
    print(name)
    watch()
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
    pass  # NumPy 1 allows at most 32 dimensions

gc.collect()
gc.freeze()  # the deep values make each collection slow

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


def check_program(code):
    """Runs `code` after the battery: no call crashes or hangs, and the server works afterwards."""
    out = interpreters.run(code + "\nstill_works()\n", prelude=BATTERY, seconds=60, quiet=False)
    assert out.endswith("end\n")
