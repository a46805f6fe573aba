"""A Kubernetes control plane on loopback: etcd, API server, scheduler and controller manager as ordinary processes.

Set up as on EKS where it matters to a program: RBAC, the default admission plugins, no anonymous look at objects.
Nothing of it outlives who started it, and nothing is kept: it starts empty.
"""

import contextlib
import datetime as dt
import ipaddress
import json
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from lab import starter
from lab.kube.tools import KubeTools

START_SECONDS = 90
END_SECONDS = 5
_LAST_LINES = 12
_DAYS = 30

SERVICE_CIDR = "172.20.0.0/16"
"""EKS's default."""


class ControlPlaneError(Exception):
    """A part of the control plane did not start, or ended; the text has its last words."""


@dataclass
class ControlPlane:
    """The processes and what leads to them.

    Attributes:
        folder: certificates, data, a log for each process; emptied at the start.
        tools: the executables.
        toleration_seconds: how long a pod stays on a node that is lost, where the pod says nothing (300 on EKS).
        monitor_seconds: how long a node may be silent before it counts as lost (40 on EKS).
    """

    folder: Path
    tools: KubeTools
    toleration_seconds: int = 300
    monitor_seconds: int = 40
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    port: int = field(default=0, init=False)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False, repr=False)

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        """The certificate that its own is signed with."""
        return self.folder / "certificates" / "ca.pem"

    @property
    def kubeconfig(self) -> Path:
        """For kubectl, as a member of system:masters."""
        return self.folder / "kubeconfig"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Starts it, and ends it with the block.

        Raises:
            ControlPlaneError: it did not start.
        """
        try:
            self._start()
            yield
        finally:
            self._end()

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        """What kubectl prints.

        Raises:
            subprocess.CalledProcessError: it failed; with what it said.
        """
        command = [self.tools.path("kubectl"), "--kubeconfig", self.kubeconfig, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=check)
        return done.stdout

    def check(self) -> None:
        """Holds that all processes run.

        Raises:
            ControlPlaneError: one has ended.
        """
        for name, process in self._processes.items():
            if process.poll() is not None:
                log = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
                words = "\n".join(log.splitlines()[-_LAST_LINES:])
                raise ControlPlaneError(f"{name} ended with {process.returncode}:\n{words}")

    # ---- start

    def _start(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, mode=0o700)
        certificates = self.authority.parent
        certificates.mkdir()
        _write_certificates(certificates)
        (certificates / "tokens.csv").write_text(f'{self.token},admin,1,"system:masters"\n', encoding="utf-8")
        self.port, etcd, peers, scheduler, manager = _free_ports(5)
        self.kubeconfig.write_text(json.dumps(self._config()), encoding="utf-8")
        self.kubeconfig.chmod(0o600)
        client = f"http://127.0.0.1:{etcd}"
        self._run(
            "etcd",
            *("--data-dir", self.folder / "data", "--unsafe-no-fsync", "--log-level", "warn"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", f"http://127.0.0.1:{peers}"),
        )
        self._run(
            "kube-apiserver",
            *("--etcd-servers", client, "--bind-address", "127.0.0.1", "--secure-port", str(self.port)),
            *("--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none"),
            *("--tls-cert-file", certificates / "api.pem", "--tls-private-key-file", certificates / "api.key"),
            *("--client-ca-file", self.authority, "--token-auth-file", certificates / "tokens.csv"),
            *("--authorization-mode", "RBAC", "--anonymous-auth=false", "--allow-privileged=true"),
            *("--service-account-key-file", certificates / "accounts.pub"),
            *("--service-account-signing-key-file", certificates / "accounts.key"),
            *("--service-account-issuer", "https://localhost", "--service-cluster-ip-range", SERVICE_CIDR),
            *("--default-not-ready-toleration-seconds", str(self.toleration_seconds)),
            *("--default-unreachable-toleration-seconds", str(self.toleration_seconds)),
        )
        self._await("the API server", lambda: self._answers("get", "--raw", "/readyz"))
        asked = ("--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig")
        config = [part for flag in asked for part in (flag, self.kubeconfig)]
        loopback = ["--bind-address", "127.0.0.1", "--leader-elect=false"]
        self._run("kube-scheduler", *config, *loopback, "--secure-port", str(scheduler))
        self._run(
            "kube-controller-manager",
            *(*config, *loopback, "--secure-port", str(manager)),
            *("--service-account-private-key-file", certificates / "accounts.key"),
            *("--root-ca-file", self.authority, "--use-service-account-credentials=true"),
            *("--node-monitor-grace-period", f"{self.monitor_seconds}s", "--node-monitor-period", "1s"),
        )
        # A namespace without it refuses all pods.
        self._await("the first service account", lambda: self._answers("get", "serviceaccount", "default"))

    def _run(self, name: str, *arguments: str | Path) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                starter.bound([self.tools.path(name), *arguments], signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for who started us, who then ends these in order
            )

    def _answers(self, *arguments: str) -> bool:
        command = [self.tools.path("kubectl"), "--kubeconfig", self.kubeconfig, "--request-timeout", "5s", *arguments]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _await(self, what: str, there: Callable[[], bool]) -> None:
        give_up = time.monotonic() + START_SECONDS
        while not there():
            self.check()
            if time.monotonic() > give_up:
                raise ControlPlaneError(f"{what} is not there after {START_SECONDS} s; the logs are in {self.folder}")
            time.sleep(0.1)

    def _config(self) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "local", "cluster": {"server": self.url, "certificate-authority": str(self.authority)}}
            ],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            "current-context": "local",
        }

    # ---- end

    def _end(self) -> None:
        """Ends all, clients first; nothing of the data is wanted, so nobody is asked to write it down."""
        for name, process in reversed(self._processes.items()):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL if name in ("etcd", "kube-apiserver") else signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self.folder / "data", ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _write_certificates(folder: Path) -> None:
    """An authority, the API server's certificate by it, and the key that service account tokens are signed with."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "faststart kube")])
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = (
        _certificate(name, name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    hosts = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    certificate = (
        _certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]), name, key.public_key())
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding = serialization.Encoding.PEM
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    for path, data in {
        "ca.pem": authority.public_bytes(encoding),
        "api.pem": certificate.public_bytes(encoding),
        "api.key": _private(key),
        "accounts.key": _private(accounts),
        "accounts.pub": accounts.public_key().public_bytes(encoding, public),
    }.items():
        (folder / path).write_bytes(data)
        (folder / path).chmod(0o600)


def _private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=_DAYS))
    )
