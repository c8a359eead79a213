"""Parts that may differ between platforms: where checkpoints go."""

from reverb.platform import checkpointers_lib as checkpointers_lib
