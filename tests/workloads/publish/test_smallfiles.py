"""Small files that the server reads at its start: what does not parse is refused, and so is what is not there."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podkit.errors import Exit
from publish.smallfiles import parse
from publish.verdict import Verdict
from tests.workloads.publish.test_verdict import MODEL, as_json, config, judged

pytestmark = pytest.mark.inputs

JSON = [
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "tekken.json", "chat_template.json", "preprocessor_config.json",
    "processor_config.json", "video_preprocessor_config.json", "modules.json", "sentence_bert_config.json",
    "hf_quant_config.json",
]  # fmt: skip

GOOD = as_json({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "Größe": "é"})

BROKEN = {
    "UTF-8 with a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "UTF-16": GOOD.decode().encode("utf-16"),
    "UTF-16 without a byte order mark": GOOD.decode().encode("utf-16-le"),
    "UTF-32": GOOD.decode().encode("utf-32"),
    "Latin-1": json.dumps({"model_type": "Größe"}, ensure_ascii=False).encode("latin-1"),
    "empty": b"",
    "blank": b" \n\n",
    "cut": GOOD[:-1],
    "cut in a text": GOOD[:20],
    "zeros": bytes(400),
    "zeros at the end": GOOD + bytes(100),
    "zeros where the middle was": GOOD[:20] + bytes(20) + GOOD[40:],
    "twice": GOOD * 2,
    "an error page": b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>",
    "a comment": b"// mine\n" + GOOD,
    "a comma too much": GOOD[:-1] + b",}",
    "single quotes": b"{'model_type': 'llama'}",
    "a text": b'"llama"',
    "nothing": b"null",
    "a number": b"17",
}


def refused(verdict: Verdict) -> dict[str, str]:
    return {(finding.file or b"").decode(): finding.message for finding in verdict.findings if finding.code is not None}


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("how", BROKEN)
def test_json_that_the_server_reads_and_cannot_parse_is_refused(tmp_path, name, how):
    verdict = judged(tmp_path, {**MODEL, name: BROKEN[how]})
    assert name in refused(verdict)
    assert {finding.code for finding in verdict.findings} <= {None, Exit.DAMAGED}
    assert not verdict.summary.startswith("vLLM would load")


@pytest.mark.parametrize("name", JSON)
def test_json_with_what_python_takes_is_not_refused(tmp_path, name):
    content = b'[{"type": "x.Normalize", "path": "2"}]' if name == "modules.json" else b" \r\n" + GOOD + b"\n\t \n"
    assert refused(judged(tmp_path, {**MODEL, name: content})) == {}


def test_a_number_that_json_does_not_know_passes_in_python_and_not_in_rust(tmp_path):
    more = {"config.json": GOOD[:-1] + b', "x": Infinity}', "generation_config.json": b'{"x": NaN}'}
    assert refused(judged(tmp_path, {**MODEL, **more})) == {}
    assert "tokenizer.json" in refused(judged(tmp_path, {**MODEL, "tokenizer.json": b'{"x": NaN}'}))


def test_half_of_a_character_passes_in_python_and_not_in_rust(tmp_path):
    half, whole = b'{"x": "\\ud83d"}', b'{"x": "\\ud83d\\ude00"}'
    assert refused(judged(tmp_path, {**MODEL, "tokenizer_config.json": half, "tokenizer.json": whole})) == {}
    assert "half of a character" in refused(judged(tmp_path, {**MODEL, "tokenizer.json": half}))["tokenizer.json"]


@pytest.mark.parametrize(
    "name", ["trainer_state.json", "all_results.json", "eval/config.json", "notes.txt", "a.py", "x.jinja"]
)
@pytest.mark.parametrize("content", [b"", b"{", bytes(9), b"\xef\xbb\xbf{}"])
def test_what_no_server_reads_may_hold_anything(tmp_path, name, content):
    assert refused(judged(tmp_path, {**MODEL, name: content})) == {}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_what_json_writes_is_parsed_and_with_a_byte_order_mark_it_is_not(document):
    text = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        text.decode()
    except UnicodeDecodeError:
        text = json.dumps(document).encode()
    assert parse(text) == document
    with pytest.raises(ValueError, match="byte order mark"):
        parse(b"\xef\xbb\xbf" + text)


@given(st.binary(max_size=60))
@settings(max_examples=300)
def test_no_bytes_break_the_parser(content):
    try:
        parse(content)
    except ValueError as error:
        assert str(error).isprintable()  # noqa: PT017


def test_an_index_with_a_byte_order_mark_or_of_another_encoding_is_refused(tmp_path):
    index = "model.safetensors.index.json"
    content = MODEL[index]
    assert content
    for wrong in (b"\xef\xbb\xbf" + content, content.decode().encode("utf-16"), b"", bytes(99), content[:-2]):
        assert index in refused(judged(tmp_path, {**MODEL, index: wrong}))


TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}{% if loop.last %}{% break %}{% endif %}"
    "{% generation %}x{% endgeneration %}{% endfor %}"
)

TEMPLATES = {
    "cut in a tag": TEMPLATE[:40],
    "cut in a block": TEMPLATE[:45],
    "an end too much": TEMPLATE + "{% endif %}",
    "a tag that there is not": "{% frobnicate %}",
    "a bracket that is open": "{{ messages[0 }}",
    "a text that is open": "{{ 'x }}",
    "empty": "",
    "blank": "  \n",
    "zeros": "\0" * 40,
    "a comment that is open": "{# x",
    "byte order mark": "\ufeff" + TEMPLATE,
}


@pytest.mark.parametrize("name", ["chat_template.jinja", "additional_chat_templates/tools.jinja"])
@pytest.mark.parametrize("how", TEMPLATES)
def test_a_chat_template_that_jinja_does_not_compile_is_refused(tmp_path, name, how):
    assert refused(judged(tmp_path, {**MODEL, name: TEMPLATE.encode()})) == {}
    verdict = judged(tmp_path, {**MODEL, name: TEMPLATES[how].encode()})
    assert name in refused(verdict)
    assert verdict.summary.startswith("vLLM may start and answer wrongly")


@pytest.mark.parametrize(
    "how",
    ["cut in a tag", "a bracket that is open", "an end too much", "a comment that is open", "a text that is open"],
)
def test_a_chat_template_inside_json_is_held_to_the_same(tmp_path, how):
    wrong = TEMPLATES[how]
    for name, document in {
        "tokenizer_config.json": {"chat_template": wrong},
        "chat_template.json": {"chat_template": wrong},
        "processor_config.json": {"chat_template": {"default": wrong}},
    }.items():
        assert name in refused(judged(tmp_path / name, {**MODEL, name: as_json(document)}))
    named = {"chat_template": [{"name": "default", "template": TEMPLATE}, {"name": "tools", "template": wrong}]}
    assert refused(judged(tmp_path / "named", {**MODEL, "tokenizer_config.json": as_json(named)}))


def pieces(*words: bytes) -> bytes:
    """Return a SentencePiece model of some words: field 1, with field 1 the word and field 2 a float."""
    parts = [b"\n" + bytes([len(word)]) + word + b"\x15\0\0\x80\xbf" for word in words]
    return b"".join(b"\n" + bytes([len(part)]) + part for part in parts) + b"\x12\x02\x18\x01"


RANKS = b"IQ== 0\nIg== 1\nIw== 2\n"

TOKENIZERS = {
    "SentencePiece cut": ("tokenizer.model", pieces(b"a", b"bc")[:-1]),
    "SentencePiece cut in a word": ("spiece.model", pieces(b"a", b"bc")[:15]),
    "zeros": ("tokenizer.model", bytes(5000)),
    "an error page": ("tokenizer.model", b"<html>not found</html>"),
    "ranks cut": ("qwen.tiktoken", RANKS[:-4]),
    "ranks of zeros": ("qwen.tiktoken", bytes(70)),
    "ranks that are JSON": ("tiktoken.model", b'{"error": "gone"}'),
    "words with zeros": ("vocab.txt", b"[PAD]\n[UNK]\n" + bytes(50)),
    "words with a byte order mark": ("vocab.txt", b"\xef\xbb\xbf[PAD]\n[UNK]\n"),
}


@pytest.mark.parametrize("how", TOKENIZERS)
def test_a_tokenizer_that_is_no_json_is_held_to_its_own_format(tmp_path, how):
    name, content = TOKENIZERS[how]
    assert name in refused(judged(tmp_path, {**MODEL, "tokenizer.json": None, name: content}))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.model", pieces(b"a", "▁b".encode())),
        ("tokenizer.model", RANKS),
        ("tokenizer.model.v3", pieces(b"x" * 100)),
        ("x.tiktoken", RANKS[:-1]),
        ("vocab.txt", "[PAD]\n中\n".encode()),
    ],
)
def test_a_good_tokenizer_of_any_format_passes(tmp_path, name, content):
    assert refused(judged(tmp_path, {**MODEL, "tokenizer.json": None, name: content})) == {}


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=5), st.data())
def test_a_sentencepiece_model_that_is_cut_inside_a_field_is_found(words, data):
    from publish.smallfiles import _pieces_fault

    whole = pieces(*words)
    assert _pieces_fault(whole) is None
    first = 2 + whole[1]
    assert _pieces_fault(whole[: data.draw(st.integers(1, first - 1))]) is not None


def test_a_tokenizer_model_that_is_not_read_beside_tokenizer_json_may_be_of_any_format(tmp_path):
    assert refused(judged(tmp_path, {**MODEL, "tokenizer.model": b"of our own"})) == {}
    assert "tokenizer.model" in refused(judged(tmp_path, {**MODEL, "tokenizer.model": bytes(10)}))


def test_a_vocabulary_needs_its_merges_where_there_is_no_tokenizer_json(tmp_path):
    pair = {**MODEL, "tokenizer.json": None, "vocab.json": b'{"a": 0}', "merges.txt": b"#version: 0.2\na b\n"}
    assert refused(judged(tmp_path / "a", pair)) == {}
    assert "merges.txt" in refused(judged(tmp_path / "b", {**pair, "merges.txt": None}))
    assert refused(judged(tmp_path / "c", {**MODEL, "vocab.json": b'{"a": 0}'})) == {}
    assert refused(judged(tmp_path / "d", {**pair, "merges.txt": None, "source.model": pieces(b"a")})) == {}
    for wrong in (bytes(30), b"\xef\xbb\xbf#version: 0.2\n", b"", b"a b\n\xff\n", b" \n"):
        assert "merges.txt" in refused(judged(tmp_path / "e", {**pair, "merges.txt": wrong}))


CODE = {
    "config.json": config(auto_map={"AutoModel": "modeling_x.XModel", "AutoConfig": "configuration_x.X"})[
        "config.json"
    ],
    "modeling_x.py": b"from .configuration_x import X\nimport torch\n",
    "configuration_x.py": b"X = 1\n",
}


@pytest.mark.parametrize("lost", ["modeling_x.py", "configuration_x.py"])
def test_a_module_that_an_auto_map_names_must_be_there(tmp_path, lost):
    assert refused(judged(tmp_path / "whole", {**MODEL, **CODE})) == {}
    assert f"code that is not there: {lost}" in str(refused(judged(tmp_path / "lost", {**MODEL, **CODE, lost: None})))


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["tokenization_x.X", None]}}),
        ("tokenizer_config.json", {"auto_map": ["tokenization_x.X", None]}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, "tokenization_x_fast.X"]}}),
        ("preprocessor_config.json", {"auto_map": {"AutoImageProcessor": "image_x.X"}}),
        ("processor_config.json", {"auto_map": {"AutoProcessor": "processing_x.X"}}),
        ("video_preprocessor_config.json", {"auto_map": {"AutoVideoProcessor": "video_x.X"}}),
    ],
)
def test_a_module_that_another_file_names_must_be_there_too(tmp_path, name, document):
    assert "code that is not there" in refused(judged(tmp_path, {**MODEL, name: as_json(document)}))[name]


@pytest.mark.parametrize(
    ("lost", "line"),
    [
        ("a.py", b"from .a import b"),
        ("b.py", b"    from .b import (\n c)"),
        ("c.py", b"import .c"),
        ("d_1.py", b"\tfrom .d_1 import *"),
        ("e.py", b"try:\n  from .e import x\nexcept ImportError:\n  pass"),
    ],
)
def test_what_a_module_imports_from_beside_it_must_be_there(tmp_path, lost, line):
    files = {**MODEL, **CODE, "configuration_x.py": line + b"\n"}
    assert lost in refused(judged(tmp_path / "lost", files))["configuration_x.py"]
    assert refused(judged(tmp_path / "there", {**files, lost: b"from .configuration_x import X\n"})) == {}


@pytest.mark.parametrize("content", [b"", bytes(80), b"\xef\xbb\xbfX = 1\n", b"# \xff", "X = 1".encode("utf-16")])
def test_a_module_that_is_no_text_is_refused(tmp_path, content):
    assert "configuration_x.py" in refused(judged(tmp_path, {**MODEL, **CODE, "configuration_x.py": content}))


def test_code_of_another_repository_an_adapters_base_and_a_former_place_are_notes(tmp_path):
    changed = {
        **config(auto_map={"AutoModel": "org/name--modeling_x.X"}, _name_or_path="/data/llama"),
        "adapter_config.json": as_json({"base_model_name_or_path": "org/base"}),
    }
    verdict = judged(tmp_path, {**MODEL, **changed})
    assert refused(verdict) == {}
    said = " ".join(finding.message for finding in verdict.findings)
    assert "org/name" in said
    assert "/data/llama" in said
    assert "org/base" in said


def modules(*parts: tuple[str, str]) -> bytes:
    return as_json([{"idx": n, "name": str(n), "path": path, "type": kind} for n, (path, kind) in enumerate(parts)])


PARTS = {
    "modules.json": modules(
        ("", "sentence_transformers.models.Transformer"),
        ("1_Pooling", "sentence_transformers.models.Pooling"),
        ("2_Dense", "sentence_transformers.models.Dense"),
        ("3_Normalize", "sentence_transformers.models.Normalize"),
    ),
    "1_Pooling/config.json": b'{"pooling_mode_cls_token": true}',
    "2_Dense/config.json": b"{}",
    "2_Dense/model.safetensors": MODEL["model-00001-of-00002.safetensors"],
}


@pytest.mark.parametrize(
    ("lost", "file", "says"),
    [
        ("1_Pooling/config.json", "modules.json", "1_Pooling"),
        ("2_Dense/config.json", "modules.json", "2_Dense/config.json"),
        ("2_Dense/model.safetensors", "modules.json", "whose weights"),
    ],
)
def test_the_parts_that_modules_json_names_must_be_there(tmp_path, lost, file, says):
    assert refused(judged(tmp_path / "whole", {**MODEL, **PARTS})) == {}
    assert says in refused(judged(tmp_path / "lost", {**MODEL, **PARTS, lost: None}))[file]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", bytes(20), b"\xef\xbb\xbf{}"])
def test_the_configuration_of_a_part_must_parse(tmp_path, content):
    assert "1_Pooling/config.json" in refused(judged(tmp_path, {**MODEL, **PARTS, "1_Pooling/config.json": content}))


@pytest.mark.parametrize(
    "part",
    [
        {"idx": 1},
        "1_Pooling",
        {"path": "1_Pooling"},
        {"path": 1, "type": "x.Pooling"},
        {"path": "gone", "type": "a.b.LayerNorm"},
        None,
    ],
)
def test_a_part_without_type_or_folder_is_refused(tmp_path, part):
    # Without a path a part is at the top.
    assert "modules.json" in refused(judged(tmp_path, {**MODEL, "modules.json": as_json([part])}))
