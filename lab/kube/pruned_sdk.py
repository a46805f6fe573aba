"""What Pulumi's Kubernetes provider needs of its own generated Go SDK, cut out of the module when it is built.

The provider registers what `yaml/v2` and `helm/v4` components contain, and for that one file of the SDK names a Go
type of each kind of Kubernetes object: 60 generated packages, 26 MB of source, half of the provider's compilation. The
types hold what the engine answers, which the provider never reads. In the copy each is the one that the SDK has for
kinds which it does not know; what is registered, a kind's type token and inputs, stays as it is.
"""

import re
import shutil
from pathlib import Path

from lab.rehearsal.toolbox import ToolMissingError

MODULE = "github.com/pulumi/pulumi-kubernetes/sdk/v4"

_ROOT = "go/kubernetes"
_PACKAGES = ("", "apiextensions", "helm/v4", "meta/v1", "utilities", "yaml/v2")
_KINDS = "yaml/v2/kinds.go"
_ANY_KIND = "apiextensions"


def write(sdk: Path, target: Path) -> None:
    """Writes the pruned module.

    Args:
        sdk: the module's folder, as it was fetched.
        target: a folder that is made.

    Raises:
        ToolMissingError: the SDK is not as this recipe knows it.
    """
    for package in _PACKAGES:
        (target / _ROOT / package).mkdir(parents=True)
        for path in (sdk / _ROOT / package).iterdir():
            if path.is_file():
                shutil.copyfile(path, target / _ROOT / package / path.name)
    shutil.copyfile(sdk / "go.mod", target / "go.mod")
    kinds = target / _ROOT / _KINDS
    kinds.write_text(any_kind(kinds.read_text(encoding="utf-8")), encoding="utf-8")


def any_kind(source: str) -> str:
    """The Go source that registers each kind of object, with one type for all kinds.

    Raises:
        ToolMissingError: it has no such lines.
    """
    source, types = re.subn(r"(?m)^(\s*var res )\w+\.\w+$", rf"\g<1>{_ANY_KIND}.CustomResource", source)
    source, imports = re.subn(rf'(?m)^\s*\w+ "{re.escape(MODULE)}/.*"\n', "", source)
    if not types or not imports:
        raise ToolMissingError(f"{_ROOT}/{_KINDS} of {MODULE} names no Go type of each kind: see {__name__}")
    return source
