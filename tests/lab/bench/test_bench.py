"""The benchmark's own logic, with trivial tools at tiny sizes: nothing is measured here."""

import itertools
import json
import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench import __main__ as command
from lab.bench import datasets, explain, host_memory, machine, measure, page, read_back, results, rows, session, tools
from lab.bench.datasets import DataSet
from lab.bench.measure import Bench, Contestant, RunFailedError
from lab.bench.rows import Bar, Row
from lab.bench.sources import Cold, SourceError, Throttled, Warm
from lab.bench.verdicts import Spread, judge
from modelfolder import manifest

KIB = 1 << 10
PLENTY = 64 << 30
CP = Contestant("copy", 'cp -r "$S/." "$D/"')
FLAT = Contestant("flat", 'find "$S" -type f -exec cp {} "$D/" \\;')
QUIET = {"PATH": "/usr/bin:/bin"}

ratio_lists = st.lists(st.floats(0.01, 100), min_size=1, max_size=20)


# ---- verdicts


@pytest.mark.parametrize(
    ("ratios", "verdict", "why"),
    [
        ([2.0] * 7, "met", ""),
        ([1.9, 1.9, 1.9, 2.0, 2.0, 2.0, 2.0], "met", ""),
        ([1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0], "undecided", "the lower quartile is under 0.9"),
        ([1.9] * 7, "not met", ""),
        ([1.9, 1.9, 1.9, 1.9, 2.1, 2.1, 2.1], "undecided", "the upper quartile reaches it"),
        ([3.0] * 6, "undecided", "6 pairs, 7 are needed"),
        ([3.0], "undecided", "1 pair, 7 are needed"),
    ],
)
def test_a_bar_of_two_is_judged_by_median_and_quartiles(ratios: list[float], verdict: str, why: str) -> None:
    found = judge(Spread.of(ratios), 2.0)

    assert found[0] == verdict
    assert why in found[1]
    assert bool(found[1]) == (verdict == "undecided")


@given(ratio_lists)
def test_a_spread_lies_within_its_figures_in_order(ratios: list[float]) -> None:
    found = Spread.of(ratios)

    assert min(ratios) <= found.lower <= found.median <= found.upper <= max(ratios)
    assert found.median == pytest.approx(statistics.median(ratios))
    assert found.count == len(ratios)


@given(ratio_lists, st.floats(0.1, 30), st.floats(1.01, 3))
def test_a_higher_bar_is_never_easier(ratios: list[float], bar: float, factor: float) -> None:
    order = ["met", "undecided", "not met"]
    spread = Spread.of(ratios)

    assert order.index(judge(spread, bar, 1)[0]) <= order.index(judge(spread, bar * factor, 1)[0])


@given(ratio_lists.filter(lambda found: len(found) >= 7))
def test_what_is_met_reaches_the_bar_and_what_is_not_met_does_not(ratios: list[float]) -> None:
    spread = Spread.of(ratios)
    verdict, _ = judge(spread, 1.0)

    assert (verdict == "met") == (spread.median >= 1.0 and spread.lower >= 0.9)
    assert verdict != "not met" or spread.upper < 1.0


# ---- data sets

TINY = [datasets.sharded(3, 20 * KIB), datasets.single(64 * KIB), datasets.small(30, 10), datasets.junk(2, 20 * KIB)]


@pytest.mark.parametrize("data_set", TINY, ids=lambda one: one.name)
def test_a_data_set_is_made_once_and_is_the_same_each_time(data_set: DataSet, tmp_path: Path) -> None:
    first = data_set.make(tmp_path / "one")
    stamps = {path: (first / path).stat().st_mtime_ns for path, _ in datasets.contents(first)}
    again, other = data_set.make(tmp_path / "one"), data_set.make(tmp_path / "two")

    assert {path: (again / path).stat().st_mtime_ns for path, _ in datasets.contents(again)} == stamps
    assert sorted(datasets.contents(first)) == sorted(datasets.contents(other))
    measure.require_same(other, first)


