"""How much memory a program may take: it ends with words where the kernel would else end it, or another one."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

from podkit.display import size
from podkit.errors import Exit, FaststartError

READING_BYTES = 2 << 30
"""What reading a model's own small files may take. The most: a safetensors header of 100 MB as bytes and, at four bytes
a character, as text, 500 MB; what it stands for, another 500 (documents.MAX_VALUES); a manifest of 64 MB and what it
stands for, 500; Python itself and its tables of 15,000 files, 50 (measured)."""

THREAD_BYTES = 20 << 20
"""What a thread may take: the 8 MiB that are reserved for its stack (pthread_create(3)), the same again for one that
looks at small files beside it, and what the allocator keeps for both."""


@contextlib.contextmanager
def bounded(most: int) -> Iterator[None]:
    """Let this process have no more than so many bytes of memory of its own while the block runs.

    What is counted is RLIMIT_DATA: the heap, private writable maps and the stacks of threads (setrlimit(2), since Linux
    4.7 mm/mmap.c: is_data_mapping), whether touched or not. Neither files that are mapped nor the page cache are, which
    is why no limit of a cgroup can stand for this one.

    Raises:
        FaststartError: 9, more was needed, in whichever thread whose error ends the block.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (most, *before) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
    failed = False
    try:
        yield
    except MemoryError:
        failed = True  # what the error holds in memory goes with it
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    if failed:
        message = (
            f"more than {size(min(limits))} of memory was needed, all that this program takes (RLIMIT_DATA); no known"
            " model needs as much: a file of it, or an answer of the place that it comes from, is larger than it should"
            " be"
        )
        raise FaststartError(Exit.IO_ERROR, message)
