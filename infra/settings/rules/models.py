"""Rules about models' folders and sources, and about the images that read them."""

import re
from collections.abc import Iterator

from infra import images, versions
from infra.settings.findings import Finding, stack_key
from infra.settings.rules.rule import rule
from infra.settings.sections.models import Models
from infra.settings.sections.servers import ModelServers


@rule
def no_model_lies_in_another_one(models: Models) -> Iterator[Finding]:
    """Refuses a source or a folder that is part of another model's folder, or of the model's own."""
    for name, model in models.items():
        own, source = model.path(name), model.source.removeprefix("path:")
        if model.kind == "path" and not model.in_place and _lie_in_one_another(own, source):
            text = f"{source} is, lies in or holds the model's own folder {own}; set inPlace: true, or use another"
            yield Finding(stack_key("models", name, "source"), text)
        for other, outer in models.items():
            if name != other and f"{own}/".startswith(f"{outer.path(other)}/"):
                text = f"{own} is, or lies in, the folder of {other}; use a folder of its own"
                yield Finding(stack_key("models", name, "source"), text)


def _lie_in_one_another(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


@rule
def warn_about_sources_that_can_move(models: Models) -> Iterator[Finding]:
    """Warns of a Hugging Face source by branch or tag: either can come to mean another commit."""
    for name, model in models.items():
        revision = model.source.partition("@")[2]
        if model.kind == "hf" and not re.fullmatch(r"[0-9a-f]{40}", revision):
            text = (
                f"{revision} can come to mean another commit, which only another revision would publish; name a commit"
            )
            yield Finding(stack_key("models", name, "source"), text, refuses=False)


@rule
def warn_about_images_without_digest(models: Models, model_servers: ModelServers) -> Iterator[Finding]:
    """Warns of images for which neither the stack file nor the lock file has a digest; refuses a broken lock file."""
    used = {stack_key("storage"): versions.TOOLS_IMAGE}
    if models:
        used[stack_key("models")] = versions.VLLM_IMAGE
    used |= {stack_key("modelServers", name, "image"): server.image for name, server in model_servers.items()}
    try:
        for key, image in used.items():
            if "@" not in images.applied(image):
                text = f"{image} runs by its tag, which can come to mean another image; run `make pin-images`"
                yield Finding(key, text, refuses=False)
    except images.LockError as error:
        yield Finding(images.LOCK_NAME, str(error))
