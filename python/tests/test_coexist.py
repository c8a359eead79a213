"""Tests other libraries in the same process: TensorFlow, Torch, JAX, gRPC, protobuf, and preloaded allocators.

Each case runs in a separate process, so that a crash is a failure that names its signal. Libraries that are not
installed are skipped; tools/coexist.sh creates environments that have them.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from pathlib import Path
import subprocess

import interpreters
import pytest

# --- Libraries in the same process ---

# How each library is imported and used; several threads call a function with this body.
USES = {
    "tensorflow": """
        import tensorflow as tf
        assert float(tf.reduce_sum(tf.matmul(tf.ones((8, 8)), tf.ones((8, 8))))) == 512.0
        assert [int(x) for x in tf.data.Dataset.range(5).prefetch(1)] == [0, 1, 2, 3, 4]
        tf.function(lambda x: x + 1)(tf.constant(1)).numpy()
        assert tf.make_ndarray(tf.make_tensor_proto([1, 2])).tolist() == [1, 2]
    """,
    "torch": """
        import torch
        x = torch.ones(64, 64, requires_grad=True)
        (x @ x).sum().backward()
        assert float(x.grad[0, 0]) == 128.0
    """,
    "jax": """
        import jax, jax.numpy as jnp
        assert float(jax.jit(lambda x: (x @ x).sum())(jnp.ones((8, 8)))) == 512.0
    """,
    "grpc": """
        import grpc
        from concurrent import futures
        class Echo(grpc.GenericRpcHandler):
            def service(self, details):
                return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        server = grpc.server(futures.ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers([Echo()])
        port = server.add_insecure_port("localhost:0")
        server.start()
        with grpc.insecure_channel(f"localhost:{port}") as channel:
            call = channel.unary_unary("/echo/Echo")
            for i in range(50):
                assert call(b"%d" % i, timeout=30) == b"%d" % i
        server.stop(None).wait()
    """,
    "google.protobuf": """
        from google.protobuf import struct_pb2, json_format
        message = json_format.ParseDict({"a": [1, {"b": None}]}, struct_pb2.Struct())
        assert struct_pb2.Struct.FromString(message.SerializeToString()) == message
        from reverb.cc import schema_pb2
        item = schema_pb2.PrioritizedItem(key=5, table="t")
        assert schema_pb2.PrioritizedItem.FromString(item.SerializeToString()).key == 5
    """,
    "tree": """
        import tree
        assert tree.flatten({"b": 1, "a": [2, 3]}) == [2, 3, 1]
    """,
    "ml_dtypes": """
        import ml_dtypes, numpy
        assert numpy.ones(3, ml_dtypes.bfloat16).sum() == 3
    """,
}


def is_installed(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


INSTALLED = [module for module in USES if is_installed(module)]


def needs(module):
    return pytest.param(module, marks=pytest.mark.skipif(not is_installed(module), reason=f"{module} is not installed"))


# --- Allocators ---

ALLOCATORS = {
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
    "jemalloc": ("libjemalloc.so.2",),
    "mimalloc": ("libmimalloc.so.2", "libmimalloc.so.3"),
}


@functools.cache
def known_libraries():
    """Returns the libraries that the dynamic linker finds by name, with their paths."""
    for tool in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            lines = subprocess.run([tool, "-p"], capture_output=True, text=True, check=True).stdout.splitlines()
        except (OSError, subprocess.CalledProcessError):
            continue
        return {line.split()[0]: line.split(" => ")[1] for line in lines if " => " in line}
    return {}


def allocator_path(allocator):
    for name in ALLOCATORS[allocator]:
        if name in known_libraries():
            return str(Path(known_libraries()[name]).resolve())
    return None


def allocators():
    absent = {name: pytest.mark.skipif(allocator_path(name) is None, reason=f"no {name} here") for name in ALLOCATORS}
    return [pytest.param(None, id="malloc"), *(pytest.param(name, marks=absent[name]) for name in ALLOCATORS)]


def preload(allocator):
    return {} if allocator is None else {"LD_PRELOAD": allocator_path(allocator)}


# --- The work ---

# Thousands of calls from two threads, over a socket and in process, with checks of the results.
WORK = """
import faulthandler, os, sys, threading
faulthandler.enable()
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

def exchange(rounds, options, server, wrong):
    try:
        import numpy as np
        import reverb
        rng = np.random.default_rng(rounds)
        client = reverb.Client(f"localhost:{server.port}", **options)
        for i in range(rounds):
            data = {"image": rng.integers(0, 255, (20, 20), np.uint8), "text": b"abc", "i": i}
            client.insert(data, {"table": 1.0 + i})
            (step,) = next(client.sample("table"))
            number, image, text = step.data
            assert (number.dtype, image.shape, text.item()) == (np.int64, (20, 20), b"abc")
            if i % 50 == 0:
                client.server_info()
                client.mutate_priorities("table", {step.info.key: 2.0})
        with client.trajectory_writer(4) as writer:
            for i in range(rounds):
                writer.append({"x": np.full(1000, i, np.float32), "y": i})
                if i >= 3:
                    history = writer.history
                    writer.create_item("queue", 1.0, {"x": history["x"][-4:], "y": history["y"][-1]})
                    writer.flush()
                    sample = next(client.sample("queue", emit_timesteps=False, timeout=30))
                    x, y = sample.data
                    assert x.shape == (4, 1000) and (x[:, 0] == range(y - 3, y + 1)).all()
        for sample in client.sample("table", rounds, emit_timesteps=False):
            assert len(sample.data) == 3
    except BaseException as error:
        import traceback
        traceback.print_exc()
        wrong.append(error)

def work(rounds=300):
    import reverb
    table = reverb.Table("table", reverb.selectors.Prioritized(0.8), reverb.selectors.Fifo(), 500,
                         reverb.rate_limiters.MinSize(1))
    wrong = []
    with reverb.Server([table, reverb.Table.queue("queue", 1000)]) as server:
        threads = [threading.Thread(target=exchange, args=(rounds, options, server, wrong))
                   for options in ({}, {"in_process": False}, {"in_process": False, "local": False})]
        for thread in threads: thread.start()
        yield
        for thread in threads: thread.join()
    assert not wrong, wrong

def work_while(use, rounds=300):
    for _ in work(rounds):
        for _ in range(3): use()

def preloaded():
    wanted = os.environ.get("LD_PRELOAD")
    if wanted:
        assert wanted in open("/proc/self/maps").read(), "the allocator is not there"

preloaded()
"""


def use(module):
    lines = USES[module].strip().splitlines()
    return f"def use_{module.replace('.', '_')}():\n" + "\n".join(
        "    " + line.removeprefix("        ") for line in lines
    )


def calls(*modules):
    return "\n".join(f"use_{module.replace('.', '_')}()" for module in modules)


@pytest.mark.parametrize("allocator", allocators())
def test_alone(allocator):
    interpreters.run(
        WORK + f"import reverb\nwork_while(lambda: None, {1000 if allocator else 2000})\n", prelude="", seconds=60, **preload(allocator)
    )


@pytest.mark.parametrize("allocator", allocators())
@pytest.mark.parametrize("order", ["first", "last", "while_it_works"])
@pytest.mark.parametrize("module", [needs(module) for module in USES])
def test_with_another(module, order, allocator):
    """`order` is when the other library is imported: before reverb, after it, or while reverb is in use."""
    name = f"use_{module.replace('.', '_')}"
    light = module in ("google.protobuf", "tree", "ml_dtypes")
    if light and (order == "while_it_works" or allocator is not None):
        pytest.skip("enough is known from its other cases")
    program = {
        "first": f"import {module}\nimport reverb\n{name}()\n",
        "last": f"import reverb\nimport {module}\n{name}()\n",
        "while_it_works": "import reverb\n",
    }[order]
    interpreters.run(
        WORK + use(module) + "\n" + program + f"work_while({name}, {200 if light else 1000})\n{name}()\n",
        prelude="",
        seconds=120,
        quiet=False,
        **preload(allocator),
    )


@pytest.mark.skipif(len(INSTALLED) < 2, reason="fewer than two others are installed")
@pytest.mark.parametrize("allocator", allocators())
@pytest.mark.parametrize("order", ["first", "last"])
def test_with_all_of_them(order, allocator):
    uses = "\n".join(use(module) for module in INSTALLED)
    others = "\n".join(f"import {module}" for module in INSTALLED)
    imports = f"{others}\nimport reverb\n" if order == "first" else f"import reverb\n{others}\n"
    interpreters.run(
        f"{WORK}\n{uses}\n{imports}\n{calls(*INSTALLED)}\nwork_while(lambda: None)\n{calls(*INSTALLED)}\n",
        prelude="",
        seconds=120,
        quiet=False,
        **preload(allocator),
    )


@pytest.mark.parametrize("pair", list(itertools.permutations(["tensorflow", "torch", "jax", "grpc"], 2)), ids="-".join)
def test_between_two(pair):
    """Imports one library before reverb and the other one after it."""
    if missing := [module for module in pair if module not in INSTALLED]:
        pytest.skip(f"{' and '.join(missing)} not installed")
    interpreters.run(
        f"{WORK}\n{use(pair[0])}\n{use(pair[1])}\nimport {pair[0]}\nimport reverb\nimport {pair[1]}\n"
        f"{calls(*pair)}\nwork_while(lambda: None)\n{calls(*pair)}\n",
        prelude="",
        seconds=120,
        quiet=False,
    )


# --- Values of other libraries ---

VALUES = (
    interpreters.PRELUDE
    + """
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
server = make_server(make_table())
client = server.localhost_client()

def there_and_back(value):
    for transport in ("in_process", "local", "grpc"):
        client = connect(server, transport)
        with client.trajectory_writer(1) as writer:
            writer.append({"x": value})
            writer.create_item("table", 1.0, {"x": writer.history["x"][-1]})
        back = next(client.sample("table", emit_timesteps=False)).data[0]
        client.insert({"x": value}, {"table": 1.0})
        client.reset("table")
    return back

def same(value, expected):
    back = there_and_back(value)
    expected = np.asarray(expected)
    assert back.dtype == expected.dtype, (back.dtype, expected.dtype)
    assert back.shape == expected.shape, (back.shape, expected.shape)
    assert back.tobytes() == expected.tobytes(), (back, expected)

def refused(value, *kinds):
    try: there_and_back(value)
    except kinds or (TypeError, ValueError, RuntimeError) as error: assert str(error)
    else: raise AssertionError(f"{value!r} was taken")
"""
)


def run_with_values(code):
    interpreters.run(code + "\nserver.stop()\n", prelude=VALUES, seconds=60, quiet=False)


@pytest.mark.parametrize("module", [needs("tensorflow")])
def test_values_of_tensorflow(module):
    run_with_values("""
import tensorflow as tf
for dtype in (tf.float16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32,
              tf.uint64, tf.complex64, tf.complex128, tf.bfloat16):
    value = tf.cast(tf.reshape(tf.range(6), (2, 3)), dtype)
    same(value, value.numpy())
    same(tf.transpose(value), value.numpy().T.copy())
same(tf.constant(3.5), np.float32(3.5))
same(tf.constant([True, False]), [True, False])
same(tf.Variable([1.0, 2.0]), np.float32([1, 2]))
assert there_and_back(tf.constant(["a", "bc"])).tolist() == [b"a", b"bc"]
refused(tf.TensorSpec((1,)))
refused(tf.ragged.constant([[1], [2, 3]]))
client.insert(tf.constant(1), {"table": tf.constant(2.0)})
(step,) = next(client.sample("table"))
assert step.info.priority == 2.0
client.mutate_priorities("table", {step.info.key: tf.constant(3.0)})
assert next(client.sample("table"))[0].info.priority == 3.0
""")


@pytest.mark.parametrize("module", [needs("tensorflow")])
def test_a_bfloat16_of_tensorflow_alone(module):
    """Its __array__ returns a scalar, which NumPy refuses; numpy() gives the same."""
    run_with_values("""
import tensorflow as tf
same(tf.constant(3.5, tf.bfloat16), tf.constant(3.5, tf.bfloat16).numpy())
""")


@pytest.mark.parametrize("module", [needs("tensorflow")])
def test_signatures_are_those_of_tensorflow(module):
    run_with_values("""
import tensorflow as tf
signature = {"a": tf.TensorSpec((3,), tf.float32, name="a"),
             "b": [tf.TensorSpec((None, 2), tf.int64), tf.TensorSpec((2,), tf.bfloat16)],
             "c": tf.TensorSpec((), tf.string), "d": tf.TensorSpec(None, tf.uint8)}
with make_server(make_table(signature=signature)) as signed:
    for transport in ("in_process", "local", "grpc"):
        client = connect(signed, transport)
        back = client.server_info()["table"].signature
        for spec in tf.nest.flatten(back): assert type(spec) is tf.TensorSpec, type(spec)
        assert back["a"] == signature["a"], back
        for there, here in zip(tf.nest.flatten(back), tf.nest.flatten(signature)):
            assert (there.dtype, str(there.shape)) == (here.dtype, str(here.shape)), (there, here)
        step = {"a": tf.zeros(3), "b": [tf.zeros((4, 2), tf.int64), tf.zeros((2,), tf.bfloat16)], "c": tf.constant("x"),
                "d": tf.zeros((1, 2), tf.uint8)}
        client.insert(step, {"table": 1.0})
        (sample,) = next(client.sample("table", unpack_as_table_signature=True))
        assert sorted(sample.data) == ["a", "b", "c", "d"]
        try: client.insert({**step, "a": tf.zeros(4)}, {"table": 1.0})
        except ValueError as error: assert "table" in str(error)
        else: raise AssertionError
from tensorflow.python.framework import tensor_spec  # not public, but in use
bound = tensor_spec.BoundedTensorSpec((2,), tf.float32, [0.0, 0.0], [1.0, 2.0])
with make_server(make_table(signature=bound)) as signed:
    back = signed.localhost_client().server_info()["table"].signature
    assert type(back) is tensor_spec.BoundedTensorSpec and back.maximum.tolist() == [1.0, 2.0], back
""")


def test_signatures_without_tensorflow_are_our_own():
    run_with_values("""
with make_server(make_table(signature={"a": reverb.TensorSpec((3,), np.float32)})) as signed:
    assert isinstance(signed.localhost_client().server_info()["table"].signature["a"], reverb.TensorSpec)
assert "tensorflow" not in sys.modules
""")


@pytest.mark.parametrize("module", [needs("torch")])
def test_values_of_torch(module):
    run_with_values("""
import torch
for dtype in (torch.float16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64,
              torch.uint8, torch.bool, torch.complex64, torch.complex128):
    value = torch.arange(6).reshape(2, 3).to(dtype)
    same(value, value.numpy())
    same(value.t(), value.numpy().T.copy())
    same(value[:, ::2], value.numpy()[:, ::2].copy())
    same(value[1], value.numpy()[1])
same(torch.tensor(3.5), np.float32(3.5))
same(torch.zeros(0, 3), np.zeros((0, 3), np.float32))
same(torch.ones(3).expand(2, 3), np.ones((2, 3), np.float32))
same(torch.nn.Parameter(torch.ones(2), requires_grad=False), np.ones(2, np.float32))
refused(torch.eye(3).to_sparse())
client.insert(torch.tensor([1.0]), {"table": torch.tensor(2.0)})
(step,) = next(client.sample("table"))
assert step.info.priority == 2.0
keys = torch.tensor([step.info.key % 2**63])
client.update_priorities("table", keys, torch.tensor([3.0]))
# Samples may be wrapped without a copy and written to, and outlive the server.
array = next(client.sample("table", emit_timesteps=False)).data[0]
tensor = torch.from_numpy(array)
tensor += 1
server.stop()
del array
gc.collect()
assert tensor.tolist() == [[2.0]]
""")


@pytest.mark.parametrize("module", [needs("torch")])
def test_bfloat16_of_torch(module):
    pytest.importorskip("ml_dtypes")
    run_with_values("""
import ml_dtypes, torch
value = torch.arange(6).reshape(2, 3).to(torch.bfloat16)
expected = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
same(value, expected)
same(value.t(), expected.T.copy())
same(torch.tensor(2.0, dtype=torch.bfloat16), np.asarray(2.0, ml_dtypes.bfloat16))
""")


@pytest.mark.parametrize("module", [needs("torch")])
def test_tensors_of_torch_with_gradients(module):
    run_with_values("""
import torch
value = torch.ones(2, requires_grad=True)
try: same(value, np.ones(2, np.float32))
except RuntimeError as error: assert "detach" in str(error), error
""")


@pytest.mark.parametrize("module", [needs("jax")])
def test_values_of_jax(module):
    run_with_values("""
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
for dtype in ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
              "bool", "complex64", "complex128", "bfloat16"):
    value = jnp.arange(6).reshape(2, 3).astype(dtype)
    same(value, np.asarray(value))
    same(value.T, np.asarray(value).T.copy())
