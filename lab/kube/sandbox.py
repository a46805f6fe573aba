"""Becomes a container: namespaces, a root of its own with the pod's volumes, its user and rights, then its command.

    python3 -I -S sandbox.py run SPEC.json RECORD.json
    python3 -I -S sandbox.py connect PID ADDRESS PORT SECONDS

`run`: SPEC.json is written by `kube.processes`, which says what is in it. RECORD.json gets what the process was in the
moment before it became the command, as the kernel says it. The one process that stays outside the new process namespace
prints the command's number, hands SIGTERM on, and ends as the command did; if it is killed, so is all that is inside.

`connect`: makes a connection in the network of a process, and sends it to the socket that is its standard input.

Standard library alone, of the Python that starts it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterable
from typing import Any

Spec = dict[str, Any]

# linux/sched.h, linux/mount.h, linux/prctl.h, linux/sockios.h
_NEW_NS, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = (
    0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _NOATIME, _NODIRATIME, _BIND, _REC, _PRIVATE, _RELATIME = (
    1, 2, 4, 8, 32, 1024, 2048, 4096, 16384, 1 << 18, 1 << 21,
)  # fmt: skip
_KEPT_FLAGS = {  # statvfs(3) to mount(2): a user namespace must not take these away
    os.ST_NOSUID: _NOSUID, os.ST_NODEV: _NODEV, os.ST_NOEXEC: _NOEXEC, os.ST_NOATIME: _NOATIME,
    os.ST_NODIRATIME: _NODIRATIME, os.ST_RELATIME: _RELATIME,
}  # fmt: skip
_DEATH_SIGNAL, _DROP_BOUND, _NO_NEW_PRIVILEGES = 1, 24, 38
_SET_FLAGS, _SET_ADDRESS, _SET_MASK = 0x8914, 0x8916, 0x891C
_UP = 0x1 | 0x40
_CAPABILITIES = {  # linux/capability.h: those that containerd gives where a pod says nothing
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8,
    "NET_BIND_SERVICE": 10, "NET_RAW": 13, "SYS_CHROOT": 18, "MKNOD": 27, "AUDIT_WRITE": 29, "SETFCAP": 31,
}  # fmt: skip
_MISSING, _CANNOT = 127, 126

_libc = ctypes.CDLL(None, use_errno=True)


def connect(pid: str, address: str, port: str, seconds: str) -> int:
    """Make a connection in the network of a process and send it to standard input, or the error's number."""
    with socket.socket(fileno=0) as asked:
        try:
            # Who is not root belongs to the user namespace of the container first; a process with threads could not.
            for name, kind in (("user", _NEW_USER), ("net", _NEW_NET)):
                if name == "net" or os.geteuid():
                    with open(f"/proc/{pid}/ns/{name}", "rb") as namespace:
                        _check("setns", _libc.setns(namespace.fileno(), kind))
            with socket.create_connection((address, int(port)), float(seconds)) as found:
                socket.send_fds(asked, [b"0"], [found.fileno()])
        except TimeoutError:
            asked.send(b"%d" % errno.ETIMEDOUT)
        except OSError as error:
            asked.send(b"%d" % (error.errno or errno.EIO))
    return 0


