"""Tests that recorders wait for their tables: full queues, rate limiters, programs that wait for themselves."""

from __future__ import annotations

import threading

from conditions import wait_for_waiters
from conftest import join, make_table
import numpy as np
import pytest

import reverb
from reverb.recorders import (
    EpisodeRecorder,
    ParallelRecorder,
    SequenceRecorder,
    TransitionRecorder,
    VectorEpisodeRecorder,
    VectorSequenceRecorder,
    VectorTransitionRecorder,
)

# Seconds: long enough for the server to answer on a busy machine.
TIMEOUT = 1.0


def steps_until_it_waits(recorder, shape=(), length=10):
    """Records episodes until step() raises DeadlineExceededError; returns the number of steps and the error."""
    zeros, no = np.zeros(shape), np.zeros(shape, bool)
    recorder.reset(zeros)
    for step in range(10_000):
        is_end = np.full(shape, step % length == length - 1)
        try:
            recorder.step(zeros, zeros, zeros, no, is_end)
        except reverb.DeadlineExceededError as error:
            return step, error
        if is_end.all():
            recorder.reset(zeros)
    raise AssertionError("step() never waited")


def test_steps_wait_for_a_full_queue_and_can_be_repeated(serve):
    client = serve(reverb.Table.queue("queue", 2)).localhost_client()
    recorder = TransitionRecorder(client, "queue", max_in_flight_items=3, timeout=TIMEOUT)
    recorder.reset(0)
    for t in range(5):
        recorder.step(t, t + 1, 1.0, False, False)
    remedy = (
        r"another thread or process sample from the table, or sample before the next step; timeout= of the recorder"
    )
    for _ in range(2):
        with pytest.raises(
            reverb.DeadlineExceededError, match=rf"table 'queue' has not accepted items for 1 s.*{remedy}"
        ):
            recorder.step(5, 6, 1.0, False, False)
    assert recorder.num_items == 5, "two are in the queue, three on their way"
    taken = [sample.data for sample in client.sample("queue", 2, emit_timesteps=False)]
    recorder.step(5, 6, 1.0, True, False)
    taken += [sample.data for sample in client.sample("queue", 4, emit_timesteps=False)]
    recorder.close()
    assert recorder.num_items == 6
    assert [int(item["action"] if isinstance(item, dict) else item[0]) for item in taken] == list(range(6))


RECORDERS = {
    "transitions": (TransitionRecorder, VectorTransitionRecorder, {"n_step": 3, "frame_stack": 4}),
    "sequences": (SequenceRecorder, VectorSequenceRecorder, {"length": 5}),
    "overlapping sequences": (SequenceRecorder, VectorSequenceRecorder, {"length": 8, "period": 1}),
    "episodes": (EpisodeRecorder, VectorEpisodeRecorder, {}),
}


@pytest.mark.parametrize("kind", RECORDERS)
def test_few_items_are_on_their_way_by_default(serve, kind):
    client = serve(reverb.Table.queue("queue", 1)).localhost_client()
    single, _, options = RECORDERS[kind]
    recorder = single(client, "queue", timeout=TIMEOUT, **options)
    steps_until_it_waits(recorder)
    assert recorder.num_items < 30


@pytest.mark.parametrize("kind", RECORDERS)
def test_limits_of_vector_environments_are_for_each_of_them(serve, kind):
    client = serve(reverb.Table.queue("queue", 6)).localhost_client()
    _, vector, options = RECORDERS[kind]
    recorder = vector(
        client, "queue", num_envs=3, autoreset="next_step", max_in_flight_items=2, timeout=TIMEOUT, **options
    )
    steps_until_it_waits(recorder, (3,))
    # An end of an episode may complete a few more items than the step before.
    assert 6 + 2 * 3 <= recorder.num_items <= 6 + 2 * 3 + 3 * options.get("n_step", 1)


def test_a_rate_limiter_keeps_actors_near_their_learner(serve):
    limiter = reverb.rate_limiters.SampleToInsertRatio(1.0, min_size_to_sample=1, error_buffer=4.0)
    client = serve(make_table("table", limiter=limiter)).localhost_client()
    recorder = SequenceRecorder(client, "table", length=5, max_in_flight_items=1, timeout=TIMEOUT)
    steps, error = steps_until_it_waits(recorder)
    inserted = client.server_info()["table"].current_size
    assert recorder.num_items == inserted + 1
    assert steps == 5 * recorder.num_items, "no step is taken while an item is on its way"
    assert "table 'table'" in str(error)