same(jnp.float32(3.5), np.float32(3.5))
same(jax.random.PRNGKey(1), np.asarray(jax.random.PRNGKey(1)))
refused(jax.random.key(1))
refused(jax.ShapeDtypeStruct((1,), np.float32))
client.insert({"a": jnp.ones(3), "b": [jnp.zeros(())]}, {"table": jnp.float32(2.0)})
(step,) = next(client.sample("table"))
assert step.info.priority == 2.0
seen = []
@jax.jit
def traced(x):
    try: client.insert(x, {"table": 1.0})
    except Exception as error: seen.append(error)  # no value yet: an error, not a crash
    return x
traced(jnp.ones(2))
assert len(seen) == 1
""")


@pytest.mark.parametrize("module", [needs("ml_dtypes")])
def test_values_of_ml_dtypes(module):
    run_with_values("""
import ml_dtypes
value = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
same(value, value)
same(value.T, value.T.copy())
same(value[0, 1], value[0, 1])
refused(value.astype(ml_dtypes.float8_e4m3fn), TypeError)
""")


@pytest.mark.parametrize("module", [needs("tree")])
def test_structures_of_dm_tree(module):
    run_with_values("""
import collections, tree
Pair = collections.namedtuple("Pair", "right left")
nest = {"b": [np.int64(1), (np.int64(2),)], "a": Pair(np.int64(3), {"z": np.int64(4), "y": np.int64(5)}),
        "c": collections.OrderedDict(q=np.int64(6), p=np.int64(7))}
