"""Tests exports of episodes to Minari and LeRobot, with the real libraries where they are installed."""

import json

from exports import items_of, round_trip, save, write_mixed
import numpy as np
import pytest

import reverb
from reverb import formats


def write_episodes(client, lengths=(4, 1, 3), table="table"):
    """Writes whole episodes, with one observation more than actions."""
    random = np.random.default_rng(2)
    with client.trajectory_writer(num_keep_alive_refs=8) as writer:
        for number, length in enumerate(lengths):
            for step in range(length + 1):
                row = {
                    "observation": {
                        "image": random.integers(0, 256, (4, 4, 3), np.uint8),
                        "joints": (random.standard_normal(3).astype(np.float32), np.int16(step)),
                    }
                }
                if step < length:
                    row |= {
                        "action": random.standard_normal(2),
                        "reward": np.float32(step / 3),
                        "terminated": np.bool_(step == length - 1 and number % 2 == 0),
                        "truncated": np.bool_(step == length - 1 and number % 2 == 1),
                        "value": np.float64(step),
                    }
                    writer.append(row, partial_step=True)
                    writer.append({})
                else:
                    writer.append(row)
            history = writer.history
            trajectory = {
                "observation": {
                    "image": history["observation"]["image"][:],
                    "joints": tuple(column[:] for column in history["observation"]["joints"]),
                }
            }
            for name in ("action", "reward", "terminated", "truncated", "value"):
                trajectory[name] = history[name][:-1]
            writer.create_item(table, 1.5 + number, trajectory)
            writer.end_episode()


