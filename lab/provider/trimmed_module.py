"""What is needed of terraform-provider-aws, cut out of its module when it is built.

Whole, it has the clients of 271 services and compiles for an hour on two cores; for six services it takes minutes. Two
generated lists of the module name everything: its services, and a client for each. In the copy they name only what is
asked for. One wait is shortened (`FILE_SYSTEM_DELETION`); every other line is the module's own.
"""

import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from lab.rehearsal.toolbox import ToolMissingError

MODULE = "github.com/hashicorp/terraform-provider-aws"
SERVICES = ("ec2", "eks", "fsx", "iam", "kms", "logs")
"""The services of all AWS resources that the program registers."""

_SERVICE_LIST = "internal/provider/sdkv2/service_packages_gen.go"
_CLIENT_LIST = "internal/conns/awsclient_gen.go"
_CLIENT = r"func \(c \*AWSClient\) (\w+)\(ctx context\.Context\) \*(\w+)\.Client \{\n.*?\n\}\n\n?"
_LUSTRE = "internal/service/fsx/lustre_file_system.go"

FILE_SYSTEM_DELETION = ("Delay:        10 * time.Minute,", "Delay:        time.Second,")
"""How long it waits before it first asks whether a deleted Lustre file system is gone, and the second it waits here.

The emulated account answers at once. The line stands once in the file; the wait decides nothing else.
"""


def write(module: Path, target: Path, services: Collection[str] = SERVICES) -> None:
    """Writes the trimmed module.

    Args:
        module: the module's folder, as it was fetched.
        target: a folder that is made.
        services: the packages of `internal/service` that stay.

    Raises:
        ToolMissingError: the module is not as this recipe knows it.
    """
    changed = {
        _SERVICE_LIST: with_services(_text(module, _SERVICE_LIST), services),
        _LUSTRE: _with_quick_deletion(_text(module, _LUSTRE)),
    }
    packages = _reached(module, changed)
    sources = [file for package in packages for file in _sources(module, package) if file != _CLIENT_LIST]
    code = "\n".join(changed.get(file) or _text(module, file) for file in sources)
    changed[_CLIENT_LIST] = with_clients(_text(module, _CLIENT_LIST), {*re.findall(r"\.(\w+Client)\(", code)})
    for file in ("go.mod", *sources, *_embedded(module, sources), *changed):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module / file, target / file)
    for file, text in changed.items():
        (target / file).write_text(text, encoding="utf-8")


def with_services(source: str, services: Collection[str]) -> str:
    """The Go source that lists the service packages, with these alone.

    Raises:
        ToolMissingError: it does not list one of them.
    """
    lines = source.splitlines(keepends=True)
    for pattern in (rf'\s*"{MODULE}/internal/service/([^"]+)"$', r"\s*(\w+)\.ServicePackage\(ctx\),$"):
        listed = {line: found[1] for line in lines if (found := re.match(pattern, line))}
        if missing := {*services} - {*listed.values()}:
            raise _unknown(_SERVICE_LIST, f"does not list {', '.join(sorted(missing))} as {pattern}")
        lines = [line for line in lines if listed.get(line) is None or listed[line] in services]
    return "".join(lines)


def with_clients(source: str, called: Collection[str]) -> str:
    """The Go source that makes the clients, with those methods alone that are called, and the imports of these.

    Raises:
        ToolMissingError: it has no such methods.
    """
    kept = {alias for name, alias in re.findall(_CLIENT, source, re.DOTALL) if name in called}
    if not kept:
        raise _unknown(_CLIENT_LIST, f"has none of the methods {', '.join(sorted(called))}")

    def stays(line: str) -> bool:
        found = re.match(r'\s*(?:(\w+) )?"github\.com/aws/aws-sdk-go-v2/service/([^"]+)"$', line)
        return found is None or (found[1] or found[2].rpartition("/")[2]) in kept

    source = re.sub(_CLIENT, lambda found: found[0] if found[1] in called else "", source, flags=re.DOTALL)
    return "".join(line for line in source.splitlines(keepends=True) if stays(line))


def _with_quick_deletion(source: str) -> str:
    if source.count(FILE_SYSTEM_DELETION[0]) != 1:
        raise _unknown(_LUSTRE, f"does not have the line `{FILE_SYSTEM_DELETION[0]}` once")
    return source.replace(*FILE_SYSTEM_DELETION)


def _reached(module: Path, changed: dict[str, str]) -> list[str]:
    """The folders of the module's packages that its program still imports."""
    seen: set[str] = set()
    todo = ["."]
    while todo:
        package = todo.pop()
        if package in seen:
            continue
        seen.add(package)
        sources = _sources(module, package)
        if not sources:
            raise _unknown(package, "is imported and has no Go source")
        for file in sources:
            text = changed.get(file) or _text(module, file)
            todo += re.findall(rf'^(?:import)?\s*(?:\w+ )?"{MODULE}/([^"]+)"$', text, re.MULTILINE)
    return sorted(seen)


def _embedded(module: Path, sources: Collection[str]) -> Iterator[str]:
    """The files that Go sources embed."""
    for file in sources:
        folder = (module / file).parent
        for patterns in re.findall(r"(?m)^//go:embed (.*)$", _text(module, file)):
            for pattern in patterns.split():
                yield from (str(path.relative_to(module)) for path in folder.glob(pattern))


def _sources(module: Path, package: str) -> list[str]:
    """The Go files of a package without its tests, as paths in the module."""
    files = (module / package).glob("*.go")
    return sorted(str(path.relative_to(module)) for path in files if not path.name.endswith("_test.go"))


def _text(module: Path, file: str) -> str:
    try:
        return (module / file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _unknown(file, "is not there") from None


def _unknown(file: str, what: str) -> ToolMissingError:
    return ToolMissingError(f"{MODULE}: {file} {what}: the recipe in {__name__} does not know this version")
