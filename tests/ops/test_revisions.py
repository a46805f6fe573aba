"""`make remove-revision`: what it refuses, and the Job that it makes, with a kubectl that answers from a file."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import ROOT
from ops.revisions import job
from ops.revisions.__main__ import main
from publish import options
from tests import recording
from tests.recording import Recording
from workloads import published_model

MODEL, OLD, NEW = "qwen3-235b-a22b", "2501", "2507"
ARN = "arn:aws:eks:us-east-1:111122223333:cluster/faststart-article"
NAME = published_model.object_name(MODEL, OLD).replace("publish", "remove")
CONFIG, USERS, DELETE, CREATE = (
    "config view",
    "get deployments.apps,replicasets.apps,pods",
    "delete job",
    "create --filename",
)
JOB, PODS = "get job", "get pods"

KUBECTL = """#!{python} -IS
import json, pathlib, sys
home = pathlib.Path(__file__).parent
arguments = sys.argv[1:]
calls = json.loads((home / "calls.json").read_text())
key = " ".join(arguments[:2])
answers = json.loads((home / "answers.json").read_text())[key]
answer = answers[min(len([call for call in calls if " ".join(call[0][:2]) == key]), len(answers) - 1)]
text = sys.stdin.read()
calls.append([arguments, json.loads(text) if text else None])
(home / "calls.json").write_text(json.dumps(calls))
print(answer.get("out", ""), end="")
print(answer.get("err", ""), end="", file=sys.stderr)
sys.exit(answer.get("code", 0))
"""


@dataclass
class Kubectl:
    """A kubectl on PATH: what it was asked, and what it answers, in turn; the last answer is given again."""

    home: Path
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.home / "calls.json").write_text("[]")
        program = self.home / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable))
        program.chmod(0o755)
        self.context(ARN)
        self.answer(USERS, {"items": []})
        self.answer(JOB, ended("Complete"))
        self.answer(PODS, {"items": [pod_that_ended(0, said("removed"))]})
        self.answer(DELETE, "")
        self.answer(CREATE, "")

    def answer(self, key: str, *texts: Any, code: int = 0, err: str = "") -> None:
        outs = [text if isinstance(text, str) else json.dumps(text) for text in texts]
        self.answers[key] = [{"out": out, "code": code, "err": err} for out in outs]
        (self.home / "answers.json").write_text(json.dumps(self.answers))

    def context(self, cluster: str, name: str = "work") -> None:
        contexts = [
            {"name": "other", "context": {"cluster": "elsewhere", "user": "me"}},
            {"name": name, "context": {"cluster": cluster, "user": "me"}},
        ]
        self.answer(CONFIG, {"kind": "Config", "contexts": contexts, "current-context": "work"})

    @property
    def calls(self) -> list[tuple[list[str], Any]]:
        return [(arguments, document) for arguments, document in json.loads((self.home / "calls.json").read_text())]

    @property
    def asked(self) -> list[str]:
        return [" ".join(arguments[:2]) for arguments, _ in self.calls]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    home = tmp_path / "bin"
    home.mkdir()
    monkeypatch.setenv("PATH", str(home), prepend=os.pathsep)
    return Kubectl(home)


def ended(how: str, **more: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": how, "status": "True", **more}]}}


def said(message: str, file: str | None = None) -> str:
    return json.dumps({"code": 0, "message": message, "file": file, "model": MODEL})


def pod_that_ended(code: int, message: str) -> dict[str, Any]:
    terminated = {"exitCode": code, "reason": "Completed", "message": message}
    return {"status": {"containerStatuses": [{"name": "publish", "state": {"terminated": terminated}}]}}


def remove(*flags: str, model: str = MODEL, revision: str = OLD, **more: Any) -> int:
    return main(["article", model, revision, *flags], sleep=lambda _: None, **more)


def stack_file(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Write the article's stack file, changed; return the folder."""
    config = recording.stack_config("article")
    change(config)
    (folder / "Pulumi.article.yaml").write_text(yaml.safe_dump({"config": config}))
    return folder


