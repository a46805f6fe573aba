// Command pulumi-resource-kubernetes is Pulumi's Kubernetes provider. Its own command embeds files that are not in the
// module; the schema is read from beside the executable instead.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

var version string

func main() {
	path, err := os.Executable()
	if err == nil {
		path = filepath.Join(filepath.Dir(path), "schema.json")
		var schema []byte
		if schema, err = os.ReadFile(path); err == nil {
			provider.Serve("kubernetes", version, schema, []byte("{}"))
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
