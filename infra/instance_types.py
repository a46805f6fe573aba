"""Facts about EC2 instance types: the one table that the rest of the program asks.

A new family is new rows here. Sources are named by the section of the facts they were taken from: AWS's pages on EFA
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html), AWS's FSx client script
(https://docs.aws.amazon.com/fsx/latest/LustreGuide/configure-efa-clients.html) and Karpenter's generated instance
reference. `tests/infra/test_instance_types.py` compares every row with a second source.
"""

from typing import Literal, NamedTuple

GIB = 2**30


class InstanceType(NamedTuple):
    """What faststart needs to know of one instance type.

    Attributes:
        name: The EC2 name.
        vcpus: Virtual CPUs.
        memory_gib: Memory in GiB.
        gpus: GPUs; 0 for a CPU type.
        gpu: The GPU's product name, empty for a CPU type.
        gpu_memory_mib: Memory of one GPU in MiB, as the driver reports it.
        nvme_gb: Instance-store NVMe in GB (10^9 bytes), all disks together.
        network_gbps: Baseline network bandwidth in Gbit/s, all cards together.
        network_cards: Network cards.
        efa: Cards that take an EFA interface; one less than `network_cards` where card 0 has none.
        lnet: LNet interfaces that a Lustre client configures on it; 0 = it cannot mount FSx over EFA.
        lustre_efa: What says that it can (or cannot) mount FSx over EFA: "listed" by AWS's own script or tutorial,
            "derived" from "Nitro v4 or newer with EFA" (the family's other sizes), or "no".
    """

    name: str
    vcpus: int
    memory_gib: int
    gpus: int
    gpu: str
    gpu_memory_mib: int
    nvme_gb: int
    network_gbps: float
    network_cards: int
    efa: int
    lnet: int
    lustre_efa: Literal["listed", "derived", "no"]

    @property
    def gpu_memory_gib(self) -> float:
        """Memory of one GPU in GiB."""
        return self.gpu_memory_mib / 1024

    @property
    def allocatable_nvme_gib(self) -> int:
        """Ephemeral storage in GiB that a RAID0 node of this type offers to pods; 0 without NVMe.

        The file system less the kubelet's eviction threshold of 10 % and nodeadm's reserve of 1 GiB
        (awslabs/amazon-eks-ami: nodeadm), less 1 % that XFS keeps for itself: an assumption on the safe side.
        """
        return max(0, int(self.nvme_gb * 10**9 / GIB * 0.99 * 0.90) - 1)


# fmt: off
_ROWS = (
    #             name                vCPU   GiB  GPUs  GPU             MiB    NVMe GB  Gbps   cards efa lnet over EFA
    InstanceType("g6.xlarge",            4,   16,   1, "L4",          22888,      250,    2.5,   1,  0,  0, "no"),
    InstanceType("g6.2xlarge",           8,   32,   1, "L4",          22888,      450,    5,     1,  0,  0, "no"),
    InstanceType("g6.4xlarge",          16,   64,   1, "L4",          22888,      600,   10,     1,  0,  0, "no"),
    InstanceType("g6.8xlarge",          32,  128,   1, "L4",          22888,      900,   25,     1,  1,  1, "derived"),
    InstanceType("g6.12xlarge",         48,  192,   4, "L4",          22888,     3760,   40,     1,  1,  1, "derived"),
    InstanceType("g6.16xlarge",         64,  256,   1, "L4",          22888,     1880,   25,     1,  1,  1, "listed"),
    InstanceType("g6.24xlarge",         96,  384,   4, "L4",          22888,     3760,   50,     1,  1,  1, "derived"),
    InstanceType("g6.48xlarge",        192,  768,   8, "L4",          22888,     7520,  100,     1,  1,  1, "derived"),
    InstanceType("gr6.4xlarge",         16,  128,   1, "L4",          22888,      600,   10,     1,  0,  0, "no"),
    InstanceType("gr6.8xlarge",         32,  256,   1, "L4",          22888,      900,   25,     1,  1,  1, "derived"),
    InstanceType("g6e.xlarge",           4,   32,   1, "L40S",        45776,      250,    2.5,   1,  0,  0, "no"),
    InstanceType("g6e.2xlarge",          8,   64,   1, "L40S",        45776,      450,    5,     1,  0,  0, "no"),
    InstanceType("g6e.4xlarge",         16,  128,   1, "L40S",        45776,      600,   20,     1,  0,  0, "no"),
    InstanceType("g6e.8xlarge",         32,  256,   1, "L40S",        45776,      900,   25,     1,  1,  1, "derived"),
    InstanceType("g6e.12xlarge",        48,  384,   4, "L40S",        45776,     3800,  100,     1,  1,  1, "derived"),
    InstanceType("g6e.16xlarge",        64,  512,   1, "L40S",        45776,     1900,   35,     1,  1,  1, "derived"),
    InstanceType("g6e.24xlarge",        96,  768,   4, "L40S",        45776,     3800,  200,     2,  2,  2, "derived"),
    InstanceType("g6e.48xlarge",       192, 1536,   8, "L40S",        45776,     7600,  400,     4,  4,  2, "derived"),
    InstanceType("p4d.24xlarge",        96, 1152,   8, "A100",        40960,     8000,  400,     4,  4,  0, "no"),
    InstanceType("p4de.24xlarge",       96, 1152,   8, "A100",        81920,     8000,  400,     4,  4,  0, "no"),
    InstanceType("p5.4xlarge",          16,  256,   1, "H100",        81920,     3800,  100,     1,  1,  1, "derived"),
    InstanceType("p5.48xlarge",        192, 2048,   8, "H100",        81920,    30400, 3200,    32, 32,  8, "listed"),
    InstanceType("p5e.48xlarge",       192, 2048,   8, "H200",       144384,    30400, 3200,    32, 32,  8, "listed"),
    InstanceType("p5en.48xlarge",      192, 2048,   8, "H200",       144384,    30400, 3200,    16, 16,  8, "listed"),
    InstanceType("p6-b200.48xlarge",   192, 2048,   8, "B200",       183359,    30400, 3200,     8,  8,  8, "listed"),
    InstanceType("p6-b300.48xlarge",   192, 4096,   8, "B300",       275040,    30400, 6400,    17, 16, 16, "listed"),
    InstanceType("m6i.xlarge",           4,   16,   0, "",                0,        0,    1.562, 1,  0,  0, "no"),
    InstanceType("m6i.2xlarge",          8,   32,   0, "",                0,        0,    3.125, 1,  0,  0, "no"),
    InstanceType("m6i.4xlarge",         16,   64,   0, "",                0,        0,    6.25,  1,  0,  0, "no"),
    InstanceType("m7i.xlarge",           4,   16,   0, "",                0,        0,    1.562, 1,  0,  0, "no"),
    InstanceType("m7i.2xlarge",          8,   32,   0, "",                0,        0,    3.125, 1,  0,  0, "no"),
    InstanceType("m7i.4xlarge",         16,   64,   0, "",                0,        0,    6.25,  1,  0,  0, "no"),
)
# fmt: on

INSTANCE_TYPES = {row.name: row for row in _ROWS}
GPU_TYPES = tuple(row.name for row in _ROWS if row.gpus)
CPU_TYPES = tuple(row.name for row in _ROWS if not row.gpus)