def test_one_of_several_tables_is_full(serve):
    client = serve(reverb.Table.queue("small", 2), reverb.Table.queue("large", 1000)).localhost_client()
    recorder = TransitionRecorder(client, {"small": 1.0, "large": 1.0}, max_in_flight_items=2, timeout=TIMEOUT)
    _, error = steps_until_it_waits(recorder, length=1000)
    assert "one of the tables 'small', 'large' has not accepted items" in str(error)
    assert recorder.num_items <= 2 + 2 * 2


def test_an_actor_waits_for_its_learner(serve, connect):
    client = connect(serve(reverb.Table.queue("queue", 2)))
    total = 50

    def act():
        with TransitionRecorder(client, "queue", max_in_flight_items=2, timeout=None) as recorder:
            recorder.reset(0)
            for t in range(total):
                recorder.step(t, t + 1, 1.0, False, False)
                progress.append(t)

    progress = []
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    wait_for_waiters(client, 1)
    taken = []
    for sample in client.sample("queue", total, emit_timesteps=False, exact=True):
        assert len(progress) <= len(taken) + 2 + 2 + 1
        taken.append(int(sample.data["action"] if isinstance(sample.data, dict) else sample.data[0]))
    join(thread)
    assert taken == list(range(total))


def test_steps_do_not_wait_forever_for_a_full_window(serve):
    server = serve(reverb.Table.queue("queue", 1))
    client = reverb.Client(f"localhost:{server.port}", write_window_bytes=2000)
    frames = np.random.default_rng(0).integers(0, 256, (100, 500), np.uint8)  # cannot be compressed
    recorder = TransitionRecorder(client, "queue", max_in_flight_items=100, timeout=TIMEOUT)
    recorder.reset(frames[0])
    with pytest.raises(
        reverb.DeadlineExceededError,
        match=r"table 'queue' has not accepted items for 1 s, and write_window_bytes of the client are on their way.*reset\(\)",
    ):
        for t in range(1, 100):
            recorder.step(t, frames[t], 1.0, False, False)
    created = recorder.num_items
    assert created < 20
    with pytest.raises(RuntimeError, match=r"the last call of step\(\) failed; call reset\(\)"):
        recorder.step(t, frames[t], 1.0, False, False)
    with pytest.raises(reverb.DeadlineExceededError, match="has not accepted the last"):
        recorder.close(timeout=0.0)
    assert recorder.num_items == created


def test_the_default_cuts_no_chunks(serve):
    frames = np.repeat(np.arange(100, dtype=np.uint8), 4096).reshape(100, 64, 64)
    stored = []
    for settings in ({}, {"max_in_flight_items": 10_000}, {"max_in_flight_items": 1}):
        client = serve(make_table("table")).localhost_client()
        with TransitionRecorder(client, "table", frame_stack=4, n_step=3, **settings) as recorder:
            recorder.reset(frames[0])
            for t in range(1, 100):
                recorder.step(t, frames[t], 1.0, False, t == 99)
        stored.append(client.server_info().stored_bytes)
    by_default, without_limit, one_by_one = stored
    assert by_default == without_limit < one_by_one


def test_agents_wait_before_any_of_them_records_the_step(serve):
    client = serve(reverb.Table.queue("a", 100), reverb.Table.queue("b", 1)).localhost_client()
    recorder = ParallelRecorder(lambda agent: TransitionRecorder(client, agent, max_in_flight_items=1, timeout=TIMEOUT))
    agents = ("a", "b")

    def step(t):
        recorder.step(*[dict.fromkeys(agents, value) for value in (t, t + 1, 1.0, False, False)])

    recorder.reset(dict.fromkeys(agents, 0))
    step(0)
    step(1)
    with pytest.raises(reverb.DeadlineExceededError, match="table 'b' has not accepted items"):
        step(2)
    assert [recorder.recorders[agent].num_items for agent in agents] == [2, 2]
    client.reset("b")
    step(2)
    assert [recorder.recorders[agent].num_items for agent in agents] == [3, 3]
    client.reset("b")
    recorder.close()


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0, ValueError, "max_in_flight_items must be at least 1, got 0"),
        (1.5, TypeError, "max_in_flight_items must be an integer, got 1.5"),
    ],
)
def test_bad_limits(serve, value, error, text):
    client = serve(make_table()).localhost_client()
    with pytest.raises(error, match=text):
        TransitionRecorder(client, "table", max_in_flight_items=value)
