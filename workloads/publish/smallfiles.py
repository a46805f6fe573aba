"""Small files that the server reads at its start: each must parse as the library that reads it parses it.

Who reads what is from vLLM 0.32 (transformers_utils/config.py, processor.py and repo_utils.py: get_hf_file_to_dict;
model_executor/models/adapters.py) and transformers 5.19 (configuration_utils.py, tokenization_utils_base.py,
dynamic_module_utils.py). All of them open text as UTF-8, so that a byte order mark is content: `json` refuses it.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from modelfolder import names
from modelfolder.safetensors import show
from podkit import display
from podkit.errors import Exit
from publish.configuration import parse
from publish.contents import AGAIN, CONFIG, MAX_JSON, TOKENIZER, Contents, Effect, Finding, is_tokenizer

Found = tuple[Effect, Finding]

_MODULES = b"modules.json"
_TOKENIZER_CONFIG = b"tokenizer_config.json"
_GENERATION = b"generation_config.json"
_VOCABULARY, _MERGES = b"vocab.json", b"merges.txt"

_OBJECTS = {
    TOKENIZER, _TOKENIZER_CONFIG, _GENERATION, _VOCABULARY, b"tekken.json", b"special_tokens_map.json",
    b"added_tokens.json", b"chat_template.json", b"preprocessor_config.json", b"processor_config.json",
    b"video_preprocessor_config.json", b"hf_quant_config.json", b"joint_head_config.json",
    b"config_sentence_transformers.json",
}  # fmt: skip
_SENTENCE = re.compile(rb"sentence_[\w-]+_config\.json")
_IGNORED_IF_BROKEN = {
    _GENERATION,
    b"special_tokens_map.json",
    b"added_tokens.json",
    b"config_sentence_transformers.json",
}
"""vLLM starts without these, or reads them only for some tokenizers; with others' defaults it answers otherwise."""

_TEMPLATE = re.compile(rb"chat_template\.jinja|additional_chat_templates/[^/]+\.jinja", re.DOTALL)
_CODE_NAMERS = (
    CONFIG,
    _TOKENIZER_CONFIG,
    b"preprocessor_config.json",
    b"processor_config.json",
    b"video_preprocessor_config.json",
)
_IMPORT = re.compile(r"^[ \t]*(?:import[ \t]+\.(\w+)[ \t]*$|from[ \t]+\.(\w+)[ \t]+import)", re.MULTILINE)
_MAX_CODE = 4_000_000  # bytes; a module has some thousand lines

_ELSEWHERE = re.compile(r"(/|\.\.?/|~|[A-Za-z]:\\)")


def look_at_small_files(contents: Contents) -> Iterator[Found]:
    """Find small files that do not parse, and those that others name and that are not there.

    Raises:
        FaststartError: 7, 8 or 9 naming the file; 143, SIGTERM.
    """
    parsed: dict[bytes, Any] = {}
    for path in contents.files:
        if path in contents.unusable or path == contents.configuration or contents.files[path].size > MAX_JSON:
            continue
        if path in _OBJECTS or path == _MODULES or _SENTENCE.fullmatch(path):
            yield from _json(contents, path, parsed)
        elif _TEMPLATE.fullmatch(path):
            text, complaint = _text(contents, path)
            complaint = complaint or _template_fault(text)
            if complaint:
                yield _damaged(Effect.MISLEADS, path, f"{complaint}; {AGAIN}")
        elif b"/" not in path and (path == _MERGES or is_tokenizer(path)):
            yield from _tokenizer(contents, path)
    parsed[CONFIG] = contents.json_object(CONFIG)
    yield from _templates_inside(parsed)
    yield from _sentence_parts(contents, parsed.get(_MODULES))
    yield from _code(contents, parsed)
    if (
        _VOCABULARY in contents.files
        and _MERGES not in contents.files
        and [path for path in contents.files if is_tokenizer(path)] == [_VOCABULARY]
    ):
        message = "is missing: vocab.json alone makes no tokenizer, and there is no tokenizer.json"
        yield _damaged(Effect.STOPS, _MERGES, f"{message}; fetch it from the same place")
    yield from _bases(contents, parsed[CONFIG])


