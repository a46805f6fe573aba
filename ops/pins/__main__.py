"""`python -m ops.pins`: asks the registries what the images' tags stand for, and writes `stacks/images.lock.json`."""

import argparse
import datetime as dt
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from infra import images, stack_files, versions
from infra.images import Lock, Pin, Reference
from ops.pins import registry


class PinError(Exception):
    """The lock file cannot be written again; the text says why, a line a reason."""


def main() -> int:
    """Runs the command.

    Returns:
        0 where the lock file holds what the registries say, else 1.
    """
    argparse.ArgumentParser(prog="python -m ops.pins", description=__doc__).parse_args()
    try:
        lines = pin(dt.datetime.now(dt.UTC).date())
    except PinError as error:
        print(f"{error}\n{images.LOCK_NAME} stays as it was", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


def pin(today: dt.date) -> list[str]:
    """Writes the lock file anew: an entry for each image that `infra.versions` or a stack file names by its tag.

    Args:
        today: The date of entries that are new or changed.

    Returns:
        What became of each entry, a line each.

    Raises:
        PinError: An image could not be asked for, or a file cannot be used; the lock file is as it was.
    """
    try:
        old = images.read_lock()
    except images.LockError as error:
        raise PinError(f"{images.LOCK_NAME}: {error}") from error
    new: Lock = {}
    lines: list[str] = []
    problems: list[str] = []
    for name, image in sorted(_named_by_tag()):
        try:
            answer = registry.ask(image)
        except registry.RegistryError as error:
            problems.append(f"{name}: the registry {image.registry} {error}")
            continue
        before = old.get(name)
        if before and before.digest == answer.digest:
            new[name] = before
            lines.append(f"{name} is {answer.digest} still")
        else:
            new[name] = Pin(digest=answer.digest, platforms=answer.platforms, pinned=today)
            lines.append(f"{name} is {answer.digest} now, {f'was {before.digest}' if before else 'a new entry'}")
    if problems:
        raise PinError("\n".join(problems))
    lines += [f"{name} is named by nothing any more and was dropped" for name in sorted(old.keys() - new.keys())]
    _write(new)
    return lines


def _named_by_tag() -> set[tuple[str, Reference]]:
    """The images of the program and of all stack files, by full name, without those that have a digest already."""
    used = {*versions.IMAGES}
    for stack_file in stack_files.every(images.LOCK.parent).values():
        used |= set(_images_of(stack_file))
    references = [reference for image in used if (reference := images.parse(image))]
    return {(reference.by_tag, reference) for reference in references if not reference.digest}


def _images_of(stack_file: Path) -> Iterator[str]:
    try:
        settings = stack_files.read(stack_file)
    except stack_files.UnusableError as error:
        raise PinError(str(error)) from error
    for server in settings.model_servers.values():
        yield server.image


def _write(lock: Lock) -> None:
    """Puts a whole lock file in the place of the old one; one that would say the same is left alone."""
    entries = {name: entry.model_dump(mode="json") for name, entry in lock.items()}
    content = (json.dumps(entries, indent=2, sort_keys=True) + "\n").encode()
    written = images.LOCK.with_suffix(".json.new")
    try:
        if images.LOCK.exists() and images.LOCK.read_bytes() == content:
            return
        written.write_bytes(content)
        written.replace(images.LOCK)
    except OSError as error:
        raise PinError(f"{images.LOCK_NAME}: cannot be written: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
