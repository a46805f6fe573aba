"""The copy engine: streams, each of which reads and writes pieces of any file through one bounded buffer."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from modelfolder import structure
from modelfolder.source import NOT_DIRECT, SourceFile, open_source
from podkit.errors import Exit, FaststartError, writing
from podkit.patience import Patience
from podkit.processor import SharedProcessor, processors
from podkit.threads import limit, start
from preload import state
from preload.buffers import page_buffer
from preload.destination import Destination, Journal, Part
from preload.hashing import Hashers
from preload.mode import Mode
from preload.shares import Share, Shares
from preload.state import PAGE
from preload.tuning import SmallFileStreams, Tuner
from preload.work import STUCK_SECONDS, FileWork, Interval, Piece, Range, Work

SMALL = 1 << 20
"""Files up to this many bytes are read and written as one, through the page cache."""

TINY = 64 << 10
"""A file of up to this many bytes costs more in system calls than in bytes."""

MANY_TINY_FILES = 1000
"""From so many on, the streams that copy them share one processor."""

SYNC_SECONDS = 5.0
"""How often a copy around the page cache is put on disk for good: what a reset of the node may cost."""

_UNIT = 1 << 20  # ranges of a file without block hashes are cut at multiples of this
_FAST = 0.005  # seconds: a faster read is followed by one of twice the bytes, which costs less of the interpreter
_SLOW = 1.0  # seconds: a slower one by one of half the bytes
_TICK = 0.05  # seconds between two looks at the streams
_GRACE = 0.5  # seconds for streams to end by themselves after an error or a stop


@dataclass(frozen=True)
class Job:
    """A file to copy, or to go on with.

    Attributes:
        number: names its part in the destination.
        missing: the bytes to copy, in order.
        resumed: whether the part is there and holds the rest.
    """

    number: int
    file: SourceFile
    missing: Sequence[Interval]
    resumed: bool


@dataclass(frozen=True)
class Settings:
    """How to copy.

    Attributes:
        streams: how many pieces may be under way at once.
        pointers: whether small files are held not to be Git LFS pointers.
        hashes: whether each block is held against its hash in the manifest.
    """

    mode: Mode
    streams: int
    pointers: bool
    hashes: bool


class Copy:
    """One copy of files into a destination. `run` may be called once.

    Attributes:
        streams: the most streams that are used; fewer once `run` was refused a thread.
        active: the streams that are in use now.
        synced: whether each whole file that was copied is on disk.
        verify_seconds: time that streams spent on hashes, all together.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        destination: Destination,
        journal: Journal,
        settings: Settings,
        patience: Patience,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._settings = settings
        self._hashers = Hashers(min(settings.streams, processors())) if settings.hashes else None
        # Who hashes one buffer reads into another: both together are as large as one is otherwise.
        self._most_bytes = (
            max(PAGE, settings.mode.read_bytes_max // 2) if settings.hashes else settings.mode.read_bytes_max
        )
        self._small = min(SMALL, self._most_bytes)
        small_files = sum(job.file.size <= self._small for job in jobs)
        self._sync_small = settings.mode.syncs_small(small_files)
        self.synced = not jobs or (settings.mode.synced and (self._sync_small or not small_files))
        self._destination = destination
        self._jobs = {job.number: job for job in jobs}
        self._parts = {job.number: self._part(job) for job in jobs if job.resumed or job.file.size > self._small}
        work = {job.number: FileWork(job.file.size, job.missing, self._unit(job.file)) for job in jobs}
        self._whole = [number for number, missing in work.items() if missing.size and not missing.missing]
        for number in self._whole:
            del work[number]
        self.streams = max(1, min(settings.streams, sum(-(-max(1, w.size) // self._small) for w in work.values())))
        self._work = Work(work, self.streams, self._small)
        self._shares = Shares()
        self._tuner = Tuner(self.streams, clock)
        self._small_streams = SmallFileStreams(self.streams, clock)
        tiny_files = sum(job.file.size <= TINY for job in jobs)
        self._processor = SharedProcessor() if tiny_files >= MANY_TINY_FILES else None
        self._unfinished = len(jobs)
        self._journal = journal
        self._patience = patience
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ended = threading.Event()
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._halt = False
        self._changing: set[int] = set()  # threads that change the destination
        self.verify_seconds = 0.0

    @property
    def copied(self) -> int:
        """Return the number of bytes written so far."""
        return self._work.total - self._work.left

    @property
    def active(self) -> int:
        """Return how many streams may be at work now."""
        return self._tuner.streams

    def run(self, tick: Callable[[int, int], None]) -> None:
        """Copy all files, or stop all streams at the first error.

        Streams are daemon threads: one that hangs in a read must not keep the program from ending.

        Args:
            tick: called from this thread every moment, with the bytes written and the streams at work.

        Raises:
            FaststartError: 3, 4, 7, 8 or 9 naming the file; 9, not even one stream gets its threads and memory; 143,
                SIGTERM.
        """
        threads: list[threading.Thread] = []
        try:
            if self._unfinished:
                self._start(threads)
                while not self._ended.wait(_TICK) and not self._patience.stopped:
                    with writing(b".faststart"):
                        self._journal.flush()
                    if self._tuner.update(self.copied, self._work.left) | self._small_streams.update():
                        with self._lock:
                            self._changed.notify_all()
                    tick(self.copied, self.active)
        finally:
            with self._lock:
                self._halt = True
                self._changed.notify_all()
            self._stopped.set()
            end = time.monotonic() + _GRACE
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
            if self._hashers:
                self._hashers.close()
            self._destination.in_use = bool(self._changing)
            if not any(thread.is_alive() for thread in threads):
                for part in self._parts.values():
                    part.close()
        if self._error is not None:
            raise self._error
        self._patience.check()

    def _start(self, threads: list[threading.Thread]) -> None:
        """Start what has a thread; as many streams as get one and memory, if at least one does."""
        hashing: list[threading.Thread] = []  # not waited for: they end with the hashers
        hashers = [self._hashers.work] * self._hashers.threads if self._hashers else []
        start(hashers[:1], hashing, needed=len(hashers[:1]))
        if self._settings.mode.direct:
            start([self._sync], threads)
        for number in range(self.streams):
            try:
                start([functools.partial(self._serve, number, self._reader())], threads)
            except FaststartError:
                if not number:
                    raise
                self.streams = number
                self._tuner = Tuner(number, self._clock)
                break
        start(hashers[1:], hashing, needed=0)

    def _part(self, job: Job) -> Part:
        return Part(self._destination, job.number, job.file, direct=self._settings.mode.direct, resumed=job.resumed)

    def _unit(self, file: SourceFile) -> int:
        return file.listed.block_bytes if self._settings.hashes and file.listed.blocks else min(_UNIT, self._small)

    def _serve(self, stream: int, reader: _Reader) -> None:
        with self._stopping_all(), contextlib.closing(reader):
            for number in iter(self._next_whole, None):
                self._finish(number)
            work: Range | None = None
            piece: Piece | Share | None = None
            written = together = False
            while True:
                whole = False
                with self._lock:
                    if self._halt:
                        raise _Halted
                    if work and written:
                        whole = self._work.written(work, self._clock())
                        if whole and work.file not in self._parts:
                            self._count_finished()
                            whole = False
                    if not whole:
                        work, piece = self._next(work, stream, reader.read_bytes)
                if whole and work:
                    self._finish(work.file)
                    written = False
                    continue
                if not piece:
                    return
                tiny = isinstance(piece, Piece) and self._jobs[piece.file].file.size <= TINY
                if self._processor and together != tiny:
                    together = tiny
                    (self._processor.join if together else self._processor.leave)()
                if isinstance(piece, Share):
                    self._read_ahead(piece, reader)
                elif work:
                    written = self._copy(work, piece, reader, stream)

    def _reader(self) -> _Reader:
        buffers = 2 if self._settings.hashes else 1
        try:
            return _Reader(
                min(self._settings.mode.read_bytes, self._most_bytes), self._most_bytes, buffers, self._patience
            )
        except OSError as error:
            message = f"no memory for a stream's buffers, {buffers * self._most_bytes} bytes: {error.strerror}"
            raise FaststartError(Exit.IO_ERROR, f"{message}; limits: {limit()}") from error

    def _next_whole(self) -> int | None:
        """Return a part that only lacks its name; None if there is no more."""
        with contextlib.suppress(IndexError):
            return self._whole.pop()
        return None

    def _sync(self) -> None:
        with self._stopping_all():
            while not self._stopped.wait(SYNC_SECONDS):
                with writing(b".faststart"):
                    self._journal.sync(self._parts.values())

    @contextlib.contextmanager
    def _stopping_all(self) -> Iterator[None]:
        """Keep an error for `run`, which raises it again in the main thread."""
        try:
            yield
        except _Halted:
            return
        except BaseException as error:  # noqa: BLE001
            with self._lock:
                self._error = self._error or error
                self._halt = True
                self._changed.notify_all()
            self._ended.set()

    def _next(self, work: Range | None, stream: int, read_bytes: int) -> tuple[Range | None, Piece | Share | None]:
        """Return a piece to copy, of the range in work or of another, or what to read ahead; None at the end."""
        while True:
            resting = stream >= self._tuner.streams
            if work and resting and not work.piece:
                self._work.give_back(work)
                work = None
            if work:
                piece = self._work.begin(work, self._clock(), self._most(work.file, read_bytes))
                if piece:
                    return work, piece
            if self._work.finished:
                return None, None
            work = None
            if not resting:
                work = self._work.take(self._clock(), small=stream < self._small_streams.streams)
                if not work and self._settings.hashes:
                    share = self._shares.offer(self._work.pieces, self._clock(), self._most_bytes)
                    if share:
                        return None, share
            if not work:
                self._changed.wait(None if resting else _TICK)
                if self._halt:
                    raise _Halted

    def _most(self, number: int, read_bytes: int) -> int:
        listed = self._jobs[number].file.listed
        return listed.block_bytes if self._settings.hashes and listed.blocks and number in self._parts else read_bytes

    def _copy(self, work: Range, piece: Piece, reader: _Reader, stream: int) -> bool:
        """Read a piece and write it; False if another stream has done so meanwhile."""
        job = self._jobs[work.file]
        try:
            if work.file not in self._parts:
                mine = self._whole_file(work, reader, stream)
            elif self._settings.hashes:
                mine = self._verified(work, piece, reader)
            else:
                self._read(job.file, piece.start, piece.end - piece.start, reader)
                mine = self._write(work, piece.start, piece.end - piece.start, reader.buffer)
        except FaststartError:
            if not piece.done:
                raise
            mine = False
        if not mine:
            with self._lock:
                self._work.abandon(work)
        elif work.file in self._parts:
            self._journal.add(state.piece_line(job.number, piece.start, piece.end))
        return mine

    def _whole_file(self, work: Range, reader: _Reader, stream: int) -> bool:
        """Copy a small file; False if another stream has done so meanwhile."""
        file = self._jobs[work.file].file
        data = reader.buffer[: file.size]
        reader.read_whole(file)
        if self._settings.pointers:
            structure.require_no_pointer(file, data)
        if self._settings.hashes and (wrong := _wrong_block(file, data)) is not None:
            self._patience.count_retry()
            reader.read_whole(file)
            wrong = _wrong_block(file, data)
            if wrong is not None:
                raise _damaged(file, wrong)
        if not self._begin_change(work):
            return False
        with self._change(file):
            folder = self._destination.stream_folder(stream)
            drop = self._settings.mode.drop
            line = self._destination.place(folder, file, data, sync=self._sync_small, drop=drop)
        self._journal.add(line)
        return True

    def _verified(self, work: Range, piece: Piece, reader: _Reader) -> bool:
        """Read a block and write it, twice if it does not fit its hash; False if another stream has done so."""
        file = self._jobs[work.file].file
        number = piece.start // file.listed.block_bytes
        if self._hashers is None:
            raise AssertionError("nothing is to be hashed")
        for attempt in (1, 2):
            digest = self._hashers.digest()
            at = piece.start
            while at < piece.end:
                share, length = self._next_of_block(work, piece, at, reader.read_bytes)
                if share and share.buffer:
                    buffer = share.buffer
                else:
                    digest.wait(left=1)
                    reader.turn()
                    self._read(file, at, length, reader)
                    buffer = reader.buffer
                digest.add(buffer[:length])
                mine = self._write(work, at, length, buffer)
                if share or not mine:
                    digest.wait()
                if not mine:
                    return False
                at += length
                with self._lock:
                    if self._halt:
                        raise _Halted
                    if share:
                        share.over = True
                        self._changed.notify_all()
                    if at < piece.end:
                        self._work.moved(work, self._clock())
            good = digest.value() == file.listed.blocks[number]
            with self._lock:
                self.verify_seconds += digest.seconds
                self._shares.forget(piece)
                if not good and attempt == 1:
                    self._patience.count_retry()
                    self._work.moved(work, self._clock())
            if good:
                return True
        raise _damaged(file, number)

    def _next_of_block(self, work: Range, piece: Piece, at: int, read_bytes: int) -> tuple[Share | None, int]:
        """Return what comes next of a block: a share of another stream, or how much to read.

        Only the first stream of a block has shares: a rival reads all of it.
        """
        with self._lock:
            share = self._shares.at(piece, at) if _is_first(work) else None
            while share and not share.buffer and not share.over:
                if self._halt:
                    raise _Halted
                if self._clock() - share.since > STUCK_SECONDS:
                    share.over = True
                else:
                    self._changed.wait(_TICK)
            if share and not share.over:
                share.taken = True
                return share, share.end - share.start
            first = _is_first(work)
            length = min(read_bytes, (self._shares.limit(piece, at) if first else piece.end) - at)
            piece.reached = at + length if first else 0
        return None, length

    def _read_ahead(self, share: Share, reader: _Reader) -> None:
        """Read a share, and lend the buffer to the stream that hashes the block until that is done with it."""
        file = self._jobs[share.piece.file].file
        try:
            reader.read(file, share.start, share.end - share.start)
        except FaststartError:  # the other stream meets it when it reads this itself
            with self._lock:
                share.over = True
        with self._lock:
            if not share.over:
                share.buffer = reader.buffer
            self._changed.notify_all()
            while not (share.over or share.piece.done or self._halt):
                # A stream that hangs is helped by one that is free to read its piece.
                if not share.taken and self._clock() - share.piece.since > STUCK_SECONDS:
                    break
                self._changed.wait(_TICK)
            share.over = True

    def _read(self, file: SourceFile, at: int, length: int, reader: _Reader) -> None:
        reader.read(file, at, length)
        if at == 0 and self._settings.pointers:
            structure.require_no_pointer(file, reader.buffer[:length])

    def _write(self, work: Range, at: int, length: int, buffer: memoryview) -> bool:
        if not self._begin_change(work):
            return False
        part = self._parts[work.file]
        with self._change(self._jobs[work.file].file):
            part.open(self._journal)
            part.write(buffer, at, length)
        return True

    def _begin_change(self, work: Range | None = None) -> bool:
        """Note that this thread is about to write what it read of a range's piece; False if another was faster."""
        with self._lock:
            if self._halt:
                raise _Halted
            if work and not self._work.claim(work):
                return False
            self._changing.add(threading.get_ident())
        return True

    @contextlib.contextmanager
    def _change(self, file: SourceFile) -> Iterator[None]:
        """Name the file in errors, and note at the end that this thread changes nothing any more."""
        try:
            with writing(file.path):
                yield
        finally:
            self._changing.discard(threading.get_ident())

    def _finish(self, number: int) -> None:
        """Give a large file that is whole its name."""
        file, part, mode = self._jobs[number].file, self._parts[number], self._settings.mode
        require_unchanged(file, self._patience)
        self._begin_change()
        with self._change(file):
            part.open(self._journal)
            self._journal.add(part.finish(sync=mode.synced, drop=mode.drop))
            self._journal.flush()
        with self._lock:
            self._count_finished()

    def _count_finished(self) -> None:
        self._unfinished -= 1
        if not self._unfinished:
            self._ended.set()
            self._changed.notify_all()


def require_unchanged(file: SourceFile, patience: Patience) -> None:
    """Hold that a file of the source is as it was at the first look.

    Raises:
        FaststartError: 8, it is not; 7 or 9, it cannot be looked at; 143, SIGTERM.
    """
    if not file.same(patience.read(file.path, lambda: os.lstat(file.real))):
        raise _changed(file)


class _Halted(Exception):  # noqa: N818 - not an error
    """Ends a stream because another one failed, or because the program was told to stop."""


class _Reader:
    """Reads files of the source into a buffer, around the page cache where the file system lets it.

    Args:
        read_bytes: bytes of a read at the start.
        read_bytes_max: bytes of a read at the most, and of each buffer.
        buffers: how many it has.
        patience: repeats reads that fail for the moment.

    Attributes:
        buffer: what was read; it begins on a page.
        read_bytes: how many bytes to ask for next: more if the last answer came at once, less if it took long.
    """

    def __init__(self, read_bytes: int, read_bytes_max: int, buffers: int, patience: Patience):
        self._buffers = deque(page_buffer(read_bytes_max) for _ in range(buffers))
        self.buffer = self._buffers[0]
        self.read_bytes = read_bytes
        self._first, self._most = read_bytes, read_bytes_max
        self._patience = patience
        self._file: SourceFile | None = None
        self._fd = -1
        self._direct = False

    def turn(self) -> None:
        """Take the next buffer; what was read into the others stays."""
        self._buffers.rotate(-1)
        self.buffer = self._buffers[0]

    def read(self, file: SourceFile, at: int, length: int) -> None:
        """Fill the start of the buffer with bytes of a file; they lie in it.

        Raises:
            FaststartError: 7, 8 or 9 naming the file; 143, SIGTERM.
        """
        began = time.monotonic()
        done = 0
        while done < length:
            call = functools.partial(self._read, file, at, done, length)
            count = self._patience.read(file.path, call, at + done)
            if not count:
                raise _changed(file)
            done = min(done + count, length)
        if length == self.read_bytes:
            self._adapt(time.monotonic() - began)

    def read_whole(self, file: SourceFile) -> None:
        """Fill the start of the buffer with a small file.

        Raises:
            FaststartError: 7, 8 or 9 naming the file; 143, SIGTERM.
        """
        self._patience.read(file.path, functools.partial(self._read_whole, file), 0)

    def _read_whole(self, file: SourceFile) -> None:
        fd, _ = open_source(file.real, direct=False)
        try:
            if not file.same(os.fstat(fd)):
                raise _changed(file)
            done, count = 0, 1
            while done < file.size and count:
                count = os.preadv(fd, [self.buffer[done : file.size]], done)
                done += count
            if done < file.size or not file.same(os.lstat(file.real)):
                raise _changed(file)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def _adapt(self, seconds: float) -> None:
        if seconds < _FAST:
            self.read_bytes = min(2 * self.read_bytes, self._most)
        elif seconds > _SLOW:
            self.read_bytes = max(self.read_bytes // 2, min(_UNIT, self._first))

    def _read(self, file: SourceFile, start: int, done: int, length: int) -> int:
        try:
            self._open(file)
            at = start + done
            if self._direct and (at % PAGE or done % PAGE):
                self._use_cache()
            end = -(-length // PAGE) * PAGE if self._direct else length
            try:
                count = os.preadv(self._fd, [self.buffer[done:end]], at)
            except OSError as error:
                if error.errno not in NOT_DIRECT or not self._direct:
                    raise
                self._use_cache()
                count = os.preadv(self._fd, [self.buffer[done:length]], at)
            if not self._direct:
                os.posix_fadvise(self._fd, at, count, os.POSIX_FADV_DONTNEED)
        except OSError:
            self.close()
            raise
        return count

    def _open(self, file: SourceFile) -> None:
        if self._file is file:
            return
        self.close()
        self._fd, self._direct = open_source(file.real, direct=True)
        self._file = file
        if not file.same(os.fstat(self._fd)):
            raise _changed(file)

    def _use_cache(self) -> None:
        fcntl.fcntl(self._fd, fcntl.F_SETFL, 0)
        self._direct = False

    def close(self) -> None:
        """Close the file that is open, if one is."""
        if self._fd >= 0:
            os.close(self._fd)
        self._file, self._fd = None, -1


def _is_first(work: Range) -> bool:
    """Say whether a range's stream is the only one that has begun with its piece."""
    piece = work.piece
    return piece is not None and piece.owner is work and not piece.rivals


def _wrong_block(file: SourceFile, data: memoryview) -> int | None:
    """Return the number of the first block of a whole file that does not have its hash."""
    step = file.listed.block_bytes
    for number, block in enumerate(file.listed.blocks):
        if hashlib.sha256(data[number * step : (number + 1) * step]).digest() != block:
            return number
    return None


def _damaged(file: SourceFile, block: int) -> FaststartError:
    start = block * file.listed.block_bytes
    end = min(start + file.listed.block_bytes, file.size)
    message = f"block {block} (bytes {start} to {end}) does not have the hash that the manifest says, read twice"
    return FaststartError(Exit.DAMAGED, f"{message}: publish the model again", file.path)


def _changed(file: SourceFile) -> FaststartError:
    return FaststartError(Exit.CHANGED, "has changed in the source since the copy began: start again", file.path)