@pytest.mark.parametrize("data_set", TINY, ids=lambda one: one.name)
def test_names_are_unique_so_that_a_flat_copy_can_be_compared(data_set: DataSet, tmp_path: Path) -> None:
    names = [Path(path).name for path, _ in datasets.contents(data_set.make(tmp_path))]

    assert len(names) == len(set(names))
    assert "config.json" in names


def test_a_data_set_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    data_set = datasets.single(64 * KIB)
    unfinished = tmp_path / f"{data_set.name}.unfinished"
    unfinished.mkdir()
    (unfinished / "left.over").touch()

    made = data_set.make(tmp_path)

    assert {path for path, _ in datasets.contents(made)} == {"model.safetensors", "config.json"}
    assert not unfinished.exists()


def test_a_data_set_without_room_says_how_much_it_needs(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"it needs .* GB and 2\.1 GB to spare, .* GB are free"):
        datasets.single(1 << 60).make(tmp_path)


def test_shards_have_their_size_a_valid_header_and_a_place_in_the_index(tmp_path: Path) -> None:
    folder = datasets.sharded(3, 20 * KIB).make(tmp_path)
    index = json.loads((folder / "model.safetensors.index.json").read_bytes())["weight_map"]

    for tensor, name in index.items():
        content = (folder / name).read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        assert len(content) == 20 * KIB
        assert header[tensor]["data_offsets"] == [0, len(content) - 8 - length]
    assert len(index) == 3
    assert all(json.loads(path.read_bytes()) for path in folder.glob("*.json"))


@pytest.mark.parametrize("size", [1, datasets.BLOCK_BYTES - 1, 2 * datasets.BLOCK_BYTES + 17])
def test_blocks_add_up_to_the_size_and_differ(size: int) -> None:
    blocks = [bytes(block) for key in range(2) for block in datasets._blocks(key, size)]

    assert sum(map(len, blocks)) == 2 * size
    assert len(set(blocks)) == len(blocks)


