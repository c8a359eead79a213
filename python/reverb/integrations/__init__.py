"""Bridges from row tables to the interfaces that other programs expect.

| module | interface |
| --- | --- |
| `reverb.integrations.queue` | `queue.Queue` and `asyncio.Queue`, between processes and machines |
| `reverb.integrations.nemo_rl` | the data plane of NeMo-RL: TensorDicts of samples, tasks with cursors |
| `reverb.integrations.kv` | `kv_batch_put` and its relatives, as verl's recipes call them |

Import the module that you need: `import reverb` imports none of them. docs/integrations.md describes them.
"""
