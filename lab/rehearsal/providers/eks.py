"""The stand-in for the eks provider: the component `eks.Cluster`, with the children that the real one makes.

Types, names, parents, inputs and dependencies are those of pulumi-eks (pulumi/pulumi-eks: nodejs/eks/cluster,
nodejs/eks/servicerole.ts), for the options that `infra/cluster.py` uses. Every other option that would make the real
component do something is refused by name, and so is the lack of one without which it would make more. Each value comes
from the engine's answer to a registration; what is missing there is unknown, in a preview as in an update. One
difference is on purpose: the children come from the providers of the installed SDKs' versions; the real plugin asks
for those that it was built with. The real component also wants the `aws` CLI on PATH; the stand-in does not.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

from pulumi.runtime.proto import provider_pb2 as pb

from lab.rehearsal.providers import sdk_types, wire
from lab.rehearsal.providers.component import Child, Deps, Engine
from lab.rehearsal.providers.protocol import RefusedError, StandIn

CLUSTER = "eks:index:Cluster"

_NOT_COVERED = "not covered by the rehearsal's stand-in"
_NEEDED = ("vpcId", "privateSubnetIds")  # without them the real component takes the default VPC
_COVERED = {
    *("name", "version", "kubernetesServiceIpAddressRange", "encryptionConfigKeyArn", "enabledClusterLogTypes"),
    *("endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs", "deletionProtection", "upgradePolicy"),
    *("bootstrapSelfManagedAddons", "providerCredentialOpts", *_NEEDED),
}
_WITHOUT = {  # with any other value, or none, the real component makes more than the children below
    "authenticationMode": "API",
    "skipDefaultNodeGroup": True,
    "skipDefaultSecurityGroups": True,
    "useDefaultVpcCni": True,
    "kubeProxyAddonOptions.enabled": False,
}


class Eks(StandIn):
    """Stand-in for the eks provider, which has components only."""

    package = "eks"

    def calls(self) -> dict[str, Callable[[Any], Any]]:
        """Components and their methods, beside what every provider answers."""
        return {**super().calls(), "Construct": self._construct, "Call": self._call}

    def _construct(self, request: pb.ConstructRequest) -> pb.ConstructResponse:
        if request.type != CLUSTER:
            raise RefusedError(f"{request.type} is {_NOT_COVERED}, only {CLUSTER}")
        inputs = wire.from_struct(request.inputs)
        if found := sdk_types.problems(request.type, inputs):
            raise RefusedError(f"{request.name} ({request.type}): " + "; ".join(found))
        profile = request.config.get("aws:profile")
        args = {"providerCredentialOpts": {"profileName": profile}} if profile else {}
        args |= {name: value for name, value in wire.plain(inputs).items() if value is not None}
        _refuse(args)
        of = {name: list(one.urns) for name, one in request.inputDependencies.items()}
        with closing(Engine(request.monitorEndpoint, dict(request.providers))) as engine:
            # children inherit it, as in the SDK that the real component is written with
            engine.protect = request.protect if request.HasField("protect") else None
            options = {"depends": list(request.dependencies), "aliases": list(request.aliases)}
            me = engine.register(request.type, request.name, request.parent, custom=False, **options)
            state, made_of = _Cluster(engine, me, request.name, args, of).make()
            engine.outputs(me, state)
        return pb.ConstructResponse(
            urn=me.urn,
            state=wire.to_struct(state),
            stateDependencies={
                name: pb.ConstructResponse.PropertyDependencies(urns=made_of.get(name, ())) for name in state
            },
        )

    def _call(self, request: pb.CallRequest) -> pb.CallResponse:
        raise RefusedError(f"{request.tok} is {_NOT_COVERED}")


def _refuse(args: dict[str, Any]) -> None:
    """What the stand-in does not cover, and what the real component refuses."""
    known = _COVERED | {path.split(".")[0] for path in _WITHOUT}
    found = [
        f"`{option}`"
        for option, value in sorted(args.items())
        if option not in known and any(leaf for _, leaf in wire.leaves(value))
    ]
    found += [
        f"`{path}` other than {json.dumps(value)}" for path, value in _WITHOUT.items() if wire.at(args, path) != value
    ]
    found += [f"no `{option}`" for option in _NEEDED if not args.get(option)]
    if found:
        raise RefusedError(f"{CLUSTER}: {_NOT_COVERED}: {', '.join(found)}")
    if args.get("publicAccessCidrs") and args.get("endpointPublicAccess") is False:
        raise RefusedError("`publicAccessCidrs` can only be set when `endpointPublicAccess` is true")


def kubeconfig(cluster: Child, credentials: dict[str, Any], *, with_profile: bool) -> tuple[Any, str]:
    """The kubeconfig of a cluster, as an object and as text; both unknown as long as a part of it is."""
    arn = cluster.out("arn")
    command = ["--region", arn.split(":")[3] if arn.count(":") > 2 else wire.UNKNOWN]
    command += ["eks", "get-token", "--cluster-name", cluster.out("name"), "--output", "json"]
    if credentials.get("roleArn"):
        command += ["--role", credentials["roleArn"]]
    if with_profile and credentials.get("profileName"):
        command += ["--profile", credentials["profileName"]]
    version = "client.authentication.k8s.io/v1beta1"
    server = {
        "server": cluster.out("endpoint"),
        "certificate-authority-data": cluster.out("certificateAuthority.data"),
    }
    environment = [{"name": "KUBERNETES_EXEC_INFO", "value": f'{{"apiVersion": "{version}"}}'}]
    user = {"exec": {"apiVersion": version, "command": "aws", "args": command, "env": environment}}
    config = {
        "apiVersion": "v1",
        "clusters": [{"cluster": server, "name": "kubernetes"}],
        "contexts": [{"context": {"cluster": "kubernetes", "user": "aws"}, "name": "aws"}],
        "current-context": "aws",
        "kind": "Config",
        "users": [{"name": "aws", "user": user}],
    }
    return (wire.UNKNOWN, wire.UNKNOWN) if wire.has_unknown(config) else (config, _compact(config))


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class _Cluster:
    """One `eks.Cluster` in the making."""

    def __init__(self, engine: Engine, me: Child, name: str, args: dict[str, Any], of: Deps) -> None:
        self.engine, self.me, self.name, self.args, self.of = engine, me, name, args, of
        key = args.get("encryptionConfigKeyArn")
        self.encryption = {"provider": {"keyArn": key}, "resources": ["secrets"]} if key else None
        given = args.get("providerCredentialOpts") or {}
        self.credentials = {"roleArn": wire.UNKNOWN} if given == wire.UNKNOWN else given

    def make(self) -> tuple[dict[str, Any], Deps]:
        """Registers everything.

        Returns:
            The component's outputs, and for each the URNs that it is made of.
        """
        args = self.args
        role, attached = self._service_role(f"{self.name}-eksRole")
        cluster = self._control_plane(role, attached)
        provider = self.engine.register(
            "pulumi:providers:kubernetes",
            f"{self.name}-eks-k8s",
            self.me.urn,
            {"kubeconfig": kubeconfig(cluster, self.credentials, with_profile=True)[1]},
            of={"kubeconfig": [cluster.urn, *self._from("providerCredentialOpts")]},
        )
        config, text = kubeconfig(cluster, self.credentials, with_profile=False)
        issuer = cluster.out("identities.0.oidcs.0.issuer")
        group = cluster.out("vpcConfig.clusterSecurityGroupId")
        core = {
            "cluster": cluster.ref(),
            "clusterIamRole": role.ref(),
            "vpcId": args["vpcId"],
            "subnetIds": args["privateSubnetIds"],
            "privateSubnetIds": args["privateSubnetIds"],
            "endpoint": cluster.out("endpoint"),
            "provider": provider.ref(),
            "instanceRoles": [],
            "nodeGroupOptions": {"version": args["version"]} if "version" in args else {},
            "kubeconfig": config,
            "storageClasses": {},
            "accessEntries": [],
            "autoModeNodeRoleName": "",
        }
        state = {
            "kubeconfig": config,
            "kubeconfigJson": text,
            "eksCluster": cluster.ref(),
            "core": core | ({"encryptionConfig": self.encryption} if self.encryption else {}),
            "instanceRoles": [],
            "clusterSecurityGroupId": group,
            "nodeSecurityGroupId": group,
            "clusterIngressRuleId": "",
            "defaultNodeGroupAsgName": "",
            "fargateProfileId": "",
            "fargateProfileStatus": "",
            "oidcProviderArn": "",
            "oidcProviderUrl": issuer,
            "oidcIssuer": issuer.removeprefix("https://"),
            "autoModeNodeRoleName": "",
        }
        made_of = {prop: [cluster.urn] for prop, value in state.items() if value}
        return state, {**made_of, "core": [cluster.urn, provider.urn, role.urn]}

    def _from(self, *props: str) -> list[str]:
        """URNs that these arguments are made of."""
        return sorted({urn for prop in props for urn in self.of.get(prop, ())})

    def _service_role(self, name: str) -> tuple[Child, Child]:
        component = self.engine.register("eks:index:ServiceRole", name, self.me.urn, custom=False)
        statement = {
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Effect": "Allow",
            "Principal": {"Service": ["eks.amazonaws.com"]},
        }
        role = self.engine.register(
            "aws:iam/role:Role",
            f"{name}-role",
            component.urn,
            {
                "description": "Allows EKS to manage clusters on your behalf.",
                "assumeRolePolicy": _compact({"Version": "2012-10-17", "Statement": [statement]}),
            },
            of={"tags": []},
        )
        partition = self.engine.look_up("aws:index/getPartition:getPartition", {})["partition"]
        fixed = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"  # the name is made of this, whatever the partition
        attached = self.engine.register(
            "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
            f"{name}-{hashlib.sha1(fixed.encode(), usedforsecurity=False).hexdigest()[:8]}",
            component.urn,
            {"policyArn": fixed.replace("arn:aws:", f"arn:{partition}:"), "role": role.out("name")},
            of={"role": [role.urn]},
        )
        self.engine.outputs(component, {"resolvedRole": role.ref(), "directRole": role.ref()})
        return role, attached

    def _control_plane(self, role: Child, attached: Child) -> Child:
        args, name = self.args, f"{self.name}-eksCluster"
        services = args.get("kubernetesServiceIpAddressRange")
        same = ("name", "version", "enabledClusterLogTypes", "upgradePolicy", "deletionProtection")
        access = ("endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs")
        return self.engine.register(
            "aws:eks/cluster:Cluster",
            name,
            self.me.urn,
            {
                **{prop: args.get(prop) for prop in same},
                "roleArn": role.out("arn"),
                "vpcConfig": {
                    **{prop: args[prop] for prop in access if prop in args},
                    "subnetIds": args["privateSubnetIds"],
                },
                "kubernetesNetworkConfig": {"ipFamily": "ipv4", "serviceIpv4Cidr": services} if services else None,
                "bootstrapSelfManagedAddons": args.get("bootstrapSelfManagedAddons", True),
                "encryptionConfig": self.encryption,
                "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True},
                "tags": {"Name": name},
            },
            depends=[attached.urn],
            of={
                **{prop: self._from(prop) for prop in same},
                "roleArn": [role.urn],
                "vpcConfig": self._from("privateSubnetIds", *access),
                "encryptionConfig": self._from("encryptionConfigKeyArn"),
                "kubernetesNetworkConfig": self._from("kubernetesServiceIpAddressRange"),
                "tags": [],
            },
            ignoreChanges=["accessConfig.bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons"],
        )
