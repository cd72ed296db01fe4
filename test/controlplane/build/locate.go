package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// modulePath is the path of this module.
const modulePath = "github.com/podops-dev/podops/test/controlplane"

// Source finds the folder of this module: the folder from, a folder above it, or test/controlplane
// below one of these folders.
func Source(from string) (string, error) {
	folder, err := filepath.Abs(from)
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", from, err)
	}
	for {
		for _, candidate := range []string{folder, filepath.Join(folder, "test", "controlplane")} {
			data, err := os.ReadFile(filepath.Join(candidate, "go.mod"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", fmt.Errorf("looking for the module: %w", err)
			}
			if strings.HasPrefix(string(data), "module "+modulePath+"\n") {
				return candidate, nil
			}
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", fmt.Errorf("%s is not inside a checkout of PodOps: name test/controlplane with --source", from)
		}
		folder = parent
	}
}
