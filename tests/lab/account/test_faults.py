"""Which calls a fault hits."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from lab.account.faults import Fault, Faults


def hits(calls: int, *faults: Fault, operation: str = "eks.CreateCluster") -> list[int]:
    """The numbers of the calls that are hit, the first is 1."""
    all_faults = Faults()
    all_faults.set(asdict(fault) for fault in faults)
    return [number for number in range(1, calls + 1) if all_faults.before(operation)]


def test_so_often_and_every_so_many_calls() -> None:
    assert hits(5, Fault("eks.*", "throttled", times=2)) == [1, 2]
    assert hits(7, Fault("*", "throttled", every=3)) == [3, 6]
    assert hits(9, Fault("eks.CreateCluster", "throttled", every=2, times=2)) == [2, 4]
    assert hits(5, Fault("eks.Describe*", "throttled")) == []


def test_a_seed_chooses_the_same_calls_whatever_else_is_called() -> None:
    fault = Fault("*.Create*", "throttled", share=0.3, seed=7)
    chosen = hits(1000, fault)
    assert 250 < len(chosen) < 350
    assert chosen == hits(1000, fault)
    assert chosen != hits(1000, Fault("*.Create*", "throttled", share=0.3, seed=8))

    mixed = Faults()
    mixed.set([asdict(fault)])
    found = []
    for number in range(1, 1001):
        mixed.before("ec2.CreateVpc")
        if mixed.before("eks.CreateCluster"):
            found.append(number)
    assert found == chosen


def test_the_first_fault_that_fits_is_used_up_first() -> None:
    assert hits(4, Fault("eks.*", "throttled", times=1), Fault("*", "throttled", times=2)) == [1, 2, 3]


def test_how_a_change_ends_is_another_question_than_how_its_call_is_answered() -> None:
    faults = Faults()
    faults.set([asdict(Fault("fsx.CreateFileSystem", "fails", times=1))])
    assert faults.before("fsx.CreateFileSystem") is None
    assert [faults.end_of("fsx.CreateFileSystem") for _ in range(2)] == ["fails", ""]
    assert faults.calls == {"fsx.CreateFileSystem": 1}


@pytest.mark.parametrize(("kind", "code"), [("x", ""), ("throttled", "A"), ("refused", "")])
def test_a_fault_that_is_none(kind: str, code: str) -> None:
    with pytest.raises(ValueError, match="a fault of kind"):
        Fault("eks.*", kind, code=code)
