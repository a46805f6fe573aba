//go:build tools

// Package tools pins the Pulumi CLI that the rehearsal builds where no installation is found.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
