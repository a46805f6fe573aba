"""Each Kubernetes object against the schemas of the stack's version, and against Pod Security."""

from typing import Any

import kubernetes_validate
import pytest

from tests.recording import Recording


def test_every_object_is_what_the_api_of_the_stack_s_version_takes(stack: Recording) -> None:
    problems: dict[str, str] = {}
    for one in stack.kubernetes():
        try:
            kubernetes_validate.validate(one.inputs, stack.settings.cluster.version, strict=True)
        except kubernetes_validate.ValidationError as error:
            problems[one.urn] = str(error)

    assert problems == {}


def test_the_schemas_refuse_a_misspelt_field(article: Recording) -> None:
    (wrong,) = [one.inputs for one in article.kubernetes() if one.name == "qwen3-vllm"]
    pod = wrong["spec"]["template"]["spec"]
    bad = {
        **wrong,
        "spec": {**wrong["spec"], "template": {**wrong["spec"]["template"], "spec": {**pod, "initContainer": []}}},
    }

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(bad, article.settings.cluster.version, strict=True)


def test_names_are_ours_and_follow_one_scheme(stack: Recording) -> None:
    names = {one.inputs["metadata"]["name"] for one in stack.kubernetes()} - {"models"}

    assert all(name.startswith("faststart-") and len(name) <= 63 for name in names), names


def test_every_namespaced_object_names_a_namespace_of_ours(stack: Recording) -> None:
    for one in stack.kubernetes():
        if one.inputs["kind"] not in ("Namespace", "PersistentVolume"):
            assert one.inputs["metadata"]["namespace"] in ("faststart-system", "models"), one.name


def test_namespaces_carry_their_pod_security_level(stack: Recording) -> None:
    levels = {
        one.inputs["metadata"]["name"]: one.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for one in stack.of("kubernetes:core/v1:Namespace")
    }

    assert levels == {"faststart-system": "privileged", "models": "restricted"}


def restricted_problems(pod: dict[str, Any]) -> list[str]:
    """Breaches of Pod Security `restricted` (https://kubernetes.io/docs/concepts/security/pod-security-standards/)."""
    volumes = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    problems = [f"{key} is set" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    problems += [f"volume {one['name']}" for one in pod.get("volumes", []) if not volumes & one.keys()]
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        own = container.get("securityContext", {})
        both = {**pod.get("securityContext", {}), **own}
        capabilities = own.get("capabilities", {})
        checks = {
            "runAsNonRoot": both.get("runAsNonRoot") is True,
            "runAsUser": both.get("runAsUser") != 0,
            "seccompProfile": both.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities.drop": "ALL" in capabilities.get("drop", []),
            "capabilities.add": set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
            "privileged": not own.get("privileged"),
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
        }
        problems += [f"{container['name']}: {name}" for name, good in checks.items() if not good]
    return problems


def pods_in(stack: Recording, namespace: str) -> dict[str, dict[str, Any]]:
    return {
        one.name: one.inputs["spec"]["template"]["spec"]
        for one in stack.kubernetes()
        if "template" in one.inputs.get("spec", {}) and one.inputs["metadata"]["namespace"] == namespace
    }


def test_pods_that_serve_are_restricted(stack: Recording) -> None:
    pods = pods_in(stack, "models")

    assert pods.keys() == {f"{server}-vllm" for server in stack.settings.model_servers}
    assert {name: problems for name, pod in pods.items() if (problems := restricted_problems(pod))} == {}


def test_only_the_storage_init_job_goes_beyond_restricted_and_only_in_what_it_needs(stack: Recording) -> None:
    breaches = {name: restricted_problems(pod) for name, pod in pods_in(stack, "faststart-system").items()}

    assert {name: found for name, found in breaches.items() if found} == {
        "claims-init": [
            "storage-init: runAsNonRoot",
            "storage-init: runAsUser",
            "storage-init: capabilities.add",
        ]
    }


def test_every_pod_names_its_service_account_and_gets_no_token(stack: Recording) -> None:
    accounts = {
        (one.inputs["metadata"]["namespace"], one.inputs["metadata"]["name"])
        for one in stack.of("kubernetes:core/v1:ServiceAccount")
    }

    for namespace in ("faststart-system", "models"):
        for pod in pods_in(stack, namespace).values():
            assert (namespace, pod["serviceAccountName"]) in accounts
            assert pod["automountServiceAccountToken"] is False
    assert all(
        one.inputs["automountServiceAccountToken"] is False for one in stack.of("kubernetes:core/v1:ServiceAccount")
    )


def test_every_image_has_a_fixed_tag_or_a_digest(stack: Recording) -> None:
    for namespace in ("faststart-system", "models"):
        for pod in pods_in(stack, namespace).values():
            for container in [*pod.get("initContainers", []), *pod["containers"]]:
                reference = container["image"].rpartition("/")[2]
                assert ":" in reference, container["image"]
                assert not reference.endswith(":latest")