def test_a_published_set_has_the_manifest_that_preload_reads(tmp_path: Path) -> None:
    plain = datasets.sharded(2, 20 * KIB)
    folder = datasets.published(plain).make(tmp_path)
    data = (folder / ".faststart/manifest.json").read_bytes()
    document, found = json.loads(data), manifest.parse(data)

    assert manifest.canonical(document) == data
    assert {file.path.decode(): file.size for file in found.files} == dict(datasets.contents(tmp_path / plain.name))
    assert all(len(file["blocks"]) == -(-file["size"] // file["block_bytes"]) for file in document["files"])


def test_a_repository_with_junk_needs_only_its_weights_and_json(tmp_path: Path) -> None:
    data_set = datasets.junk(2, 20 * KIB)
    needed = {path for path, _ in datasets.contents(data_set.make(tmp_path)) if data_set.needed(path)}

    assert {Path(path).suffix for path in needed} == {".safetensors", ".json"}
    assert not any("/" in path for path in needed)


# ---- runs


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    work = tmp_path / "work"
    work.mkdir()
    return Bench(work, QUIET, settle_seconds=0)


@pytest.fixture
def data_set() -> DataSet:
    return datasets.junk(2, 20 * KIB)


@pytest.fixture
def data(tmp_path: Path, data_set: DataSet) -> Path:
    return data_set.make(tmp_path / "data")


def test_a_run_has_its_figures_and_leaves_nothing_behind(bench: Bench, data_set: DataSet, data: Path) -> None:
    found = bench.run(CP, data_set, data, Cold(), "disk", compare=True)

    assert found.total == found.on_disk >= found.wall > 0
    assert found.copied == sum(size for _, size in datasets.contents(data))
    assert found.user + found.system > 0
    assert list(bench.work.iterdir()) == []


def test_a_copy_of_many_files_is_deleted_after_the_row_so_that_no_later_run_pays_for_it(
    bench: Bench, data_set: DataSet, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "MANY_FILES", 1)
    for _ in range(2):
        bench.run(CP, data_set, data, Cold(), "disk", compare=True)

    kept = sum(1 for _ in datasets.contents(bench.work))
    assert kept == 2 * sum(1 for _ in datasets.contents(data))
    bench.clear()
    assert list(bench.work.iterdir()) == []


def test_the_clock_ends_on_disk_or_after_the_read(tmp_path: Path, data_set: DataSet, data: Path) -> None:
    def run(after: str) -> measure.Measured:
        ticks = itertools.count()
        bench = Bench(tmp_path / "work", QUIET, settle_seconds=0, clock=lambda: float(next(ticks)))
        return bench.run(CP, data_set, data, Warm(), after, compare=False)

    (tmp_path / "work").mkdir()
    on_disk, read = run("disk"), run("mmap")

    assert (on_disk.wall, on_disk.on_disk, on_disk.total) == (1, 2, 2)
    assert (read.wall, read.total, read.on_disk) == (1, 2, 3)


def test_a_tool_that_times_itself_is_believed_and_the_flush_added(
    tmp_path: Path, data_set: DataSet, data: Path
) -> None:
    ticks = itertools.count()
    bench = Bench(tmp_path, QUIET, settle_seconds=0, clock=lambda: float(next(ticks)))
    timed = Contestant("timed", "echo 0.25", own_clock=float, whole=False)

    found = bench.run(timed, data_set, data, Warm(), "disk", compare=True)

    assert (found.wall, found.total) == (0.25, 1.25)


def test_a_flat_copy_is_whole_by_its_names(bench: Bench, data_set: DataSet, data: Path) -> None:
    assert bench.run(FLAT, data_set, data, Warm(), "disk", compare=True).copied > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo out of luck >&2; exit 7", "ended with exit code 7: out of luck"),
        ("exit 7", "ended with exit code 7: it said nothing"),
        ("kill -KILL $$", "ended with exit code -9"),
        ("true", "not whole: 0 files with 0 bytes"),
        ('cp -r "$S/." "$D/"; truncate -s -1 "$D/config.json"', "1 lost or cut, 1 foreign"),
        ('cp -r "$S/." "$D/"; echo x > "$D/more"', "0 lost or cut, 1 foreign"),
        (
            'cp -r "$S/." "$D/"; printf x | dd of="$D/tokenizer.json" bs=1 seek=2000 conv=notrunc',
            "tokenizer.json has other bytes",
        ),
    ],
)
def test_a_run_that_failed_says_how(bench: Bench, data_set: DataSet, data: Path, text: str, words: str) -> None:
    with pytest.raises(RunFailedError, match=words):
        bench.run(Contestant("bad", text), data_set, data, Warm(), "disk", compare=True)
    assert list(bench.work.iterdir()) == []


def test_a_copy_may_leave_out_what_a_server_does_not_need(bench: Bench, data_set: DataSet, data: Path) -> None:
    partial = Contestant("partial", 'cp "$S"/*.safetensors "$S"/*.json "$D/"', leaves_out=True)
    less = Contestant("less", 'cp "$S"/*.safetensors "$D/"', leaves_out=True)

    assert bench.run(partial, data_set, data, Warm(), "disk", compare=True).copied > 0
    with pytest.raises(RunFailedError, match=r"of 8 needed files are not there, such as config.json"):
        bench.run(less, data_set, data, Warm(), "disk", compare=True)


def test_a_tool_that_does_not_end_is_killed_with_its_children(
    bench: Bench, data_set: DataSet, data: Path, tmp_path: Path
) -> None:
    bench.limit_seconds = 0.1
    endless = Contestant("endless", f"sleep 600 & echo $! > {tmp_path}/child; wait")

    with pytest.raises(RunFailedError, match="was not done after"):
        bench.run(endless, data_set, data, Warm(), "disk", compare=False)

    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"


