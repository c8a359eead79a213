"""Protobuf messages of checkpoints of dm-reverb."""
