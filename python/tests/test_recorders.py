"""Tests recorders: values of environments, errors, ends of episodes, tables and priorities, servers that restart."""

from __future__ import annotations

import collections
import enum
import gc

from conftest import make_table
import interpreters
import numpy as np
import pytest
import recorders_reference as reference

import reverb
from reverb.recorders import (
    EpisodeRecorder,
    SequenceRecorder,
    TransitionRecorder,
    VectorEpisodeRecorder,
    VectorSequenceRecorder,
    VectorTransitionRecorder,
)


@pytest.fixture
def client(serve):
    return serve(reverb.Table.queue("queue", 1000), reverb.Table.queue("other", 1000)).localhost_client()


def stored(client, recorder, table="queue"):
    """Returns the items of a table as dicts, after the recorder was closed."""
    count = client.server_info()[table].current_size
    assert count == recorder.num_items
    (batch,) = client.sample_batches(table, count, num_batches=1, pad=True)
    return batch.data


NO = np.zeros(2, bool)


# --- What environments return ---


def test_values_of_any_kind(client):
    recorder = TransitionRecorder(client, "queue")
    recorder.reset((1, {"a": [1.5, 2.5]}), {"ignored": 1})
    recorder.step({"go": "left", "by": 0.5}, (2, {"a": [3.5, 4.5]}), np.float32(1), np.bool_(False), 0, {})
    recorder.step({"go": "up", "by": 1.5}, (3, {"a": [5.5, 6.5]}), 2, np.array([1]), False)
    recorder.close()
    data = stored(client, recorder)
    assert data["observation"][0].tolist() == [1, 2]
    assert [column.tolist() for column in data["next_observation"][1]["a"]] == [[3.5, 5.5], [4.5, 6.5]]
    assert data["action"]["go"].tolist() == [b"left", b"up"]
    assert data["reward"].dtype == np.float32
    assert data["reward"].tolist() == [1, 2]
    assert data["terminated"].tolist() == [False, True]


def test_rewards_may_be_vectors(client):
    with TransitionRecorder(client, "queue", n_step=2, discount=0.5) as recorder:
        recorder.reset(0)
        recorder.step(0, 1, np.array([1.0, 10.0]), False, False)
        recorder.step(0, 2, np.array([2.0, 20.0]), True, False)
    assert stored(client, recorder)["reward"].tolist() == [[2, 20], [2, 20]]


def test_environments_may_reuse_their_arrays(client):
    observation = np.zeros(3)
    with TransitionRecorder(client, "queue", n_step=2) as recorder:
        recorder.reset(observation)
        for t in range(1, 4):
            observation[:] = t
            recorder.step(t, observation, t, t == 3, False)
        observation[:] = -1
    assert stored(client, recorder)["observation"][:, 0].tolist() == [0, 1, 2]


def test_vector_environments_may_reuse_their_arrays(client):
    observation, reward, terminated, truncated = np.zeros(2), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool)
    action, log_prob = np.zeros(2), np.zeros(2)
    with VectorTransitionRecorder(
        client, "queue", n_step=3, discount=0.5, num_envs=2, autoreset="next_step"
    ) as recorder:
        recorder.reset(observation)
        for t in range(1, 5):
            for array in (observation, reward, action, log_prob):
                array[:] = t, 10 * t
            truncated[:] = t == 4, False
            recorder.step(action, observation, reward, terminated, truncated, extras=log_prob)
        for array in (observation, reward, action, log_prob, terminated, truncated):
            array[:] = 77
    data = stored(client, recorder)
    order = np.argsort(data["observation"] + 100 * (data["action"] >= 10), kind="stable")
    assert data["observation"][order].tolist() == [0, 1, 2, 3, 0, 10, 20, 30]
    assert data["extras"][order].tolist() == [1, 2, 3, 4, 10, 20, 30, 40]
    assert data["reward"][order].tolist() == [2.75, 4.5, 5, 4, 27.5, 45, 50, 40]
    assert data["terminated"].tolist() == [False] * 8
    assert data["truncated"][order].tolist() == [False, True, True, True] + [False] * 4


class StepType(enum.IntEnum):
    FIRST = 0
    MID = 1
    LAST = 2


