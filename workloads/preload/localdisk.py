"""Is a folder on EC2 instance storage? Found out from the kernel, without any tool.

In a pod `/` is an overlay which may itself lie on the local disks, so comparing with it proves nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from podkit.display import show
from podkit.errors import Exit, FaststartError

INSTANCE_STORAGE = "Amazon EC2 NVMe Instance Storage"
"""What sysfs says as the model of such a disk; an EBS volume says "Amazon Elastic Block Store"."""


@dataclass(frozen=True)
class Disk:
    """What a folder lies on.

    Attributes:
        folder: the folder.
        mount_point: of the mount that it lies in.
        file_system: the type of that mount.
        block_devices: name and model of each disk below it; none if there is no block device.
    """

    folder: bytes
    mount_point: bytes
    file_system: str
    block_devices: tuple[tuple[str, str], ...]


def disk_of(folder: bytes, proc: str = "/proc", sysfs: str = "/sys") -> Disk:
    """Return what an existing folder lies on.

    Args:
        folder: the folder.
        proc: where proc is mounted.
        sysfs: where sysfs is mounted.
    """
    point, device, kind = _mount_of(os.path.realpath(folder), proc)
    block = f"{sysfs}/dev/block/{device}"
    disks = _disks(os.path.realpath(block)) if os.path.isdir(block) else []
    return Disk(folder, point, kind, tuple(disks))


def require(disk: Disk) -> None:
    """Hold that each disk below a folder is instance storage.

    Raises:
        FaststartError: 10, at least one disk is something else, or it cannot be told.
    """
    if disk.block_devices and all(model == INSTANCE_STORAGE for _, model in disk.block_devices):
        return
    devices = ", ".join(f"{name} ({model})" for name, model in disk.block_devices)
    found = devices or f"{disk.file_system}, which is on no block device"
    point = show(disk.mount_point)
    message = f"--require-local-disk: is on {point}, that is {found}; expected only {INSTANCE_STORAGE!r}"
    raise FaststartError(Exit.REFUSED, message, disk.folder)


def _mount_of(folder: bytes, proc: str) -> tuple[bytes, str, str]:
    """Return mount point, "major:minor" and file system type of the mount that a resolved path lies in."""
    best = (b"", "", "no known mount")
    try:
        with open(f"{proc}/self/mountinfo", "rb") as file:
            lines = file.readlines()
    except OSError:
        return best
    for line in lines:
        fields = line.split()
        point = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), fields[4])
        inside = folder == point or folder.startswith(point.rstrip(b"/") + b"/")
        # Of two mounts on one point the later line is the one on top.
        if inside and len(point) >= len(best[0]):
            best = (point, fields[2].decode(), fields[fields.index(b"-") + 1].decode())
    return best


def _disks(block: str) -> list[tuple[str, str]]:
    """Return name and model of each disk below a block device: of itself, or of all that a RAID or LVM lies on."""
    if os.path.exists(f"{block}/partition"):
        block = os.path.dirname(block)
    slaves = f"{block}/slaves"
    members = sorted(os.listdir(slaves)) if os.path.isdir(slaves) else []
    if members:
        return [disk for member in members for disk in _disks(os.path.realpath(f"{slaves}/{member}"))]
    try:
        with open(f"{block}/device/model", encoding="utf-8", errors="replace") as file:
            model = file.read().strip()
    except OSError:
        model = "unknown model"
    return [(os.path.basename(block), model)]
