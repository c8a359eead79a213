"""The platform that there is."""

from reverb.platform.default import checkpointers as checkpointers