def test_minari_keeps_episodes(tmp_path):
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    path = save(tmp_path / "root", write=write_episodes)
    file, _ = round_trip(tmp_path, path, "minari")
    dataset = minari.MinariDataset(file / "data")
    assert dataset.total_episodes == 3
    assert dataset.total_steps == 8
    for item, episode in zip(items_of(path), dataset.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(episode.observations["image"], item.data["observation"]["image"])
        np.testing.assert_array_equal(episode.observations["joints"][0], item.data["observation"]["joints"][0])
        np.testing.assert_array_equal(episode.actions, item.data["action"])
        np.testing.assert_array_equal(episode.rewards, item.data["reward"])
        np.testing.assert_array_equal(episode.terminations, item.data["terminated"])
        np.testing.assert_array_equal(episode.truncations, item.data["truncated"])
        np.testing.assert_array_equal(episode.infos["value"], item.data["value"])
        assert dataset.observation_space.contains(
            reverb._tree.map_structure(lambda leaf: np.asarray(leaf[0]), episode.observations)
        )


@pytest.mark.filterwarnings("ignore")  # of Minari: no author, temporary folders that it does not remove
def test_minari_datasets_of_others_are_imported(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    gymnasium = pytest.importorskip("gymnasium")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    environment = minari.DataCollector(gymnasium.make("CartPole-v1"))
    for seed in range(3):
        environment.reset(seed=seed)
        environment.action_space.seed(seed)
        done = False
        while not done:
            _, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
            done = terminated or truncated
    dataset = environment.create_dataset("cartpole/random-v0")
    environment.close()
    path = formats.import_table(
        tmp_path / "datasets" / "cartpole" / "random-v0", tmp_path / "new", format="minari", table="episodes"
    )
    items = items_of(path, "episodes")
    for item, episode in zip(items, dataset.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(item.data["observation"], episode.observations)
        assert len(item.data["observation"]) == len(item.data["action"]) + 1
        np.testing.assert_array_equal(item.data["terminated"], episode.terminations)
        assert item.data["terminated"][-1]


def test_minari_says_what_it_cannot_hold(tmp_path):
    pytest.importorskip("minari")
    pytest.importorskip("h5py")

    def attempt(number, write, **options):
        path = save(tmp_path / f"root{number}", write=write)
        formats.export_table(path, tmp_path / f"out{number}", format="minari", options=options)

    def transition(client):
        one = np.float32(1)
        client.insert({"obs": one, "act": one, "reward": one, "terminal": False}, {"table": 1.0})

    with pytest.raises(ValueError, match=r"1 observations and 1 actions.*needs 2"):
        attempt(0, transition)
    with pytest.raises(ValueError, match=r"needs observations, actions.*'x'.*--name"):
        attempt(1, lambda client: client.insert({"x": 1.0}, {"table": 1.0}))
    with pytest.raises(ValueError, match="not dicts"):
        attempt(2, lambda client: client.insert([1.0], {"table": 1.0}))
    with pytest.raises(ValueError, match=r"dtype string"):
        attempt(3, write_mixed_episode)
    with pytest.raises(ValueError, match=r"option names has 'pixels' for observations; the columns .*'observation'"):
        attempt(4, write_episodes, names={"observations": "pixels"})
    with pytest.raises(ValueError, match=r"option names has \['pictures'\]; Minari has .*'observations'"):
        attempt(5, write_episodes, names={"pictures": "observation"})
    for number, names in enumerate((["observations"], "observations", {"observations": 3})):
        with pytest.raises(ValueError, match=r"option names .* minari must be a dict from observations.*got"):
            attempt(6 + number, write_episodes, names=names)

    def two_candidates(client):
        one = np.float32(1)
        client.insert({"obs": one, "observation": one, "act": one, "reward": one, "terminal": False}, {"table": 1.0})

    with pytest.raises(ValueError, match=r"observations could be the columns \['observation', 'obs'\].*--name"):
        attempt(9, two_candidates)
    with pytest.raises(ValueError, match="not a dataset of Minari"):
        formats.import_table(tmp_path, tmp_path / "new", format="minari")


def write_mixed_episode(client):
    client.insert({"obs": b"text", "act": 1.0, "reward": 1.0, "terminal": False}, {"table": 1.0})


def write_frames(client, lengths=(4, 1, 3)):
    """Writes episodes whose columns all have a row for each frame."""
    random = np.random.default_rng(3)
    with client.trajectory_writer(num_keep_alive_refs=8) as writer:
        for number, length in enumerate(lengths):
            for step in range(length):
                writer.append(
                    {
                        "observation": {
                            "state": random.standard_normal(3).astype(np.float32),
                            "grid": random.integers(0, 256, (4, 2, 3), np.uint8),
                        },
                        "action": random.standard_normal(2),
                        "one": np.ones(1, np.int16),
                        "next": (np.float32(step), np.bool_(step == length - 1)),
                        "says": f"größe {step}".encode(),
                    }
                )
            trajectory = reverb._tree.map_structure(lambda column: column[:], writer.history)
            writer.create_item("table", 0.5 + number, trajectory)
            writer.end_episode()


def record(client, recorder_class=reverb.recorders.EpisodeRecorder, lengths=(4, 1, 3)):
    """Records episodes whose observations say where they are from."""
    with recorder_class(client, "table", priority=2.0) as recorder:
        for number, length in enumerate(lengths):
            recorder.reset({"state": np.array([number, 0], np.float32), "pixels": np.full((2, 2, 3), 0, np.uint8)})
            for step in range(1, length + 1):
                following = {
                    "state": np.array([number, step], np.float32),
                    "pixels": np.full((2, 2, 3), step, np.uint8),
                }
                recorder.step(np.float32([step, -step]), following, step / 2, step == length, False)


def test_lerobot_keeps_what_recorders_write(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = save(tmp_path / "root", write=record)
    file, _ = round_trip(tmp_path, path, "lerobot", fps=5)
    assert [len(item.data["observation"]["state"]) for item in items_of(path)] == [5, 2, 4]
    info = json.loads((file / "meta" / "info.json").read_text())
    assert (info["total_episodes"], info["total_frames"]) == (3, 8)
    assert json.loads((file / "meta" / "stats.json").read_text())["observation.state"]["max"] == [2, 3]
    frames = parquet.read_table(file / "data/chunk-000/file-000.parquet").to_pylist()
    assert [frame["observation.state"] for frame in frames[:5]] == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0]]
    assert [frame["action"] for frame in frames[:5]] == [[1, -1], [2, -2], [3, -3], [4, -4], [1, -1]]
    assert [frame["terminated"] for frame in frames[:5]] == [False, False, False, True, True]
    # Without the last observations the episodes are incomplete, as for other programs.
    (file / "meta" / "reverb_last.parquet").unlink()
    with pytest.raises(ValueError, match=r"no file meta/reverb_last.parquet.*'observation.pixels'"):
        formats.import_table(file, tmp_path / "incomplete", format="lerobot")
    (file / "meta" / "reverb.json").unlink()
    again = formats.import_table(file, tmp_path / "again", format="lerobot", table="table")
    assert [len(item.data["observation.state"]) for item in items_of(again)] == [4, 1, 3]


def test_the_library_reads_what_recorders_write(tmp_path):
    library = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    path = save(tmp_path / "root", write=record)
    formats.export_table(path, tmp_path / "out", format="lerobot", options={"fps": 5})
    dataset = library.LeRobotDataset("reverb/test", root=tmp_path / "out")
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps) == (3, 8, 5)
    for index, (number, frame) in enumerate((number, frame) for number, n in enumerate((4, 1, 3)) for frame in range(n)):
        read = dataset[index]
        assert read["observation.state"].tolist() == [number, frame]
        assert read["action"].tolist() == [frame + 1, -frame - 1]
        assert float(read["reward"]) == (frame + 1) / 2


def test_minari_keeps_what_recorders_write(tmp_path):
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    path = save(tmp_path / "root", write=record)
    file, _ = round_trip(tmp_path, path, "minari")
    dataset = minari.MinariDataset(file / "data")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 8)


