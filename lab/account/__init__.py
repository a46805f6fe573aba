"""An AWS account on this machine: moto's services, and answers of ours where moto has none (README.md)."""
