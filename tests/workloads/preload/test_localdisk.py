"""--require-local-disk, on stand-ins for proc and sysfs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.workloads.support import Result, preload, tree, write

NVME = "Amazon EC2 NVMe Instance Storage"
EBS = "Amazon Elastic Block Store"


class Machine:
    """A machine with mounts and block devices that exist only as files."""

    def __init__(self, root: Path):
        self.root = root
        self.source = write(root / "source")
        self.destination = root / "disks/0/model"
        write(root / "sys/dev/block", {})
        self.mounts = [f"20 1 0:50 / / rw - overlay overlay rw,lowerdir={root}"]

    def disk(self, name: str, number: str, model: str | None) -> Path:
        folder = write(self.root / "sys/devices/pci0" / name, {"dev": f"{number}\n".encode(), "slaves": None})
        if model is not None:
            write(folder, {"device/model": f"{model:<40}\n".encode()})
        return self._device(folder, number)

    def partition(self, disk: Path, name: str, number: str) -> Path:
        return self._device(write(disk / name, {"partition": b"1\n"}), number)

    def stacked(self, name: str, number: str, *members: Path) -> Path:
        folder = write(self.root / "sys/devices/virtual/block" / name, {"slaves": None})
        for member in members:
            (folder / "slaves" / member.name).symlink_to(os.path.relpath(member, folder / "slaves"))
        return self._device(folder, number)

    def _device(self, folder: Path, number: str) -> Path:
        links = self.root / "sys/dev/block"
        (links / number).symlink_to(os.path.relpath(folder, links))
        return folder

    def mount(self, point: Path, number: str, kind: str = "xfs") -> None:
        point.mkdir(parents=True, exist_ok=True)
        escaped = str(point).replace("\\", "\\134").replace(" ", "\\040")
        self.mounts.append(f"30 20 {number} / {escaped} rw,relatime shared:1 master:2 - {kind} /dev/x rw")

    def preload(self) -> Result:
        write(self.root / "proc", {"self/mountinfo": "\n".join([*self.mounts, ""]).encode()})
        proc, sysfs = str(self.root / "proc"), str(self.root / "sys")
        return preload(self.source, self.destination, "--require-local-disk", proc=proc, sysfs=sysfs)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path.resolve())


def passes(machine: Machine) -> bool:
    result = machine.preload()
    assert result.code in (0, 10)
    if result.code == 10:
        assert f"expected only {NVME!r}" in result.message
        assert not machine.destination.exists()
    else:
        assert tree(machine.destination) == tree(machine.source)
    return result.code == 0


def test_one_instance_store_disk_passes(machine):
    machine.disk("nvme1n1", "259:1", NVME)
    machine.mount(machine.root / "disks", "259:1")
    assert passes(machine)


def test_a_raid_of_instance_store_disks_passes(machine):
    members = [machine.disk(f"nvme{n}n1", f"259:{n}", NVME) for n in range(1, 9)]
    machine.stacked("md127", "9:127", *members)
    machine.mount(machine.root / "disks/0", "9:127")
    assert passes(machine)


def test_a_logical_volume_on_a_raid_of_partitions_of_instance_store_disks_passes(machine):
    disks = [machine.disk(f"nvme{n}n1", f"259:{n}", NVME) for n in (1, 2)]
    parts = [machine.partition(disk, f"{disk.name}p1", f"259:1{n}") for n, disk in enumerate(disks)]
    raid = machine.stacked("md0", "9:0", *parts)
    machine.stacked("dm-0", "253:0", raid)
    machine.mount(machine.root / "disks", "253:0")
    assert passes(machine)


def test_an_ebs_volume_fails_and_the_message_says_what_was_found(machine):
    machine.disk("nvme0n1", "259:0", EBS)
    machine.mount(machine.root / "disks", "259:0")
    assert not passes(machine)
    assert f"nvme0n1 ({EBS})" in machine.preload().message


def test_a_partition_of_an_ebs_volume_fails(machine):
    machine.partition(machine.disk("nvme0n1", "259:0", EBS), "nvme0n1p1", "259:3")
    machine.mount(machine.root / "disks", "259:3")
    assert not passes(machine)


def test_a_raid_with_one_ebs_volume_in_it_fails(machine):
    machine.stacked("md0", "9:0", machine.disk("nvme0n1", "259:0", EBS), machine.disk("nvme1n1", "259:1", NVME))
    machine.mount(machine.root / "disks", "9:0")
    assert not passes(machine)


@pytest.mark.parametrize("model", [None, "", "QEMU NVMe Ctrl", NVME + " II"])
def test_an_unknown_disk_fails(machine, model):
    machine.disk("sda", "8:0", model)
    machine.mount(machine.root / "disks", "8:0")
    assert not passes(machine)


def test_an_overlay_root_fails_whatever_it_lies_on(machine):
    machine.disk("nvme1n1", "259:1", NVME)
    assert not passes(machine)
    assert "overlay, which is on no block device" in machine.preload().message


def test_a_tmpfs_fails(machine):
    machine.mount(machine.root / "disks", "0:77", "tmpfs")
    assert not passes(machine)
    assert "tmpfs, which is on no block device" in machine.preload().message


def test_the_nearest_mount_counts_and_of_two_on_one_point_the_later(machine):
    machine.disk("nvme1n1", "259:1", NVME)
    machine.disk("nvme0n1", "259:0", EBS)
    machine.mount(machine.root, "259:0")
    machine.mount(machine.root / "disks", "259:0")
    machine.mount(machine.root / "disks", "259:1")
    machine.mount(machine.root / "disks/00", "259:0")
    assert passes(machine)


def test_a_mount_point_with_a_blank_in_it_is_found(machine):
    machine.destination = machine.root / "local disks\\0/model"
    machine.disk("nvme1n1", "259:1", NVME)
    machine.mount(machine.root / "local disks\\0", "259:1")
    assert passes(machine)


def test_a_link_to_another_disk_is_followed_before_the_mount_is_looked_up(machine):
    machine.disk("nvme1n1", "259:1", NVME)
    machine.mount(machine.root / "disks", "259:1")
    write(machine.root / "elsewhere", {})
    write(machine.root / "disks", {})
    (machine.root / "disks/0").symlink_to("../elsewhere")
    assert not passes(machine)


def test_without_a_readable_proc_it_cannot_be_told_and_fails(machine):
    result = preload(machine.source, machine.destination, "--require-local-disk", proc="/nowhere", sysfs="/nowhere")
    assert result.code == 10