# what it does


def test_without_yes_it_looks_changes_nothing_and_says_how_to_go_on(there: Kubectl, capsys) -> None:
    assert remove() == 0
    assert there.asked == [CONFIG, USERS]
    out = capsys.readouterr().out
    assert f"would remove /fsx/models/{MODEL}/{OLD} of cluster faststart-article" in out
    assert f"Job faststart-system/{NAME}" in out
    assert out.endswith(f"  make remove-revision STACK=article MODEL={MODEL} REVISION={OLD} YES=1\n")


def test_with_yes_the_cluster_is_asked_again_right_before_the_job_is_made_and_the_job_is_waited_for(
    there: Kubectl, capsys
) -> None:
    there.answer(
        JOB,
        {},
        {"status": {"active": 1, "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Complete", "status": "False"}]}},
        ended("Complete"),
    )
    assert remove("--yes") == 0
    assert there.asked == [CONFIG, USERS, DELETE, USERS, CREATE, JOB, JOB, JOB, JOB, PODS]
    assert capsys.readouterr().out.endswith("\nremoved\n")
    calls = dict(zip(there.asked, there.calls, strict=True))
    assert calls[CREATE][1] == job.manifest(MODEL, OLD, "us-east-1")
    assert calls[DELETE][0][2:] == [
        *(NAME, "--namespace", "faststart-system", "--ignore-not-found", "--cascade=foreground", "--timeout=120s"),
        *("--context", "work", "--request-timeout=30s"),
    ]
    assert f"batch.kubernetes.io/job-name={NAME}" in calls[PODS][0]
    assert NAME in calls[JOB][0]


def test_all_that_is_asked_of_the_cluster_is_asked_of_the_one_that_was_looked_at_first(there: Kubectl) -> None:
    remove("--yes")
    assert [arguments[-3:-1] for arguments, _ in there.calls[1:]] == [["--context", "work"]] * (len(there.calls) - 1)


@pytest.mark.parametrize(
    ("code", "message", "words"),
    [
        (8, said("its digest is another", "/fsx/models/m/r"), "exit 8: /fsx/models/m/r: its digest is another"),
        (143, said("stopped by SIGTERM"), "exit 143: stopped by SIGTERM"),
        (1, "Traceback: a crash\n", "exit 1: Traceback: a crash"),
        (137, "", "exit 137: Completed"),
        (9, "[]", "exit 9: []"),
    ],
)
def test_the_exit_code_is_that_of_publish_in_the_job_and_its_words_are_said(
    there: Kubectl, capsys, code, message, words
) -> None:
    there.answer(JOB, ended("Failed", reason="BackoffLimitExceeded"))
    there.answer(PODS, {"items": [{"status": {}}, pod_that_ended(code, message)]})
    assert remove("--yes") == code
    assert capsys.readouterr().err == f"revisions: {words}\n"


FORGED = "x{}revisions: removed /fsx/models/m/r, 5 files"


@pytest.mark.inputs
@pytest.mark.parametrize(
    "mark", ["\n", "\r", "\x1b[2K\r", "\x85", "\u2028", "\u202e", "y" * 100_000], ids=lambda one: ascii(one[:9])
)
@pytest.mark.parametrize("where", ["message", "file", "crash", "condition", "kubectl", "done"])
def test_what_a_pod_or_the_cluster_says_begins_no_line_and_is_not_long(there: Kubectl, capsys, mark, where) -> None:
    text = FORGED.format(mark)
    there.answer(JOB, ended("Failed", message=text if where == "condition" else "BackoffLimitExceeded"))
    told = {"message": said(text), "file": said("is damaged", text), "crash": text, "done": said(text)}
    if where in told:
        there.answer(PODS, {"items": [pod_that_ended(0 if where == "done" else 4, told[where])]})
    elif where == "condition":
        there.answer(PODS, {"items": []})
    else:
        there.answer(CREATE, "", code=1, err=text)
    remove("--yes")

    captured = capsys.readouterr()
    for line in [*captured.out.split("\n"), *captured.err.split("\n")]:
        assert line.isprintable()
        assert len(line) <= 4096
        assert not line.startswith("revisions: removed")


