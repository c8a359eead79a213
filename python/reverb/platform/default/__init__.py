"""dm-reverb's place for `reverb.checkpointers`."""

from reverb.platform.default import checkpointers as checkpointers
