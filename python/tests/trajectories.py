"""Reads trajectories."""


def items(client, count, table="queue"):
    return [sample.data for sample in client.sample(table, count, emit_timesteps=False)]


def values(column):
    return column.numpy().tolist()
