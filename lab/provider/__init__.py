"""HashiCorp's provider for AWS, asked without an account: what it refuses, and what it would change."""
