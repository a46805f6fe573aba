"""What is measured: the rows, their contestants and their bars. Ratios say how many times faster preload is."""

import json
import shlex
import sys
from dataclasses import dataclass, replace
from typing import Literal

from lab.bench import datasets
from lab.bench.datasets import MIB, DataSet
from lab.bench.measure import Contestant

GIB = 1 << 30
FIO_JOBS, FIO_DEPTH = 4, 8
"""32 writes at a time, as many as preload has workers."""

PARALLEL = FIO_JOBS * FIO_DEPTH
PRELOAD = f"{shlex.quote(sys.executable)} -S -m preload"

Place = Literal["throttled", "cold", "warm", "memory"]
Figure = Literal["total", "cpu"]


@dataclass(frozen=True)
class Bar:
    """How much less than others a contestant must take.

    Attributes:
        of: the contestant.
        against: the others; where there are several, the best of them.
        least: the ratio that must be reached: theirs / its own.
        words: the others, in words.
        figure: seconds of the row (total), or CPU seconds (cpu).
    """

    of: str
    against: tuple[str, ...]
    least: float
    words: str
    figure: Figure = "total"


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        name: on the command line, and of its file of results.
        title: in tables.
        data_set: what is copied.
        place: where it is read from: behind the throttle, from the disk with no page in memory, from the disk with
            every page in memory, from a file system in memory.
        contestants: in the order of the even rounds; the odd ones go backwards.
        bars: what must be reached; none: the row is reported only.
        minutes: how long it takes at full size.
        after: when the clock stops: "disk", or after a read of the copy (read_back.READERS).
        explained: the contestants that run once more for the profile.
        pairs: how many rounds, where a row needs fewer than others.
        note: what a reader must know to take the figures rightly.
    """

    name: str
    title: str
    data_set: DataSet
    place: Place
    contestants: tuple[Contestant, ...]
    bars: tuple[Bar, ...]
    minutes: float
    after: str = "disk"
    explained: tuple[str, ...] = ()
    pairs: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Scale:
    """How large the data sets are, in bytes and files."""

    shards: int
    slow_shard: int
    local_shard: int
    tail_shards: int
    tail_shard: int
    slow_single: int
    local_single: int
    junk_shard: int
    small_files: int
    small_folders: int


FULL = Scale(
    shards=16,
    slow_shard=128 * MIB,
    local_shard=512 * MIB,
    tail_shards=34,
    tail_shard=64 * MIB,
    slow_single=GIB,
    local_single=4 * GIB,
    junk_shard=32 * MIB,
    small_files=20_000,
    small_folders=1_000,
)
QUICK = Scale(
    shards=4,
    slow_shard=8 * MIB,
    local_shard=16 * MIB,
    tail_shards=6,
    tail_shard=4 * MIB,
    slow_single=32 * MIB,
    local_single=64 * MIB,
    junk_shard=4 * MIB,
    small_files=200,
    small_folders=20,
)
"""For a look at whether everything runs: at these sizes the start of a process decides, and no figure counts."""

MEMORY_PART = 3
"""A data set in memory takes at most one part of so many."""


# ---- the tools

ARTICLE = Contestant(
    "the article's line",
    'busybox find "$S" -type f | busybox xargs -P32 -I{} busybox cp {} "$D/"',
    ("busybox",),
)
RCLONE = Contestant(
    "rclone",
    'rclone copy --transfers 32 --multi-thread-streams 32 --config /dev/null "$S" "$D"',
    ("rclone",),
)
RCLONE_TUNED = Contestant(
    "rclone, tuned",
    "rclone copy --transfers 32 --multi-thread-streams 32 --multi-thread-cutoff 8M --ignore-checksum"
    ' --config /dev/null "$S" "$D"',
    ("rclone",),
)
"""Splits files above 8 MiB, not 250, and leaves out the hash that reads a split file a second time."""

CP = Contestant("cp -r", 'cp -r "$S/." "$D/"', ("cp",))
RSYNC = Contestant("rsync", 'rsync -a "$S/" "$D/"', ("rsync",))


def _fpsync(files_a_job: int) -> Contestant:
    command = f'fpsync -n 32 -f {files_a_job} -t "$T" -o "-lptgoD --numeric-ids" "$S/" "$D/"'
    return Contestant("fpsync", command, ("fpsync", "rsync"))


FPSYNC, FPSYNC_SMALL = _fpsync(1), _fpsync(500)


def _fewer(pairs: int, why: str, *contestants: Contestant) -> tuple[Contestant, ...]:
    return tuple(replace(one, pairs=pairs, why_fewer=why) for one in contestants)


def _fio_seconds(output: str) -> float:
    """The seconds that fio wrote for, by its own clock; its set-up is not in them."""
    written = json.loads(output[output.index("{") :])["jobs"][0]["write"]
    return written["io_bytes"] / written["bw_bytes"]


def _fio(shards: int, shard_bytes: int) -> Contestant:
    command = (
        'fio --name=w --directory="$D" --rw=write --bs=4M --direct=1 --ioengine=libaio --fallocate=posix'
        f" --iodepth={FIO_DEPTH} --numjobs={FIO_JOBS} --nrfiles={shards // FIO_JOBS}"
        f" --size={shards * shard_bytes // FIO_JOBS} --file_service_type=sequential"
        " --group_reporting --output-format=json"
    )
    return Contestant("fio", command, ("fio",), own_clock=_fio_seconds, whole=False)


def _fio_seconds_at_once(output: str) -> float:
    """The seconds that the slower one of fio's jobs took, by its own clock."""
    jobs = json.loads(output[output.index("{") :])["jobs"]
    return max(job[way]["runtime"] for job in jobs for way in ("read", "write")) / 1000


