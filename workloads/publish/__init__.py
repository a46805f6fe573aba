"""Publishes a model: from S3, Hugging Face or a folder to a sealed folder on shared storage (contracts.md, "Manifest").

Runs as a Job on a CPU node: `python3 -m publish SOURCE DESTINATION`, and by hand. Python 3.10 or newer; `s3` needs
boto3 and `hub` needs huggingface_hub, which the vLLM image brings, and all else the standard library, `podkit`,
`modelfolder` and the copy engine of `preload`.
"""
