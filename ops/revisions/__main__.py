"""`python -m ops.revisions STACK MODEL REVISION`: removes an old revision of a model from the file system of a stack.

Refused are a revision that the stack file names, and one that anything in the cluster serves or copies. The cluster is
asked twice, the second time right before the Job that removes is made. What remains is the start of that Job's pod:
seconds, or minutes while its image is pulled. A server that is deployed for the revision in this time, by something
else than this stack file, is not seen. Its copy then fails with exit 6 or 8, and it serves nothing; a copy that was
complete stays.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from infra import stack_files
from infra.layout import SYSTEM_NAMESPACE, model_path
from infra.settings import ModelName, Revision, Settings
from ops.revisions import job, kubectl
from ops.revisions.kubectl import Cluster, KubectlError
from workloads.next_commands import update_kubeconfig
from workloads.podkit import lines

REFUSED, NO_ANSWER, INTERRUPTED = 2, 3, 130

_PAUSE_SECONDS = 2.0


class RefusedError(Exception):
    """The revision is not removed; the text says why."""


def main(
    arguments: Sequence[str] | None = None,
    *,
    folder: Path = stack_files.FOLDER,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Runs the command.

    Args:
        arguments: The command line without the program's name.
        folder: Where the stack files are.
        sleep: How to let time pass between two looks at the Job.

    Returns:
        0 where the revision is removed, or could be; 2 refused; 3 kubectl is missing or fails, or the Job ended without
        a result; 130 interrupted; else the exit code of publish in the Job (contracts.md, "Exit codes").
    """
    parser = argparse.ArgumentParser(prog="python -m ops.revisions", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stack", metavar="STACK", help="of stacks/Pulumi.STACK.yaml")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("revision", metavar="REVISION")
    parser.add_argument("--yes", action="store_true", help="remove it; else only look whether it may be removed")
    given = parser.parse_args(arguments)
    try:
        settings, cluster = _allowed(given.stack, given.model, given.revision, folder)
        if given.yes:
            return _remove(settings, cluster, given.model, given.revision, sleep)
        print(
            f"would remove {_what(settings, given.model, given.revision)}; nothing was changed. To remove it for good:"
        )
        print(f"  make remove-revision STACK={given.stack} MODEL={given.model} REVISION={given.revision} YES=1")
    except RefusedError as error:
        _complain(f"refused: {error}")
        return REFUSED
    except KubectlError as error:
        _complain(str(error))
        return NO_ANSWER
    except KeyboardInterrupt:
        _complain("interrupted; a Job that was made goes on, and the same command again begins it anew")
        return INTERRUPTED
    return 0


def _allowed(stack: str, model: str, revision: str, folder: Path) -> tuple[Settings, Cluster]:
    """The stack's settings and its cluster, neither of which needs the revision."""
    _require_named(ModelName, model)
    _require_named(Revision, revision)
    settings = _settings(stack, folder)
    _require_not_named(settings, model, revision)
    cluster = _cluster(settings)
    _require_unused(cluster, model, revision)
    return settings, cluster


def _remove(settings: Settings, cluster: Cluster, model: str, revision: str, sleep: Callable[[float], object]) -> int:
    name, document = job.name(model, revision), job.manifest(model, revision, settings.aws.region)
    cluster.delete_job(SYSTEM_NAMESPACE, name)
    _require_unused(cluster, model, revision)
    cluster.create(document)
    print(f"removing {_what(settings, model, revision)}; its image may have to be pulled first", flush=True)
    try:
        end, pods = _wait(cluster, name, sleep)
    except KubectlError as error:
        raise KubectlError(f"{error}\nthe Job may go on; the same command again begins it anew") from error
    for pod in pods:
        for container in pod["status"].get("containerStatuses", []):
            if ended := container["state"].get("terminated"):
                return _tell(ended)
    _complain(f"the Job ended without a result ({end}); look at it with:")
    _complain(f"  kubectl --namespace {SYSTEM_NAMESPACE} describe job {name}")
    return NO_ANSWER


def _what(settings: Settings, model: str, revision: str) -> str:
    name = f"{SYSTEM_NAMESPACE}/{job.name(model, revision)}"
    return f"{model_path(model, revision)} of cluster {settings.cluster.name}, by Job {name}"


def _require_named(kind: Any, value: str) -> None:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise RefusedError(error.errors(include_url=False)[0]["msg"]) from error


def _settings(stack: str, folder: Path) -> Settings:
    try:
        return stack_files.read(stack_files.find(stack, folder))
    except (FileNotFoundError, stack_files.UnusableError) as error:
        raise RefusedError(str(error)) from error


def _require_not_named(settings: Settings, model: str, revision: str) -> None:
    """Holds that the stack file needs neither the folder, nor what lies in it, nor what it lies in."""
    folder = model_path(model, revision)
    for name, one in settings.models.items():
        key = f"faststart:models.{name}"
        if name == model and one.in_place:
            raise RefusedError(f"{key}.inPlace seals {one.path(name)} where it is: what is there is yours to remove")
        if name == model and one.revision == revision:
            text = f"{key}.revision names {revision}; name another one, run `pulumi up`, then remove this one"
            raise RefusedError(text)
        for path in (one.path(name), one.source.removeprefix("path:")):
            if f"{path}/".startswith(f"{folder}/") or f"{folder}/".startswith(f"{path}/"):
                raise RefusedError(f"{key} needs {path}, and {folder} is removed")


def _cluster(settings: Settings) -> Cluster:
    """The cluster of kubectl's current context, which must be the stack's own."""
    context = kubectl.current_context()
    arn = re.fullmatch(r"arn:aws:eks:([^:]+):(\d{12}):cluster/(.+)", context.cluster if context else "")
    wanted = settings.aws.region, settings.cluster.name
    if context and arn and (arn[1], arn[3]) == wanted and arn[2] in settings.aws.allowed_account_ids:
        return Cluster(context)
    current = f"is {context.name}, of cluster {context.cluster}" if context else "is not set"
    text = f"kubectl's current context {current}; the stack's cluster is {wanted[1]} in {wanted[0]}. To set it:"
    raise RefusedError(f"{text}\n  {update_kubeconfig(settings)}")


def _require_unused(cluster: Cluster, model: str, revision: str) -> None:
    if users := cluster.users(model, revision):
        lines = [f"revision {revision} of {model} is in use by:", *(f"  {user}" for user in users)]
        raise RefusedError("\n".join(lines))


def _wait(cluster: Cluster, name: str, sleep: Callable[[float], object]) -> tuple[str, list[dict[str, Any]]]:
    """Waits for the Job, which has a deadline; how it ended, in Kubernetes' words, and its pods."""
    while True:
        sleep(_PAUSE_SECONDS)
        for one in cluster.job(SYSTEM_NAMESPACE, name).get("status", {}).get("conditions", []):
            if one["type"] in ("Complete", "Failed") and one["status"] == "True":
                words = (one["type"], one.get("reason"), one.get("message"))
                return lines.joined(" ".join(filter(None, words))), cluster.pods_of(SYSTEM_NAMESPACE, name)


def _tell(ended: dict[str, Any]) -> int:
    """Says how publish ended in the pod; its exit code."""
    code = ended["exitCode"]
    words = _words(ended.get("message", "")) or ended.get("reason", "it said nothing")
    if code:
        _complain(f"exit {code}: {words}")
    else:
        print(lines.line(words))
    return code


def _words(message: str) -> str:
    """A termination message for a person: that of publish is JSON, that of a crash is the end of its log."""
    try:
        said = json.loads(message)
        return lines.line(f"{said['file']}: {said['message']}" if said["file"] else f"{said['message']}")
    except (ValueError, TypeError, KeyError):
        return lines.joined(message)


def _complain(text: str) -> None:
    """Says lines of ours; what others wrote stands in one of them, and begins none."""
    for one in f"revisions: {text}".split("\n"):
        print(lines.line(one), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