def test_lerobot_datasets_that_do_not_match_their_description(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = save(tmp_path / "root", write=write_frames)
    formats.export_table(path, tmp_path / "out", format="lerobot")
    file = tmp_path / "out" / "data/chunk-000/file-000.parquet"
    table = parquet.read_table(file)
    at = table.schema.get_field_index("action")
    floats = arrow.array([[1.0, 2.0]] * 8, arrow.list_(arrow.float32(), 2))
    wide = arrow.array([[1.0, 2.0, 3.0, 4.0]] * 8, arrow.list_(arrow.float64(), 4))
    missing = arrow.array([[1.0, 2.0]] * 7 + [None], arrow.list_(arrow.float64(), 2))
    for changed, words in (
        (table.drop_columns(["action"]), r"no column 'action'.*it has 'next.0'"),
        (table.set_column(at, "action", floats), r"'action' is stored as .*float.*\[2\].*describes it as float64\[2\]"),
        (table.set_column(at, "action", wide), r"'action' is stored as .*\[4\].*describes it as float64\[2\]"),
        (table.set_column(at, "action", missing), r"'action' has missing values|Expected all lists to be of size=2"),
    ):
        parquet.write_table(changed, file)
        with pytest.raises(ValueError, match=words):
            formats.import_table(tmp_path / "out", tmp_path / "new", format="lerobot")


def test_lerobot_keeps_episodes(tmp_path):
    pytest.importorskip("pyarrow")
    path = save(tmp_path / "root", write=write_frames)
    file, _ = round_trip(tmp_path, path, "lerobot", fps=20, task="stack the cubes")
    info = json.loads((file / "meta" / "info.json").read_text())
    assert (info["total_episodes"], info["total_frames"], info["fps"]) == (3, 8, 20)
    assert info["features"]["observation.state"] == {"dtype": "float32", "shape": [3], "names": None}
    # Without our description it is a dataset like any other.
    (file / "meta" / "reverb.json").unlink()
    again = formats.import_table(file, tmp_path / "again", format="lerobot", table="table")
    for ours, theirs in zip(items_of(path), items_of(again), strict=True):
        np.testing.assert_array_equal(ours.data["observation"]["grid"], theirs.data["observation.grid"])
        np.testing.assert_array_equal(ours.data["next"][1], theirs.data["next.1"])
        assert theirs.data["says"].tolist() == ours.data["says"].tolist()
        assert theirs.priority == 1.0


def test_the_library_reads_lerobot(tmp_path):
    library = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    path = save(tmp_path / "root", write=write_frames)
    formats.export_table(path, tmp_path / "out", format="lerobot", options={"fps": 20, "task": "stack the cubes"})
    dataset = library.LeRobotDataset("reverb/test", root=tmp_path / "out")
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps) == (3, 8, 20)
    frames = [
        (number, frame, item) for number, item in enumerate(items_of(path)) for frame in range(len(item.data["action"]))
    ]
    for index, (number, frame, item) in enumerate(frames):
        read = dataset[index]
        assert (int(read["episode_index"]), int(read["frame_index"]), read["task"]) == (
            number,
            frame,
            "stack the cubes",
        )
        np.testing.assert_array_equal(read["observation.state"], item.data["observation"]["state"][frame])
        np.testing.assert_array_equal(read["observation.grid"], item.data["observation"]["grid"][frame])
        np.testing.assert_array_equal(
            np.asarray(read["action"], np.float32), item.data["action"][frame].astype(np.float32)
        )
        assert bool(read["next.1"]) == bool(item.data["next"][1][frame])
    np.testing.assert_allclose(
        dataset.meta.stats["action"]["mean"],
        np.concatenate([item.data["action"] for item in items_of(path)]).mean(axis=0),
    )