def _json(contents: Contents, path: bytes, parsed: dict[bytes, Any]) -> Iterator[Found]:
    effect = Effect.MISLEADS if path in _IGNORED_IF_BROKEN else Effect.STOPS
    content, rust = contents.read(path), path == TOKENIZER
    try:
        document = parse(content, numbers=not rust, halves=not rust)
    except ValueError as error:
        yield _damaged(effect, path, f"is cut or no JSON: {error}; {AGAIN}")
        return
    kinds = (list, dict) if path == _MODULES else dict
    if isinstance(document, kinds):
        parsed[path] = document
    else:
        yield _damaged(effect, path, f"is no JSON {'list' if path == _MODULES else 'object'}; {AGAIN}")


def _text(contents: Contents, path: bytes) -> tuple[str, str | None]:
    """Return a text, and what is wrong with it: it is opened as UTF-8, and a byte order mark is content."""
    content = contents.read(path)
    if content.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return "", "begins with a byte order mark, which the library that reads it takes for content"
    if not content.strip():
        return "", "is empty"
    if b"\0" in content:
        return "", f"holds zeros at byte {content.index(0)}, where text should be"
    try:
        return content.decode(), None
    except UnicodeDecodeError as error:
        return "", f"is no UTF-8 at byte {error.start}"


