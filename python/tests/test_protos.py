"""Tests the protobuf modules: created from shipped descriptors, in a separate pool."""

import importlib.util
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = [
    "reverb.cc.schema_pb2",
    "reverb.cc.patterns_pb2",
    "reverb.cc.checkpointing.checkpoint_pb2",
    "reverb.server_executable.reverb_config_pb2",
]


def run(code):
    """Runs code in a new interpreter, which must exit without an error."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("module", MODULES)
def test_without_protobuf_the_error_says_so(module):
    message = run(f"""
        import sys
        sys.modules["google.protobuf"] = None
        try:
            import {module}
        except ImportError as error:
            print(error)
        """)
    assert "pip install protobuf" in message


@pytest.mark.parametrize("module", MODULES)
def test_each_module_can_be_imported_first(module):
    pytest.importorskip("google.protobuf")
    assert run(f"import {module} as m; print(m.DESCRIPTOR.name)") == module.replace(".", "/")[:-4] + ".proto"


def test_messages():
    pytest.importorskip("google.protobuf")
    from google.protobuf import text_format

    from reverb.cc import schema_pb2
    from reverb.server_executable import reverb_config_pb2

    options = schema_pb2.KeyDistributionOptions(heap={"min_heap": True}, is_deterministic=True)
    assert options.WhichOneof("distribution") == "heap"
    item = schema_pb2.PrioritizedItem(key=(1 << 64) - 1, table="t")
    item.flat_trajectory.columns.add(squeeze=True).chunk_slices.add(chunk_key=4, length=1)
    item.inserted_at.FromSeconds(5)
    assert schema_pb2.PrioritizedItem.FromString(item.SerializeToString()) == item
    config = text_format.Parse(
        'port: 80 tables { table_name: "a" sampler { lifo: true } rate_limiter { min_diff: -1 } }',
        reverb_config_pb2.ReverbServerConfig(),
    )
    assert config.tables[0].sampler.lifo
    assert config.tables[0].rate_limiter.min_diff == -1
    assert not hasattr(schema_pb2, "NoSuchMessage")


def test_modules_are_attributes_of_their_packages():
    pytest.importorskip("google.protobuf")
    code = "import reverb.cc as cc; print(cc.schema_pb2.Timeout.__name__, cc.checkpointing.__name__)"
    assert run(code) == "Timeout reverb.cc.checkpointing"
    import reverb.cc

    with pytest.raises(AttributeError):
        reverb.cc.nothing_pb2  # noqa: B018


def test_others_may_have_the_same_files_in_the_default_pool():
    pytest.importorskip("google.protobuf")
    # Like dm-reverb and TensorFlow, whose files differ in content.
    run("""
        from google.protobuf import descriptor_pb2, descriptor_pool

        for name, package, message in [
            ("reverb/cc/schema.proto", "deepmind.reverb", "TableInfo"),
            ("tensorflow/core/protobuf/struct.proto", "tensorflow", "StructuredValue"),
        ]:
            file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
            file.message_type.add(name=message)
            descriptor_pool.Default().AddSerializedFile(file.SerializeToString())

        from reverb.cc import patterns_pb2, schema_pb2

        assert schema_pb2.TableInfo(name="x").name == "x"
        assert patterns_pb2.PatternNode(stop=-1).HasField("stop")
        default = descriptor_pool.Default().FindFileByName("reverb/cc/schema.proto")
        assert list(default.message_types_by_name) == ["TableInfo"]
        """)


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow")
@pytest.mark.parametrize("first", ["tensorflow", "reverb.cc.schema_pb2"])
def test_with_tensorflow_in_the_process(first):
    second = {"tensorflow": "reverb.cc.schema_pb2"}.get(first, "tensorflow")
    run(f"""
        import {first}
        import {second}
        import tensorflow as tf
        from reverb.cc import schema_pb2
        from tensorflow.core.protobuf import struct_pb2

        info = schema_pb2.TableInfo()
        info.signature.MergeFromString(struct_pb2.StructuredValue(int64_value=-3).SerializeToString())
        assert info.signature.int64_value == -3
        """)


def test_descriptors_are_those_of_the_proto_files():
    tool = ROOT / "tools" / "dm_reverb_descriptors.py"
    if not tool.exists():
        pytest.skip("not in a checkout")
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