def _fio_at_once(shards: int, shard_bytes: int) -> Contestant:
    """Reads the source and writes as much, both around the page cache, from pages of 4 KiB."""
    common = f"--bs=4M --direct=1 --ioengine=libaio --iodepth={PARALLEL // 2} --size={shards * shard_bytes}"
    command = (
        f"fio --output-format=json {common} --file_service_type=sequential"
        ' --name=r --rw=read --filename="$(ls -d "$S"/*.safetensors | paste -sd:)"'
        f' --name=w --rw=write --directory="$D" --fallocate=posix --nrfiles={shards}'
    )
    name = "fio, as many bytes read and written at once"
    return Contestant(name, command, ("fio",), own_clock=_fio_seconds_at_once, whole=False)


def _preload(prefix: str, flags: str, name: str = "preload", *, leaves_out: bool = False) -> Contestant:
    return Contestant(name, f'{prefix} "$S" "$D" --parallel {PARALLEL} {flags}', leaves_out=leaves_out)


SHA256SUM = Contestant(
    "sha256sum, one file after the other",
    'find "$S" -type f -exec sha256sum {} +',
    ("sha256sum",),
    whole=False,
)
SHA256SUM_AT_ONCE = Contestant(
    "sha256sum, one a processor",
    'find "$S" -type f -print0 | xargs -0 -P "$(nproc)" -n 1 sha256sum',
    ("sha256sum",),
    whole=False,
)
SEAL = Contestant("publish", f'{shlex.quote(sys.executable)} -m publish --check "$S"', whole=False)
"""Reads and hashes all that sealing hashes, and judges the folder as sealing does."""


# ---- the rows


