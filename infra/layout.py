"""Where things are and what they are called, as docs/contracts.md says: each name and path that several parts share.

Values only: the program, the tools beside it and `workloads.programs`, which needs no package, import it.
"""

# Namespaces.
SYSTEM_NAMESPACE = "faststart-system"
MODELS_NAMESPACE = "models"

# The user and group of what is published, and of every pod that serves: the vLLM image's own
# (https://github.com/vllm-project/vllm: docker/Dockerfile, v0.25 and later).
UID = 2000
GID = 0

# The file system, as pods see it.
LUSTRE = "/fsx"
MODELS = f"{LUSTRE}/models"
STAGING = f"{LUSTRE}/.faststart/staging"
COMPILE_CACHE = f"{LUSTRE}/.faststart/compile"
S3 = f"{LUSTRE}/s3"
FOLDERS = (MODELS, STAGING, COMPILE_CACHE, S3)
"""What a new file system gets: publishing writes below these and nowhere else."""

# Claims on it.
READ_WRITE_CLAIM = "faststart-models-rw"
READ_ONLY_CLAIM = "faststart-models-ro"

# In a pod.
PROGRAMS = "/opt/faststart"
START = f"{PROGRAMS}/start.py"
"""Runs the program whose name is its first argument."""
MODEL = "/models/current"
"""Where vLLM sees its model, however it was delivered: the path is part of vLLM's compile key."""
CACHE = "/cache"
TOKEN_FOLDER = "/run/secrets/faststart"  # noqa: S105 - a folder
TERMINATION_LOG = "/dev/termination-log"


def model_path(model: str, revision: str) -> str:
    """The folder of a published revision."""
    return f"{MODELS}/{model}/{revision}"


def staging_path(model: str, revision: str) -> str:
    """The folder in which a revision is put together."""
    return f"{STAGING}/{model}/{revision}"


def volume_name(claim: str, namespace: str) -> str:
    """The PersistentVolume of a claim: volumes have no namespace."""
    return f"{claim}-{namespace}"


def program_config_map(program: str) -> str:
    """The ConfigMap that carries a program of `workloads/`, the same in every namespace."""
    return f"faststart-{program}"
