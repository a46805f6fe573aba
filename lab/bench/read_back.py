"""What a server does with the copy: it reads every byte of the weights once."""

import mmap
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
STEP_BYTES = 1 << 20
AHEAD_BYTES = 16 << 20
AHEAD_THREADS = 8


def weights(folder: Path) -> list[Path]:
    """The weight files of a copy, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if path.suffix in WEIGHTS and ".faststart" not in path.parts)


def through_mmap(folder: Path) -> int:
    """Maps one file after the other and copies it out, a step at a time; returns the bytes read."""
    step = memoryview(bytearray(STEP_BYTES))
    total = 0
    for path in weights(folder):
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                continue
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                for start in range(0, size, STEP_BYTES):
                    part = view[start : start + STEP_BYTES]
                    step[: len(part)] = part
                    part.release()
        total += size
    return total


def with_read_ahead(folder: Path) -> int:
    """Reads all files once with several threads, then as `through_mmap` does; returns the bytes of the second read."""
    _read_ahead(weights(folder))
    return through_mmap(folder)


def _read_ahead(paths: Iterable[Path]) -> None:
    parts = iter([(path, start) for path in paths for start in range(0, path.stat().st_size, AHEAD_BYTES)])
    lock = threading.Lock()
    errors: list[OSError] = []

    def work() -> None:
        buffer = bytearray(AHEAD_BYTES)
        while not errors:
            with lock:
                part = next(parts, None)
            if part is None:
                return
            try:
                with part[0].open("rb", buffering=0) as file:
                    os.preadv(file.fileno(), [buffer], part[1])
            except OSError as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(AHEAD_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


READERS: dict[str, Callable[[Path], int]] = {"mmap": through_mmap, "read-ahead": with_read_ahead}
"""What may follow a copy, by name."""