class TimeStep(collections.namedtuple("TimeStep", "step_type reward discount observation")):
    """As dm_env's, which tests use if it is installed."""

    def first(self):
        return self.step_type == StepType.FIRST

    def last(self):
        return self.step_type == StepType.LAST


def own_timesteps():
    return (
        lambda observation: TimeStep(StepType.FIRST, None, None, observation),
        lambda reward, observation, discount: TimeStep(StepType.MID, reward, discount, observation),
        lambda reward, observation: TimeStep(StepType.LAST, reward, 0.0, observation),
        lambda reward, observation, discount: TimeStep(StepType.LAST, reward, discount, observation),
    )


def real_timesteps():
    dm_env = pytest.importorskip("dm_env")
    return dm_env.restart, dm_env.transition, dm_env.termination, dm_env.truncation


@pytest.mark.parametrize("timesteps", [own_timesteps, real_timesteps])
def test_timesteps_of_dm_env(client, timesteps):
    restart, transition, termination, truncation = timesteps()
    log = reference.Log()
    with TransitionRecorder(client, "queue", n_step=2, discount=0.9) as recorder:
        id = 0
        for end in ("terminated", "truncated", "cut"):
            first = restart(np.float32(id))
            log.reset(first.observation)
            if end == "truncated":
                recorder.step(None, first)  # as dm_env's step() after an end
            else:
                recorder.reset(first)
            for t in range(4):
                id += 1
                observation = np.float32(id + 100)
                if t < 3 or end == "cut":
                    timestep = transition(0.5 * id, observation, 0.8)
                elif end == "terminated":
                    timestep = termination(1.0, observation)
                else:
                    timestep = truncation(1.0, observation, 0.7)
                log.step(id, t, observation, timestep.reward, timestep.last() and end == "terminated",
                         timestep.last() and end == "truncated", timestep.discount)  # fmt: skip
                recorder.step(t, timestep, extras={"id": id})
    assert recorder.num_items == 12
    reference.check(reference.take(client, "queue", 12), reference.transitions(log.episodes, 2, 0.9, None))


def test_timesteps_in_the_wrong_place(client):
    recorder = TransitionRecorder(client, "queue")
    with pytest.raises(ValueError, match=r"reset\(\) takes the first timestep of an episode"):
        recorder.reset(TimeStep(StepType.MID, 1.0, 1.0, 0))
    recorder.reset(TimeStep(StepType.FIRST, None, None, 0))
    with pytest.raises(ValueError, match="the timestep has no reward or no discount"):
        recorder.step(0, TimeStep(StepType.MID, None, None, 1))
    recorder.reset(TimeStep(StepType.FIRST, None, None, 0))
    with pytest.raises(TypeError, match="the discount of a timestep must be one number, got array"):
        recorder.step(0, TimeStep(StepType.MID, 1.0, np.ones(2), 1))


@pytest.mark.parametrize("name", ["final_obs", "final_observation"])
@pytest.mark.parametrize("kind", ["objects", "list", "rows"])
def test_final_observations_of_all_kinds(client, name, kind):
    first = {"x": np.array([1.0, 2.0, 3.0])}
    after = {"x": np.array([10.0, 20.0, 30.0])}
    final = [None, {"x": 21.0}, {"x": 31.0}]
    info = {
        "objects": np.array(final, object),
        "list": final,
        "rows": {"x": np.array([0.0, 21.0, 31.0])},
    }[kind]
    with VectorTransitionRecorder(client, "queue", num_envs=3, autoreset="same_step") as recorder:
        recorder.reset(first)
        recorder.step(np.zeros(3), after, np.zeros(3), [False, True, False], [False, False, True], {name: info})
        recorder.step(np.zeros(3), {"x": np.array([100.0, 200.0, 300.0])}, np.zeros(3), [False] * 3, [False] * 3)
    data = stored(client, recorder)
    assert data["observation"]["x"].tolist() == [1, 2, 3, 10, 20, 30]
    assert data["next_observation"]["x"].tolist() == [10, 21, 31, 100, 200, 300]
    assert after["x"].tolist() == [10, 20, 30]  # the caller's array is not changed


