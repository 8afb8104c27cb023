"""The breaker opens, probes, closes, and is never stuck."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runner.calls.breaker import Breaker, Pass, Refusal


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def breaker(clock):
    return Breaker(failures=3, pause=60, max_pause=200, clock=clock)


def fail(breaker, times=1):
    found = []
    for _ in range(times):
        found += breaker.record(breaker.admit(), counted=True, ok=False)
    return found


def test_it_opens_after_so_many_failures_in_a_row(breaker):
    assert fail(breaker, 2) == []
    assert breaker.state == "closed"
    assert fail(breaker) == [("opened", 60)]
    assert breaker.admit() == Refusal(60)
    assert breaker.state == "open"


def test_a_success_in_between_starts_the_count_again(breaker):
    fail(breaker, 2)
    breaker.record(breaker.admit(), counted=False, ok=True)
    assert fail(breaker, 2) == []


def test_what_says_nothing_about_the_peer_is_not_counted(breaker):
    fail(breaker, 2)
    for _ in range(9):
        assert breaker.record(breaker.admit(), counted=False, ok=False) == []
    assert fail(breaker) == [("opened", 60)]


def test_a_refusal_says_how_long(breaker, clock):
    fail(breaker, 3)
    clock.now += 45
    assert breaker.admit() == Refusal(15)
    assert breaker.describe() == {"state": "open", "failures": 3, "seconds": 15.0}


def test_after_the_pause_exactly_one_probe_goes_through(breaker, clock):
    fail(breaker, 3)
    clock.now += 60
    assert breaker.state == "half-open"
    probe = breaker.admit()
    assert probe.probe
    assert all(isinstance(breaker.admit(), Refusal) for _ in range(20))
    assert breaker.record(probe, counted=False, ok=True) == [("closed", 0.0)]
    assert breaker.state == "closed"
    assert fail(breaker, 2) == []


def test_a_failed_probe_opens_for_twice_as_long_up_to_a_limit(breaker, clock):
    pauses = [fail(breaker, 3)[0][1]]
    for _ in range(3):
        clock.now += pauses[-1]
        pauses.append(fail(breaker)[0][1])
    assert pauses == [60, 120, 200, 200]
    clock.now += 200
    breaker.record(breaker.admit(), counted=False, ok=True)
    assert fail(breaker, 3) == [("opened", 60)]


def test_a_cancelled_probe_neither_opens_nor_closes(breaker, clock):
    fail(breaker, 3)
    clock.now += 60
    assert breaker.record(breaker.admit(), counted=False, ok=False) == []
    assert breaker.admit().probe


def test_a_lost_probe_frees_its_place(breaker, clock):
    fail(breaker, 3)
    clock.now += 60
    lost = breaker.admit()
    clock.now += 60
    second = breaker.admit()
    assert second.probe
    assert breaker.record(lost, counted=False, ok=True) == []
    assert breaker.record(second, counted=False, ok=True) == [("closed", 0.0)]


def test_a_call_that_began_before_says_nothing_afterwards(breaker, clock):
    early = [breaker.admit() for _ in range(2)]
    fail(breaker, 3)
    assert breaker.record(early[0], counted=False, ok=True) == []
    assert breaker.record(early[1], counted=True, ok=False) == []
    assert breaker.admit() == Refusal(60)


class Histories(RuleBasedStateMachine):
    """Any order of calls, results, losses and waits."""

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.breaker = Breaker(failures=2, pause=10, max_pause=40, clock=self.clock)
        self.out = []
        self.state = "closed"

    @rule()
    def admit(self):
        before = self.breaker.state
        entry = self.breaker.admit()
        if isinstance(entry, Refusal):
            assert before != "closed"
            assert 0 < entry.seconds <= 40
        else:
            assert before != "open"
            assert entry.probe == (before == "half-open")
            self.out.append(entry)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), outcome=st.sampled_from(["ok", "counted", "neither", "lost"]))
    def finish(self, data, outcome):
        entry = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        if outcome == "lost":
            return
        was = self.breaker.state
        found = self.breaker.record(entry, counted=outcome == "counted", ok=outcome == "ok")
        for name, _pause in found:
            assert (name, was) in {
                ("opened", "closed"),
                ("opened", "half-open"),
                ("closed", "half-open"),
            }
            assert (name == "opened") == (self.breaker.state == "open")
        assert not found or outcome in ("ok", "counted")

    @rule(seconds=st.floats(0, 50))
    def wait(self, seconds):
        self.clock.now += seconds

    @invariant()
    def it_is_never_stuck(self):
        twin = Breaker(failures=2, pause=10, max_pause=40, clock=self.clock)
        vars(twin).update(vars(self.breaker))
        twin._clock = lambda: self.clock.now + 41
        assert isinstance(twin.admit(), Pass)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