def test_lerobot_says_what_it_cannot_hold(tmp_path):
    pytest.importorskip("pyarrow")

    def attempt(number, write, **options):
        path = save(tmp_path / f"root{number}", write=write)
        formats.export_table(path, tmp_path / f"out{number}", format="lerobot", options=options)

    def write_lengths(client, *lengths):
        with client.trajectory_writer(num_keep_alive_refs=8) as writer:
            for x, y in lengths:
                for step in range(6):
                    writer.append({"x": np.float32(step), "y": np.float32(step)})
                writer.create_item("table", 1.0, {"x": writer.history["x"][-x:], "y": writer.history["y"][-y:]})
                writer.end_episode()

    with pytest.raises(ValueError, match=r"different lengths, {'x': 5, 'y': 3}; .*at most one more row"):
        attempt(0, lambda client: write_lengths(client, (5, 3)))
    # The same columns must be longer in all items, or in none.
    with pytest.raises(ValueError, match=r"different lengths, {'x': 3, 'y': 4}"):
        attempt(4, lambda client: write_lengths(client, (4, 3), (3, 4)))
    with pytest.raises(ValueError, match=r"different lengths, {'x': 4, 'y': 3}"):
        attempt(5, lambda client: write_lengths(client, (3, 3), (4, 3)))
    with pytest.raises(ValueError, match=r"'action' of table 'table' has no time.*EpisodeRecorder.*parquet or npz"):
        attempt(6, lambda client: record(client, reverb.recorders.TransitionRecorder))
    with pytest.raises(ValueError, match=r"column 'x' has the bytes b'\\xff\\xfe', which are not UTF-8.*base64"):
        attempt(7, lambda client: client.insert({"x": b"\xff\xfe"}, {"table": 1.0}))
    with pytest.raises(ValueError, match=r"'empty'.*shape"):
        attempt(1, write_mixed)
    with pytest.raises(ValueError, match="not free"):
        attempt(2, lambda client: client.insert({"index": 1.0}, {"table": 1.0}))
    for number, fps in enumerate((0, -1, 2.5, "20", True, None)):
        with pytest.raises(ValueError, match=rf"option fps .* lerobot must be a positive integer, got {fps!r}"):
            attempt(10 + number, write_frames, fps=fps)
    with pytest.raises(ValueError, match=r"option task .* lerobot must be a str, got 3"):
        attempt(3, write_frames, task=3)
    with pytest.raises(ValueError, match="not a dataset of LeRobot"):
        formats.import_table(tmp_path, tmp_path / "new", format="lerobot")
    (tmp_path / "meta").mkdir()
    for text in ("{", "[]", "{}", '{"total_episodes": 1, "features": {"x": {}}}', '{"total_episodes": "?"}'):
        (tmp_path / "meta" / "info.json").write_text(text)
        with pytest.raises(ValueError, match=r"info.json does not describe a dataset of LeRobot"):
            formats.import_table(tmp_path, tmp_path / "new", format="lerobot")


