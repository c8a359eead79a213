"""A learner in Python for an actor in C++.

Use it if the environment is a C++ program: a simulator, a game, a robot. Both sides are clients of the same server and
share only the signature of a table: columns have names here, and numbers there, in the order of the sorted names.

This program serves the tables of dqn.py, starts the actor, learns from its data, and publishes Q values that guide the
actor. examples/cpp/actor.cc is the other half; `cmake --build build/dev --target reverb_actor` builds it. In the
output, look at the resulting policy, and at the samples per insert: the actor waits in C++ while Python learns.

Run it with `python examples/python/cpp_actor.py build/dev/examples/cpp/reverb_actor`.
"""

from pathlib import Path
import subprocess
import sys

from dqn import BATCH, CELLS, make_server, report
import numpy as np

import reverb

SIGNATURE = {
    "action": reverb.TensorSpec((), np.int64),
    "discount": reverb.TensorSpec((), np.float32),
    "next_state": reverb.TensorSpec((), np.int64),
    "reward": reverb.TensorSpec((), np.float32),
    "state": reverb.TensorSpec((), np.int64),
}


def learn(client: reverb.Client, actor: subprocess.Popen) -> np.ndarray:
    """Performs Q-learning while the actor writes; returns the Q values."""
    q = np.zeros((CELLS, 2), np.float32)
    client.insert(q, priorities={"parameters": 1.0})  # the actor waits for this
    batches = client.sample_batches("replay", BATCH, timeout=0.5)
    updates = 0
    while True:
        try:
            batch = next(batches).data
        except reverb.DeadlineExceededError:
            if actor.poll() is not None:
                return q  # the actor has ended, and all allowed samples were drawn
            continue
        s, a, r, d, s_next = (batch[name] for name in ("state", "action", "reward", "discount", "next_state"))
        np.add.at(q, (s, a), 0.1 * (r + d * q[s_next].max(axis=1) - q[s, a]))
        updates += 1
        if updates % 10 == 0:
            client.insert(q, priorities={"parameters": 1.0})


def main(program: str = "build/dev/examples/cpp/reverb_actor", steps: str = "3000") -> None:
    """Starts a server and the actor, and learns."""
    if not Path(program).is_file():
        raise SystemExit(f"{program} is not there; build it with: cmake --build build/dev --target reverb_actor")
    server = make_server(SIGNATURE)
    client = reverb.Client(f"localhost:{server.port}")
    with subprocess.Popen([program, f"localhost:{server.port}", steps]) as actor:
        q = learn(client, actor)
    if actor.returncode != 0:
        raise SystemExit(f"the actor ended with {actor.returncode}")
    report(client, q)
    server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
