"""What vLLM would do with a model folder, and all that is wrong with it, as far as headers and small files tell.

What is said of vLLM holds for 0.32: measured, or read in its model_executor/model_loader/default_loader.py (which
weights it opens) and transformers_utils/config.py (which configuration it takes). "vLLM would load" does not vouch for
the bytes of tensors: only hashes can.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from modelfolder import names, structure
from modelfolder.safetensors import SUFFIX, show
from modelfolder.source import Source
from podkit import display, pool
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience
from publish import configuration
from publish.contents import (
    AGAIN,
    CONFIG,
    INDEXES,
    PARAMS,
    TOKENIZERS,
    Contents,
    Effect,
    Finding,
    is_tokenizer,
    look_into,
    read_part,
)
from publish.smallfiles import look_at_small_files

_README = b"README.md"
_README_BYTES = 64 << 10
_LINE = 1000  # characters that are looked at

_PACKED = {"awq", "fp8", "gptq", "mxfp4"}
"""Kinds of quantization whose weights are never plain floating-point numbers (vLLM: layers/quantization/)."""

_REMEDY = "the index is not of these weights: fetch both from one place"
_BLOCK = 8 << 20  # bytes of a tensor that are compared at once
_FITTING = "fetch what fits together"

_PLAIN = {"BF16", "F16", "F32", "F64"}

_BYTES = {"I8", "I16", "I32", "U8"}
_FEW_BITS = {"F4", "F6_E2M3", "F6_E3M2", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}
"""Types that quantized weights have, and others: whole numbers may be masks, and vLLM takes small floating-point
numbers without a scale for what they are, so that both are known by names only."""

_QUANTIZED = re.compile(
    r"(.*\.)?(qweight|qzeros|weight_packed|weight_scale(_inv|_2)?|weight_zero_point|SCB|W_q|codebooks|Qidxs|absmax|quant_map"
    r"|quant_state\..*)|.*_(blocks|qweight)",
    re.DOTALL,
)
"""How the tensors are named of GPTQ and AWQ, compressed-tensors, FP8, bitsandbytes, HQQ, AQLM, QuIP, MXFP4 (vLLM:
layers/quantization/; MXFP4: models/gpt_oss.py)."""

_SCALED = re.compile(_QUANTIZED.pattern + r"|.*scales?(_inv|_2)?|(.*\.)?qscale_\w+", re.DOTALL)

_GPT_OSS_VOCABULARY = b"o200k_base.tiktoken"
"""What openai_harmony downloads where it does not find it (src/tiktoken_ext/public_encodings.rs)."""

_LICENCE = re.compile(r"license:\s*([^\s#].*?)\s*(#.*)?")

_SHOWN = 8  # types of tensors in one line; real models have four at the most

_Found = tuple[Effect, Finding]


@dataclass(frozen=True)
class Weights:
    """The weights that vLLM would load.

    Attributes:
        format: safetensors, mistral, bin, pt or gguf.
        files: sorted.
        tensor_bytes: in all tensors; None where that cannot be told: only safetensors files tell, and only whole ones.
        dtypes: the sorted types of the tensors, such as BF16; none where tensor_bytes is None.
        tensors: how many there are; None where tensor_bytes is None.
    """

    format: str
    files: tuple[bytes, ...]
    tensor_bytes: int | None
    dtypes: tuple[str, ...]
    tensors: int | None


@dataclass(frozen=True)
class Verdict:
    """What was found in a folder.

    Attributes:
        findings: all that is wrong or odd, the worst first, then in the order of the paths' bytes.
        weights: None, if there are none that vLLM would load.
        architecture: the first of `architectures` in config.json, else its `model_type`.
        licence: `license` in the front matter of README.md.
        pickles: the files that are Python pickles, sorted.
        summary: what vLLM would do, in one line.
    """

    findings: tuple[Finding, ...]
    weights: Weights | None
    architecture: str | None
    licence: str | None
    pickles: tuple[bytes, ...]
    summary: str


def judge(source: Source, patience: Patience, *, tokenizer: bool = True) -> Verdict:
    """Judge the files of a model folder that were asked for; reads headers, indexes and small files.

    Args:
        source: the folder.
        patience: asked before each step; repeats what fails for the moment.
        tokenizer: whether there must be one; vLLM serves without it with --skip-tokenizer-init.

    Raises:
        FaststartError: 7, 8 or 9 naming the file; 143, SIGTERM.
    """
    found: list[Verdict] = []
    # In a thread, so that SIGTERM is noticed while a mount hangs.
    pool.each([source], lambda source: found.append(_judge(source, patience, tokenizer)), patience)
    return found[0]


def _judge(source: Source, patience: Patience, tokenizer: bool) -> Verdict:
    contents = look_into(source, patience)
    weights = _weights(contents)
    config = contents.json_object(CONFIG) or {}
    architecture = _architecture(config)
    found = [
        *contents.found,
        *_indexes(contents),
        *_presence(contents, tokenizer),
        *_mistral(contents),
        *_configuration(contents),
        *look_at_small_files(contents),
        *_quantization(contents, config, weights),
        *_oddities(contents, config, architecture),
    ]
    if all(finding.code is None for _, finding in found):
        # Where something is refused, that says all that the notes can.
        found += [_odd(None, note) for note in source.notes]
    found.sort(key=lambda one: (one[1].code is None, one[0], one[1].file or b"", one[1].message))
    licence = None
    if _README in contents.files:
        licence = _licence(read_part(contents.files[_README], _README_BYTES, patience))
    return Verdict(
        findings=tuple(finding for _, finding in found),
        weights=weights,
        architecture=architecture,
        licence=licence,
        pickles=tuple(sorted(contents.pickles)),
        summary=_summary(found, contents, weights, architecture),
    )


def _damaged(effect: Effect, path: bytes | None, message: str) -> _Found:
    return effect, Finding(path, message, Exit.DAMAGED)


def _odd(path: bytes | None, message: str) -> _Found:
    return Effect.NONE, Finding(path, message, None)


def _indexes(contents: Contents) -> Iterator[_Found]:
    """Hold indexes against the files, and where there is none the names of the files against each other."""
    paths = set(contents.files)
    spoken_for: set[bytes] = set()
    for path in structure.counting_indexes(contents.files):
        if path in contents.unusable:
            continue
        file, folder = contents.files[path], posixpath.dirname(path)
        read = path == INDEXES.get(contents.format or "")
        # Of *.bin files vLLM reads no index, so that it misses none.
        misled = Effect.MISLEADS if contents.format == "bin" and not folder else Effect.NONE
        try:
            index = structure.parse_index(file, contents.read(path))
            shards = {posixpath.join(folder, shard.encode()) for shard in index["weight_map"].values()}
            spoken_for |= structure.covered(path, index, paths)
            structure.require_shards(file, index, paths)
        except FaststartError as error:
            yield _damaged(Effect.STOPS if read else misled, path, f"{error.message}; {_FITTING}")
            continue
        try:
            structure.require_agreement(file, index, paths)
        except FaststartError as error:
            yield _damaged(Effect.MISLEADS if read else misled, path, f"{error.message}; {_FITTING}")
        if read and not any(shard.endswith(SUFFIX) for shard in shards):
            yield _damaged(Effect.STOPS, path, "names no safetensors file, so that vLLM opens none; fetch it again")
        elif (tensors := contents.tensors_of(shards)) is not None:
            where = {name: posixpath.join(folder, shard.encode()) for name, shard in index["weight_map"].items()}
            effect = Effect.MISLEADS if read else Effect.NONE
            yield from _indexed_tensors(contents, path, where, effect)
            yield from _total_size(path, index.get("metadata"), sum(one.tensor_bytes for one in tensors))
    yield from _parts(contents, paths - spoken_for)
    missing = INDEXES.get(contents.format or "", b"")
    if contents.taken and missing and missing not in paths and len(contents.taken[1]) > 1:
        yield from _without_index(contents, contents.taken[1], missing)


def _indexed_tensors(contents: Contents, path: bytes, where: dict[str, bytes], effect: Effect) -> Iterator[_Found]:
    there = {name for shard in set(where.values()) for name in contents.tensors[shard].names}
    lost = [name for name in where if name not in there]
    moved = [name for name, shard in where.items() if name in there and name not in contents.tensors[shard].names]
    if lost:
        message = f"names {len(lost)} of {len(where)} tensors that are in none of its files ({_some(lost)})"
        yield _damaged(effect, path, f"{message}: {_REMEDY}")
    elif moved:
        # vLLM opens the files that an index names, and takes what each holds.
        message = f"names {len(moved)} of {len(where)} tensors in another file than they are in ({_some(moved)})"
        yield _odd(path, f"{message}: vLLM loads them all the same, other programs may not")
    yield from _twice_indexed(contents, path, where, effect)


def _twice_indexed(contents: Contents, path: bytes, where: dict[str, bytes], effect: Effect) -> Iterator[_Found]:
    """Judge tensors that are in two files of an index by what vLLM loads.

    It reads the files that the index names in the order of their names, numbers as numbers, and takes all that each
    holds, whatever the index says of it: the last one stays (model_loader/weight_utils.py: _natural_sort_key,
    safetensors_weights_iterator), and one of another shape stops it (default_weight_loader).
    """
    files = sorted(set(where.values()), key=_loaded)
    holders: dict[str, list[bytes]] = {name: [] for name in _twice(contents, files)}
    for file in files:
        for name in holders.keys() & contents.tensors[file].names:
            holders[name].append(file)
    wrong = [name for name, held in holders.items() if not _loads_right(contents, name, held, where.get(name))]
    message = "names files of which two hold the same tensors"
    if wrong:
        message = f"{message} ({_some(wrong)}), and vLLM loads another than the index names, or cannot: {_REMEDY}"
        yield _damaged(effect, path, message)
    elif holders:
        yield _odd(path, f"{message} ({_some(sorted(holders))}): vLLM loads the one that the index names, or its like")


def _loads_right(contents: Contents, name: str, held: list[bytes], named: bytes | None) -> bool:
    """Say whether vLLM ends with the tensor that an index names, of those that some files hold, in loading order."""
    placed = [contents.placed(path, name) for path in held]
    last = placed[-1]
    if any(shape != last[1] for _, shape, _, _ in placed):
        return False
    if named not in held or named == held[-1]:
        return True
    own = placed[held.index(named)]
    size = own[3] - own[2]
    return own[0] == last[0] and all(
        contents.part(named, min(_BLOCK, size - at), own[2] + at)
        == contents.part(held[-1], min(_BLOCK, size - at), last[2] + at)
        for at in range(0, size, _BLOCK)
    )


def _loaded(path: bytes) -> list[str | int]:
    """Return by what vLLM sorts weight files (model_loader/weight_utils.py: _natural_sort_key)."""
    parts = re.split(r"([0-9]+)", os.fsdecode(posixpath.basename(path)))
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


def _total_size(path: bytes, metadata: object, total: int) -> Iterator[_Found]:
    told = metadata.get("total_size") if isinstance(metadata, dict) else None
    if told is not None and told != total:
        message = f"has a total_size of {told!r:.40}, the tensors have {total} bytes: it is stale, or counts otherwise"
        yield _odd(path, message)


def _parts(contents: Contents, paths: set[bytes]) -> Iterator[_Found]:
    """Find weights that are, by their names, parts of a whole of which others are missing, where no index speaks."""
    for parts, lost in structure.lacking(paths):
        effect = Effect.STOPS if contents.format == "gguf" else Effect.MISLEADS
        message = f"{lost}; without an index vLLM may serve with random layers: fetch what is missing"
        if not contents.used.isdisjoint(parts.paths.values()):
            yield _damaged(effect, parts.first, message)


def _without_index(contents: Contents, paths: Collection[bytes], index: bytes) -> Iterator[_Found]:
    message = f"holds {len(paths)} safetensors files and no {index.decode()}: vLLM opens all of them, and cannot tell"
    yield _odd(None, f"{message} whether one is missing")
    if twice := _twice(contents, paths):
        message = f"holds tensors that are in two files ({_some(twice)}), and no index: vLLM loads both, and keeps one"
        yield _odd(None, message)


def _twice(contents: Contents, paths: Collection[bytes]) -> list[str]:
    """Return the tensors that are in more than one of some files."""
    counts = Counter(name for path in paths if path in contents.tensors for name in contents.tensors[path].names)
    return sorted(name for name, count in counts.items() if count > 1)


def _presence(contents: Contents, tokenizer: bool) -> Iterator[_Found]:
    """Find out whether there are weights and a tokenizer at all."""
    if contents.format == "gguf":
        message = "holds no weights but GGUF: vLLM does not take the folder, only the path of one such file"
        yield Effect.STOPS, Finding(None, message, None)
        return
    if contents.taken is None and not contents.consolidated:
        message = "holds no weights that vLLM opens: at the top there is none of *.safetensors, *.bin, *.pt, *.gguf"
        yield Effect.STOPS, Finding(None, message, Exit.NO_MODEL)
    if not any(map(is_tokenizer, contents.files)):
        message = f"holds no tokenizer: at the top there is none of {', '.join(TOKENIZERS)}"
        if tokenizer:
            served = "or, if it is served without one, say so: --tokenizer none (models.<model>.tokenizer: none)"
            yield _damaged(Effect.STOPS, None, f"{message}; fetch it from the same place, {served}")
        else:
            yield _odd(None, f"{message}: vLLM serves it with --skip-tokenizer-init only")


def _mistral(contents: Contents) -> Iterator[_Found]:
    """Hold that consolidated*.safetensors, where there are any, are what vLLM shall load."""
    message = "makes vLLM 0.12 and newer take Mistral's format"
    remedy = "remove it, or leave it out with --files"
    if contents.consolidated and contents.taken is None:
        message = f"{message}, whose weights it then looks for at the top, where there are none: {remedy}"
        yield _damaged(Effect.STOPS, contents.consolidated[0], message)
    if contents.consolidated and contents.taken and contents.unflipped and contents.unflipped[0] == "safetensors":
        other = contents.unflipped[1]
        sets = contents.tensors_of(contents.taken[1]), contents.tensors_of(other)
        held, wanted = (sum(one.elements for one in tensors or ()) for tensors in sets)
        # Twice: two numbers of four bits may count as one.
        if None not in sets and 2 * held < wanted:
            message = (
                f"{message}, and is not whole: it has {held} numbers, {display.show(other[0])} and its like {wanted}"
            )
            yield _damaged(Effect.STOPS, contents.taken[1][0], f"{message}: {remedy}")


def _configuration(contents: Contents) -> Iterator[_Found]:
    path = contents.configuration
    if contents.format == "gguf" or path in contents.unusable:
        return
    if path not in contents.files:
        message = "is missing: vLLM takes no folder without it; for Mistral's format params.json will do"
        if b"adapter_config.json" in contents.files:
            message = "is missing: this is an adapter, which vLLM takes only with its base model (--lora-modules)"
        yield Effect.STOPS, Finding(path, message, Exit.NO_MODEL)
        return
    if faults := list(_faults(contents, path)):
        yield _damaged(Effect.STOPS, path, f"{faults[0]}; {AGAIN}")
        return
    found = contents.json_object(path) or {}
    if path == CONFIG and not (found.get("model_type") or found.get("architectures")):
        message = "names neither model_type nor architectures: another config.json was written over it; fetch it again"
        yield _damaged(Effect.STOPS, path, message)


def _faults(contents: Contents, path: bytes) -> Iterator[str]:
    try:
        data = contents.read(path)
    except FaststartError as error:
        if error.code != Exit.DAMAGED:
            raise
        yield error.message
    else:
        yield from configuration.faults(path, data)


def _quantization(contents: Contents, config: dict[str, Any], weights: Weights | None) -> Iterator[_Found]:
    match config:
        case {"quantization_config": {"quant_method": str(method)}} if method in _PACKED and weights and weights.dtypes:
            if _PLAIN.issuperset(weights.dtypes):
                message = f"says that the weights are quantized, {method}, and all are {', '.join(weights.dtypes)}"
                yield Effect.MISLEADS, Finding(CONFIG, f"{message}: one of the two is of another model", None)
    if not weights or _tells_quantization(contents):
        return
    for path in weights.files:
        tensors = contents.tensors.get(path)
        few = tensors.dtypes & (_BYTES | _FEW_BITS) if tensors else frozenset[str]()
        if tensors and few:
            pattern = _QUANTIZED if _FEW_BITS.isdisjoint(few) else _SCALED
            if named := sorted(filter(pattern.fullmatch, tensors.names)):
                message = f"holds quantized tensors ({_some(named)}, {', '.join(sorted(few))})"
                place = contents.configuration.decode()
                message = f"{message}, and neither {place} nor a file beside it tells how: vLLM takes them for plain"
                yield _damaged(Effect.STOPS, path, f"{message}; fetch the configuration of these weights")
                return


def _tells_quantization(contents: Contents) -> bool:
    """Say whether anything tells how the weights are quantized.

    vLLM looks in config.json, in text_config in it, and in files beside it (model_loader/weight_utils.py:
    get_quant_config; transformers_utils/config.py: hf_quant_config.json), in params.json for Mistral's format.
    """
    if any(b"/" not in path and b"quant" in path and path.endswith(b".json") for path in contents.files):
        return True
    waiting: list[object] = [contents.json_object(CONFIG), contents.json_object(PARAMS)]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            if any(value and ("quant" in key or key == "compression_config") for key, value in found.items()):
                return True
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found
    return False


def _oddities(contents: Contents, config: dict[str, Any], architecture: str | None) -> Iterator[_Found]:
    """Find what a person should know, and nothing is refused for."""
    files = contents.files
    if config and not {b"generation_config.json", b"modules.json"} & files.keys():
        message = "is missing: vLLM 0.8 and newer takes defaults for sampling from it, and now uses its own"
        yield _odd(b"generation_config.json", message)
    if config.get("auto_map"):
        message = (
            "has auto_map, code of its own: if vLLM does not know the model, it needs --trust-remote-code to run it"
        )
        yield _odd(CONFIG, message)
    if (architecture or "").startswith(("GptOss", "gpt_oss")) and _GPT_OSS_VOCABULARY not in files:
        message = "is missing: vLLM downloads it at its start, and offline does not start; add it, and set"
        yield _odd(_GPT_OSS_VOCABULARY, f"{message} TIKTOKEN_ENCODINGS_BASE to the folder that holds it")
    idle = sorted(path for path in files if names.is_weight(path) and path not in contents.used)
    if contents.taken and idle:
        total = _size(sum(files[path].size for path in idle))
        shown = ", ".join(map(display.show, idle[:3])) + (", ..." if len(idle) > 3 else "")
        message = f"holds weights that vLLM does not open beside the {contents.format} set, {total} in {len(idle)}"
        yield _odd(None, f"{message} files: {shown}")


def _weights(contents: Contents) -> Weights | None:
    if not contents.taken:
        return None
    kind, files = contents.taken
    tensors = contents.tensors_of(files)
    if tensors is None:
        return Weights(kind, files, None, (), None)
    dtypes = sorted({show(dtype) for one in tensors for dtype in one.dtypes})
    total = sum(one.tensor_bytes for one in tensors)
    return Weights(kind, files, total, tuple(dtypes), sum(len(one.names) for one in tensors))


def _architecture(config: dict[str, Any]) -> str | None:
    match config:
        case {"architectures": [str(name), *_]} | {"model_type": str(name)}:
            return show(name)
        case _:
            return None


def _licence(start: bytes) -> str | None:
    """Return the licence that the YAML between the first two lines `---` of a model card names, if it names one."""
    lines = start.decode("utf-8", "replace").lstrip("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return None
    for line in itertools.takewhile(lambda line: line.rstrip() != "---", lines[1:]):
        if found := _LICENCE.fullmatch(line[:_LINE]):
            return show(found[1].strip("\"'")) or None
    return None


def _summary(found: Collection[_Found], contents: Contents, weights: Weights | None, architecture: str | None) -> str:
    for effect, words in (
        (Effect.STOPS, "vLLM would not start"),
        (Effect.MISLEADS, "vLLM may start and answer wrongly"),
        (Effect.NONE, "damaged, in what was asked for and vLLM does not open"),
    ):
        because = [
            finding for one, finding in found if one == effect and (finding.code is not None or one != Effect.NONE)
        ]
        if because:
            about = display.show(because[0].file) if because[0].file is not None else "the folder"
            more = f" (and {len(because) - 1} more)" if len(because) > 1 else ""
            return f"{words}: {about} {because[0].message}{more}"
    assert weights is not None
    number = len(weights.files)
    kind = "safetensors file" if weights.format == "mistral" else f"{weights.format} file"
    where = " of Mistral's format" if weights.format == "mistral" else ""
    size = _size(weights.tensor_bytes or sum(contents.files[path].size for path in weights.files))
    dtypes = "+".join(weights.dtypes[:_SHOWN]) + ("+..." if len(weights.dtypes) > _SHOWN else "")
    parts = [f"{number} {kind}{'s' if number > 1 else ''}{where}", f"{size} {dtypes}".strip()]
    return f"vLLM would load {', '.join([*parts, *filter(None, [architecture])])}"


def _some(tensors: list[str]) -> str:
    return ", ".join(map(show, tensors[:2])) + (", ..." if len(tensors) > 2 else "")


def _size(number: int) -> str:
    if number < 1000:
        return f"{number} bytes"
    power = min(3, (len(str(number)) - 1) // 3)
    return f"{number / 1000**power:.1f} {('kB', 'MB', 'GB')[power - 1]}"