def test_a_job_that_ended_without_a_result_is_3_and_says_where_to_look(there: Kubectl, capsys) -> None:
    there.answer(JOB, ended("Failed", reason="DeadlineExceeded", message="was active too long"))
    there.answer(PODS, {"items": [{"status": {"containerStatuses": [{"state": {"waiting": {}}}]}}]})
    assert remove("--yes") == 3
    err = capsys.readouterr().err
    assert "(Failed DeadlineExceeded was active too long)" in err
    assert f"kubectl --namespace faststart-system describe job {NAME}" in err


def test_interrupted_it_says_that_the_job_goes_on(there: Kubectl, capsys) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    assert main(["article", MODEL, OLD, "--yes"], sleep=interrupt) == 130
    assert "goes on" in capsys.readouterr().err


# the Job


def test_the_pod_is_that_of_a_publishing_job_but_for_its_arguments_and_what_reads_s3(stack: Recording) -> None:
    identity = "eks-pod-identity-token"
    for name, model in stack.settings.models.items():
        made = stack.one("kubernetes:batch/v1:Job", f"{name}-publish").inputs
        pod = made["spec"]["template"]["spec"]
        mine = job.manifest(name, model.revision, stack.settings.aws.region)
        (container,) = pod["containers"]
        container = container | {
            "args": mine["spec"]["template"]["spec"]["containers"][0]["args"],
            "env": [one for one in container["env"] if not one["name"].startswith("AWS_CONTAINER_")],
            "volumeMounts": [one for one in container["volumeMounts"] if one["name"] != identity],
        }
        volumes = [one for one in pod["volumes"] if one["name"] != identity]

        expected = pod | {"containers": [container], "volumes": volumes, "serviceAccountName": "faststart-publish"}
        assert mine["spec"]["template"]["spec"] == expected
        assert mine["metadata"]["namespace"] == made["metadata"]["namespace"]
        assert mine["metadata"]["name"] == made["metadata"]["name"].replace("publish", "remove", 1)


def test_the_job_removes_the_folder_that_was_published_under_the_lock_of_its_publishing(stack: Recording) -> None:
    for name, model in stack.settings.models.items():
        (container,) = job.manifest(name, model.revision, "x")["spec"]["template"]["spec"]["containers"]
        asked = options.parse(container["args"])
        (publishing,) = stack.one("kubernetes:batch/v1:Job", f"{name}-publish").inputs["spec"]["template"]["spec"][
            "containers"
        ]
        published = options.parse(publishing["args"])

        assert isinstance(asked, options.Removal)
        assert isinstance(published, options.Options)
        assert (asked.folder, asked.staging) == (published.destination, published.staging)
        assert container["args"][-2:] == ["--termination-log", "/dev/termination-log"]


def test_the_job_is_tried_once_ends_at_last_and_goes_away_after_an_hour() -> None:
    spec = job.manifest(MODEL, OLD, "us-east-1")["spec"]
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 3600)
    assert spec["activeDeadlineSeconds"] == 1800
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_the_job_s_own_pod_is_nothing_that_serves() -> None:
    document = job.manifest(MODEL, OLD, "us-east-1")
    for labels in (document["metadata"]["labels"], document["spec"]["template"]["metadata"]["labels"]):
        assert labels["app.kubernetes.io/name"] == "remove"
        assert (labels["faststart.dev/model"], labels["faststart.dev/revision"]) == (MODEL, OLD)


# what the stack file refuses


