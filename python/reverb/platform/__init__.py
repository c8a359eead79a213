"""dm-reverb's place for `reverb.checkpointers`."""

from reverb.platform import checkpointers_lib as checkpointers_lib
from reverb.platform import default as default
