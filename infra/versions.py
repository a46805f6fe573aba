"""Every chart and image that an environment runs, once, by version tag.

A digest is never typed here: what a tag stood for is a fact of the registry, which `make pin-images` asks, and stands
in `stacks/images.lock.json` (see `infra.images`).
"""

from typing import NamedTuple

KUBERNETES = "1.35"

# https://github.com/vllm-project/vllm: since v0.25 the image runs as uid 2000, gid 0.
VLLM_IMAGE = "docker.io/vllm/vllm-openai:v0.32.0"
# A slim Python with a shell: one-off Jobs on CPU nodes.
TOOLS_IMAGE = "public.ecr.aws/docker/library/python:3.12-slim-bookworm"
IMAGES = (VLLM_IMAGE, TOOLS_IMAGE)


class Chart(NamedTuple):
    """A Helm chart of somebody else's.

    Attributes:
        name: The chart's name, also the folder's in a mirror.
        version: The exact version.
        repository: The repository it is published in.
    """

    name: str
    version: str
    repository: str


FSX_CSI_CHART = Chart("aws-fsx-csi-driver", "1.17.0", "https://kubernetes-sigs.github.io/aws-fsx-csi-driver")
EFA_CHART = Chart("aws-efa-k8s-device-plugin", "v0.5.30", "https://aws.github.io/eks-charts")
NVIDIA_CHART = Chart("nvidia-device-plugin", "0.20.0", "https://nvidia.github.io/k8s-device-plugin")

# https://docs.aws.amazon.com/eks/latest/userguide/add-ons-images.html: the regions that share one registry account.
_ADD_ON_ACCOUNT = "602401143452"
_ADD_ON_REGIONS = (
    *("ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1", "ap-southeast-2"),
    *("ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3", "sa-east-1"),
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2"),
)


def efa_image_repository(region: str) -> str:
    """Repository of the EFA plugin's image: the region's own, or the chart's default where its account is another."""
    home = region if region in _ADD_ON_REGIONS else "us-west-2"
    return f"{_ADD_ON_ACCOUNT}.dkr.ecr.{home}.amazonaws.com/eks/aws-efa-k8s-device-plugin"
