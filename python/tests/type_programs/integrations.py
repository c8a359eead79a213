"""Bridges from row tables to other interfaces; neither PyTorch nor tensordict has to be installed here."""

from typing import Any

from reverb.integrations import kv
from reverb.integrations.nemo_rl import BatchMeta, ReverbDataPlaneClient
from reverb.integrations.queue import AsyncQueue, Empty, Queue, ShutDown

queue = Queue(100, maxbytes=2**30, redeliver=True, lease=5.0)
Queue("100")  # error
Queue(100, "localhost:8000")  # error
queue.put({"any": "object"}, True, 1.5)
queue.put()  # error
size: int = queue.qsize()
is_full: str = queue.full()  # error
try:
    item: Any = queue.get(timeout=1)
except (Empty, ShutDown):
    queue.get(timeout="1")  # error
with queue as same:
    same.shutdown(immediate=True)


async def consume(items: AsyncQueue) -> Any:
    items.put_nowait(1)
    items.get(timeout=1)  # error
    await items.put(2)
    listed: str = await kv.async_kv_list("train")  # error
    return await items.get()


client = ReverbDataPlaneClient(None, meta_class=BatchMeta)
client.register_partition("train", ["input_ids"], 512, ["train"], grpo_group_size=8)
client.register_partition("train")  # error
meta = client.claim_meta("train", "train", ["input_ids"], 64, dp_rank=3, blocking=False, timeout_s=1.0)
client.claim_meta("train", "train", ["input_ids"], batch="64")  # error
data: Any = client.get_data(meta, select_fields=["input_ids"])
done: bool = client.check_consumption_status("train", ["train"])
client.clear_samples(None, "train")

address: str = kv.init()
written: kv.KVBatchMeta = kv.kv_batch_put(["a"], "train", {"x": [1]}, [{"step": 3}])
kv.kv_batch_put(["a"])  # error
tags: dict[str, dict[str, dict[str, Any]]] = kv.kv_list("train")
kv.kv_clear("a", 5)  # error