@pytest.mark.parametrize(
    ("model", "revision", "words"),
    [
        ("Qwen", OLD, "'Qwen' is no model name"),
        ("", OLD, "'' is no model name"),
        ("a/b", OLD, "'a/b' is no model name"),
        (MODEL, "..", "'..' is no revision"),
        (MODEL, "", "'' is no revision"),
        (MODEL, "a/../b", "'a/../b' is no revision"),
        (MODEL, "r" * 64, "is no revision"),
        (MODEL, NEW, f"faststart:models.{MODEL}.revision names {NEW}"),
    ],
)
def test_a_malformed_name_and_the_revision_that_the_stack_file_names_are_refused(
    there: Kubectl, capsys, model, revision, words
) -> None:
    assert remove("--yes", model=model, revision=revision) == 2
    assert words in capsys.readouterr().err
    assert there.calls == []


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ({MODEL: {"source": "path:/fsx/own", "inPlace": True}}, "inPlace seals /fsx/own where it is"),
        ({"other": {"source": f"path:/fsx/models/{MODEL}/{OLD}"}}, "faststart:models.other needs /fsx/models"),
        ({"other": {"source": f"path:/fsx/models/{MODEL}/{OLD}/sub"}}, "faststart:models.other needs /fsx/models"),
        ({"other": {"source": f"path:/fsx/models/{MODEL}", "inPlace": True}}, "faststart:models.other needs"),
    ],
    ids=["in place", "copied from it", "copied from in it", "holds it"],
)
def test_a_folder_that_the_stack_file_needs_otherwise_is_refused(
    there: Kubectl, tmp_path, capsys, models, words
) -> None:
    def change(config: dict[str, Any]) -> None:
        del config["faststart:modelServers"]
        config["faststart:models"] = {
            name: {"revision": "1", "sizeGib": 450, **model} for name, model in models.items()
        }

    assert remove("--yes", folder=stack_file(tmp_path, change)) == 2
    assert words in capsys.readouterr().err
    assert there.calls == []


def test_an_old_revision_is_removed_too_where_the_stack_file_no_longer_has_the_model(there: Kubectl, tmp_path) -> None:
    def change(config: dict[str, Any]) -> None:
        del config["faststart:models"], config["faststart:modelServers"]

    assert remove("--yes", folder=stack_file(tmp_path, change)) == 0


def test_a_neighbour_whose_name_only_begins_alike_does_not_matter(there: Kubectl, tmp_path) -> None:
    source = {"source": f"path:/fsx/models/{MODEL}/{OLD}-more", "revision": "1", "sizeGib": 1}
    folder = stack_file(tmp_path, lambda config: config["faststart:models"].update(other=source))
    assert remove(folder=folder) == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "/Pulumi.article.yaml; there are: another\n"),
        ("config: [", "cannot be read"),
        ("config: {}", "  faststart:network"),
    ],
)
def test_a_stack_file_that_cannot_be_used_is_refused_by_its_name(
    there: Kubectl, tmp_path, capsys, content, words
) -> None:
    (tmp_path / "Pulumi.another.yaml").write_text("")
    if content is not None:
        (tmp_path / "Pulumi.article.yaml").write_text(content)
    assert remove("--yes", folder=tmp_path) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Pulumi.article.yaml" in err
    assert content is not None or f"no {tmp_path.name}/Pulumi" in err
    assert there.calls == []


# what the cluster refuses


@pytest.mark.parametrize(
    "cluster",
    [
        ARN.replace("faststart-article", "faststart-article-2"),
        ARN.replace("us-east-1", "us-west-2"),
        ARN.replace("111122223333", "444455556666"),
        "faststart-article",
        "",
    ],
)
def test_another_cluster_than_the_stack_s_is_refused_with_the_command_that_leads_to_it(
    there: Kubectl, capsys, cluster
) -> None:
    there.context(cluster)
    assert remove("--yes") == 2
    err = capsys.readouterr().err
    command = "aws eks update-kubeconfig --name faststart-article --region us-east-1"
    assert f"current context is work, of cluster {cluster}" in err
    assert f"{command} --role-arn arn:aws:iam::111122223333:role/faststart-deploy" in err
    assert there.asked == [CONFIG]