def test_final_observations_that_are_tuples_of_rows(client):
    with VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="same_step") as recorder:
        recorder.reset((np.array([1, 2]), np.array([3, 4])))
        info = {"final_obs": (np.array([0, 21]), np.array([0, 41]))}  # as many components as environments
        recorder.step(np.zeros(2), (np.array([10, 20]), np.array([30, 40])), np.zeros(2), [False, True], NO, info)
    assert [column.tolist() for column in stored(client, recorder)["next_observation"]] == [[10, 21], [30, 41]]


def test_strings_of_vector_environments(client):
    with VectorSequenceRecorder(client, "queue", length=2, burn_in=1, num_envs=2, autoreset="next_step") as recorder:
        recorder.reset(np.array(["a", b"b"], object))
        recorder.step(np.array(["go", "stop"], object), np.array(["c", "d"], object), np.zeros(2), ~NO, NO)
    data = stored(client, recorder)
    assert data["observation"].tolist() == [[b"a", b"a", b"c", b"c"], [b"b", b"b", b"d", b"d"]]
    assert data["action"].tolist() == [[b"", b"go", b""], [b"", b"stop", b""]]


# --- Ends of episodes ---


def test_a_reset_in_the_middle_starts_a_clean_episode(client):
    with TransitionRecorder(client, "queue", n_step=3, discount=0.5) as recorder:
        recorder.reset(0)
        recorder.step(0, 1, 1.0, False, False)
        recorder.step(0, 2, 1.0, False, False)
        recorder.reset(10)  # after an exception in env.step(), for example
        recorder.reset(20)  # twice
        recorder.step(0, 21, 1.0, True, False)
    data = stored(client, recorder)
    assert data["observation"].tolist() == [0, 1, 20]
    assert data["next_observation"].tolist() == [2, 2, 21]
    assert data["reward"].tolist() == [1.5, 1, 1]
    assert data["discount"].tolist() == [0.25, 0.5, 0]
    assert not data["truncated"].any()


def test_an_error_within_the_block_does_not_lose_steps(client):
    class BrokenEnvironmentError(Exception):
        pass

    with pytest.raises(BrokenEnvironmentError), TransitionRecorder(client, "queue", n_step=2) as recorder:
        recorder.reset(0)
        recorder.step(0, 1, 1.0, False, False)
        raise BrokenEnvironmentError
    assert stored(client, recorder)["next_observation"].tolist() == [1]


def test_only_complete_episodes_are_episodes(client):
    with EpisodeRecorder(client, "queue") as recorder:
        for length in (3, 2):
            recorder.reset(0)
            for t in range(length):
                recorder.step(t, t, 1.0, length == 3 and t == 2, False)
    assert recorder.num_items == 1
    assert stored(client, recorder)["action"].tolist() == [[0, 1, 2]]


def test_end_episode_requires_a_reset(client):
    single = SequenceRecorder(client, "queue", length=4)
    single.reset(0)
    single.step(0, 1, 1.0, False, False)
    single.end_episode()
    assert single.num_items == 1
    with pytest.raises(RuntimeError, match="the episode has ended; call reset"):
        single.step(0, 1, 1.0, False, False)
    vector = VectorSequenceRecorder(client, "other", length=4, num_envs=2, autoreset="next_step")
    vector.reset(np.zeros(2))
    vector.step(np.zeros(2), np.zeros(2), np.zeros(2), [False] * 2, [False] * 2)
    vector.end_episode()
    assert vector.num_items == 2
    with pytest.raises(RuntimeError, match="no episode has started; call reset"):
        vector.step(np.zeros(2), np.zeros(2), np.zeros(2), [False] * 2, [False] * 2)