def run(spec_path: str, record_path: str) -> int:
    """Run the container; return how it ended, as a shell would say it."""
    with open(spec_path, encoding="utf-8") as file:
        spec = json.load(file)
    # Opened before the root changes, and closed by the exec.
    record = os.open(record_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    _prctl(_DEATH_SIGNAL, signal.SIGKILL)
    _unshare(spec)
    # Open here for as long as this process lives: the child cannot see its parent, which is outside its namespace.
    lives, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tell)
        _become(spec, record, lives)
    os.close(record)
    print(child, flush=True)
    os.write(tell, b"1")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda found, _: os.kill(child, found))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _unshare(spec: Spec) -> None:
    if os.geteuid():
        uid, gid = os.geteuid(), os.getegid()
        _check("unshare", _libc.unshare(_NEW_USER))
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{spec['uid']} {uid} 1"),
            ("gid_map", f"{spec['gid']} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
                file.write(text)
    own_network = 0 if spec["addresses"] is None else _NEW_NET
    _check("unshare", _libc.unshare(_NEW_NS | _NEW_UTS | _NEW_IPC | _NEW_PID | own_network))


def _become(spec: Spec, record: int, lives: int) -> None:
    """Set everything up and become the command; does not return.

    Args:
        spec: what to become.
        record: where to write what the kernel says of it.
        lives: gives a byte once the number of this process was told, and ends with the parent.
    """
    try:
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)
        os.read(lives, 1)  # nothing is said before the number
        _mount(None, "/", flags=_REC | _PRIVATE)
        _make_root(spec)
        if spec["addresses"] is not None:
            _bring_up_loopback(spec["addresses"])
        socket.sethostname(spec["hostname"][:63])
        _change_root(spec)
        _give_up_rights(spec)
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)  # taken back when the user changed
        os.set_blocking(lives, False)
        with contextlib.suppress(BlockingIOError):
            os.read(lives, 1)
            os._exit(_CANNOT)  # the parent has died meanwhile
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # as Python has found it, so would the command
            signal.signal(number, signal.SIG_DFL)
        os.chdir(spec["directory"])
        _write_record(spec, record)
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - there may be none
    except FileNotFoundError as error:
        _end(_MISSING, f"{error.filename}: not found")
    except BaseException as error:  # noqa: BLE001 - nothing of this process may go on
        _end(_CANNOT, repr(error))


def _end(code: int, why: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"the container cannot be started: {why}\n".encode())
    os._exit(code)


# ---- file systems


def _make_root(spec: Spec) -> None:
    """Mount a root at spec["root"]: what the image has, what a runtime adds, the volumes."""
    root = spec["root"]
    _mount("root", root, "tmpfs", data="mode=0755,size=1g")
    for folder, mode in (("tmp", 0o1777), ("var/tmp", 0o1777), ("run", 0o755), ("etc", 0o755)):
        os.makedirs(f"{root}/{folder}", exist_ok=True)
        os.chmod(f"{root}/{folder}", mode)
    for home in spec["homes"]:
        os.makedirs(root + home, exist_ok=True)
        os.chown(root + home, spec["uid"], spec["gid"])
    for path, target in spec["links"].items():
        os.symlink(target, root + path)
    for path, text in spec["files"].items():
        with open(root + path, "w", encoding="utf-8") as file:
            file.write(text)
    targets = [volume["target"] for volume in spec["volumes"]]
    hidden = [path for path in spec["image"] if any(path.startswith(f"{target}/") for target in targets)]
    for path in spec["image"]:
        if path not in hidden:
            _bind(path, root + path, read_only=True)
    _make_devices(root)
    os.makedirs(f"{root}/proc", exist_ok=True)
    try:
        _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    except OSError:  # where parts of /proc are hidden, a user namespace gets no new one
        _bind("/proc", f"{root}/proc", read_only=False)
    _make_sysfs(root)
    for volume in sorted(spec["volumes"], key=lambda one: one["target"].count("/")):
        target = root + volume["target"]
        if volume["source"] is None:
            os.makedirs(target, exist_ok=True)
            _mount("tmpfs", target, "tmpfs", _NOSUID | _NODEV, f"mode=1777,size={volume['bytes']}")
        else:
            _bind(volume["source"], target, read_only=volume["read_only"])
        if volume["disk"]:
            _name_disk(root, target, volume["disk"])
    for path in hidden:  # an image's folder would lie elsewhere: a pod's own /tmp must not hide one that is in ours
        _bind(path, root + path, read_only=True)
    _remount_read_only(f"{root}/sys")
    if spec["read_only_root"]:
        _remount_read_only(root)