@pytest.mark.parametrize(
    "config", [{"contexts": None, "current-context": ""}, {"contexts": [], "current-context": "x"}]
)
def test_a_kubeconfig_without_a_current_context_is_refused_with_the_command_that_sets_it(
    there: Kubectl, capsys, config
) -> None:
    there.answer(CONFIG, config)
    assert remove("--yes") == 2
    err = capsys.readouterr().err
    assert "current context is not set" in err
    assert "aws eks update-kubeconfig --name faststart-article" in err


def using(kind: str, namespace: str = "models", **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": f"faststart-{kind.lower()}", "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize(
    "user",
    [using("Deployment", replicas=0), using("ReplicaSet", replicas=1), using("Pod", "a-team")],
    ids=lambda user: user["kind"],
)
def test_what_serves_a_revision_or_would_is_named_and_the_revision_refused(there: Kubectl, capsys, user) -> None:
    there.answer(USERS, {"items": [using("ReplicaSet", "b", replicas=0), user]})
    name = f"{user['kind']} {user['metadata']['namespace']}/{user['metadata']['name']}"
    for flags in ([], ["--yes"]):
        assert remove(*flags) == 2
        assert capsys.readouterr().err == f"revisions: refused: revision {OLD} of {MODEL} is in use by:\n  {name}\n"
    assert set(there.asked) == {CONFIG, USERS}


def test_all_namespaces_are_asked_for_pods_that_carry_the_labels_of_a_server(
    there: Kubectl, article: Recording
) -> None:
    remove()
    arguments, _ = there.calls[1]
    assert "--all-namespaces" in arguments
    selector = dict(one.split("=") for one in arguments[arguments.index("--selector") + 1].split(","))
    served = article.one("kubernetes:apps/v1:Deployment").inputs
    for labels in (served["metadata"]["labels"], served["spec"]["template"]["metadata"]["labels"]):
        assert labels.items() >= (selector | {"faststart.dev/revision": NEW}).items()
    assert selector["faststart.dev/revision"] == OLD


def test_a_revision_without_replicas_of_its_old_replica_sets_is_not_in_use(there: Kubectl) -> None:
    there.answer(USERS, {"items": [using("ReplicaSet", replicas=0)]})
    assert remove("--yes") == 0


def test_what_comes_to_use_it_between_the_two_looks_is_seen_and_no_job_is_made(there: Kubectl, capsys) -> None:
    there.answer(USERS, {"items": []}, {"items": [using("Pod")]})
    assert remove("--yes") == 2
    assert "  Pod models/faststart-pod" in capsys.readouterr().err
    assert CREATE not in there.asked


# kubectl itself


def test_without_kubectl_it_is_3_in_plain_words(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert remove("--yes") == 3
    assert "kubectl cannot be started (No such file or directory): install it" in capsys.readouterr().err


@pytest.mark.parametrize("step", [CONFIG, USERS, DELETE, CREATE, JOB, PODS])
def test_what_kubectl_fails_with_is_said_with_its_own_words(there: Kubectl, capsys, step) -> None:
    there.answer(step, "", code=1, err="Unable to connect to the server: no such host\n")
    assert remove("--yes") == 3
    err = capsys.readouterr().err
    assert "Unable to connect to the server: no such host" in err
    assert f"`kubectl {step.partition(' ')[0]} " in err
    assert ("may go on" in err) == (step in (JOB, PODS))


# the command


def test_the_command_ends_with_its_exit_code(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ops.revisions", "article", MODEL, NEW],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"revisions: refused: faststart:models.{MODEL}.revision names {NEW}")


def test_the_makefile_runs_the_command_and_removes_only_with_yes() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("\nremove-revision: .venv/runtime ## ")[2].splitlines()[1]
    assert recipe == '\t@$(BIN)/python -m ops.revisions "$(STACK)" "$(MODEL)" "$(REVISION)" $(if $(YES),--yes)'