def test_environments_that_are_reset_by_hand_one_after_the_other(client):
    with VectorEpisodeRecorder(client, "queue", num_envs=3, autoreset="disabled") as recorder:
        recorder.reset(np.array([0, 10, 20]))
        end = [False, True, True]
        recorder.step(np.zeros(3), np.array([1, 11, 21]), np.ones(3), end, [False] * 3)
        with pytest.raises(RuntimeError, match=r"the episodes of environments \[1, 2\] have ended; call reset"):
            recorder.step(np.zeros(3), np.array([2, 12, 22]), np.ones(3), end, [False] * 3)
        recorder.reset(np.array([-1, 12, -1]), {}, mask=np.array([False, True, False]))
        with pytest.raises(RuntimeError, match=r"the episodes of environments \[2\] have ended"):
            recorder.step(np.zeros(3), np.array([2, 12, 22]), np.ones(3), end, [False] * 3)
        recorder.reset(np.array([-1, -1, 22]), {}, mask=np.array([False, False, True]))
        recorder.step(np.zeros(3), np.array([2, 13, 23]), np.ones(3), [True] * 3, [False] * 3)
    assert recorder.num_items == 5
    data = stored(client, recorder)
    assert data["observation"].tolist() == [[10, 11, 0], [20, 21, 0], [0, 1, 2], [12, 13, 0], [22, 23, 0]]


def test_masks_before_the_first_step(client):
    with VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="disabled") as recorder:
        recorder.reset({"x": np.array([0, 10])})
        recorder.reset({"x": np.array([5, -1])}, mask=np.array([True, False]))
        recorder.step(np.zeros(2), {"x": np.array([6, 11])}, np.ones(2), [True] * 2, [False] * 2)
    assert stored(client, recorder)["observation"]["x"].tolist() == [5, 10]


def test_a_failed_step_requires_a_reset(client):
    recorder = TransitionRecorder(client, "queue", n_step=2)
    recorder.reset(np.zeros(2))
    recorder.step(0, np.ones(2), 1.0, False, False)
    with pytest.raises(ValueError, match=r"column \('observation',\)"):
        recorder.step(0, np.ones(3), 100.0, False, False)
    with pytest.raises(RuntimeError, match=r"the last call of step\(\) failed; call reset\(\)"):
        recorder.step(0, np.ones(2), 1.0, False, False)
    recorder.reset(np.full(2, 5.0))
    recorder.step(0, np.full(2, 6.0), 2.0, True, False)
    recorder.close()
    data = stored(client, recorder)
    assert data["observation"][:, 0].tolist() == [0, 5]
    assert data["reward"].tolist() == [1, 2]  # nothing of the failed step


def test_a_failed_vector_step_requires_a_reset(client):
    recorder = VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="next_step")
    recorder.reset(np.zeros(2))
    with pytest.raises(ValueError, match="terminated must have shape"):
        recorder.step(np.zeros(2), np.zeros(2), np.zeros(2), False, [False] * 2)
    with pytest.raises(RuntimeError, match=r"the last call of step\(\) or reset\(\) failed"):
        recorder.step(np.zeros(2), np.zeros(2), np.zeros(2), [False] * 2, [False] * 2)
    with pytest.raises(RuntimeError, match=r"the last call of step\(\) or reset\(\) failed; reset all environments"):
        recorder.reset(np.zeros(2), mask=np.array([True, False]))
    recorder.reset(np.zeros(2))
    recorder.step(np.zeros(2), np.zeros(2), np.zeros(2), [False] * 2, [False] * 2)
    with pytest.raises(ValueError, match=r"column \('observation',\)"):
        recorder.reset(np.zeros((2, 5)))
    with pytest.raises(RuntimeError, match=r"the last call of step\(\) or reset\(\) failed"):
        recorder.step(np.zeros(2), np.zeros(2), np.zeros(2), [False] * 2, [False] * 2)
    recorder.close()
    assert recorder.num_items == 2


# --- Tables, priorities, extras, stacks ---


def test_several_tables_each_with_its_priority(client):
    tables = {"queue": 0.5, "other": lambda item: item["reward"] + 1}
    with TransitionRecorder(client, tables) as recorder:
        recorder.reset(0)
        for t in range(3):
            recorder.step(t, t, t, t == 2, False)
    assert recorder.num_items == 3
    got = {table: [s.info.priority for s in client.sample(table, 3, emit_timesteps=False)] for table in tables}
    assert got == {"queue": [0.5] * 3, "other": [1, 2, 3]}


