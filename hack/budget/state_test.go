package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStateIsDocumented shows that docs/state.md has each struct with a lock in pkg, and no other.
func TestStateIsDocumented(t *testing.T) {
	root := filepath.Join("..", "..")
	sources, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	locked := map[string]bool{}
	for name, text := range sources {
		if !isProduction(name, text) || !strings.HasPrefix(name, "pkg/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, ok := node.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok && hasLock(s) {
					locked[strings.TrimPrefix(path.Dir(name), "pkg/")+"."+spec.Name.Name] = true
				}
			}
			return true
		})
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "state.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(locked)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("rows of docs/state.md (-code +page):\n%s", diff)
	}
}
