"""The data plane of NeMo-RL on row tables: a partition is a table, a sample a row, a field a column, a task a consumer.

    from reverb.integrations.nemo_rl import ReverbDataPlaneClient

    client = ReverbDataPlaneClient("head-node:8000", meta_class=KVBatchMeta)
    client.register_partition("train", fields=["input_ids", "advantages"], num_samples=512, consumer_tasks=["train"])
    client.put_samples(ids, "train", fields=TensorDict({"input_ids": jagged}, batch_size=[len(ids)]), tags=tags)
    meta = client.claim_meta("train", "train", ["input_ids"], batch_size=64)
    batch = client.get_data(meta)

Needs PyTorch and tensordict, not NeMo-RL. docs/integrations.md describes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import importlib
import inspect
from typing import Any

from reverb.client import Client
from reverb.errors import DeadlineExceededError
from reverb.integrations import _fields
from reverb.integrations._calls import run_now
from reverb.rows import Rows, RowTable
from reverb.server import Server

try:
    importlib.import_module("torch")
    _tensordict: Any = importlib.import_module("tensordict")
except ModuleNotFoundError as error:
    if error.name not in ("torch", "tensordict"):
        raise
    raise ImportError(
        f"reverb.integrations.nemo_rl needs {error.name}, which is not installed: pip install torch tensordict",
        name=error.name,
    ) from None

__all__ = ["BatchMeta", "ReverbDataPlaneClient"]

# A sample is given back if its process dies between the two calls of claim_meta().
_CLAIM_LEASE = 60.0
_MAX_ROWS = 2**28
# The tag that has the length of a sample.
_LENGTH_TAG = "input_lengths"
_GROUP_TAG = "group_id"
# A row for each partition; the tag "group_size" is 0 without groups.
_PARTITIONS = "reverb.data_plane"


@dataclasses.dataclass
class BatchMeta:
    """Which samples a call is about: their ids, fields and tags, without data."""

    partition_id: str
    task_name: str | None
    sample_ids: list[str]
    fields: list[str] | None = None
    sequence_lengths: list[int] | None = None
    extra_info: dict[str, Any] = dataclasses.field(default_factory=dict)
    tags: list[dict[str, Any]] | None = None

    @property
    def size(self) -> int:
        """The number of samples."""
        return len(self.sample_ids)

    def __len__(self) -> int:
        return len(self.sample_ids)


class ReverbDataPlaneClient:
    """A client with the methods of NeMo-RL's `DataPlaneClient`. Threads may share it.

    Fields are tensors whose first dimension is that of the samples, also jagged nested tensors. Reading returns a field
    whose samples have equal lengths as an ordinary tensor, and others as a jagged one. Tags are numbers, truth values
    and strings.
    """

    def __init__(self, address: str | None = None, meta_class: Any = None) -> None:
        """Does not connect yet.

        Args:
            address: of a server, "host:port". None: starts a server in this process, which close() stops. `address`
                is where other processes reach it.
            meta_class: what the methods return, such as NeMo-RL's `KVBatchMeta`; called with the names of BatchMeta's
                fields, as far as it accepts them. None: BatchMeta.
        """
        self._server = Server([RowTable(_PARTITIONS)]) if address is None else None
        self._address = f"localhost:{self._server.port}" if self._server is not None else str(address)
        self._client: Client | None = Client(self._address)
        self._meta_class: Any = BatchMeta if meta_class is None else meta_class
        self._meta_names = _accepted(self._meta_class)
        self._group_sizes: dict[str, int] = {}

    @property
    def address(self) -> str:
        """Where the server is, for clients in other processes."""
        return self._address

    # --- Partitions and tasks ---

    def register_partition(
        self,
        partition_id: str,
        fields: Sequence[str],
        num_samples: int,
        consumer_tasks: Sequence[str],
        grpo_group_size: int | None = None,
        enums: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Creates a partition. One that exists is kept, with its samples.

        If its tasks or its group size differ, an empty one is replaced; RuntimeError for one with samples.

        Args:
            partition_id: its name.
            fields: not used: columns need no declaration.
            num_samples: not used: the server's max_bytes bounds what is stored.
            consumer_tasks: the tasks that claim samples. Each gets each sample once.
            grpo_group_size: claims take whole groups of so many samples. The tag "group_id" names the group of a
                sample; without it, the new samples of a call of put_samples() are divided in their order.
            enums: not used: no field is encoded.
        """
        client = self._connected()
        table = RowTable(
            partition_id,
            max_rows=_MAX_ROWS,
            group_size=grpo_group_size or 0,
            consumers=list(consumer_tasks),
            drop_consumed=False,
        )
        self._group_sizes.pop(partition_id, None)
        client.create_row_table(RowTable(_PARTITIONS), exist_ok=True)
        try:
            client.create_row_table(table, exist_ok=True)
        except RuntimeError as error:
            if getattr(error, "code", None) != "ALREADY_EXISTS" or client.rows(partition_id).info()["rows"] > 0:
                raise
            client.remove_row_table(partition_id)
            client.create_row_table(table, exist_ok=True)
        client.rows(_PARTITIONS).put([partition_id], tags=[{"group_size": grpo_group_size or 0}])

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: Sequence[str],
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> Any:
        """Takes samples that have the required fields, the oldest first: the task does not get them again.

        Args:
            partition_id: the partition.
            task_name: one of its tasks.
            required_fields: what a sample must have. They are not read.
            batch_size: samples; with groups, a multiple of their size.
            dp_rank: who claims, for messages. Ranks share the cursor of the task: no sample goes to two of them.
            blocking: wait until there are `batch_size` samples. False: return those that are ready, maybe none.
            timeout_s: TimeoutError afterwards names the reasons.
        """
        required = list(required_fields)
        rows = self._rows(partition_id)
        conditions = [f"has({_fields.quoted_name(field)})" for field in required]
        with _key_error(partition_id, task_name):
            try:
                # By a condition rather than by `needs`, which would send the data too.
                batch = rows.claim(
                    task_name,
                    batch_size,
                    where=" and ".join(conditions) or None,
                    at_least=batch_size if blocking else 1,
                    lease=_CLAIM_LEASE,
                    holder=task_name if dp_rank is None else f"{task_name}, rank {dp_rank}",
                    timeout=max(0.0, timeout_s) if blocking else 0.0,
                )
            except DeadlineExceededError as error:
                if blocking:
                    raise TimeoutError(f"claim_meta: {error}") from None
                return self._meta(partition_id, task_name, [], required, tags=[])
            batch.ack()
        return self._meta(partition_id, task_name, batch.keys, required, tags=batch.tags)

    def get_data(self, meta: Any, select_fields: Sequence[str] | None = None) -> Any:
        """Returns the selected fields of the samples, or those of the meta, as a TensorDict. ValueError without any."""
        fields = meta.fields if select_fields is None else select_fields
        if fields is None:
            raise ValueError("get_data() needs select_fields, or a meta with fields; it does not read all by itself")
        return self.get_samples(meta.sample_ids, meta.partition_id, fields)

    def check_consumption_status(self, partition_id: str, task_names: Sequence[str]) -> bool:
        """Returns whether each of these tasks has claimed all samples of the partition."""
        with _key_error(partition_id):
            info = self._rows(partition_id).info()
        consumers = info["consumers"]
        return all(task in consumers and consumers[task]["consumed"] >= info["rows"] for task in task_names)

    # --- Samples by their ids ---

    def put_samples(
        self,
        sample_ids: Sequence[str],
        partition_id: str,
        fields: Any = None,
        tags: Sequence[Mapping[str, Any]] | None = None,
    ) -> Any:
        """Writes fields and tags of samples, new ones or such that exist. All of a sample is visible at once.

        TypeError for fields that are not tensors. Fields and tags that a sample has are replaced.
        """
        keys = list(sample_ids)
        rows = self._rows(partition_id)
        if tags is not None and len(tags) != len(keys):
            raise ValueError(f"tags has {len(tags)} elements for {len(keys)} sample_ids")
        columns = {} if fields is None else _fields.to_columns(fields, len(keys), objects=False)
        if keys:
            with _key_error(partition_id):
                self._put(rows, partition_id, keys, columns, tags)
        names = None if fields is None else list(columns)
        return self._meta(partition_id, None, keys, names, tags=None if tags is None else [dict(each) for each in tags])

    def get_samples(self, sample_ids: Sequence[str], partition_id: str, select_fields: Sequence[str]) -> Any:
        """Returns fields of samples as a TensorDict. KeyError names samples that do not exist or lack a field."""
        keys, fields = list(sample_ids), list(select_fields)
        rows = self._rows(partition_id)
        if not keys:
            return _tensordict.TensorDict({}, batch_size=[0])
        with _key_error(partition_id):
            batch = rows.get(keys, fields)
            run_now(_fields.check_complete(rows, partition_id, keys, batch, fields))
        return _fields.to_tensordict(batch, fields)

    def clear_samples(self, sample_ids: Sequence[str] | None, partition_id: str) -> None:
        """Deletes samples, or all of the partition. What does not exist is ignored."""
        rows = self._rows(partition_id)
        with contextlib.suppress(KeyError), _key_error(partition_id):
            if sample_ids is None:
                rows.delete(where="true")
            elif sample_ids:
                rows.delete(list(sample_ids))

    def close(self) -> None:
        """Ends the use of this client. The server goes on, unless this client has started it. May be called twice."""
        self._client = None
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    # --- Internals ---

    def _connected(self) -> Client:
        if self._client is None:
            raise RuntimeError("the client is closed")
        return self._client

    def _rows(self, partition_id: str) -> Rows:
        return self._connected().rows(partition_id)

    def _put(
        self,
        rows: Rows,
        partition_id: str,
        keys: list[str],
        columns: dict[str, list[Any]],
        tags: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        for _ in range(2):
            groups = self._groups(rows, partition_id, keys, tags)
            refused = rows.put(keys, columns, tags=tags, groups=groups, overwrite=True).aborted
            if not refused:
                return
            # The partition was registered with groups meanwhile, or is about to be.
            self._group_sizes.pop(partition_id, None)
        raise RuntimeError(
            f"partition {partition_id!r} refused {len(refused)} of {len(keys)} samples: it has groups, and was not "
            "created by register_partition()"
        )

    def _groups(
        self, rows: Rows, partition_id: str, keys: list[str], tags: Sequence[Mapping[str, Any]] | None
    ) -> list[str] | None:
        size = self._group_sizes.get(partition_id)
        if size is None:
            known = self._rows(_PARTITIONS).get(partition_id)
            size = self._group_sizes[partition_id] = int(known.tags[0]["group_size"]) if known.keys else 0
        if size == 0:
            return None
        groups = [""] * len(keys)  # of a sample that exists: it keeps its group
        present = set(rows.get(keys).keys)
        new = [i for i, key in enumerate(keys) if key not in present]
        if tags is not None and all(_GROUP_TAG in tags[i] for i in new):
            for i in new:
                groups[i] = str(tags[i][_GROUP_TAG])
            return groups
        if len(new) % size != 0:
            raise ValueError(
                f"partition {partition_id!r} has groups of {size} samples, but the call has {len(new)} new samples; "
                f"put whole groups, or name the group of each sample with the tag {_GROUP_TAG!r}"
            )
        for position, i in enumerate(new):
            groups[i] = keys[new[position - position % size]]
        return groups

    def _meta(
        self,
        partition_id: str,
        task_name: str | None,
        sample_ids: list[str],
        fields: list[str] | None,
        *,
        tags: list[dict[str, Any]] | None,
    ) -> Any:
        lengths: list[int] | None = None
        if tags and all(_LENGTH_TAG in each for each in tags):
            lengths = [int(each[_LENGTH_TAG]) for each in tags]
        values: dict[str, Any] = {
            "partition_id": partition_id,
            "task_name": task_name,
            "sample_ids": sample_ids,
            "fields": fields,
            "sequence_lengths": lengths,
            "extra_info": {},
            "tags": tags,
        }
        return self._meta_class(**{name: value for name, value in values.items() if name in self._meta_names})


def _accepted(meta_class: Any) -> frozenset[str]:
    """Returns the names of BatchMeta's fields that a meta class can be called with."""
    names = frozenset(field.name for field in dataclasses.fields(BatchMeta))
    try:
        parameters = inspect.signature(meta_class).parameters.values()
    except (TypeError, ValueError):
        raise TypeError(f"meta_class must be a class with named parameters, got {meta_class!r}") from None
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return names
    accepted = names & {parameter.name for parameter in parameters}
    if missing := {"partition_id", "sample_ids"} - accepted:
        raise TypeError(f"meta_class {meta_class!r} does not accept {', '.join(sorted(missing))}")
    return accepted


@contextlib.contextmanager
def _key_error(partition_id: str, task_name: str | None = None) -> Any:
    """Turns the server's errors about unknown partitions and tasks into KeyError."""
    try:
        yield
    except RuntimeError as error:
        if getattr(error, "code", None) != "NOT_FOUND":
            raise
        what = f'partition "{partition_id}"' + ("" if task_name is None else f', task "{task_name}"')
        raise KeyError(f"{what}: {error}; register_partition() creates partitions with their tasks") from None