def test_priority_functions_of_vectors_and_episodes(client):
    with VectorEpisodeRecorder(client, "queue", num_envs=2, autoreset="next_step",
                               priority=lambda item: len(item["reward"])) as recorder:  # fmt: skip
        recorder.reset(np.zeros(2, int))
        for t in range(4):
            recorder.step(np.zeros(2), np.full(2, t), np.ones(2), [t == 1, t == 3], [False] * 2)
    assert [sample.info.priority for sample in client.sample("queue", 2, emit_timesteps=False)] == [2, 4]


@pytest.mark.parametrize(
    ("priority", "error", "text"),
    [
        (lambda item: "high", TypeError, "must return a number, it returned 'high'"),
        (lambda item: float("nan"), ValueError, "must return a finite number, it returned nan"),
    ],
)
def test_priority_functions_that_return_nonsense(client, priority, error, text):
    recorder = TransitionRecorder(client, "queue", priority=priority)
    recorder.reset(0)
    with pytest.raises(error, match=f"the priority function of table 'queue' {text}"):
        recorder.step(0, 0, 0, False, False)


def test_extras_are_the_same_in_every_step(client):
    recorder = TransitionRecorder(client, "queue")
    recorder.reset(0)
    recorder.step(0, 0, 0, False, False, extras={"p": 1.0})
    with pytest.raises(ValueError, match="the first step had extras, this one has none"):
        recorder.step(0, 0, 0, False, False)
    recorder.reset(0)
    with pytest.raises(ValueError, match=r"extras has the keys \['q'\], in the first step it had \['p'\]"):
        recorder.step(0, 0, 0, False, False, extras={"q": 1.0})
    other = TransitionRecorder(client, "other")
    other.reset(0)
    other.step(0, 0, 0, False, False)
    with pytest.raises(ValueError, match="the first step had no extras, this one has"):
        other.step(0, 0, 0, False, False, extras={"p": 1.0})


def test_keys_are_the_same_in_every_step(client):
    recorder = EpisodeRecorder(client, "queue")
    first = {"image": 0, "body": {"arm": 1, "leg": 2}}
    recorder.reset(first)
    recorder.step({"go": 1}, first, 0, False, False)
    text = r"{} has the keys {}, in the first step it had {}; pass the same"
    with pytest.raises(ValueError, match=text.format("action", "no keys", r"\['go'\]")):
        recorder.step(1, first, 0, False, False)
    recorder.reset(first)
    with pytest.raises(ValueError, match=text.format("observation", r"\['body': \['arm'\], 'image'\]", r"\['body': \['arm', 'leg'\], 'image'\]")):
        recorder.step({"go": 1}, {"image": 0, "body": {"arm": 1}}, 0, False, False)
    with pytest.raises(ValueError, match=text.format("observation", r"\['image'\]", ".*")):
        recorder.reset({"image": 0})
    recorder.reset(first)
    recorder.step({"go": 1}, first, 0, True, False)
    recorder.close()
    assert recorder.num_items == 1


def test_stacks_of_some_keys(client):
    with TransitionRecorder(client, "queue", frame_stack={"image": 3}) as recorder:
        recorder.reset({"image": 0, "place": 0})
        for t in range(1, 4):
            recorder.step(t, {"image": t, "place": t}, 0, t == 3, False)
    data = stored(client, recorder)
    assert data["observation"]["image"].tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2]]
    assert data["next_observation"]["image"].tolist() == [[0, 0, 1], [0, 1, 2], [1, 2, 3]]
    assert data["next_observation"]["place"].tolist() == [1, 2, 3]
    recorder = TransitionRecorder(client, "other", frame_stack={"image": 3})
    with pytest.raises(ValueError, match=r"frame_stack has the keys \['image'\], but the observation has the keys \['x'\]"):
        recorder.reset({"x": 0})
    with pytest.raises(ValueError, match="but the observation has no keys"):
        recorder.reset(np.zeros(3))


def test_frames_are_stored_once(client):
    frames = np.random.default_rng(0).integers(0, 256, (101, 64, 64), np.uint8)  # cannot be compressed
    with TransitionRecorder(client, "queue", frame_stack=4, n_step=3) as recorder:
        recorder.reset(frames[0])
        for t in range(1, 101):
            recorder.step(0, frames[t], 1.0, t == 100, False)
    assert recorder.num_items == 100
    assert client.server_info().stored_bytes < 1.05 * frames.nbytes