def _make_devices(root: str) -> None:
    os.makedirs(f"{root}/dev", exist_ok=True)
    _mount("tmpfs", f"{root}/dev", "tmpfs", _NOSUID, "mode=0755,size=64k")
    for name in ("null", "zero", "full", "random", "urandom"):
        _bind(f"/dev/{name}", f"{root}/dev/{name}", read_only=False)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"{root}/dev/{name}")
    shared = f"{root}/dev/shm"  # noqa: S108 - what containerd gives where a pod has no volume there
    os.makedirs(shared)
    _mount("shm", shared, "tmpfs", _NOSUID | _NODEV | _NOEXEC, "mode=1777,size=64m")


def _make_sysfs(root: str) -> None:
    """Mount what is to be seen of the kernel's devices: processors and groups are real, disks are not."""
    os.makedirs(f"{root}/sys", exist_ok=True)
    _mount("sysfs", f"{root}/sys", "tmpfs", _NOSUID | _NODEV | _NOEXEC, "mode=0755,size=1m")
    for path in ("/sys/devices", "/sys/fs/cgroup", "/sys/kernel/mm"):
        if os.path.isdir(path):
            _bind(path, root + path, read_only=True)


def _name_disk(root: str, target: str, model: str) -> None:
    """Let sysfs say that what a folder lies on is a disk of a model."""
    device = os.stat(target).st_dev
    folder = f"{root}/sys/dev/block/{os.major(device)}:{os.minor(device)}/device"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/model", "w", encoding="utf-8") as file:
        file.write(model + "\n")


def _bind(source: str, target: str, *, read_only: bool) -> None:
    if stat.S_ISDIR(os.stat(source).st_mode):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a", encoding="utf-8"):
            pass
    _mount(source, target, flags=_BIND | _REC)
    if read_only:
        _remount_read_only(target)


def _remount_read_only(target: str) -> None:
    found = os.statvfs(target).f_flag
    kept = sum(ours for theirs, ours in _KEPT_FLAGS.items() if found & theirs)
    _mount(None, target, flags=_BIND | _REMOUNT | _RDONLY | kept)


def _change_root(spec: Spec) -> None:
    os.chroot(spec["root"])
    os.chdir("/")


def _mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    texts = [text if text is None else os.fsencode(text) for text in (source, target, kind)]
    result = _libc.mount(*texts, ctypes.c_ulong(flags), data if data is None else data.encode())
    _check(f"mount {target}", result)


# ---- network, user


def _bring_up_loopback(addresses: Iterable[str]) -> None:
    """Bring the loopback device up, with the pod's addresses on it, too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for number, address in enumerate(addresses, 1):
            name = f"lo:{number}".encode()
            for request, value in ((_SET_ADDRESS, address), (_SET_MASK, "255.255.255.255")):
                body = struct.pack("<16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(value))
                fcntl.ioctl(one, request, body)
        fcntl.ioctl(one, _SET_FLAGS, struct.pack("<16sH14x", b"lo", _UP))


def _give_up_rights(spec: Spec) -> None:
    dropped, added = ({name.removeprefix("CAP_") for name in spec[key]} for key in ("drop", "add"))
    usual = set() if "ALL" in dropped else _CAPABILITIES.keys() - dropped
    kept = {_CAPABILITIES[name] for name in usual | added}
    with contextlib.suppress(OSError):  # past the last one that the kernel knows
        for number in range(64):
            if number not in kept:
                _prctl(_DROP_BOUND, number)
    with contextlib.suppress(PermissionError):  # a user namespace has one group
        os.setgroups(spec["groups"])
    os.setresgid(spec["gid"], spec["gid"], spec["gid"])
    os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    if spec["no_new_privileges"]:
        _prctl(_NO_NEW_PRIVILEGES, 1)


def _write_record(spec: Spec, record: int) -> None:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = file.read().splitlines()
    with open("/proc/self/status", encoding="utf-8") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    found = {"argv": spec["argv"], "env": spec["env"], "mounts": mounts, "status": status}
    with open(record, "w", encoding="utf-8", closefd=True) as file:
        json.dump(found, file)


def _prctl(option: int, value: int) -> None:
    _check(f"prctl {option}", _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def _check(what: str, result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit({"run": run, "connect": connect}[sys.argv[1]](*sys.argv[2:]))
