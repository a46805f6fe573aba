"""Which files of a model folder to copy: only what vLLM opens, everything, or what patterns name.

"vLLM" is its model_executor/model_loader: default_loader.py chooses the weight files of a folder, weight_utils.py takes
from them what an index does not name. In doubt a file is kept: one too many costs seconds, one too few the start.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import os
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modelfolder import leftovers, names, numbered
from podkit import documents
from podkit.display import show
from podkit.errors import Exit, FaststartError

SMALL = 64_000_000
"""Bytes from which a file that is no weight file needs a reason to be copied. A choice: 6 ms at 10 GB/s."""

_SUFFIXES = {
    "safetensors": (b".safetensors",),
    "mistral": (b".safetensors",),
    "bin": (b".bin",),
    "pt": (b".pt", b".pth"),
    "gguf": (b".gguf",),
}
"""The weight formats in the order in which they are looked for; `mistral` is consolidated*.safetensors."""

_INDEXES = {
    "safetensors": b"model.safetensors.index.json",
    "mistral": b"consolidated.safetensors.index.json",
    "bin": b"pytorch_model.bin.index.json",
}
"""The one name of an index that counts (vLLM; for bin, of which it reads no index, transformers)."""

_INDEX_SUFFIXES = (b".safetensors.index.json", b".bin.index.json")

_WHOLE = re.compile(rb"(.*[._-])?(model|consolidated)[._\d-].*|.*-of-\d+\..*", re.DOTALL)
"""How weights of a whole model are named: model.safetensors, pytorch_model-00001-of-00002.bin, consolidated.00.pth. A
small pickle of another name may be a part that vLLM loads by that name: sparse_linear.pt of bge-m3 (models/roberta.py).
"""

_BY_NAME = re.compile(
    rb"((sparse_linear|colbert_linear|mask_embedding)\.pt|joint_head\.safetensors"
    rb"|adapters/[^/]+/adapter_model\.safetensors|audio_tokenizer/(model\.safetensors|pytorch_model\.bin))"
)
"""Weights that vLLM 0.32 opens by these names, whatever an index says (model_executor/models: roberta.py,
qwen3_dflash.py, clef_omni.py, jina.py, mimo_audio.py; its other secondary_weights are of other repositories)."""

_BY_FOLDER = re.compile(rb"whisper-large-v3|[tv][^/]*er")
"""Folders at the top whose weights it opens, with or without a configuration (kimi_audio.py; cosmos3.py and
cosmos3_edge.py: allow_patterns_overrides). Parts of sentence-transformers have one (adapters.py)."""

_PARTS = re.compile(rb"(mm_projector|non_lora_trainables|learned_embeds.*|random_states.*)\.bin", re.DOTALL)
"""Parts that trainers keep beside a model, and no server opens there (LLaVA, diffusers, accelerate)."""

_TRAINING = re.compile(rb"(.*(training_args|optimizer|scheduler|scaler)|rng_state.*)\.(bin|pt|pth)", re.DOTALL)
"""What training leaves (weight_utils.py: filter_files_not_needed_for_inference; and transformers' Trainer)."""

_FOREIGN = re.compile(rb".*\.(h5|msgpack|ot|onnx|onnx[_.]data|tflite|mlmodel|pb)|openvino_.*\.(bin|xml)", re.DOTALL)

_FOLDERS = {
    re.compile(rb"original"): "another layout of the weights",
    re.compile(rb"metal|coreml|.*\.mlpackage", re.DOTALL): "weights for Apple's chips",
    re.compile(rb"onnx|openvino"): "another weight format",
    re.compile(rb"checkpoint-\d+"): "a checkpoint of the training",
    re.compile(rb"figures"): "pictures",
}
"""Folders left out at any depth. original/ of gpt-oss has a config.json, and is a second copy all the same."""

_NEVER_OPENED = {
    "picture": (b".avif", b".bmp", b".gif", b".heic", b".ico", b".jpeg", b".jpg", b".png", b".svg", b".tiff", b".webp"),
    "video": (b".avi", b".m4v", b".mkv", b".mov", b".mp4", b".webm"),
    "audio": (b".aac", b".flac", b".m4a", b".mp3", b".ogg", b".opus", b".wav"),
    "notebook": (b".ipynb",),
    "pickle": (b".ckpt", b".dill", b".distcp", b".joblib", b".npy", b".npz", b".pickle", b".pkl", b".t7", b".th"),
    "archive": (b".7z", b".rar", b".tar", b".tar.bz2", b".tar.gz", b".tar.xz", b".tar.zst", b".tgz", b".zip"),
}
_TEXT = (b".json", b".model", b".tiktoken", b".txt", b".py", b".jinja", b".md", b".yaml", b".yml")
"""Kept whatever their size: configurations, tokenizers, code."""

_ORPHAN = "an index of weights that are not copied"
_DATA = (b".arrow", b".csv", b".jsonl", b".log", b".parquet", b".pdf", b".tsv")
_HF_TOKENIZERS = {b"tokenizer.json", b"tokenizer.model", b"vocab.json", b"vocab.txt"}


_WILD = re.compile(r"[*?[]")


@dataclass(frozen=True)
class Broken:
    """What is in a source and cannot be had: a link that leads nowhere, a folder that may not be read.

    Attributes:
        path: its path in the model folder.
        error: what is raised where it was asked for.
        folder: whether it is a folder, whose content is not known.
    """

    path: bytes
    error: FaststartError
    folder: bool = False

    def may_hold(self, begin: bytes) -> bool:
        """Say whether what a pattern names may lie in it, by what the pattern begins with before its wildcards."""
        inside = self.path + b"/"
        return begin.startswith(inside) or (self.folder and inside.startswith(begin))


_NONE_BROKEN: Mapping[bytes, Broken] = types.MappingProxyType({})


@dataclass(frozen=True)
class LeftOut:
    """A file that is not to be copied, and why, for people."""

    path: bytes
    size: int
    reason: str


@dataclass(frozen=True)
class Selection:
    """What to copy. `paths` and `left_out` share out the files of the source between them.

    Attributes:
        paths: what to copy.
        left_out: the rest, in the order of the paths' bytes.
        weights: format (safetensors, mistral, bin, pt, gguf) and sorted files of the weight set that `auto` finds for
            the top folder among `paths`; an index may name files in subfolders. None if there is none.
        notes: one line each about what a person should know.
    """

    paths: frozenset[bytes]
    left_out: tuple[LeftOut, ...]
    weights: tuple[str, tuple[bytes, ...]] | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Weights:
    """The weight set of a folder.

    Attributes:
        index: the path of its index, which need not exist.
        named: what a usable index names and the folder has, else nothing.
        fault: what is wrong with the index.
    """

    format: str
    files: frozenset[bytes]
    index: bytes
    named: frozenset[bytes]
    fault: str | None

    @property
    def whole(self) -> bool:
        """Say whether this is surely the whole model, so that no other format is needed."""
        return bool(self.named) or self.format in ("mistral", "gguf") or any(map(_is_named_whole, self.files))


def select(
    sizes: Mapping[bytes, int],
    patterns: Sequence[str],
    read: Callable[[bytes], bytes],
    broken: Mapping[bytes, Broken] = _NONE_BROKEN,
) -> Selection:
    """Choose the files to copy.

    Args:
        sizes: path and size of each regular file of the source.
        patterns: `auto` (what vLLM opens), `all`, or patterns with the meaning of `hf download --include`: fnmatch of
            the whole path, case counts, `*` crosses "/", a "/" at the end stands for all that lies in the folder.
        read: returns the content of a file; called for weight indexes only, at most once for each.
        broken: what of the source cannot be had. It is chosen only where a model needs it, or a pattern names it: no
            leftover of a download or a file system is.

    Raises:
        FaststartError: 2, a pattern names nothing, or `auto` or `all` is not alone; the error of what is broken and was
            chosen; whatever `read` raises.
    """
    # In doubt it is a small file, which is kept.
    sizes, read = dict(sorted({**sizes, **dict.fromkeys(broken, 0)}.items())), functools.cache(read)
    notes: list[str] = []
    match list(patterns):
        case ["auto"]:
            reasons = _unused(sizes, read, broken, notes)
        case ["all"]:
            reasons = _broken_leftovers(broken)
        case _:
            reasons = _unnamed(sizes, patterns, broken)
    paths = frozenset(sizes.keys() - reasons.keys())
    for path in sorted(paths & broken.keys()):
        raise broken[path].error
    top = _choose(b"", [path for path in paths if b"/" not in path], paths, read)
    if top and top.fault:
        notes.insert(0, top.fault)
    if top and top.format != "mistral" and any(_format(path) == "mistral" for path in paths - top.files):
        notes.append("consolidated*.safetensors is copied, too: vLLM 0.12 and newer then takes Mistral's format")
    for path, why in broken.items():
        reasons[path] = f"{reasons[path]}; {why.error.message}"
    left_out = (LeftOut(path, 0 if path in broken else sizes[path], reasons[path]) for path in sizes if path in reasons)
    weights = (top.format, tuple(sorted(top.files))) if top else None
    return Selection(paths, tuple(left_out), weights, tuple(notes))


def _unnamed(sizes: dict[bytes, int], patterns: Sequence[str], broken: Mapping[bytes, Broken]) -> dict[bytes, str]:
    if not patterns or {"auto", "all"} & set(patterns):
        raise FaststartError(Exit.USAGE, "--files takes either auto, or all, or patterns")
    named: set[bytes] = set()
    unasked = _broken_leftovers(broken)
    for pattern in patterns:
        whole = pattern + "*" if pattern.endswith("/") else pattern
        found = [path for path in sizes if fnmatch.fnmatchcase(os.fsdecode(path), whole)]
        begin = os.fsencode(_WILD.split(whole, maxsplit=1)[0])
        inside = [path for path, what in broken.items() if what.may_hold(begin)]
        if not found and not inside:
            there = ", ".join(map(show, list(sizes)[:3])) + (", ..." if len(sizes) > 3 else "")
            shown = show(pattern.encode("utf-8", "surrogateescape"))
            raise FaststartError(Exit.USAGE, f"--files {shown}: names none of the {len(sizes)} files: {there}")
        let_be = {} if _leftover(begin) else unasked
        named.update(path for path in [*found, *inside] if path not in let_be)
    return {path: "named by no pattern" for path in sizes if path not in named}


def _broken_leftovers(broken: Mapping[bytes, Broken]) -> dict[bytes, str]:
    """Return what is broken and no part of any model, with the reasons."""
    return {path: reason for path in broken if (reason := _leftover(path))}


def _leftover(path: bytes) -> str | None:
    """Return why a path is no part of any model, None if it may be one."""
    parts = list(filter(None, path.split(b"/")))
    reasons = [*map(leftovers.folder_reason, parts), *map(leftovers.file_reason, parts[-1:])]
    return next(filter(None, reasons), None)


def _unused(
    sizes: dict[bytes, int], read: Callable[[bytes], bytes], broken: Mapping[bytes, Broken], notes: list[str]
) -> dict[bytes, str]:
    """Return what `auto` leaves out, each file with its reason."""
    folders: dict[bytes, list[bytes]] = {b"": []}
    for path in sizes:
        folders.setdefault(os.path.dirname(path), []).append(path)
    top = _choose(b"", folders[b""], sizes, read)
    reasons: dict[bytes, str] = {}
    for folder, paths in folders.items():
        reason = unused_folder(folder)
        reasons |= dict.fromkeys(paths, reason) if reason else _unused_files(folder, paths, sizes, top, read)
    unneeded = _broken_leftovers(broken)
    reasons |= {path: reason for path in broken if (reason := unneeded.get(path) or unused_folder(path))}
    for path in top.named if top else ():
        reasons.pop(path, None)
    if reasons and not any(names.is_weight(path) for path in sizes if path not in reasons):
        notes.append("there are no weights where vLLM looks for them: everything is copied")
        return unneeded
    others = {str(_format(path)) for path in folders[b""] if path in reasons} & _SUFFIXES.keys()
    for kind in sorted(others - {top.format} if top else ()):
        total = sum(sizes[path] for path in folders[b""] if path in reasons and _format(path) == kind)
        hint = "; for vLLM's --load-format mistral name the files with --files" if kind == "mistral" else ""
        notes.append(f"several weight formats: {top and top.format} is copied, left out: {kind}, {_gb(total)}{hint}")
    return reasons


def may_be_read(path: bytes) -> bool:
    """Say whether a server may read a file, by its name: no picture, no paper, no data, no text for people."""
    name = os.path.basename(path).lower()
    return not name.endswith((*_DATA, b".md", *itertools.chain(*_NEVER_OPENED.values())))


def unused_folder(folder: bytes) -> str | None:
    """Return why `auto` leaves out all that lies in a folder, None if it does not."""
    for part in filter(None, folder.split(b"/")):
        reason = leftovers.folder_reason(part)
        for pattern, why in _FOLDERS.items():
            reason = reason or (why if pattern.fullmatch(part) else None)
        if reason:
            return f"{show(part)}/: {reason}"
    return None


def _unused_files(
    folder: bytes, paths: list[bytes], sizes: dict[bytes, int], top: _Weights | None, read: Callable[[bytes], bytes]
) -> dict[bytes, str]:
    """Return what is not needed of a folder.

    Of a subfolder that is also what would change how the top folder is read: a consolidated*.safetensors anywhere makes
    vLLM 0.12 and newer take Mistral's format (transformers_utils/repo_utils.py: is_mistral_model_repo).
    """
    own, found = top, dict[bytes, str]()
    if folder and top:
        strays = ({"mistral", "gguf"} if top.whole else {"mistral"}) - {top.format}
        configured = not top.whole or any(map(_is_config, paths)) or _BY_FOLDER.fullmatch(folder)
        for path in paths:
            kind = _format(path)
            if _BY_NAME.fullmatch(path):
                continue
            if kind in strays:
                found[path] = _other(top)
            elif kind in _SUFFIXES.keys() - {"gguf"} and sizes[path] >= SMALL and not configured:
                found[path] = "weights in a folder without a configuration"
    if folder:
        found |= _orphans(paths, found)
        rest = [path for path in paths if path not in found]
        own = _choose(folder, rest, rest, read)
    # An index that names some parts of a whole is no choice: the check of the copy is to find the others there.
    wholes = {numbered.whole_of(path) for path in own.named} - {None} if own else set[numbered.Whole | None]()
    for path in paths:
        if wholes and numbered.whole_of(path) in wholes:
            continue
        if path not in found and (reason := _unused_file(path, sizes[path], own, top, paths)):
            found[path] = reason
    alone = not own and folder and top and top.whole
    gone = _SUFFIXES.keys() if alone else frozenset[str]()
    found |= _orphans([path for path in paths if own is None or path != own.index], found, own, gone)
    return found


def _orphans(
    paths: Collection[bytes],
    found: Collection[bytes],
    own: _Weights | None = None,
    lacking: Collection[str] = frozenset(),
) -> dict[bytes, str]:
    """Return the indexes among some paths whose format is left out; a later check of the copy would miss its files.

    Args:
        paths: where to look.
        found: the files that are left out.
        own: the weight set of the folder.
        lacking: the formats of which the folder has no weights, and needs none.
    """
    gone = {_format(path) for path in found} | set(lacking)
    if own and own.whole:
        gone |= _SUFFIXES.keys() - {own.format}
    indexes = filter(_is_index, paths)
    return {path: _ORPHAN for path in indexes if _format(path.removesuffix(b".index.json")) in gone}


def _unused_file(
    path: bytes, size: int, own: _Weights | None, top: _Weights | None, siblings: Collection[bytes]
) -> str | None:
    """Return why a file is not needed, if it is not; `own` is the weight set of its folder."""
    folder, name = os.path.split(path)
    kind, near = _format(path), own or top
    if (own and (path in own.files or path in own.named)) or _BY_NAME.fullmatch(path):
        return None
    if reason := leftovers.file_reason(name):
        return reason
    for what, suffixes in _NEVER_OPENED.items():
        if name.lower().endswith(suffixes):
            return what
    if kind == "training":
        return "left by the training"
    if kind == "foreign" and near:
        return _other(near)
    if kind in _SUFFIXES and own:
        if own.whole and own.format != kind and (kind == "pt" or _PARTS.fullmatch(name)) and not _is_named_whole(path):
            return "a pickle that vLLM does not open"
        if kind in ("bin", "pt") and size < SMALL and not _is_named_whole(path):
            return None
        if kind != own.format:
            return _other(own) if own.whole else None
        if name.startswith(b"adapter_model.") and os.path.join(folder, b"adapter_config.json") in siblings:
            return None
        return f"not named by {show(os.path.basename(own.index))}"
    if size < SMALL or name.endswith(_TEXT) or (not folder and not name.endswith(_DATA)):
        return None
    return f"{_gb(size)} of a kind that vLLM does not open"


def _choose(
    folder: bytes, paths: Collection[bytes], there: Collection[bytes], read: Callable[[bytes], bytes]
) -> _Weights | None:
    """Return the weight set of a folder: Hugging Face's safetensors, else Mistral's, else bin, pt, gguf.

    Mistral's comes first where the other is not surely whole, or where only Mistral's configuration or tokenizer is
    there: vLLM takes tekken.json only if a consolidated*.safetensors is there (tokenizers/registry.py).

    Args:
        folder: the folder.
        paths: the files in it.
        there: the files that an index may name.
        read: returns the content of an index.
    """
    sets: dict[str, _Weights] = {}
    for kind, suffixes in _SUFFIXES.items():
        if sets and kind not in ("safetensors", "mistral"):
            break
        index = os.path.join(folder, _INDEXES.get(kind, b""))
        named, fault = _named(index, there, read) if index in paths else (frozenset[bytes](), None)
        files = frozenset(path for path in named if path.endswith(suffixes))
        named = named if files else frozenset()
        files = files or frozenset(path for path in paths if _format(path) == kind)
        if files:
            sets[kind] = _Weights(kind, files, index, named, fault)
    if {"safetensors", "mistral"} <= sets.keys():
        tops = {os.path.basename(path) for path in paths}
        lacks_hf = b"config.json" not in tops or (b"tekken.json" in tops and not tops & _HF_TOKENIZERS)
        if not sets["safetensors"].whole or (b"params.json" in tops and lacks_hf):
            return sets["mistral"]
    return next(iter(sets.values()), None)


def read_index(data: bytes) -> dict[str, Any]:
    """Return a weight index, whose `weight_map` maps tensors to paths beside it.

    Raises:
        ValueError: it is none.
    """
    index = documents.parse_object(data)
    shards = index.get("weight_map")
    if not isinstance(shards, dict):
        raise ValueError(f"weight_map is {documents.kind(shards)}")  # noqa: TRY004 - of a text, not of ours
    if odd := [shard for shard in shards.values() if not isinstance(shard, str)]:
        raise ValueError(f"weight_map names {documents.kind(odd[0])} as a file")
    return index


def _named(
    index: bytes, there: Collection[bytes], read: Callable[[bytes], bytes]
) -> tuple[frozenset[bytes], str | None]:
    """Return which files an index names of those that are there, and what is wrong with it.

    Its names are not trusted: one that leads elsewhere is just not there.
    """
    try:
        shards = {shard.encode() for shard in read_index(read(index))["weight_map"].values()}
    except (ValueError, FaststartError) as error:
        if isinstance(error, FaststartError) and error.code != Exit.DAMAGED:
            raise
        why = f"has no readable weight_map ({error}): all files of its format count as weights"
        return frozenset(), f"{show(index)} {why}"
    named = {os.path.join(os.path.dirname(index), shard) for shard in shards}
    found = named.intersection(there)
    fault = f"{show(index)} names {len(named - found)} of {len(named)} weight files that are not there"
    return frozenset(found), fault if found < named else None


@functools.lru_cache(maxsize=1 << 16)
def _format(path: bytes) -> str | None:
    """Return the weight format that a file's name stands for, `training`, `foreign`, or None."""
    name = os.path.basename(path)
    if _TRAINING.fullmatch(name):
        return "training"
    if _FOREIGN.fullmatch(name):
        return "foreign"
    if name.startswith(b"."):
        return None  # a glob, such as vLLM's, does not find it
    if name.startswith(b"consolidated") and name.endswith(b".safetensors"):
        return "mistral"
    return next((kind for kind, suffixes in _SUFFIXES.items() if name.endswith(suffixes)), None)


def _is_named_whole(path: bytes) -> bool:
    return bool(_WHOLE.fullmatch(os.path.basename(path)))


def _is_index(path: bytes) -> bool:
    return path.endswith(_INDEX_SUFFIXES)


def _is_config(path: bytes) -> bool:
    return path.endswith((b".json", b".yaml", b".yml")) and not _is_index(path)


def _other(weights: _Weights) -> str:
    return f"another weight format: {weights.format} is there"


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
