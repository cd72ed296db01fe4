package lifecycle_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"strings"
	"testing"
)

// TestDocsNameEveryKey shows that docs/lifecycle.md names every label, annotation, finalizer and
// value that apis/apps/v1alpha1/keys.go declares.
func TestDocsNameEveryKey(t *testing.T) {
	page, err := os.ReadFile("../../../docs/lifecycle.md")
	if err != nil {
		t.Fatalf("reading the page: %v", err)
	}
	keys := stringConstants(t, "../../../apis/apps/v1alpha1/keys.go")
	if len(keys) < 25 {
		t.Fatalf("only %d keys found", len(keys))
	}
	for name, value := range keys {
		if !strings.Contains(string(page), value) {
			t.Errorf("docs/lifecycle.md does not name %s, %q", name, value)
		}
	}
}

// stringConstants returns the values of the string constants that a file declares. The
// file must import nothing.
func stringConstants(t *testing.T, path string) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	pkg, err := (&types.Config{}).Check("keys", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatalf("checking types: %v", err)
	}
	values := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if ok && c.Val().Kind() == constant.String {
			values[name] = constant.StringVal(c.Val())
		}
	}
	return values
}