def test_tables_with_signatures(serve):
    spec = reverb.TensorSpec
    signature = {"observation": spec((), np.int64), "action": spec((), np.int64), "reward": spec((), np.float32),
                 "discount": spec((), np.float32), "next_observation": spec((), np.int64),
                 "terminated": spec((), np.bool_), "truncated": spec((), np.bool_)}  # fmt: skip
    client = serve(make_table("table", signature=signature)).localhost_client()
    with TransitionRecorder(client, "table") as recorder:
        recorder.reset(0)
        recorder.step(0, 1, 1.0, False, False)
    assert client.server_info()["table"].current_size == 1
    recorder = TransitionRecorder(client, "table")
    recorder.reset(0.5)
    with pytest.raises(ValueError, match="observation"):
        recorder.step(0, 1.5, 1.0, False, False)


# --- Arguments ---


def test_a_reset_without_the_star(client):
    text = r"another structure than that of step\(\): values at \[\(0,\).* now at \[\(\)\]; .* as in recorder.reset\(\*env.reset\(\)\)"
    single = TransitionRecorder(client, "queue")
    single.reset((np.zeros(3), {}))
    with pytest.raises(ValueError, match=text):
        single.step(0, np.zeros(3), 0.0, False, False)
    single.reset(np.zeros(3), {})
    single.step(0, np.zeros(3), 0.0, False, False)
    assert single.num_items == 1
    vector = VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="next_step")
    vector.reset((np.zeros(2), {"info": np.zeros(2)}))
    with pytest.raises(ValueError, match=text):
        vector.step(np.zeros(2), np.zeros(2), np.zeros(2), NO, NO)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda c: TransitionRecorder(c, "queue", n_step=0), ValueError, "n_step must be at least 1, got 0"),
        (lambda c: TransitionRecorder(c, "queue", n_step=1.5), TypeError, "n_step must be an integer, got 1.5"),
        (lambda c: TransitionRecorder(c, "queue", discount=1.1), ValueError, "discount must be between 0 and 1, got 1.1"),
        (lambda c: TransitionRecorder(c, "queue", discount="x"), TypeError, "discount must be a number, got 'x'"),
        (lambda c: TransitionRecorder(c, "queue", frame_stack=0), ValueError, "frame_stack must be at least 1, got 0"),
        (lambda c: TransitionRecorder(c, "queue", frame_stack={"x": 0}), ValueError, r"frame_stack\['x'\] must be"),
        (lambda c: TransitionRecorder(c, "queue", frame_stack={}), ValueError, "frame_stack is an empty dict"),
        (lambda c: TransitionRecorder(c, "queue", priority="x"), TypeError, "the priority of table 'queue' must be"),
        (lambda c: TransitionRecorder(c, "queue", priority=np.nan), ValueError, "the priority of table 'queue' must be"),
        (lambda c: TransitionRecorder("localhost:8000", "queue"), TypeError,
         r"client must be a reverb.Client, got 'localhost:8000'; reverb.Client\('localhost:8000'\) makes one"),
        (lambda c: VectorEpisodeRecorder(8000, "queue", num_envs=2, autoreset="disabled"), TypeError,
         r"client must be a reverb.Client, got 8000; reverb.Client\(address\) makes one"),
        (lambda c: TransitionRecorder(c, 3), TypeError, "table must be a name, or a dict"),
        (lambda c: TransitionRecorder(c, {}), ValueError, "table is an empty dict"),
        (lambda c: TransitionRecorder(c, {"queue": 1}, priority=2), ValueError, "leave priority= out"),
        (lambda c: SequenceRecorder(c, "queue", length=0), ValueError, "length must be at least 1, got 0"),
        (lambda c: SequenceRecorder(c, "queue", length=2, period=0), ValueError, "period must be at least 1, got 0"),
        (lambda c: SequenceRecorder(c, "queue", length=2, burn_in=-1), ValueError, "burn_in must be at least 0, got -1"),
        (lambda c: SequenceRecorder(c, "queue", length=2, pad_end="x"), ValueError, "pad_end must be True, False or"),
        (lambda c: VectorEpisodeRecorder(c, "queue"), TypeError, "pass env=, the vector environment, or both num_envs="),
        (lambda c: VectorEpisodeRecorder(c, "queue", env=3), TypeError, "env= must be a vector environment, but int has"),
        (lambda c: VectorEpisodeRecorder(c, "queue", num_envs=2), ValueError, "the autoreset mode is not known; pass"),
        (lambda c: VectorEpisodeRecorder(c, "queue", num_envs=2, autoreset="x"), ValueError,
         "autoreset must be one of 'next_step', 'same_step', 'disabled', got 'x'"),
        (lambda c: VectorEpisodeRecorder(c, "queue", num_envs=0, autoreset="disabled"), ValueError, "num_envs must be"),
    ],
)  # fmt: skip
def test_bad_arguments(client, make, error, text):
    with pytest.raises(error, match=text):
        make(client)


