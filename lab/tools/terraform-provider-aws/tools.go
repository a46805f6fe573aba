//go:build tools

// Package tools pins the provider for AWS that is built for the rehearsal.
package tools

import _ "github.com/hashicorp/terraform-provider-aws"
