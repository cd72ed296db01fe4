package main

import (
	"path/filepath"
	"testing"
)

// TestPatchesApply fails for a patch that has to be written again since the code around it has changed.
func TestPatchesApply(t *testing.T) {
	t.Chdir("..")
	patches, err := filepath.Glob(filepath.Join(defects, "*.patch"))
	if err != nil || len(patches) < 20 {
		t.Fatalf("%d patches: %v", len(patches), err)
	}
	for _, patch := range patches {
		if _, err := apply(t.Context(), patch, t.TempDir()); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
}
