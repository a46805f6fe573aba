"""Remote services that the programs ask, as stand-ins on loopback: the Hugging Face hub, S3, a container registry."""