def test_memory_that_cannot_be_measured_fails_the_run(
    bench: Bench, data_set: DataSet, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> int:
        raise ValueError("no such figure")

    monkeypatch.setattr(measure, "resident_bytes", fail)
    with pytest.raises(ValueError, match="no such figure"):
        bench.run(Contestant("slow", "sleep 0.3"), data_set, data, Warm(), "disk", compare=False)


def test_preload_s_report_is_kept(bench: Bench, data_set: DataSet, data: Path) -> None:
    report = '{"write": "direct", "phases": {"scan": 0.5}, "message": "not kept"}'
    told = replace(CP, command=CP.command + f'; mkdir "$D/.faststart"; echo \'{report}\' > "$D/.faststart/report.json"')

    found = bench.run(told, data_set, data, Warm(), "disk", compare=True)

    assert found.report == {"write": "direct", "phases": {"scan": 0.5}}


def test_both_readers_read_every_byte_of_the_weights(tmp_path: Path) -> None:
    folder = datasets.sharded(3, 20 * KIB).make(tmp_path)
    (folder / "empty.bin").touch()

    assert [reader(folder) for reader in read_back.READERS.values()] == [60 * KIB, 60 * KIB]


def test_a_throttled_source_that_does_not_mount_says_why(tmp_path: Path, data: Path) -> None:
    refusing = tmp_path / "slowfs"
    refusing.write_text("#!/bin/sh\necho no fuse here >&2; exit 1\n")
    refusing.chmod(0o755)

    with pytest.raises(SourceError, match="no fuse here"), Throttled(refusing, tmp_path / "mount").opened(data):
        pass


# ---- rows


def row(*contestants: Contestant, bars: tuple[Bar, ...] = ()) -> Row:
    return Row("tiny", "Tiny", datasets.junk(2, 20 * KIB), "warm", contestants, bars, 0)


@given(st.integers(1, 9), st.lists(st.one_of(st.none(), st.integers(1, 9)), min_size=1, max_size=4))
def test_contestants_take_turns_backwards_every_second_round(pairs: int, limits: list[int | None]) -> None:
    contestants = [Contestant(str(number), "", pairs=limit) for number, limit in enumerate(limits)]
    found = list(session.turns(contestants, pairs))

    for number in range(pairs):
        names = [int(one.name) for turn, one in found if turn == number]
        assert names == sorted(names, reverse=number % 2 == 1)
    for one in contestants:
        assert [number for number, other in found if other is one] == list(range(min(pairs, one.pairs or pairs)))


def test_two_contestants_run_a_b_b_a() -> None:
    assert [one.name for _, one in session.turns([CP, FLAT], 2)] == ["copy", "flat", "flat", "copy"]


def test_a_row_s_result_tells_all_that_a_reader_needs(bench: Bench, data: Path, tmp_path: Path) -> None:
    said: list[str] = []
    few = replace(FLAT, pairs=1, why_fewer="slow")
    measured = session.measure_row(row(CP, few), bench, Warm(), data, 3, said.append)
    results.write(tmp_path / "results", measured)
    found = results.read(tmp_path / "results", ["tiny", "other"])

    assert list(found) == ["tiny"]
    assert [(one["name"], len(one["runs"]), one["why_fewer"]) for one in found["tiny"]["contestants"]] == [
        ("copy", 3, ""),
        ("flat", 1, "slow"),
    ]
    assert {"machine", "tools", "date", "commit", "load", "data", "pairs"} <= set(found["tiny"])
    assert {"cpu", "cores", "memory", "kernel", "file_system", "python", "free_memory"} == set(found["tiny"]["machine"])
    assert len(said) == 4


def test_a_contestant_that_fails_is_out_and_the_others_go_on(bench: Bench, data: Path) -> None:
    said: list[str] = []
    bad, missing = Contestant("bad", "exit 3"), Contestant("missing", "true", ("busybox", "no-such-tool"))
    tools_row = row(CP, bad, missing)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools, "TOOLS", {**tools.TOOLS, "no-such-tool": tools.Tool("a-package", ())})
        found = session.measure_row(tools_row, bench, Warm(), data, 2, said.append)

    by_name = {one["name"]: one for one in found["contestants"]}
    assert [len(one["runs"]) for one in by_name.values()] == [2, 0, 0]
    assert by_name["bad"]["failed"].startswith("ended with exit code 3")
    assert "no-such-tool" in by_name["missing"]["failed"]
    assert "a-package" in by_name["missing"]["failed"]


def test_without_the_first_contestant_a_row_ends_at_once(bench: Bench, data: Path) -> None:
    with pytest.raises(RunFailedError, match=r"^first ended with exit code 3"):
        session.measure_row(row(Contestant("first", "exit 3"), CP), bench, Warm(), data, 2, lambda _: None)


