"""Where a stack's model comes from: stand-ins for S3 and the Hugging Face hub on loopback."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import yaml

from lab.e2e.translations import Source
from lab.loopback import hub as hubs
from lab.loopback import s3

REGION = "us-east-1"


class ModelSource:
    """A place that a stack file names as a model's source; what it holds can be changed.

    Attributes:
        kind: `s3` or `hf`.
        where: how the process that publishes is led there.
    """

    def __init__(self, address: str, hub: hubs.Hub, store: s3.Store) -> None:
        self.kind, _, self._path = address.partition("://")
        self._hub, self._store = hub, store
        self._keys: set[str] = set()
        if self.kind == "hf":
            self.where = Source({"HF_ENDPOINT": hub.url})
        elif self.kind == "s3":
            self._bucket, _, self._prefix = self._path.partition("/")
            if self._bucket not in store.backend.buckets:
                store.backend.create_bucket(self._bucket, REGION)
            self.where = Source(
                {
                    "AWS_ENDPOINT_URL": store.endpoint,
                    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
                    "AWS_SECRET_ACCESS_KEY": "secret",  # a stand-in's, which takes any
                }
            )
        else:
            raise ValueError(f"{address}: only s3:// and hf:// are stood in for")

    def put(self, folder: Path) -> None:
        """Lets the place hold a folder's files, and nothing else."""
        files = {
            os.fspath(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        if self.kind == "hf":
            repository, _, revision = self._path.partition("@")
            self._hub.add(repository, files, ref=revision)
            return
        keys = {f"{self._prefix.rstrip('/')}/{name}": content for name, content in files.items()}
        for key in self._keys - keys.keys():
            self._store.backend.delete_object(self._bucket, key)
        for key, content in keys.items():
            self._store.backend.put_object(self._bucket, key, content)
        self._keys = set(keys)


def source_of(stack_file: Path) -> str:
    """The source of the model that a stack file's first server serves."""
    config = yaml.safe_load(stack_file.read_text(encoding="utf-8"))["config"]
    server = next(iter(config["faststart:modelServers"].values()))
    return config["faststart:models"][server["model"]]["source"]


@contextlib.contextmanager
def standing(address: str) -> Iterator[ModelSource]:
    """A source of the kind that an address is of, empty, while the block runs."""
    with hubs.Hub() as hub, s3.serving() as store:
        yield ModelSource(address, hub, store)
