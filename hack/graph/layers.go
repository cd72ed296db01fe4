package main

import "strings"

// layer is a group of packages that import each other and the layers below, never a layer above.
type layer struct {
	// name of the layer, as docs/architecture.md has it.
	name string

	// packages are paths below the module. "pkg/engine/opa/..." means pkg/engine/opa and every package
	// below it. The longest path that fits a package decides.
	packages []string
}

// layers returns the layers of docs/architecture.md, the highest first. A new package belongs into
// one of them, here and on that page.
func layers() []layer {
	return []layer{
		{name: "tests and tools", packages: []string{
			"config/...", "hack/...", "test/...",
			"pkg/resourceconsist/adaptertest/...", "pkg/adapters/haproxy/haproxytest", "pkg/adapters/alibabacloudslb/internal/slbtest",
		}},
		{name: "programs", packages: []string{
			"cmd/...", "examples/...", "pkg/adapters/alibabacloudslb/cmd/...",
		}},
		{name: "wiring", packages: []string{"pkg/operator/..."}},
		{name: "controllers, webhooks and adapters", packages: []string{
			"pkg/controllers/...", "pkg/webhooks/...", "pkg/adapters/...", "pkg/kvstore",
		}},
		{name: "components", packages: []string{
			"pkg/telemetry/budgetuse", "pkg/telemetry/decisionlog", "pkg/view/doctor", "pkg/engine/evaluation/...", "pkg/state/eventqueue", "pkg/view/explain", "pkg/engine/opa/...", "pkg/state/ownerscale", "pkg/state/podfacts",
			"pkg/state/podindex/...", "pkg/podopslifecycle/...", "pkg/telemetry/podphases", "cmd/kubectl-podops/internal/podrelease", "pkg/state/podwriter", "pkg/state/policyusers", "pkg/state/replicasetpods",
			"pkg/resourceconsist", "pkg/telemetry/export", "pkg/resourceconsist/trafficadapter", "pkg/webhookrule/webhookclient/...",
			"pkg/operator/webhookserver", "pkg/webhookrule/webhooktask/dispatch",
		}},
		{name: "pure packages", packages: []string{
			"pkg/view/clusterstate", "pkg/core/deferreddelete", "pkg/runtime/kubeversion", "pkg/kvstore/plan", "pkg/core/lifecycle", "pkg/core/permit", "pkg/core/podoperation",
			"pkg/core/podstate", "pkg/core/replicasetscale", "pkg/resourceconsist/plan", "pkg/view/rolloutview", "pkg/core/rule/...", "pkg/view/timeline",
			"pkg/core/tracing", "pkg/webhookrule/webhooktask",
		}},
		{name: "small packages", packages: []string{
			"pkg/runtime/backoff", "pkg/runtime/buildinfo", "pkg/runtime/cabundle", "pkg/runtime/earliest", "pkg/runtime/fairshare", "pkg/internal/...", "pkg/runtime/lanes",
			"pkg/runtime/lazylog", "pkg/runtime/loadshed", "pkg/runtime/metricseries", "pkg/core/objectbounds", "pkg/runtime/observation", "pkg/core/podfields", "pkg/runtime/prune", "pkg/runtime/steadyclock", "pkg/runtime/text",
			"pkg/webhooks/clientauth",
		}},
		{name: "API, manifests and Rego", packages: []string{"apis/...", "config", "policies/..."}},
	}
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
