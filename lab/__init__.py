"""What proves the program without a cloud: the rehearsal, a real Kubernetes, the real vLLM, the benchmark."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ROOT / "lab" / "tools"
