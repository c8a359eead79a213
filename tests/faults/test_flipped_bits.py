"""Flipped bits: checksums detect those of messages; those of HTTP/2 and gRPC never crash a process or change data."""

from concurrent.futures import ThreadPoolExecutor
import logging

from conftest import IS_LONG, connect
import episodes
import numpy as np
from proxy import TO_CLIENT, TO_SERVER, Flip
import pytest

import reverb

BIG = np.random.default_rng(1).integers(0, 256, 200_000, np.uint8)  # does not compress
TIMEOUT = 30.0


def write(client, numbers, timeout=TIMEOUT):
    out = client.trajectory_writer(episodes.ROWS, timeout=timeout)
    out.append(episodes.step(1, numbers[0] - 1))
    for number in numbers:
        out.append(episodes.step(1, number))
        out.create_item("log", 1.0, {name: out.history[name][-episodes.ROWS :] for name in ("bytes", "place")})
    out.flush(timeout_ms=int(timeout * 1000))
    out.close()


def direct(server):
    return reverb.Client(server.address, in_process=False)


def content(server):
    return sorted(episodes.check(sample.data) for sample in direct(server).peek("log", 100_000, timeout=TIMEOUT))


def is_damage_logged(caplog):
    """Returns whether the log names the damage: of a message, or of a frame header that the bit hit by chance."""
    return any(word in record.getMessage() for record in caplog.records for word in ("checksum", "damaged"))


@pytest.mark.parametrize("offset", [20_000, 90_000, 150_000])
def test_a_flipped_payload_bit_of_an_insert_is_detected_and_the_item_sent_again(server, proxy, caplog, offset):
    proxy.plan_connection(flips=[Flip(TO_SERVER, offset, 3)])
    out = connect(proxy).trajectory_writer(1, validate_items=False)
    out.append({"big": BIG})
    out.create_item("queue", 1.0, {"big": out.history["big"][-1:]})
    with caplog.at_level(logging.WARNING, logger="reverb"):
        out.flush(timeout_ms=30_000)
    out.close()
    assert proxy.flipped == 1
    (item,) = direct(server).peek("queue", 10)
    assert np.array_equal(item.data["big"][0], BIG)
    assert direct(server).server_info()["queue"].current_size == 1
    assert is_damage_logged(caplog)


@pytest.mark.parametrize("offset", [20_000, 90_000, 150_000])
def test_a_flipped_payload_bit_of_a_sample_is_detected_and_another_sample_requested(server, proxy, caplog, offset):
    for number in range(3):
        direct(server).insert({"big": BIG, "number": number}, {"log": 1.0})
    proxy.plan_connection(flips=[Flip(TO_CLIENT, offset, 5)])
    with caplog.at_level(logging.WARNING, logger="reverb"):
        (item,) = connect(proxy).sample("log", 1, emit_timesteps=False, names=True, timeout=TIMEOUT)
    assert proxy.flipped == 1
    assert np.array_equal(item.data["big"][0], BIG)
    assert is_damage_logged(caplog)


def use(proxy, server, number):
    """Writes an item, reads it and inserts into the queue through the proxy. Returns the errors; wrong data fails."""
    client = connect(proxy, reconnect_timeout=1.0)
    errors = []

    def attempt(call):
        try:
            return call()
        except (RuntimeError, ValueError, reverb.errors.ReverbError) as error:
            errors.append(f"{type(error).__name__}: {error}")
            return None

    attempt(lambda: write(client, [number], timeout=1.0))
    samples = attempt(lambda: list(client.sample("log", 4, emit_timesteps=False, names=True, timeout=1.0)))
    for sample in samples or []:
        episodes.check(sample.data)
    info = attempt(lambda: client.server_info(timeout=1.0))
    if info is not None:
        assert set(info) == {"log", "queue"}
    return errors


@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
def test_flipped_control_bytes_give_errors_or_reconnects_and_never_wrong_data(server, make_proxy, direction):
    # The preface of HTTP/2, settings, headers of requests and of frames, lengths and trailers are in the first bytes of
    # a connection. Bytes of payloads are in between: checksums detect them.
    write(direct(server), [1])
    offsets = range(0, 700, 1 if IS_LONG else 20)

    def flip(offset):
        proxy = make_proxy(server)
        proxy.plan_connection(flips=[Flip(direction, offset, offset % 8)])
        for error in use(proxy, server, 10 * (offset + 1)):
            assert error.partition(": ")[2].strip(), f"{error!r} does not say what happened"
        return proxy.flipped

    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(flip, offsets))
    assert server.process.poll() is None, server.tail()
    items = content(server)
    assert len(set(items)) == len(items)
    assert set(items) <= {(1, 1)} | {(1, 10 * (offset + 1)) for offset in offsets}
    # Most bits were flipped: the connections were long enough.
    assert sum(results) >= len(offsets) // 2
    write(direct(server), [8, 9])
    assert {(1, 8), (1, 9)} <= set(content(server))


def test_random_flips_neither_double_nor_change_items(server, proxy):
    proxy.set(flip_probability=1e-5)
    client = connect(proxy, reconnect_timeout=5.0)
    confirmed = []
    for group in range(60 if IS_LONG else 20):
        numbers = list(range(1 + 20 * group, 20 + 20 * group))
        try:
            write(client, numbers, timeout=3.0)
            confirmed += numbers
        except (RuntimeError, ValueError, reverb.errors.ReverbError):
            proxy.cut()  # streams may wait for bytes that a flipped length announced
    proxy.heal()
    proxy.cut()
    assert proxy.flipped > 0
    items = content(server)
    assert len(set(items)) == len(items)
    assert {(1, number) for number in confirmed} <= set(items)
    assert len(confirmed) > 0