def _template_fault(text: str) -> str | None:
    """Return what keeps jinja from compiling a chat template (transformers: utils/chat_template_utils.py).

    Without jinja2, which the image of vLLM brings, templates are not looked into.
    """
    try:
        import jinja2
        import jinja2.ext
        import jinja2.nodes
        import jinja2.parser
    except ImportError:
        return None

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = jinja2.Environment(  # noqa: S701 it is parsed and never rendered
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    if not text.strip():
        return "is an empty chat template"
    try:
        environment.parse(text)
    except jinja2.TemplateSyntaxError as error:
        return f"is no chat template: {show(f'{error.message:.200}')} in line {error.lineno}"
    except (RecursionError, MemoryError):
        return "is no chat template: it is nested too deeply"
    return None


def _templates_inside(parsed: dict[bytes, Any]) -> Iterator[Found]:
    """Look into the chat templates that JSON files hold."""
    for path in (_TOKENIZER_CONFIG, b"chat_template.json", b"processor_config.json"):
        match parsed.get(path):
            case {"chat_template": str(text)}:
                texts = [text]
            case {"chat_template": list(named)}:
                texts = [
                    one["template"] for one in named if isinstance(one, dict) and isinstance(one.get("template"), str)
                ]
            case {"chat_template": dict(named)}:
                texts = [one for one in named.values() if isinstance(one, str)]
            case _:
                continue
        for text in texts:
            if text and (complaint := _template_fault(text)):
                yield _damaged(Effect.MISLEADS, path, f"holds a chat_template that {complaint}; {AGAIN}")
                break


def _tokenizer(contents: Contents, path: bytes) -> Iterator[Found]:
    """Look into a tokenizer that is no JSON: a SentencePiece model, tiktoken's ranks, a list of merges or of words."""
    content, complaint = contents.read(path), None
    if not content.strip(b"\0"):
        complaint = "is empty" if not content else "holds nothing but zeros"
    elif path.endswith((b".txt", b".py")):
        complaint = _text(contents, path)[1]
    elif TOKENIZER not in contents.files:
        complaint = _pieces_fault(content) if content.startswith(b"\n") else _ranks_fault(content)
    if complaint:
        yield _damaged(Effect.STOPS, path, f"{complaint}; {AGAIN}")


def _pieces_fault(content: bytes) -> str | None:
    """Return what is wrong with the fields of a SentencePiece model, a protocol buffer (sentencepiece_model.proto)."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = content[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value, at

    at = 0
    try:
        while at < len(content):
            key, at = varint(at)
            match key & 7:
                case 0:
                    _, at = varint(at)
                case 1:
                    at += 8
                case 2:
                    length, at = varint(at)
                    at += length
                case 5:
                    at += 4
                case _:
                    return f"is no SentencePiece model: there is no field at byte {at}"
    except IndexError:
        at = len(content) + 1
    return "is a SentencePiece model that is cut" if at > len(content) else None


def _ranks_fault(content: bytes) -> str | None:
    """Return what is wrong with the first and the last rank (tiktoken: load.py): `<base64> <number>` in each line."""
    lines = [line for line in content.splitlines() if line]
    for line in (lines[0], lines[-1]) if lines else ():
        try:
            token, rank = line.split()
            base64.b64decode(token, validate=True)
            int(rank)
        except (ValueError, binascii.Error):
            return "is neither a SentencePiece model nor a list of tiktoken's ranks, or cut"
    return None


def _sentence_parts(contents: Contents, modules: object) -> Iterator[Found]:
    """Hold that the parts of a sentence-transformers model are there.

    vLLM takes its own defaults where the configuration of one is missing (get_pooling_config), and leaves a dense layer
    out whose weights are (adapters.py). Normalize has no files.
    """
    if isinstance(modules, dict):
        modules = modules.get("modules", [])
    for module in modules if isinstance(modules, list) else ():
        match module:
            case {"type": str(kind), "path": str(folder)}:
                kind, where = kind.rpartition(".")[2], folder.encode("utf-8", "surrogatepass").strip(b"/")
            case {"type": str(), **rest} if "path" not in rest:
                continue
            case _:
                yield _damaged(Effect.STOPS, _MODULES, f"has a part without a type and a path; {AGAIN}")
                return
        if not where or kind == "Normalize":
            continue
        config = posixpath.join(where, b"config.json")
        inside = {path for path in contents.files if path.startswith(where + b"/")}
        if not inside or (kind in ("Pooling", "Dense") and config not in inside):
            missing = config if inside or kind in ("Pooling", "Dense") else where
            message = (
                f"names the part {display.show(where)} ({show(kind)}), of which {display.show(missing)} is not there"
            )
            yield _damaged(Effect.MISLEADS, _MODULES, f"{message}: fetch it from the same place")
            continue
        if config in inside and contents.files[config].size <= MAX_JSON:
            try:
                fault = None if isinstance(parse(contents.read(config), halves=True), dict) else "it is no object"
            except ValueError as error:
                fault = str(error)
            if fault:
                yield _damaged(Effect.STOPS, config, f"is cut or no JSON: {fault}; {AGAIN}")
        if kind == "Dense" and not any(map(names.is_weight, inside)):
            message = f"names the part {display.show(where)}, whose weights (model.safetensors) are not there"
            yield _damaged(Effect.MISLEADS, _MODULES, f"{message}: fetch them from the same place")


def _code(contents: Contents, parsed: dict[bytes, Any]) -> Iterator[Found]:
    """Hold that the modules are there that an auto_map names, and those that they import from beside them."""
    seen: set[str] = set()
    for namer in _CODE_NAMERS:
        document = parsed.get(namer)
        named = document.get("auto_map") if isinstance(document, dict) else None
        # The tokenizer's may be a list, of the slow and the fast one.
        values = list(named.values()) if isinstance(named, dict) else [named]
        for value in [one for each in values for one in (each if isinstance(each, list) else [each])]:
            if not isinstance(value, str) or "." not in value:
                continue
            place, _, reference = value.rpartition("--")
            if place:
                if value not in seen:
                    yield _note(namer, f"takes code from another repository, {show(place)}, which is not copied")
                seen.add(value)
                continue
            yield from _module(contents, namer, reference.rpartition(".")[0], seen)


def _module(contents: Contents, namer: bytes, name: str, seen: set[str]) -> Iterator[Found]:
    if name in seen:
        return
    seen.add(name)
    path = name.encode("utf-8", "surrogatepass") + b".py"
    if path not in contents.files:
        message = f"names code that is not there: {display.show(path)}: with --trust-remote-code vLLM does not start"
        yield _damaged(Effect.STOPS, namer, f"{message}; fetch it from the same place")
        return
    if contents.files[path].size > _MAX_CODE or path in contents.unusable:
        return
    text, complaint = _text(contents, path)
    if complaint:
        yield _damaged(Effect.STOPS, path, f"{complaint}; {AGAIN}")
        return
    for one, other in _IMPORT.findall(text):
        yield from _module(contents, path, posixpath.join(posixpath.dirname(name), one or other), seen)


def _bases(contents: Contents, config: dict[str, Any] | None) -> Iterator[Found]:
    """Note what other models a folder speaks of; vLLM reads none of them by itself."""
    match config:
        case {"_name_or_path": str(where)} if _ELSEWHERE.match(where):
            yield _note(CONFIG, f"was written where the model was at {show(where):.200}: nothing is read from there")
    match contents.json_object(b"adapter_config.json"):
        case {"base_model_name_or_path": str(base)} if base:
            yield _note(b"adapter_config.json", f"is of an adapter to {show(base):.200}, which is not copied with it")


def _damaged(effect: Effect, path: bytes, message: str) -> Found:
    return effect, Finding(path, message, Exit.DAMAGED)


def _note(path: bytes, message: str) -> Found:
    return Effect.NONE, Finding(path, message, None)