def test_lerobot_datasets_of_others_are_imported(tmp_path):
    library = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    features = {
        "observation.state": ("float32", (3,)),
        "observation.grid": ("uint8", (4, 2)),
        "cube": ("float64", (2, 2, 2)),
        "n": ("int16", (1,)),
        "next.done": ("bool", (1,)),
    }
    described = {name: {"dtype": dtype, "shape": shape, "names": None} for name, (dtype, shape) in features.items()}
    described["says"] = {"dtype": "string", "shape": (1,), "names": None}
    dataset = library.LeRobotDataset.create(
        "reverb/test", fps=10, features=described, root=tmp_path / "out", use_videos=False
    )
    random = np.random.default_rng(4)
    episodes = []
    for length in (3, 2, 4):
        episodes.append([])
        for step in range(length):
            frame = {name: random.integers(0, 2, shape).astype(dtype) for name, (dtype, shape) in features.items()}
            episodes[-1].append({**frame, "says": f"größe {step}"})
            dataset.add_frame({**episodes[-1][-1], "task": "stack the cubes"})
        dataset.save_episode()
    if hasattr(dataset, "finalize"):
        dataset.finalize()
    path = formats.import_table(tmp_path / "out", tmp_path / "new", format="lerobot", table="table")
    for item, frames in zip(items_of(path), episodes, strict=True):
        for name, (dtype, shape) in features.items():
            expected = np.stack([frame[name] for frame in frames])
            assert item.data[name].dtype == dtype
            np.testing.assert_array_equal(item.data[name], expected[:, 0] if shape == (1,) else expected)
        assert item.data["says"].tolist() == [frame["says"].encode() for frame in frames]


def test_minari_datasets_that_do_not_match_their_description(tmp_path):
    pytest.importorskip("minari")
    pytest.importorskip("h5py")
    path = save(tmp_path / "root", write=write_episodes)
    formats.export_table(path, tmp_path / "out", format="minari")
    description = json.loads((tmp_path / "out" / "reverb.json").read_text())
    for change, words in (
        ({"name": "value", "dtype": "int64"}, r"episode 0: column 'value' has rows float64\[\], expected int64\[\]"),
        ({"name": "value", "shape": [2]}, r"column 'value' has rows float64\[\], expected float64\[2\].*remove it"),
    ):
        columns = [
            {**column, **change} if column["name"] == change["name"] else column for column in description["columns"]
        ]
        (tmp_path / "out" / "reverb.json").write_text(json.dumps({**description, "columns": columns}))
        with pytest.raises(ValueError, match=words):
            formats.import_table(tmp_path / "out", tmp_path / "new", format="minari")


def test_statistics_of_lerobot_are_precise(tmp_path):
    pytest.importorskip("pyarrow")
    values = [1e9 + np.array([0.0, 1.0, 2.0]), 1e9 + np.array([3.0, 4.0])]

    def write(client):
        with client.trajectory_writer(num_keep_alive_refs=3) as writer:
            for episode in values:
                for value in episode:
                    writer.append({"x": value})
                writer.create_item("table", 1.0, {"x": writer.history["x"][:]})
                writer.end_episode()

    path = save(tmp_path / "root", write=write)
    formats.export_table(path, tmp_path / "out", format="lerobot")
    stats = json.loads((tmp_path / "out" / "meta" / "stats.json").read_text())["x"]
    together = np.concatenate(values)
    assert stats["mean"] == [together.mean()]
    assert stats["std"] == pytest.approx([together.std()])
    assert (stats["min"], stats["max"], stats["count"]) == ([1e9], [1e9 + 4], [5])
