"""Prioritized replay with importance weights: items with large errors are sampled more often, and weigh less.

The program learns the values of 1000 states from samples; for 10 of them the initial guess is far off. Priorities are
the errors of the last visit; one call per batch updates them by key.

Run it with `python examples/python/prioritized_replay.py`.
"""

import numpy as np

import reverb

STATES = 1000
BATCH = 64


def main() -> None:
    """Fills the table, and trains."""
    true_values = np.zeros(STATES)
    true_values[::100] = 10.0
    guesses = np.full(STATES, 0.1)

    server = reverb.Server(
        tables=[
            reverb.Table(
                name="prioritized",
                # Samples with a probability proportional to priority ** 0.6. The seed makes this run reproducible.
                sampler=reverb.selectors.Prioritized(0.6, seed=1),
                remover=reverb.selectors.Fifo(),
                max_size=STATES,
                rate_limiter=reverb.rate_limiters.MinSize(1),
                # With a signature, samples have the structure of the inserted data; a single step has no time
                # dimension.
                signature={"state": reverb.TensorSpec((), np.int64), "value": reverb.TensorSpec((), np.float64)},
            )
        ]
    )
    client = server.localhost_client()
    for state in range(STATES):
        client.insert({"state": state, "value": true_values[state]}, priorities={"prioritized": 1.0})

    updates = 300
    visits = np.zeros(STATES, int)
    # exact=True: does not prefetch, so that every batch reflects all earlier priorities.
    batches = client.sample_batches("prioritized", BATCH, num_batches=updates, exact=True)
    for update, batch in enumerate(batches):
        # [B, 1]: the inserted items are single steps.
        states, values = batch.data["state"][:, 0], batch.data["value"][:, 0]
        np.add.at(visits, states, 1)

        # (1 / (table size * probability)) ** beta, divided by the maximum. beta grows to 1, where the weights make the
        # updates unbiased.
        beta = 0.4 + 0.6 * update / updates
        weights = reverb.importance_weights(batch.info, beta=beta)
        errors = values - guesses[states]
        np.add.at(guesses, states, 0.1 * weights * errors)
        client.update_priorities("prioritized", batch.info.key, np.abs(errors) + 1e-3)

    rare, common = visits[::100].mean(), np.delete(visits, np.s_[::100]).mean()
    print(f"states that were far off were visited {rare:.0f} times on average, the others {common:.0f} times")
    print(f"largest error left: {np.abs(true_values - guesses).max():.2f}")
    server.stop()


if __name__ == "__main__":
    main()
