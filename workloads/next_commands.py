"""What a person types after `pulumi up`: into the cluster, at the copy, at the server, to an answer."""

import json

from infra.layout import MODELS_NAMESPACE
from infra.settings import Settings
from workloads.model_server import PORT


def next_commands(settings: Settings) -> list[str]:
    """The commands, in the order in which they make sense; they need kubectl and the AWS CLI."""
    kubectl = f"kubectl --namespace {MODELS_NAMESPACE}"
    commands = [update_kubeconfig(settings), f"{kubectl} get pods --output wide"]
    for name, server in settings.model_servers.items():
        commands += [
            f"{kubectl} logs deployment/faststart-{name} --container preload --follow",
            f"{kubectl} port-forward service/faststart-{name} {PORT}",
            _completion(server.model),
        ]
    return commands


def update_kubeconfig(settings: Settings) -> str:
    """The command that lets kubectl's current context be the stack's cluster."""
    cluster, region, role = settings.cluster.name, settings.aws.region, settings.cluster.access.deploy_role
    as_role = f" --role-arn {role}" if role else ""
    return f"aws eks update-kubeconfig --name {cluster} --region {region}{as_role}"


def _completion(model: str) -> str:
    request = json.dumps({"model": model, "prompt": "The capital of France is", "max_tokens": 8})
    return f"curl http://127.0.0.1:{PORT}/v1/completions --header 'Content-Type: application/json' --data '{request}'"
