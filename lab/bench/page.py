"""The page of the benchmark, from the results in build/bench/: `python -m lab.bench.page [--readme | --show]`."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.bench import host_memory, machine, results
from lab.bench.results import Judgement, Result
from lab.bench.rows import ARTICLE, FULL, Row, rows
from lab.bench.verdicts import LOWER_PART, PAIRS_NEEDED, Spread

RESULTS = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "benchmarks.md"

INTRO = f"""# Benchmarks

How fast preload copies a model, against other tools and the article's line:
`find SOURCE -type f | xargs -P32 -I{{}} cp {{}} DESTINATION`, run by busybox. `make bench` measures, `make docs` writes
this page from what was measured last.

- **Only the ratios mean anything elsewhere.** The throttled source stands in for Lustre. It is a FUSE file system
  ([lab/bench/slowfs.c](../lab/bench/slowfs.c)) with the shape of a network file system: 25 MB/s a stream, 800 MB/s
  together, 2 ms a read request, 1 ms a metadata request.
- A ratio is how many times more the other took, in runs that take turns (A B B A); given are the median and, in
  brackets, the quartiles. A bar is *met* when the median reaches it and the lower quartile {LOWER_PART:g} of it,
  *not met* when median and upper quartile are under it, else *undecided*. A verdict needs {PAIRS_NEEDED} pairs.
- Before each run the destination is new and nothing waits to be written; the source has no page in memory unless the
  row says so. Each copy was checked: all files and sizes in every run, all bytes in the first one of each tool. Copies
  of many files are deleted after their row: ext4 without a journal lets new files pay for inodes freed just before.
- The clock of a copy ends when the data is on disk, and preload writes with `--write direct` in these rows. The rows
  with a read after the copy alone decide about `--write auto`: their clock ends with the last byte read.
- CPU seconds are those of the tool's processes. What the kernel spends on writing back later is not in them, which
  favours tools that write through the page cache.
"""

EXPLAINED = """## Where the time goes

CPU seconds by mode and preload's phases by its own report are medians of the runs above. The system calls are those of
one more run under strace: wall seconds summed over all threads, waits included; strace slows every call."""

AGAIN = """## Again

```bash
make bench                       # all rows, about {minutes:.0f} minutes; as root: the throttled source is a mount
make bench ROWS="verify"         # some rows; the others keep their results
make docs                        # this page, from the results under build/bench/
```

`.venv/bin/python -m lab.bench --list` lists the rows with their times. Let nothing else run meanwhile. Tools that are
missing are installed with apt-get where that is there.
"""


def bar_line(found: Judgement) -> str:
    """A bar on one line, for a terminal."""
    what = "CPU seconds of " if found.bar.figure == "cpu" else ""
    verdict = found.verdict.upper() + (f" ({found.why})" if found.why else "")
    return (
        f"{what}{found.bar.of} against {found.against}: {_spread(found.ratios)}, bar {found.bar.least:.2f}: {verdict}"
    )


def page(found: Mapping[str, Result], all_rows: Sequence[Row]) -> str:
    """The whole page, as Markdown."""
    measured = [row for row in all_rows if row.name in found]
    missing = [row for row in all_rows if row.name not in found]
    lines = [INTRO, "## Bars", "", *_bars(found, measured), ""]
    if missing:
        lines += [f"Not measured: {', '.join(row.title for row in missing)}.", ""]
    lines += ["## Rows", ""]
    for row in measured:
        lines += [*_row(row, found[row.name]), ""]
    explained = [row for row in measured if row.explained]
    if explained:
        lines += [EXPLAINED, ""]
        for row in explained:
            lines += [*_profile(row, found[row.name]), ""]
    lines += ["## Machine", "", *_machine(found), "", AGAIN.format(minutes=sum(row.minutes for row in all_rows))]
    return "\n".join(lines)


def readme(found: Mapping[str, Result], all_rows: Sequence[Row]) -> str:
    """The short table: preload against the article's line, in the rows that have a bar for that."""
    lines = ["| median seconds | the article's line | preload | times faster |", "|---|---|---|---|"]
    barred = [(one, bar) for one in all_rows for bar in one.bars if one.name in found]
    for row, bar in barred:
        if bar.against != (ARTICLE.name,) or bar.figure != "total":
            continue
        result = found[row.name]
        medians = [_median(results.contestant(result, name)) for name in (ARTICLE.name, bar.of)]
        ratio = results.ratios(result, bar.of, ARTICLE.name)
        times = f"{ratio.median:.2f}" if ratio else "not measured"
        lines.append(f"| {row.title} ({result['data']}) | {' | '.join(medians)} | {times} |")
    return "\n".join(lines) + "\n"


# ---- the parts


def _bars(found: Mapping[str, Result], measured: Sequence[Row]) -> Iterator[str]:
    yield "| what | figure | against | bar | ratio | pairs | verdict |"
    yield "|---|---|---|---|---|---|---|"
    for row in measured:
        for bar in row.bars:
            one = results.judgement(found[row.name], bar)
            figure = "CPU seconds" if bar.figure == "cpu" else "seconds"
            against = bar.words if bar.words == one.against or len(bar.against) == 1 else f"{bar.words}: {one.against}"
            verdict = f"**{one.verdict}**" + (f": {one.why}" if one.why else "")
            pairs = str(one.ratios.count if one.ratios else 0)
            cells = [row.title, figure, against, f"{bar.least:.2f}", _spread(one.ratios), pairs, _cell(verdict)]
            yield f"| {' | '.join(cells)} |"
    reported = [row.title for row in measured if not row.bars]
    if reported:
        yield ""
        yield f"Reported below, without a bar: {'; '.join(reported)}."