def test_calls_in_the_wrong_order(client):
    single = TransitionRecorder(client, "queue")
    with pytest.raises(RuntimeError, match=r"step\(\) was called, but no episode has started; call reset\(\)"):
        single.step(0, 0, 0.0, False, False)
    single.reset(0)
    single.step(0, 0, 0.0, False, True)
    with pytest.raises(RuntimeError, match=r"the episode has ended; call reset\(\)"):
        single.step(0, 0, 0.0, False, False)
    single.close()
    single.close()
    with pytest.raises(RuntimeError, match=r"close\(\) has been called on this recorder"):
        single.reset(0)
    vector = VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="disabled")
    with pytest.raises(RuntimeError, match="no episode has started"):
        vector.step(*[np.zeros(2)] * 5)
    with pytest.raises(RuntimeError, match="with a mask, but no episode has started; call it without a mask first"):
        vector.reset(np.zeros(2), mask=np.array([True, False]))


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ((0,), TypeError, r"step\(\) lacks reward, terminated, truncated; it takes \(action, observation, reward"),
        ((0, 1.0, False, {}), TypeError, "truncated must be a bool, got a dict.*Gym before 0.26 return one `done`"),
        ((0, "much", False, False), TypeError, "reward must be numbers, got 'much'"),
        ((0, 1.0, np.zeros(3, bool), False), TypeError, "terminated must be a bool, got an array of 3; vector environments"),
        ((0, 1.0, "no", False), TypeError, "terminated must be a bool, got 'no'"),
    ],
)
def test_bad_values_of_a_step(client, values, error, text):
    recorder = TransitionRecorder(client, "queue")
    recorder.reset(0)
    with pytest.raises(error, match=text):
        recorder.step(0, *values)


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ((np.zeros(2), np.zeros(3), np.zeros(2), NO, NO), ValueError,
         r"observation must have a first dimension of 2, a row for each environment, got shape \(3,\)"),
        ((np.zeros(()), np.zeros(2), np.zeros(2), NO, NO), ValueError, "action must have a first dimension of 2"),
        (([0, 1], np.zeros(2), np.zeros(2), NO, NO), ValueError,
         r"action is a list, which is a nest of 2 arrays, .* has shape \(\); np.array\(action\) makes an array of a list"),
        ((np.zeros(2), (1.0, 2.0), np.zeros(2), NO, NO), ValueError,
         r"observation is a tuple, which is a nest .*; np.array\(observation\) makes an array of a tuple"),
        ((np.zeros(2), np.zeros(2), 1.0, NO, NO), ValueError, "reward must have a first dimension of 2"),
        ((np.zeros(2), np.zeros(2), np.zeros(2), NO, NO[:1]), ValueError, r"truncated must have shape \(2,\)"),
        ((np.zeros(2), np.zeros(2), np.zeros(2), ~NO, NO, {"final_obs": np.zeros(2)}), ValueError,
         "this environment resets in the same step, but the recorder has autoreset='next_step'"),
    ],
)  # fmt: skip
def test_bad_values_of_a_vector_step(client, values, error, text):
    recorder = VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="next_step")
    recorder.reset(np.zeros(2))
    with pytest.raises(error, match=text):
        recorder.step(*values)