@pytest.mark.parametrize("scale", [rows.FULL, rows.QUICK])
def test_every_bar_names_contestants_of_its_row_and_those_run_often_enough(scale: rows.Scale) -> None:
    for one in rows.rows(scale, PLENTY):
        names = {contestant.name: contestant for contestant in one.contestants}
        assert len(names) == len(one.contestants)
        assert set(one.explained) <= set(names)
        for bar in one.bars:
            assert {bar.of, *bar.against} <= set(names)
            assert bar.of == one.contestants[0].name
            assert any(names[name].pairs is None for name in bar.against)
            assert one.pairs is None
        assert all(contestant.why_fewer for contestant in one.contestants if contestant.pairs)
        assert set().union(*(contestant.tools for contestant in one.contestants)) <= set(tools.TOOLS)
        assert one.after in {"disk", *read_back.READERS}


def test_a_set_in_memory_leaves_most_of_the_memory_free() -> None:
    small = 8 << 30
    (limit,) = [one for one in rows.rows(rows.FULL, small) if one.name == "write-limit"]

    assert 0 < limit.data_set.about_bytes <= small // rows.MEMORY_PART
    assert f"--size={limit.data_set.about_bytes // rows.FIO_JOBS} " in limit.contestants[1].command


def test_fio_s_own_clock_is_read_behind_its_notes() -> None:
    document = {"jobs": [{"write": {"io_bytes": 3_000_000, "bw_bytes": 2_000_000, "runtime": 1500}}]}

    assert rows._fio_seconds("fio: a note\n" + json.dumps(document)) == 1.5


def test_strace_s_summary_is_read_longest_first() -> None:
    text = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 10.00    0.100000          10        50           pread64
 90.00    0.900000          10       100         7 openat