client.insert(nest, {"table": 1.0})
(step,) = next(client.sample("table"))
assert [int(x) for x in step.data] == [int(x) for x in tree.flatten(nest)], step.data
""")


def test_anything_that_can_become_an_array():
    run_with_values("""
class WithArray:
    def __init__(self, array): self.array = array
    def __array__(self, dtype=None, copy=None): return self.array
class WithInterface:
    def __init__(self, array): self.array, self.__array_interface__ = array, array.__array_interface__
class WithBuffer(bytearray): pass
x = np.arange(6, dtype=np.float32).reshape(2, 3)
same(WithArray(x), x)
same(WithArray(x.T), x.T.copy())
same(WithInterface(x), x)
same(np.ma.masked_array(x, x > 3), x)
same(np.matrix([[1.0, 2.0]]), np.array([[1.0, 2.0]]))
""")


def test_what_speaks_dlpack_alone():
    run_with_values("""
class WithDlpack:
    def __init__(self, array): self.array = array
    def __dlpack__(self, **arguments): return self.array.__dlpack__(**arguments)
    def __dlpack_device__(self): return self.array.__dlpack_device__()
x = np.arange(6, dtype=np.float32).reshape(2, 3)
same(WithDlpack(x), x)
same(WithDlpack(x.T), x.T.copy())
""")