def test_missing_final_observations(client):
    recorder = VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="same_step")
    for info, text in (
        ({}, r"environments \[1\] have ended, but info has neither 'final_obs' nor 'final_observation'"),
        (None, "info has neither"),
        ({"final_obs": np.array([3, None], object)}, r"environment 1 has ended, but info\['final_obs'\]\[1\] is None"),
    ):
        recorder.reset(np.zeros(2))
        with pytest.raises(ValueError, match=text):
            recorder.step(np.zeros(2), np.zeros(2), np.zeros(2), np.array([False, True]), NO, info)


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        (np.ones(3, bool), ValueError, r"mask must have shape \(2,\), a value for each environment, got \(3,\)"),
        (np.ones(2), TypeError, "mask must be bools, got dtype float64"),
    ],
)
def test_bad_masks(client, mask, error, text):
    recorder = VectorTransitionRecorder(client, "queue", num_envs=2, autoreset="disabled")
    recorder.reset(np.zeros(2))
    with pytest.raises(error, match=text):
        recorder.reset(np.zeros(2), mask=mask)


# --- Servers ---


def test_a_server_that_restarts(tmp_path):
    def start(port):
        table = make_table("table", max_size=1000)
        return reverb.Server([table], port=port, checkpointer=reverb.checkpointers.DefaultCheckpointer(str(tmp_path)))

    server = start(None)
    port = server.port
    client = reverb.Client(f"localhost:{port}", in_process=False, local=False)
    recorder = TransitionRecorder(client, "table", n_step=2, max_in_flight_items=20)
    recorder.reset(0)
    for t in range(1, 11):
        recorder.step(t, t, 1.0, False, False)
    recorder.flush()
    client.checkpoint()
    server.stop()
    for t in range(11, 21):
        recorder.step(t, t, 1.0, t == 20, False)
    server = start(port)
    recorder.close(timeout=60)
    assert server.tables[0].info.current_size == recorder.num_items == 20
    data = sorted(int(sample.data["observation"] if isinstance(sample.data, dict) else sample.data[3])
                  for sample in client.peek("table", 100))  # fmt: skip
    assert data == list(range(20))
    server.stop()


def test_a_table_that_does_not_exist(client):
    recorder = TransitionRecorder(client, "nowhere")
    recorder.reset(0)
    with pytest.raises((ValueError, RuntimeError), match="nowhere"):
        recorder.step(0, 1, 0.0, False, False)
    recorder.close()
    assert recorder.num_items == 0


def test_a_time_limit_for_closing(serve):
    client = serve(reverb.Table.queue("small", 1)).localhost_client()
    recorder = TransitionRecorder(client, "small")
    recorder.reset(0)
    recorder.step(0, 0, 0.0, False, False)
    recorder.step(0, 0, 0.0, False, False)
    with pytest.raises(reverb.DeadlineExceededError):
        recorder.flush(timeout=0.01)
    recorder.flush(1)
    with pytest.raises(reverb.DeadlineExceededError):
        recorder.close(timeout=0.01)
    recorder.close()
    other = EpisodeRecorder(client, "small")
    for timeout in (-1, float("nan")):
        with pytest.raises(ValueError, match="timeout must not be negative"):
            other.flush(timeout=timeout)
        with pytest.raises(ValueError, match="timeout must not be negative"):
            other.close(timeout=timeout)
    other.flush(timeout=float("inf"))
    assert client.server_info()["small"].current_size == 1


def test_a_recorder_can_be_collected(client):
    recorder = TransitionRecorder(client, "queue")
    recorder.reset(0)
    recorder.step(0, 0, 0.0, False, False)
    recorder.flush()
    del recorder
    gc.collect()
    assert client.server_info()["queue"].current_size == 1


def test_recorders_import_no_library_of_environments():
    out = interpreters.run("""
        with make_server() as server:
            client = connect(server, "in_process")
            with reverb.recorders.TransitionRecorder(client, "table") as recorder:
                recorder.reset(0)
                recorder.step(0, 1, 1.0, False, False)
            print(*{name.partition(".")[0] for name in sys.modules})
        """)
    assert not set(out.split()) & {"gymnasium", "gym", "dm_env", "pettingzoo", "tree"}
    assert "reverb.recorders" not in interpreters.run("import sys, reverb; print(*sys.modules)", prelude="").split()
