"""`python -m lab.bench [--row NAME ...]`: measures preload against other tools; results go to build/bench/."""

import argparse
import contextlib
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import ROOT
from lab.bench import host_memory, machine, page, results, session, tools
from lab.bench.measure import Bench, RunFailedError
from lab.bench.rows import FULL, PRELOAD, QUICK, Row, rows
from lab.bench.sources import Cold, Source, SourceError, Throttled, Warm
from lab.bench.verdicts import PAIRS_NEEDED

BUILD = ROOT / "build" / "bench"
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory is what is meant
QUICK_PAIRS = 2
FAILED, USAGE, CANNOT = 1, 2, 3


def say(text: str) -> None:
    """A line of the benchmark's own."""
    print(f"[bench] {text}", flush=True)


@dataclass(frozen=True)
class Place:
    """Folders: of the data sets, of the destination and the mount, of the results."""

    data: Path
    work: Path
    results: Path


@contextlib.contextmanager
def opened(row: Row, place: Place) -> Iterator[tuple[Source, Path]]:
    """A row's source and where its data set lies.

    Raises:
        OSError: the data set cannot be made.
        ToolMissingError: the throttled source cannot be had.
    """
    if row.place == "memory":
        with tempfile.TemporaryDirectory(prefix="faststart-bench.", dir=MEMORY) as folder:
            yield Warm(), row.data_set.make(Path(folder))
        return
    source: Source
    match row.place:
        case "throttled":
            source = Throttled(tools.slowfs(os.environ), place.work / "mount")
        case "cold":
            source = Cold()
        case _:
            source = Warm()
    yield source, row.data_set.make(place.data)


def measure(row: Row, place: Place, pairs: int) -> int:
    """Measures a row and keeps the result; 0, or the exit code that says why there is none."""
    say(
        f"== {row.name}: {row.title}; {row.data_set.words}; rounds: {pairs}, about {row.minutes:g} minutes at full size"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "workloads")}
    bench = Bench(place.work, environ)
    try:
        with opened(row, place) as (source, data):
            result = session.measure_row(row, bench, source, data, pairs, lambda text: say(f"   {text}"))
    except RunFailedError as error:
        say(f"{row.name} was not measured: {error}")
        return FAILED
    except (OSError, SourceError, tools.ToolMissingError) as error:
        say(f"{row.name} could not be measured: {error}")
        return CANNOT
    finally:
        bench.clear()
    path = results.write(place.results, result)
    for bar in row.bars:
        say(f"   {page.bar_line(results.judgement(result, bar))}")
    say(f"   {os.path.relpath(path)}")
    return 0


def selected(all_rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows of these names; all where there are none.

    Raises:
        ValueError: a name is no row's.
    """
    known = {row.name: row for row in all_rows}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no such row: {', '.join(unknown)}; there are: {', '.join(known)}")
    return [known[name] for name in names] if names else list(all_rows)


def listing(found: Sequence[Row]) -> str:
    """The rows with their estimates."""
    lines = [f"{row.name:20} {row.minutes:5.1f} min  {row.title} ({row.data_set.words})" for row in found]
    return "\n".join([*lines, f"{'all':20} {sum(row.minutes for row in found):5.1f} min"])


def main(arguments: Sequence[str]) -> int:
    """Runs the command line.

    Returns:
        1 where the first contestant of a row failed, 2 for a wrong command line, 3 where a row cannot be measured
        here and CI is true, else 0.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.bench", description=__doc__)
    parser.add_argument("--row", action="append", default=[], metavar="NAME", help="only this row; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the rows and how long each takes")
    parser.add_argument(
        "--pairs", type=int, default=None, help=f"rounds (default {PAIRS_NEEDED}: what a verdict needs)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny data sets: does it run? The figures mean nothing")
    parser.add_argument("--preload", default=PRELOAD, help="how preload is started (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=BUILD / "data", help="folder of the data sets")
    parser.add_argument("--work", type=Path, default=BUILD / "work", help="folder in which the destination is made")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else FULL
    try:
        shlex.split(options.preload)
        found = selected(rows(scale, machine.memory_bytes(), options.preload), options.row)
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return USAGE
    if options.list:
        print(listing(found))
        return 0
    tools.install_missing(say)
    pairs = options.pairs or (QUICK_PAIRS if options.quick else PAIRS_NEEDED)
    options.work.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="faststart-bench.", dir=options.work) as work,
        host_memory.kept(say, 0 if options.quick else machine.available_bytes()),
    ):
        place = Place(options.data, Path(work), BUILD / "quick" if options.quick else BUILD)
        done = [measure(row, place, options.pairs or min(pairs, row.pairs or pairs)) for row in found]
    say(f"{done.count(0)} of {len(done)} rows measured; python -m lab.bench.page --show prints the tables")
    if FAILED in done:
        return FAILED
    return CANNOT if CANNOT in done and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
