"""A model's section: its source, and what of it is copied."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from infra import layout
from infra.settings.findings import one_of, refuse, shown
from infra.settings.sections import Section
from infra.settings.values import Flag, ModelName, Revision, SecretName, Whole

# What `models.<model>.files` may be but a list of globs.
_FILE_WORDS = ("auto", "all")


# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, and the characters that are safe in keys
# (object-keys.html there).
_S3_SOURCE = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]((/[\w!*'()@+=,.-]+)+)?/?"
_HUB_SOURCE = r"hf://([\w.-]+/)?[\w.-]+@[\w.-]+(/[\w.-]+)*"
_PATH_SOURCE = rf"path:{layout.LUSTRE}(/[\w@+=,-][\w@+=,.-]*)+"
_SOURCES = "s3://bucket/prefix, hf://org/name@revision or path:/fsx/<folder>"


def _files_as_list(value: Any) -> Any:
    """A list as it is, and one of the words as a list of it."""
    if isinstance(value, list):
        return value
    if value not in _FILE_WORDS:
        raise refuse(f"{shown(value)} is not accepted; use {one_of((*_FILE_WORDS, 'a list of globs'))}")
    return [value]


def _inside_the_folder(glob: str) -> str:
    """A glob that can match a path inside a model's folder, and that neither kubelet nor argparse takes for more."""
    if {"", ".", ".."} & set(glob.removesuffix("/").split("/")):
        raise refuse(f"{shown(glob)} is no path inside the model's folder; use one like *.safetensors or folder/")
    if glob.startswith("-"):
        raise refuse(f"{shown(glob)} would be a flag of preload; use ? for its first character")
    if "$" in glob or not glob.isprintable():
        raise refuse(f"{shown(glob)} would not reach preload as it is; use ? for $ and for control characters")
    return glob


class ModelSettings(Section):
    """A model: where it comes from, and what of it is published on the file system and copied to the nodes."""

    source: str = Field(
        description="`s3://bucket/prefix`, `hf://org/name@revision` (a commit; a branch or tag can move), or "
        "`path:/fsx/...`: a folder that is on the file system already.",
    )
    revision: Revision = Field(
        description="Which one: a label of yours. It is published once and never changed; another is another folder."
    )
    size_gib: Whole = Field(
        ge=1, description="Upper bound in GiB of what is published and copied: disk, probes and time-outs follow it."
    )
    files: Annotated[list[Annotated[str, AfterValidator(_inside_the_folder)]], BeforeValidator(_files_as_list)] = Field(
        default=["auto"],
        description="What of the folder is copied: the one set of weights that vLLM loads and what belongs to it, "
        "everything, or what globs name (in quotes, like `hf download --include`; `folder/` is all that lies in it).",
        json_schema_extra={"values": "`auto`, `all`, list of globs", "default": "`auto`"},
    )
    allow_pickle: Flag = Field(
        default=False,
        description="Also publish Python pickles (`.bin`, `.pt`), whose author can run code in the server.",
    )
    tokenizer: Literal["required", "none"] = Field(
        default="required",
        description="Whether a model without a tokenizer is refused; `none` for one that is served without it "
        "(`--skip-tokenizer-init` in `args`).",
    )
    token_secret: SecretName | None = Field(
        default=None,
        description="Secret in faststart-system whose key `token` is a token for Hugging Face; you make it, so that "
        "the token is in no state.",
    )
    in_place: Flag = Field(
        default=False, description="Seal the folder of a `path:` source where it is, instead of a copy of it."
    )

    @field_validator("source")
    @classmethod
    def _of_a_kind(cls, value: str) -> str:
        kind, _, rest = value.partition("://")
        authority = rest.partition("/")[0]
        if ":" in authority or ("@" in authority and kind != "hf") or (rest and {"?", "#"} & set(value)):
            raise refuse(f"has a user, a password or a query in it, which is not shown here; use {_SOURCES}")
        kind = value.partition(":")[0]
        if kind not in ("s3", "hf", "path"):
            raise refuse(f"{value!r} is not in this version; use {_SOURCES}")
        if kind == "s3" and (not re.fullmatch(_S3_SOURCE, value, re.ASCII) or {".", ".."} & set(value.split("/"))):
            raise refuse(f"{value!r} is no prefix in a bucket; use s3://bucket/prefix")
        if kind == "hf" and not re.fullmatch(_HUB_SOURCE, value, re.ASCII):
            raise refuse(f"{value!r} is no revision of a repository; use hf://org/name@revision, best with a commit")
        if kind == "path" and (
            not re.fullmatch(_PATH_SOURCE, value, re.ASCII) or value.removeprefix("path:") in layout.FOLDERS
        ):
            raise refuse(f"{value!r} is no model's folder; use path:/fsx/<folder>, such as path:/fsx/s3/<name>")
        return value

    @model_validator(mode="after")
    def _each_key_has_its_source(self) -> "ModelSettings":
        if self.in_place and self.kind != "path":
            raise refuse(f"of no use for {self.source}; leave it out, or use path:/fsx/<folder>", "inPlace")
        if self.token_secret and self.kind != "hf":
            raise refuse(f"of no use for {self.source}; leave it out, or use hf://org/name@revision", "tokenSecret")
        return self

    @field_validator("files")
    @classmethod
    def _words_stand_alone(cls, value: list[str]) -> list[str]:
        if not value:
            raise refuse(f"names nothing; use {one_of((*_FILE_WORDS, 'a list of globs'))}")
        if len(value) > 1 and (words := [one for one in value if one in _FILE_WORDS]):
            raise refuse(f"{words[0]} stands alone; use it without globs, or globs without it")
        return value

    @property
    def kind(self) -> str:
        """What kind of source it has: `s3`, `hf` or `path`."""
        return self.source.partition(":")[0]

    def path(self, name: str) -> str:
        """The sealed folder of the model of that name, as pods see it under /fsx."""
        return self.source.removeprefix("path:") if self.in_place else layout.model_path(name, self.revision)


Models = dict[ModelName, ModelSettings]
