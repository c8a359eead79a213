"""Code that exists only for programs written for dm-reverb.

Programs import these names from dm-reverb's places (`reverb.pybind`, `reverb.cc.schema_pb2`, `reverb.platform`,
`reverb.server_executable`, `reverb.reverb_types`), which re-export them.
"""
