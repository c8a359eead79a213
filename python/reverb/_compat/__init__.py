"""Code that exists only because dm-reverb has it; the rest of the package does not need it to store experience.

Programs import these names from dm-reverb's places (`reverb.pybind`, `reverb.cc.schema_pb2`, `reverb.platform`,
`reverb.server_executable`, `reverb.reverb_types`), which re-export them.
"""
