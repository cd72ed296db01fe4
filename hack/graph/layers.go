package main

import "strings"

// maxArrows bounds the imports between rooms: the pairs in which one room imports the other. A change that needs another raises it,
// with the reason in its commit.
const maxArrows = 50

// layer is a group of packages that import each other and the layers below, never a layer above.
type layer struct {
	// name of the layer, as docs/architecture.md has it.
	name string

	// packages are paths below the module. "pkg/core/..." means pkg/core and every package
	// below it. The longest path that fits a package decides.
	packages []string

	// isRoom is true for a folder of pkg.
	isRoom bool
}

// layers returns the layers of docs/architecture.md, the highest first: what builds and tests, the programs, the rooms, and what all of
// them know. A new package belongs into one of them; a new room has its place here and on that page.
func layers() []layer {
	all := []layer{
		{name: "tests and tools", packages: []string{
			"hack/...", "test/...",
			"pkg/resourceconsist/adaptertest/...", "pkg/adapters/haproxy/haproxytest", "pkg/adapters/alibabacloudslb/internal/slbtest",
		}},
		{name: "programs", packages: []string{"cmd/...", "examples/...", "pkg/adapters/alibabacloudslb/cmd/..."}},
	}
	for _, room := range []string{
		"operator", "controllers", "webhooks", "adapters", "telemetry", "view", "engine", "state", "webhookrule",
		"resourceconsist", "podopslifecycle", "core", "runtime",
	} {
		all = append(all, layer{name: "pkg/" + room, packages: []string{"pkg/" + room + "/..."}, isRoom: true})
	}
	return append(all, layer{name: "API, manifests and Rego", packages: []string{"apis/...", "config", "policies/..."}})
}

// fits reports whether a pattern names a package, and how exactly.
func fits(pattern, name string) (exact int, ok bool) {
	root, below := strings.CutSuffix(pattern, "/...")
	switch {
	case name == root, below && strings.HasPrefix(name, root+"/"):
		return len(root), true
	default:
		return 0, false
	}
}