def rows(scale: Scale, memory: int, preload: str = PRELOAD) -> tuple[Row, ...]:
    """All rows.

    Args:
        scale: how large the data sets are.
        memory: bytes of the machine.
        preload: how preload is started; each row adds its own flags.
    """
    direct = _preload(preload, "--write direct --files all")
    auto = _preload(preload, "--write auto --files all", "preload --write auto")
    written = (
        auto,
        _preload(preload, "--write direct --files all", "preload --write direct"),
        _preload(preload, "--write buffered --files all", "preload --write buffered"),
    )
    sharded = datasets.sharded(scale.shards, scale.slow_shard)
    single = datasets.single(scale.slow_single)
    small = datasets.small(scale.small_files, scale.small_folders)
    large = datasets.sharded(scale.shards, scale.local_shard)
    memory_shard = min(scale.local_shard, memory // MEMORY_PART // scale.shards // (4 * MIB) * 4 * MIB)
    in_memory = datasets.sharded(scale.shards, memory_shard)
    tools = tuple(one.name for one in (ARTICLE, RCLONE_TUNED, RCLONE, FPSYNC, CP, RSYNC))
    cpu = Bar("preload", (ARTICLE.name,), 1.0, ARTICLE.name, "cpu")
    fast_read = Bar(auto.name, (written[1].name, written[2].name), 0.95, "the better of direct and buffered")

    def times(least: float) -> Bar:
        return Bar("preload", (ARTICLE.name,), least, ARTICLE.name)

    best = Bar("preload", tools, 1.0, "the best tool")
    return (
        Row(
            "throttled-single",
            "Throttled source, one file",
            single,
            "throttled",
            (
                direct,
                ARTICLE,
                RCLONE_TUNED,
                *_fewer(1, "34 to 43 s a run, and no bar rests on it", RCLONE, FPSYNC, CP, RSYNC),
            ),
            (times(20), Bar("preload", (RCLONE_TUNED.name,), 1.2, RCLONE_TUNED.name), cpu),
            9.5,
        ),
        Row(
            "throttled-sharded",
            "Throttled source, sharded model",
            sharded,
            "throttled",
            (
                direct,
                ARTICLE,
                RCLONE_TUNED,
                *_fewer(2, "far from the best", RCLONE, FPSYNC),
                *_fewer(1, "86 s a run, and far from the best", CP, RSYNC),
            ),
            (times(1.6), best, cpu),
            6,
        ),
        Row(
            "throttled-tail",
            "Throttled source, two shards more than streams",
            datasets.sharded(scale.tail_shards, scale.tail_shard),
            "throttled",
            (direct, ARTICLE, RCLONE_TUNED),
            (),
            1.5,
            pairs=3,
        ),
        Row(
            "throttled-small",
            "Throttled source, small files",
            small,
            "throttled",
            (
                direct,
                ARTICLE,
                RCLONE_TUNED,
                RCLONE,
                *_fewer(1, "40 to 90 s a run, and far from the best", FPSYNC_SMALL, CP, RSYNC),
            ),
            (times(2), best),
            11,
        ),
        Row(
            "throttled-junk",
            "Throttled source, repository with much that a server does not need",
            datasets.junk(scale.shards, scale.junk_shard),
            "throttled",
            (_preload(preload, "--write direct --files auto", leaves_out=True), ARTICLE, RCLONE_TUNED),
            (),
            2,
            pairs=3,
            note="preload with `--files auto` leaves out what a server does not need; the tools copy all of it.",
        ),
        Row(
            "local-sharded",
            "Local disk, cold, sharded model",
            large,
            "cold",
            (
                direct,
                ARTICLE,
                _fio_at_once(scale.shards, scale.local_shard),
                *_fewer(2, "no bar rests on it", RCLONE_TUNED, RCLONE, FPSYNC, CP, RSYNC),
            ),
            (times(0.95), cpu),
            7,
            note="Source and destination share one disk.",
        ),
        Row(
            "local-single",
            "Local disk, cold, one file",
            datasets.single(scale.local_single),
            "cold",
            (
                direct,
                ARTICLE,
                _fio_at_once(1, scale.local_single),
                *_fewer(2, "no bar rests on it", RCLONE_TUNED, RCLONE, FPSYNC, CP, RSYNC),
            ),
            (times(1.3),),
            4,
            note="Source and destination share one disk.",
        ),
        Row(
            "write-limit",
            "The disk's write limit, source in memory",
            in_memory,
            "memory",
            (direct, _fio(scale.shards, memory_shard)),
            (Bar("preload", ("fio",), 0.95, "fio, O_DIRECT, 4 MiB, 32 at a time"),),
            2.5,
            note="preload's seconds are those of the whole process; fio's are of its own clock, without its set-up.",
        ),
        Row(
            "memory-sharded",
            "Source as fast as memory, sharded model",
            sharded,
            "memory",
            (direct, auto, ARTICLE),
            (),
            1.5,
            explained=(direct.name, ARTICLE.name),
        ),
        Row(
            "local-small",
            "Local disk, in the page cache, small files",
            small,
            "warm",
            (direct, ARTICLE, *_fewer(2, "no bar rests on it", RCLONE_TUNED, RCLONE, FPSYNC_SMALL, CP, RSYNC)),
            (),
            4,
            pairs=5,
            explained=(direct.name, ARTICLE.name),
        ),
        Row(
            "verify",
            "Throttled source, sharded model, published: sha256 while copying",
            datasets.published(sharded),
            "throttled",
            (
                _preload(preload, "--write direct --files all --verify sha256", "preload --verify sha256"),
                _preload(preload, "--write direct --files all --verify size", "preload --verify size"),
            ),
            (Bar("preload --verify sha256", ("preload --verify size",), 1 / 1.1, "no hashes, at most 10 % slower"),),
            1.5,
        ),
        Row(
            "seal",
            "In the page cache, published model: every block hashed",
            datasets.published(sharded),
            "warm",
            (SEAL, SHA256SUM, SHA256SUM_AT_ONCE),
            (),
            1.5,
            note="Nothing is copied. CPU seconds tell what a core does: publish makes a hash of each 8 MiB.",
        ),
        *(
            Row(
                f"read-{name}",
                f"Throttled source, {words}: copy, then every weight byte read once through mmap",
                data_set,
                "throttled",
                (*written, ARTICLE),
                (fast_read, Bar(auto.name, (ARTICLE.name,), least, f"{ARTICLE.name} and the same read")),
                minutes,
                after="mmap",
                note="The page cache is as the copy left it.",
            )
            for name, words, data_set, least, minutes in (
                ("sharded", "sharded model", sharded, 1.4, 3),
                ("single", "one file", single, 10.0, 6.5),
            )
        ),
        *(
            Row(
                f"ahead-{name}",
                f"Throttled source, {words}: copy, then the same with a parallel read-ahead",
                data_set,
                "throttled",
                written[1:],
                (),
                1.5,
                after="read-ahead",
                note="Eight threads read all files in pieces of 16 MiB; then follows the read through mmap.",
            )
            for name, words, data_set in (("sharded", "sharded model", sharded), ("single", "one file", single))
        ),
    )