------ ----------- ----------- --------- --------- ----------------
100.00    1.000000          10       150         7 total
"""
    assert explain.parse(text) == [
        {"name": "openat", "seconds": 0.9, "calls": 100},
        {"name": "pread64", "seconds": 0.1, "calls": 50},
    ]


# ---- results and the page


def result(name: str, **seconds: list[float]) -> dict[str, Any]:
    """A result with these totals; CPU seconds are a tenth of them, the tool returned after half."""
    return {
        "row": name,
        "title": name,
        "data": "some files",
        "place": "warm",
        "after": "disk",
        "pairs": 7,
        "contestants": [
            {
                "name": key.replace("_", " "),
                "command": "preload --write auto" if key == "auto" else key,
                "why_fewer": "",
                "failed": None if runs else "ended with exit code 1: a | b",
                "runs": [
                    {
                        "wall": total / 2,
                        "on_disk": total,
                        "total": total,
                        "user": total / 10,
                        "system": 0.0,
                        "peak_mib": 3.0,
                        "copied": 2_000_000_000,
                        "report": {"write": "buffered", "phases": {"scan": 0.25}} if key == "auto" else {},
                    }
                    for total in runs
                ],
            }
            for key, runs in seconds.items()
        ],
        "profile": {"auto": [{"name": "openat", "seconds": 0.5, "calls": 7}]},
        "machine": {
            "cpu": "CPU",
            "cores": 2,
            "memory": 8 << 30,
            "kernel": "6",
            "file_system": "ext4",
            "python": "3",
            "free_memory": host_memory.OWN,
        },
        "tools": {"rclone": "1.60.1"},
        "date": "2026-01-01 00:00 UTC",
        "commit": "abcdef0",
        "load": 0.1,
    }


def test_ratios_are_taken_pair_by_pair_and_end_with_the_shorter() -> None:
    found = result("tiny", ours=[1.0, 2.0, 4.0], theirs=[3.0, 4.0])

    assert results.ratios(found, "ours", "theirs") == Spread.of([3.0, 2.0])
    assert results.ratios(found, "ours", "absent") is None


def test_the_best_of_several_is_the_one_with_the_smallest_median() -> None:
    found = result("tiny", ours=[1.0] * 7, slow=[9.0] * 7, quick=[2.0] * 7, broken=[])
    judged = results.judgement(found, Bar("ours", ("slow", "quick", "broken"), 1.5, "the best"))

    assert (judged.against, judged.verdict) == ("quick", "met")


def test_a_bar_without_figures_is_undecided_and_says_why() -> None:
    found = result("tiny", ours=[], theirs=[1.0] * 7)

    assert results.judgement(found, Bar("theirs", ("ours",), 1.0, "x")).why == "nothing to compare with was measured"
    assert "ended with exit code 1" in results.judgement(found, Bar("ours", ("theirs",), 1.0, "x")).why


def test_the_page_shows_won_and_lost_rows_the_choice_and_the_profile() -> None:
    auto, theirs = Contestant("auto", "preload --write auto"), Contestant("theirs", "")
    bars = (
        Bar("auto", ("theirs",), 2.0, "theirs"),
        Bar("auto", ("theirs",), 9.0, "theirs"),
        Bar("auto", ("theirs",), 1.0, "theirs", "cpu"),
    )
    tiny = replace(row(auto, theirs, Contestant("broken", ""), bars=bars), explained=("auto",), note="A note.")
    found = {"tiny": result("tiny", auto=[1.0] * 7, theirs=[3.0] * 7, broken=[])}

    text = page.page(found, [tiny, replace(tiny, name="other", title="Other")])

    assert "| Tiny | seconds | theirs | 2.00 | 3.00 (3.00-3.00) | 7 | **met** |" in text
    assert "| Tiny | seconds | theirs | 9.00 | 3.00 (3.00-3.00) | 7 | **not met** |" in text
    assert "| Tiny | CPU seconds | theirs | 1.00 | 3.00 (3.00-3.00) | 7 | **met** |" in text
    assert "| auto | 1.00 (1.00-1.00) | 0.50 | 2 | 2 |  | 0.10 | 0.05 | 3 | 7 | chose buffered |" in text
    assert "ended with exit code 1: a \\| b" in text
    assert "| auto | 0.10 | 0.00 | scan 0.25 | openat 0.50 (7) |" in text
    assert "Not measured: Other." in text
    assert "Some files. A note." in text
    assert "| `tiny` | 2026-01-01 00:00 UTC | abcdef0 | 0.10 |" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.replace("\\|", "").count("|") > 2 for line in tables)


def test_without_results_the_page_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "benchmarks.md"
    target.write_text("older figures")

    assert page.main(["--results", str(tmp_path), "--page", str(target)]) == 0
    assert target.read_text() == "older figures"
    assert "no results yet" in capsys.readouterr().err


def test_with_results_the_page_is_written_and_the_readme_gets_a_short_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "benchmarks.md"
    seconds = {"preload": [2.0] * 7, "the article's line": [42.0] * 7, "rclone, tuned": [5.0] * 7}
    results.write(tmp_path, {**result("throttled-single", **seconds), "data": "one file"})

    assert page.main(["--results", str(tmp_path), "--page", str(target)]) == 0
    assert "**met**" in target.read_text()
    assert page.main(["--results", str(tmp_path), "--readme"]) == 0
    assert "| Throttled source, one file (one file) | 42.0 | 2.0 | 21.00 |" in capsys.readouterr().out


# ---- the command


def test_an_unknown_row_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--row", "nonsense"]) == 2
    assert "no such row: nonsense; there are: throttled-single" in capsys.readouterr().err


def test_the_list_has_every_row_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]

    assert listed == [*(one.name for one in rows.rows(rows.FULL, PLENTY)), "all"]


def test_a_row_is_measured_and_its_result_and_verdict_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = row(CP, FLAT, bars=(Bar("copy", ("flat",), 1.0, "flat"),))
    monkeypatch.setattr(command, "rows", lambda *_: (tiny,))
    monkeypatch.setattr(command, "BUILD", tmp_path)
    monkeypatch.setattr(command.tools, "install_missing", lambda _: None)
    monkeypatch.setattr(command.machine, "available_bytes", lambda: 0)

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "of-somebody").touch()
    assert command.main(["--pairs", "1", "--data", str(tmp_path / "data"), "--work", str(tmp_path / "work")]) == 0

    assert (tmp_path / "tiny.json").is_file()
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["of-somebody"]
    assert "UNDECIDED (1 pair, 7 are needed)" in capsys.readouterr().out


@pytest.mark.parametrize(("ci", "code"), [("true", 3), ("", 0)])
def test_a_row_that_cannot_run_here_says_why_and_fails_only_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str, code: int
) -> None:
    def missing(_: object) -> Path:
        raise tools.ToolMissingError("there is no FUSE here")

    monkeypatch.setattr(command.tools, "slowfs", missing)
    monkeypatch.setattr(command.tools, "install_missing", lambda _: None)
    monkeypatch.setattr(command.machine, "available_bytes", lambda: 0)
    monkeypatch.setenv("CI", ci)

    assert command.main(["--row", "verify", "--work", str(tmp_path / "work")]) == code
    assert "verify could not be measured: there is no FUSE here" in capsys.readouterr().out


# ---- tools and the machine


def test_a_missing_tool_is_named_with_its_package() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "which", lambda name: None if name == "fpsync" else f"/usr/bin/{name}")
        with pytest.raises(tools.ToolMissingError, match=r"fpsync not on PATH \(Debian: fpart\)"):
            tools.require(("rsync", "fpsync"))


def test_nothing_is_installed_by_who_is_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(shutil, "which", lambda name: None if name in {"fio", "fpsync"} else f"/usr/bin/{name}")
    monkeypatch.setattr(tools, "_has_fuse_headers", lambda: True)
    monkeypatch.setattr(tools.os, "geteuid", lambda: 1000)

    tools.install_missing(said.append)

    assert said == [
        "fpsync is missing: not root; as root: apt-get install fio fpart",
        "fio is missing: not root; as root: apt-get install fio fpart",
    ]


def test_slowfs_is_kept_by_its_source_under_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tools._slowfs_folder({"FASTSTART_CACHE": str(tmp_path)})
    changed = tmp_path / "slowfs.c"
    changed.write_text("int main(void) { return 0; }")
    monkeypatch.setattr(tools, "SLOWFS", changed)

    assert first.parent == tmp_path / "slowfs"
    assert first != tools._slowfs_folder({"FASTSTART_CACHE": str(tmp_path)})


def test_the_file_system_of_a_path_is_known(tmp_path: Path) -> None:
    assert machine.file_system(Path("/proc")) == "proc"
    assert 0 < machine.available_bytes() <= machine.memory_bytes()
    assert machine.file_system(tmp_path) != ""


def test_free_memory_is_kept_from_the_host_while_the_rows_run_and_given_back_after_them(tmp_path: Path) -> None:
    order = tmp_path / "page_reporting_order"
    order.write_text("9\n", encoding="ascii")
    said: list[str] = []
    assert host_memory.state(order) == host_memory.GIVEN_BACK
    states: list[str] = []

    def stopped() -> None:
        with host_memory.kept(said.append, 64 * KIB, order):
            states.append(host_memory.state(order))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert states == [host_memory.KEPT]
    assert (host_memory.state(order), order.read_text(encoding="ascii"), said) == (host_memory.GIVEN_BACK, "9", [])


@pytest.mark.parametrize("text", [None, "", "11", "words"])
def test_a_machine_that_gives_no_memory_back_is_left_as_it_is(tmp_path: Path, text: str | None) -> None:
    order = tmp_path / "page_reporting_order"
    if text is not None:
        order.write_text(text, encoding="ascii")
    said: list[str] = []

    with host_memory.kept(said.append, 1 << 60, order):
        assert host_memory.state(order) == (host_memory.KEPT if text == "11" else host_memory.OWN)
    assert said == []
    assert (order.read_text(encoding="ascii") if order.exists() else None) == text


def test_memory_that_cannot_be_kept_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = tmp_path / "page_reporting_order"
    order.write_text("9", encoding="ascii")
    said: list[str] = []

    def refused(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refused)
    with host_memory.kept(said.append, 1 << 60, order):
        assert host_memory.state(order) == host_memory.GIVEN_BACK
    assert len(said) == 1
    assert "root" in said[0]
