"""The campaign, short in `make test` and long in `make test-long`, and its checks on reports that are wrong."""

import campaign
from conftest import IS_LONG, SEED
from records import Confirmation, Death, find_lost, find_repeated, find_unexplained

GROUPS = [Confirmation(1, 0, 2, 10.0, 11.0), Confirmation(1, 3, 3, 20.0, 21.0), Confirmation(2, 0, 0, 10.0, 11.0)]
HOME = {1: 0, 2: None}


def test_lost_items_are_found():
    assert find_lost(GROUPS, {(1, 0), (1, 2), (1, 3), (2, 0)}, HOME) == [(GROUPS[0], [(1, 1)])]
    assert find_lost(GROUPS, {(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)}, HOME) == []


def test_a_death_explains_what_was_confirmed_after_its_checkpoint():
    lost = [(group, group.items()) for group in GROUPS]
    assert find_unexplained(lost, HOME, []) == lost
    assert find_unexplained(lost, HOME, [Death(0, 12.0, 30.0)]) == [lost[0], lost[2]]
    assert find_unexplained(lost, HOME, [Death(0, 5.0, 15.0)]) == [lost[1]]
    assert find_unexplained(lost, HOME, [Death(1, 5.0, 30.0)]) == [lost[0], lost[1]]


def test_items_that_a_queue_repeats_are_found():
    received = {(1, 0): [12.0], (1, 1): [12.0, 13.0]}
    assert find_repeated(received, GROUPS, []) == [((1, 1), [12.0, 13.0])]
    assert find_repeated(received, GROUPS, [9.0, 14.0]) == [((1, 1), [12.0, 13.0])]
    assert find_repeated(received, GROUPS, [12.5]) == []


def test_nothing_is_lost_or_doubled_while_servers_and_clients_die(program):
    kills = 200 if IS_LONG else 10
    # A long campaign writes less at a time: it looks at all items after each kill.
    summary = campaign.run(str(program), kills, SEED, pause=0.15 if IS_LONG else 0.05)
    assert "killed servers" in summary
    assert "killed clients" in summary