def _row(row: Row, result: Result) -> Iterator[str]:
    first = row.contestants[0].name
    clock = "until on disk" if row.after == "disk" else "copy and read"
    yield f"### {row.title}"
    yield ""
    yield f"{result['data'][:1].upper()}{result['data'][1:]}. {row.note}".rstrip()
    yield ""
    yield f"| tool | s, {clock} | s, tool returned | GB copied | GB/s | ratio | CPU s | CPU s/GB | MiB | pairs | |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for one in result["contestants"]:
        total, wall, cpu = (results.spread(one, figure) for figure in ("total", "wall", "cpu"))
        if total is None or wall is None or cpu is None:
            yield f"| {one['name']} | | | | | | | | | 0 | {_cell(one['failed'] or 'was not measured')} |"
            continue
        gigabytes = one["runs"][-1]["copied"] / 1e9
        cells = [
            one["name"],
            _spread(total),
            f"{wall.median:.2f}",
            f"{gigabytes:.3g}",
            f"{gigabytes / total.median:.3g}",
            "" if one["name"] == first else _spread(results.ratios(result, first, one["name"])),
            f"{cpu.median:.2f}",
            f"{cpu.median / gigabytes:.3g}" if gigabytes else "",
            f"{max(run['peak_mib'] for run in one['runs']):.0f}",
            str(total.count),
            _cell("; ".join(_remarks(one))),
        ]
        yield f"| {' | '.join(cells)} |"


def _remarks(one: Mapping[str, Any]) -> Iterator[str]:
    chosen = {run["report"]["write"] for run in one["runs"] if "write" in run["report"]}
    if chosen and "--write auto" in one["command"]:
        yield f"chose {' and '.join(sorted(chosen))}"
    if one["why_fewer"]:
        yield f"fewer pairs: {one['why_fewer']}"
    if one["failed"]:
        yield f"then {one['failed']}"


def _profile(row: Row, result: Result) -> Iterator[str]:
    yield f"**{row.title}**"
    yield ""
    yield "| tool | user | system | phases, s | system calls, s (calls) |"
    yield "|---|---|---|---|---|"
    for name in row.explained:
        one = results.contestant(result, name)
        if not one or not one["runs"]:
            continue
        user, system = results.spread(one, "user"), results.spread(one, "system")
        calls = ", ".join(
            f"{call['name']} {call['seconds']:.2f} ({call['calls']})" for call in result["profile"].get(name, [])
        )
        cpu = f"{user.median:.2f} | {system.median:.2f}" if user and system else " | "
        yield f"| {name} | {cpu} | {_phases(one)} | {calls or 'no strace here'} |"


def _phases(one: Mapping[str, Any]) -> str:
    """The median of each phase that preload's report names."""
    runs = [run["report"].get("phases") or {} for run in one["runs"]]
    names = {name: None for run in runs for name in run}
    medians = {name: Spread.of([run[name] for run in runs if name in run]).median for name in names}
    return ", ".join(f"{name} {seconds:.2f}" for name, seconds in medians.items())


def _machine(found: Mapping[str, Result]) -> Iterator[str]:
    machines = {_about(result["machine"]): None for result in found.values()}
    tools = {
        ", ".join(f"{name} {version}" for name, version in result["tools"].items()): None for result in found.values()
    }
    yield from (f"- {one}" for one in machines)
    yield from (f"- Tools: {one}" for one in tools)
    yield ""
    yield "| row | date | commit (+: with changes) | load average at the start |"
    yield "|---|---|---|---|"
    for name, result in found.items():
        yield f"| `{name}` | {result['date']} | {result['commit']} | {result['load']:.2f} |"


def _about(one: Mapping[str, Any]) -> str:
    memory = f"{one['memory'] / (1 << 30):.0f} GiB"
    return (
        f"{one['cpu']}, {one['cores']} cores, {memory} of memory, Linux {one['kernel']}, {one['file_system']}, "
        f"Python {one['python']}; {one.get('free_memory', host_memory.GIVEN_BACK)}"
    )


def _spread(found: Spread | None) -> str:
    return f"{found.median:.2f} ({found.lower:.2f}-{found.upper:.2f})" if found else "-"


def _median(measured: Mapping[str, Any] | None) -> str:
    found = results.spread(measured, "total") if measured else None
    return f"{found.median:.1f}" if found else "not measured"


def _cell(text: str) -> str:
    """Text that does not break a table."""
    return " ".join(text.replace("|", "\\|").split())


def main(arguments: Sequence[str]) -> int:
    """Writes docs/benchmarks.md, or prints it, or the README's table."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.page", description=__doc__)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--readme", action="store_true", help="print the README's short table")
    shown.add_argument("--show", action="store_true", help="print the page")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--page", type=Path, default=PAGE, help="the file to write")
    options = parser.parse_args(arguments)
    all_rows = rows(FULL, machine.memory_bytes())
    found = results.read(options.results, [row.name for row in all_rows])
    if not found:
        print(f"bench: no results yet, {options.page.name} stays as it is: make bench", file=sys.stderr)
    elif options.readme:
        print(readme(found, all_rows), end="")
    elif options.show:
        print(page(found, all_rows), end="")
    else:
        options.page.write_text(page(found, all_rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
