"""How it is decided whether to write around the page cache, and how large a read may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preload import mode
from preload.mode import PAGE, READ_BYTES, READ_BYTES_MAX, decide, free_memory
from tests.workloads.support import preload, write

GB, GIB, MIB = 10**9, 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("asked", "memory", "file_system", "expected", "reason"),
    [
        (("direct", "auto"), 999 * GIB, "xfs", ("direct", False), "--write direct"),
        (("direct", "drop"), 999 * GIB, "xfs", ("direct", True), "--write direct"),
        (("buffered", "auto"), 1 * GIB, "xfs", ("buffered", False), "--write buffered"),
        (("buffered", "drop"), 1 * GIB, "xfs", ("buffered", True), "--write buffered"),
        (("buffered", "keep"), 1 * GIB, "xfs", ("buffered", False), "--write buffered"),
        (("auto", "auto"), 1 * GIB, "tmpfs", ("buffered", False), "the destination lies in memory"),
        (("auto", "drop"), 1 * GIB, "tmpfs", ("buffered", True), "the destination lies in memory"),
        (("direct", "auto"), 1 * GIB, "tmpfs", ("direct", False), "--write direct"),
        (("auto", "keep"), 1 * GIB, "xfs", ("buffered", False), "--cache keep"),
        (("auto", "drop"), 999 * GIB, "xfs", ("direct", True), "--cache drop"),
        (
            ("auto", "auto"),
            13 * GB + 4 * GIB,
            "xfs",
            ("buffered", False),
            "the copy stays in the page cache for the server: 17.29 GB fit into 17.29 GB of memory",
        ),
        (
            ("auto", "auto"),
            13 * GB + 4 * GIB - 1,
            "xfs",
            ("direct", False),
            "the copy would not stay in the page cache: 17.29 GB do not fit into 17.29 GB of memory",
        ),
        (
            ("auto", "auto"),
            None,
            "xfs",
            ("direct", False),
            "the copy would not stay in the page cache: 17.29 GB do not fit into unknown memory",
        ),
        (("auto", "keep"), None, "xfs", ("buffered", False), "--cache keep"),
    ],
    ids=str,
)
def test_the_mode_follows_from_flags_disk_and_memory_and_has_its_reason(asked, memory, file_system, expected, reason):
    way, cache = asked
    found = decide(way, cache, 10 * GB, 32, memory, file_system)
    assert (found.name, found.drop, found.reason) == (*expected, reason)


@given(st.integers(0, 4096 * GIB) | st.integers(0, 2 * GIB), st.integers(1, 1024))
def test_all_buffers_together_take_a_third_of_the_memory_at_the_most_or_a_page_each(memory, streams):
    found = decide("auto", "auto", GB, streams, memory, "xfs")
    assert found.read_bytes_max == PAGE or streams * found.read_bytes_max <= memory / 3
    assert PAGE <= found.read_bytes <= found.read_bytes_max <= READ_BYTES_MAX
    for size in (found.read_bytes, found.read_bytes_max):
        assert size.bit_count() == 1, "a power of two, so a multiple of a page and of each smaller one"


@pytest.mark.parametrize(
    ("memory", "streams", "expected"),
    [
        (None, 32, (READ_BYTES, READ_BYTES_MAX)),
        (999 * GIB, 1024, (READ_BYTES, READ_BYTES_MAX)),
        (768 * MIB, 32, (READ_BYTES, READ_BYTES_MAX)),
        (768 * MIB - 1, 32, (4 * MIB, 4 * MIB)),
        (100 * MIB, 32, (1 * MIB, 1 * MIB)),
        (100 * MIB, 1024, (32 << 10, 32 << 10)),
        (1 * MIB, 1024, (PAGE, PAGE)),
        (0, 32, (PAGE, PAGE)),
    ],
)
def test_reads_are_smaller_where_there_is_little_memory_for_many_streams(memory, streams, expected):
    found = decide("auto", "auto", GB, streams, memory, "xfs")
    assert (found.read_bytes, found.read_bytes_max) == expected


MEMINFO = b"MemTotal:       99999999 kB\nMemFree:          100 kB\nMemAvailable:    1000 kB\n"
V2 = b"0::/kubepods.slice/pod1.slice/c1.scope\n"
V1 = b"12:cpu,cpuacct:/kubepods/pod1/c1\n5:memory:/kubepods/pod1/c1\n1:name=systemd:/x\n0::/\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/meminfo": b""}, None),
        ({"proc/meminfo": b"MemAvailable: soon"}, None),
        ({"proc/meminfo": MEMINFO}, 1_024_000),
        # version 2
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": V2}, 1_024_000),
        ({"proc/self/cgroup": V2, "own2/memory.max": b"5000\n"}, 5000),
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": V2, "own2/memory.max": b"5000\n"}, 5000),
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": V2, "own2/memory.max": b"max\n"}, 1_024_000),
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": V2, "own2/memory.max": b"9000000000\n"}, 1_024_000),
        ({"proc/self/cgroup": V2, "own2/memory.max": b"max\n", "own2/../memory.max": b"4000\n"}, 4000),
        ({"proc/self/cgroup": V2, "own2/memory.max": b"3000\n", "own2/../memory.max": b"4000\n"}, 3000),
        ({"proc/self/cgroup": V2, "own2/memory.max": b"3000\n", "own2/../../memory.max": b"2000\n"}, 2000),
        # inside a container, whose own cgroup is the top one
        ({"proc/self/cgroup": b"0::/\n", "top/memory.max": b"7000\n"}, 7000),
        ({"proc/self/cgroup": b"0::/../../x\n", "top/memory.max": b"7000\n"}, 7000),
        # version 1
        ({"proc/self/cgroup": V1, "own1/memory.limit_in_bytes": b"6000\n"}, 6000),
        ({"proc/self/cgroup": V1, "top/memory/memory.limit_in_bytes": b"6000\n"}, 6000),
        (
            {"proc/self/cgroup": V1, "own1/memory.limit_in_bytes": b"6000\n", "own1/../memory.limit_in_bytes": b"50\n"},
            50,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": V1,
                "own1/memory.limit_in_bytes": b"9223372036854771712\n",
            },
            1_024_000,
        ),
        # what makes no sense
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": b"\xff\nx\n::\n0::relative\n5:memory\n"}, 1_024_000),
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": V2, "own2/memory.max": b"-1\n"}, 1_024_000),
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": V2, "own2/memory.max": b""}, 1_024_000),
    ],
    ids=str,
)
def test_free_memory_is_what_is_available_within_each_limit_of_the_cgroups_above(
    tmp_path: Path, files: dict[str, bytes], expected: int | None
):
    places = {
        "top": "sys/fs/cgroup",
        "own1": "sys/fs/cgroup/memory/kubepods/pod1/c1",
        "own2": "sys/fs/cgroup/kubepods.slice/pod1.slice/c1.scope",
    }
    for name, content in files.items():
        first, _, rest = name.partition("/")
        path = tmp_path / places.get(first, first) / rest
        write(path.parent, {path.name: content})
    assert free_memory(str(tmp_path / "proc"), str(tmp_path / "sys")) == expected


def test_a_pods_memory_limit_decides_how_its_model_is_written_and_the_first_line_says_so(tmp_path, capsys):
    source = write(tmp_path / "source")
    for limit, way in {b"4000000000": "direct", b"5000000000": "buffered"}.items():
        machine = tmp_path / way
        write(machine, {"proc/meminfo": b"MemAvailable: 99999999 kB\n", "proc/self/cgroup": b"0::/\n"})
        write(machine / "sys/fs/cgroup", {"memory.max": limit})
        proc, sysfs = str(machine / "proc"), str(machine / "sys")
        result = preload(source, tmp_path / f"destination-{way}", proc=proc, sysfs=sysfs)
        assert (result.code, result.termination["write"]) == (0, way)
        first = capsys.readouterr().err.splitlines()[0]
        assert f"; {way} writes: the copy " in first
        assert f"{int(limit) / 1e9:.2f} GB of memory" in first


def test_a_model_is_copied_whole_with_the_smallest_buffers(tmp_path, monkeypatch):
    source = write(tmp_path / "source", {"config.json": b"{}", "big.bin": bytes(range(251)) * 300})
    monkeypatch.setattr(mode, "free_memory", lambda *_: 0)
    for way in ("direct", "buffered"):
        assert preload(source, tmp_path / way, "--write", way).code == 0
        assert (tmp_path / way / "big.bin").read_bytes() == (source / "big.bin").read_bytes()
