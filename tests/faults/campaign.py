"""Kills, stops and disturbs servers and clients at random, and checks that nothing is lost or doubled without a word.

    campaign.py --program build/dev/apps/reverb --kills 10 [--seed 1] [--features set,leases,writers]

Three `reverb serve` run under eight writers, two inserters and three samplers. Half of the writers, the inserters and
two samplers reach the servers through a proxy for each (gRPC), the others directly (shared memory). Between `--kills`
kills with SIGKILL, of servers and of clients, processes are stopped with SIGSTOP, and the proxies cut, delay,
black-hole, throttle and flip bits. A server that was killed returns with its last checkpoint. Checks:

- Within one life of a server, every item that was confirmed is in its table.
- A server that returns has every item that was in its table when its last checkpoint was requested.
- At the end every confirmed item is in a table, unless it was confirmed between the last checkpoint and the death of a
  server that it may have been written to.
- No server has an item twice. No two servers have the same item (unless writers fail over: see FEATURES).
- The queue returns an item once in each life of its server.
- Every item that is sampled or looked at has the bytes that were written.
- Clients get errors only while bits are flipped or shortly afterwards. No process ends by itself.
- All clients make progress after each fault, and end in order at the end: every blocked call has returned.
- Threads, descriptors and memory of servers and clients do not grow.

Prints a line for each kill and exits with 0 if every check held.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from distribution import check_uniform
import episodes
from program import ServerProgram, usage
from proxy import Proxy
from records import (
    CampaignError,
    Client,
    Confirmation,
    Death,
    Item,
    check,
    find_lost,
    find_repeated,
    find_unexplained,
)

import reverb

# What the library guarantees beyond single servers. Each name switches on checks that need it:
#   set      writers fail over: an item may be on two servers if one of them was killed; the others make progress while
#            a server is lost; samples of the set are distributed as those of one table
#   leases   the consumer uses leases: no confirmed item of a queue is lost with a consumer that dies
#   writers  lost peers are noticed without a cut, and insert() survives broken connections
FEATURES: frozenset[str] = frozenset({"set", "leases", "writers"})
KNOWN_FEATURES = ("set", "leases", "writers")

TABLES = (
    "log:uniform:fifo:10000000",
    "inserts:uniform:fifo:10000000",
    "prioritized:prioritized=1.0:fifo:2000",
    "queue:queue:5000",
)
NUMBERED = ("log", "inserts")  # the tables that keep every item
SERVERS = 3
PATIENCE = 60.0  # seconds within which every client must make progress, and end
AFTERMATH = 15.0  # seconds after a flip within which a client may report an error that it caused
LEASE = 5.0
KINDS = ("cut", "reset", "delay", "black hole", "throttle", "flip", "refuse")  # of what a proxy does
EVERYTHING = 10_000_000


class Campaign:
    """The servers, their proxies, the clients, and what is known about them."""

    def __init__(self, program: str, seed: int, features: frozenset[str], pause: float, folder: pathlib.Path) -> None:
        self._rng = random.Random(seed)
        self._features = features
        self._folder = folder
        self._stop = folder / "stop"
        self._close = contextlib.ExitStack()
        self.servers: list[ServerProgram] = []
        self.proxies: list[Proxy] = []
        self.clients: list[Client] = []
        self._admins: list[reverb.Client] = []
        self._saved: list[tuple[float, set[Item]]] = [(0.0, set())] * SERVERS  # of the last checkpoint: time, content
        self._lives = [time.monotonic()] * SERVERS  # when the server was ready
        self._deaths: list[Death] = []
        self._reasons_for_ended_leases: list[float] = []
        self._flips: list[tuple[float, float]] = []
        self._kinds: list[str] = []  # of the faults that proxies still have to cause
        self.counts: collections.Counter[str] = collections.Counter()
        self._fresh: list[dict[str, float]] = []
        for index in range(SERVERS):
            server = ServerProgram(program, TABLES, folder / f"server-{index}")
            self._close.callback(server.close)
            server.await_ready()  # before another process may get its port
            self.servers.append(server)
            self.proxies.append(self._close.enter_context(Proxy(server.port, seed=seed + index)))
        for server in self.servers:
            self._admins.append(reverb.Client(server.address, in_process=False, name="admin"))
            self._fresh.append(server.usage())
        self._make_clients(pause)

    def _make_clients(self, pause: float) -> None:
        direct = [server.address.replace("127.0.0.1", "localhost") for server in self.servers]
        proxied = [proxy.address for proxy in self.proxies]
        options = {}
        if "set" in self._features:
            options["lost_server_timeout"] = 1.0
        if "writers" in self._features:
            options["keepalive_timeout"] = 2.0

        def add(name: str, role: str, addresses: list[str], *, writers: int = 0, server: int | None = None) -> None:
            settings = {
                "address": ",".join(addresses),
                "local": addresses[0] in direct,
                "stop": str(self._stop),
                "pause": pause,
                "lease": LEASE if "leases" in self._features else None,
                "options": options,
            }
            self.clients.append(Client(name, role, self._folder, settings, writers, server))
            self._close.callback(self._end, self.clients[-1])

        for index in range(SERVERS):
            addresses = direct if index == 0 else proxied
            add(f"writers-{index}", "writers", [addresses[index]], writers=2, server=index)
        add("writers-direct", "writers", direct, writers=2)
        add("inserters", "inserters", proxied, writers=2)
        add("learner", "learner", direct)
        add("prioritizer", "prioritizer", proxied)
        add("consumer", "consumer", proxied)
        for client in self.clients:
            client.start()

    @staticmethod
    def _end(client: Client) -> None:
        if client.process.poll() is None:
            client.process.send_signal(signal.SIGCONT)
            client.process.kill()
            client.process.wait()

    def close(self) -> None:
        self._close.close()

    # --- What is known ---

    def confirmations(self) -> list[Confirmation]:
        found = []
        for client in self.clients:
            for fact in client.facts():
                if fact[0] == "confirm":
                    found.append(Confirmation(*map(int, fact[1:4]), *map(float, fact[4:6])))
        return found

    def content(self, index: int) -> set[Item]:
        """Returns the numbered items of a server; checks the bytes of each, and that each is there once."""
        items: set[Item] = set()
        for table in NUMBERED:
            for sample in self._admins[index].peek(table, EVERYTHING, timeout=PATIENCE):
                item = episodes.check(sample.data)
                check(item not in items, f"server {index} has item {item} twice in table {table}")
                items.add(item)
        return items

    # --- Waiting ---

    def check_processes(self) -> None:
        """Checks that no process has ended by itself."""
        for index, server in enumerate(self.servers):
            code = server.process.poll()
            check(code is None, f"server {index} ended by itself with {code}:\n{server.tail()}")
        for client in self.clients:
            code = client.process.poll()
            check(code is None, f"{client.name} ended by itself with {code}:\n{client.said()}")

    def wait_until(self, condition, what) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.check_processes()
            check(time.monotonic() < deadline, f"{what() if callable(what) else what} did not happen in {PATIENCE:g} s")
            time.sleep(0.02)  # polls the condition

    def await_progress(self, clients: list[Client] | None = None) -> None:
        """Waits until every client has made progress from now on."""
        waiting = {client: client.size() for client in (self.clients if clients is None else clients)}

        def rest() -> list[Client]:
            return [client for client, size in waiting.items() if client.size() <= size]

        self.wait_until(lambda: not rest(), lambda: f"progress of {[client.name for client in rest()]}")

    def run_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.wait_until(lambda: time.monotonic() >= end, "the end of the time")

    # --- Faults ---

    def stop_process(self) -> None:
        """Stops a server or a client with SIGSTOP for a moment."""
        victim = self._rng.choice([*self.servers, *self.clients])
        victim.process.send_signal(signal.SIGSTOP)
        self._reasons_for_ended_leases.append(time.monotonic())
        self.run_for(self._rng.uniform(0.1, 1.0))
        victim.process.send_signal(signal.SIGCONT)
        self.counts["stops"] += 1

    def disturb(self) -> None:
        """Lets a proxy do something to its connections for a moment."""
        proxy = self._rng.choice(self.proxies)
        if not self._kinds:  # each of them once before any comes again
            self._kinds = self._rng.sample(KINDS, len(KINDS))
        kind = self._kinds.pop()
        began = time.monotonic()
        self._reasons_for_ended_leases.append(began)
        if kind == "delay":
            proxy.set(delay=0.1)
        elif kind == "throttle":
            proxy.set(bytes_per_second=50_000)
        elif kind == "black hole":
            proxy.set(black_hole=True)
        elif kind == "flip":
            proxy.set(flip_probability=2e-5)
        elif kind == "refuse":
            proxy.set(refuse=True)
            proxy.cut()
        else:
            proxy.cut(reset=kind == "reset")
        self.run_for(self._rng.uniform(0.1, 1.0))
        proxy.heal()
        if kind == "flip":
            self._flips.append((began, time.monotonic()))
            # A length that became larger leaves a stream waiting for bytes that never come.
            if "writers" not in self._features:
                proxy.cut()
        self.counts[kind] += 1

    def save(self, index: int) -> None:
        """Requests a checkpoint, which has at least what the server has now."""
        began = time.monotonic()
        content = self.content(index)
        self._admins[index].checkpoint(timeout=PATIENCE)
        self._saved[index] = (began, content)
        self.counts["checkpoints"] += 1

    def kill_server(self) -> None:
        """Kills a server, at times while it saves, and starts it again."""
        index = self._rng.randrange(SERVERS)
        server = self.servers[index]
        if self._rng.random() < 0.75:
            self.save(index)
        self.run_for(self._rng.uniform(0.0, 1.0))
        self.check_life(index)
        saving = None
        if self._rng.random() < 0.3:
            saving = threading.Thread(target=self._try_to_save, args=(index,), daemon=True)
            saving.start()
        server.kill()
        self._deaths.append(Death(index, self._saved[index][0], time.monotonic()))
        if saving is not None:
            saving.join(PATIENCE)
            check(not saving.is_alive(), f"checkpoint() of server {index} has not returned after its death")
        if "set" in self._features:
            self.await_progress_without(server, [client for client in self.clients if client.server is None])
        else:
            self._rest(self._rng.uniform(0.0, 0.5))
        server.start()
        server.await_ready()
        self._lives[index] = time.monotonic()
        missing = self._saved[index][1] - self.content(index)
        check(not missing, f"server {index} returned without {len(missing)} saved items, such as {sorted(missing)[:3]}")
        self.counts["killed servers"] += 1

    def _try_to_save(self, index: int) -> None:
        # Whether the checkpoint was written or not, nothing that was saved before may be missing.
        with contextlib.suppress(RuntimeError, reverb.errors.ReverbError):
            self._admins[index].checkpoint(timeout=1)

    @staticmethod
    def _rest(seconds: float) -> None:
        time.sleep(seconds)  # a server is away for this time

    def await_progress_without(self, server: ServerProgram, clients: list[Client]) -> None:
        """Waits until clients of the set have made progress while one server is lost."""
        waiting = {client: client.size() for client in clients}
        deadline = time.monotonic() + PATIENCE
        while lacking := [client.name for client, size in waiting.items() if client.size() <= size]:
            check(time.monotonic() < deadline, f"{lacking} made no progress in {PATIENCE:g} s without {server.address}")
            self._rest(0.02)

    def kill_client(self) -> None:
        """Kills a client and starts another one."""
        client = self._rng.choice(self.clients)
        client.process.kill()
        client.process.wait()
        self._reasons_for_ended_leases.append(time.monotonic())
        client.start()
        self.counts["killed clients"] += 1

    # --- Checks ---

    def check_life(self, index: int) -> None:
        """Checks that what writers of this server alone confirmed in its present life is in its table."""
        now = time.monotonic()
        writers = set().union(*(client.writers for client in self.clients if client.server == index))
        wanted = {
            item
            for group in self.confirmations()
            if group.writer in writers and group.began > self._lives[index] and group.ended < now
            for item in group.items()
        }
        missing = wanted - self.content(index)
        check(not missing, f"server {index} lacks {len(missing)} confirmed items, such as {sorted(missing)[:3]}")
        self.counts["items checked in their life"] += len(wanted)

    def check_clients(self) -> None:
        """Checks that errors have flipped bits as their reason, and that clients do not grow."""
        for client in self.clients:
            for fact in client.facts():
                if fact[0] != "error":
                    continue
                at, text = float(fact[1]), " ".join(fact[2:])
                is_insert = client.role == "inserters" and "writers" not in self._features
                caused = any(began <= at <= ended + AFTERMATH for began, ended in self._flips)
                check(
                    (caused and not client.is_direct) or is_insert,
                    f"{client.name} failed without a reason: {text}",
                )
                self.counts["errors"] += 1
            now = usage(client.process.pid)
            if client.warm is None:
                if time.monotonic() - client.started > 10:
                    client.warm = now
                continue
            for name, slack in (("memory", 100), ("threads", 16), ("descriptors", 24)):
                check(
                    now[name] <= 1.2 * client.warm[name] + slack, f"{name} of {client.name}: {client.warm} became {now}"
                )

    def check_end(self) -> None:
        """Checks all items that were ever confirmed, after the clients have ended."""
        contents = [self.content(index) for index in range(SERVERS)]
        union = set().union(*contents)
        twice = [item for item, count in collections.Counter(itertools.chain(*contents)).items() if count > 1]
        check("set" in self._features or not twice, f"several servers have {len(twice)} items, such as {twice[:3]}")
        home = {writer: client.server for client in self.clients for writer in client.writers}
        groups = self.confirmations()
        lost = find_lost(groups, union, home)
        unexplained = find_unexplained(lost, home, self._deaths)
        check(not unexplained, f"confirmed and lost, and no server died: {unexplained[:3]}")
        self.counts["items at the end"] = len(union)
        self.counts["lost after the last checkpoint"] = sum(len(items) for _, items in lost)
        self.counts["on several servers"] = len(twice)
        self._check_queue()

    def _check_queue(self) -> None:
        received: dict[Item, list[float]] = {}
        for client in self.clients:
            for fact in client.facts():
                if fact[0] == "queue":
                    received.setdefault((int(fact[1]), int(fact[2])), []).append(float(fact[3]))
        # The queue of a server that returns is that of its checkpoint. An item whose lease ends comes again.
        reasons = [death.killed for death in self._deaths]
        if "leases" in self._features:
            reasons += self._reasons_for_ended_leases
        groups = self.confirmations()
        too_often = find_repeated(received, groups, reasons)
        check(not too_often, f"the queue returned items too often, at these times: {too_often[:3]}")
        self.counts["items of the queue"] = len(received)
        if "leases" not in self._features:
            return
        # The consumer may end before the queue is empty.
        present = {
            episodes.check(sample.data)
            for admin in self._admins
            for sample in admin.peek("queue", EVERYTHING, timeout=PATIENCE)
        }
        others = {item for group in groups for item in group.items() if not episodes.is_in_queue(item[1])}
        home = {
            writer: client.server for client in self.clients for writer in client.writers if client.role == "writers"
        }
        lost = find_lost([group for group in groups if group.writer in home], {*received, *present, *others}, home)
        check(
            not find_unexplained(lost, home, self._deaths), f"confirmed, and never received from the queue: {lost[:3]}"
        )

    def finish(self) -> None:
        """Ends the clients in order and checks everything."""
        self.await_progress()
        self.check_clients()
        self._stop.touch()
        deadline = time.monotonic() + PATIENCE
        for client in self.clients:
            try:
                code = client.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise CampaignError(f"a call of {client.name} has not returned:\n{client.said()}") from None
            check(code == 0, f"{client.name} ended with {code}:\n{client.said()}")
        self.check_end()
        addresses = [server.address for server in self.servers]
        for target in [[address] for address in addresses] + ([addresses] if "set" in self._features else []):
            check_uniform(target, "log", PATIENCE)
        for index, server in enumerate(self.servers):
            fresh, now = self._fresh[index], server.usage()
            stored = self._admins[index].server_info().stored_bytes / 2**20
            for name, limit in (
                ("threads", fresh["threads"] + 16),
                ("descriptors", fresh["descriptors"] + 32),
                ("memory", fresh["memory"] + 3 * stored + 200),
            ):
                check(now[name] <= limit, f"{name} of server {index}: {fresh} became {now}, {stored:.0f} MB are stored")


def run(program: str, kills: int, seed: int, features: frozenset[str] = FEATURES, pause: float = 0.05) -> str:
    """Runs a campaign. Returns a summary, or raises CampaignError."""
    rng = random.Random(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="reverb-campaign-") as folder:
        campaign = Campaign(program, seed, features, pause, pathlib.Path(folder))
        try:
            campaign.await_progress()
            # The first kills are one of each, so that also short campaigns have both.
            kinds = [campaign.kill_server, campaign.kill_client]
            for kill in range(kills):
                for fault in rng.sample([campaign.stop_process, campaign.disturb, campaign.disturb], rng.randint(1, 3)):
                    fault()
                (kinds[kill] if kill < len(kinds) else rng.choices(kinds, [2, 1])[0])()
                campaign.check_clients()
                campaign.await_progress()
                print(
                    f"kill {kill + 1} of {kills}, {time.monotonic() - began:.1f} s: {dict(campaign.counts)}", flush=True
                )
            campaign.finish()
        finally:
            campaign.close()
    campaign.counts.pop("errors", None)
    return ", ".join(f"{name}: {count}" for name, count in campaign.counts.items())


def main() -> int:
    """Runs the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between the groups of a writer")
    parser.add_argument("--features", default=",".join(sorted(FEATURES)), help="of " + ",".join(KNOWN_FEATURES))
    options = parser.parse_args()
    features = frozenset(options.features.split(",")) - {""}
    if unknown := features - set(KNOWN_FEATURES):
        parser.error(f"unknown features: {', '.join(sorted(unknown))}")
    try:
        print(f"campaign: {run(options.program, options.kills, options.seed, features, options.pause)}")
    except CampaignError as error:
        print(f"campaign: FAILED with --seed {options.seed}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
