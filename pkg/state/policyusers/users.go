// Package policyusers finds the rules that refer to a PodTransitionPolicy. It reads a
// cache with an index, so the cost grows with the rules found.
package policyusers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
)

// Field names the PodTransitionRule index, whose keys are the policies that a rule refers to.
const Field = "podops.policies"

// Index returns the names of the policies that a rule refers to, for the index Field: sorted, each once.
func Index(object client.Object) []string {
	rule, ok := object.(*appsv1alpha1.PodTransitionRule)
	if !ok {
		return nil
	}
	var names []string
	for _, r := range rule.Spec.Rules {
		if name := reference(r); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// reference returns the policy that a rule refers to; empty when it refers to no policy.
func reference(rule appsv1alpha1.TransitionRule) string {
	if rule.Rego == nil || rule.Rego.PolicyRef == nil {
		return ""
	}
	return rule.Rego.PolicyRef.Name
}

// User is one rule that refers to a policy.
type User struct {
	// Object is the PodTransitionRule.
	Object types.NamespacedName

	// Rule is the name within the PodTransitionRule.
	Rule string

	// Parameters of the rule; empty for a rule without parameters.
	Parameters json.RawMessage

	// Active rules are evaluated: they are enabled, and their PodTransitionRule selects
	// pods, or its status is too old to know. No other rule may deny an edit of the policy.
	Active bool
}

// String returns "<namespace>/<PodTransitionRule>/<rule>".
func (u User) String() string { return u.Object.String() + "/" + u.Rule }

// Of returns the rules of one PodTransitionRule that refer to the policy, in the order of
// the spec.
func Of(object *appsv1alpha1.PodTransitionRule, policy string) []User {
	var users []User
	for _, rule := range object.Spec.Rules {
		if reference(rule) != policy {
			continue
		}
		user := User{Object: client.ObjectKeyFromObject(object), Rule: rule.Name, Active: !rule.Disabled && maySelect(object)}
		if rule.Rego.Parameters != nil {
			user.Parameters = rule.Rego.Parameters.Raw
		}
		users = append(users, user)
	}
	return users
}

// maySelect reports whether an object selects pods according to its status, or has no current status.
func maySelect(object *appsv1alpha1.PodTransitionRule) bool {
	return object.Status.Selected > 0 || object.Status.ObservedGeneration < object.Generation || object.Status.ObservedGeneration == 0
}

// OnlyActive returns the users that are evaluated.
func OnlyActive(users []User) []User {
	return slices.DeleteFunc(slices.Clone(users), func(user User) bool { return !user.Active })
}

// Policies returns the PodTransitionPolicies of the cluster.
func Policies(ctx context.Context, cached client.Reader) (imports.Policies, error) {
	found := &appsv1alpha1.PodTransitionPolicyList{}
	if err := cached.List(ctx, found); err != nil {
		return nil, fmt.Errorf("listing PodTransitionPolicies: %w", err)
	}
	known := imports.Policies{}
	for i := range found.Items {
		known[found.Items[i].Name] = &found.Items[i]
	}
	return known, nil
}

// List returns the users of a policy, sorted by namespace, PodTransitionRule and rule.
// cached needs the index Field.
func List(ctx context.Context, cached client.Reader, policy string) ([]User, error) {
	found := &appsv1alpha1.PodTransitionRuleList{}
	if err := cached.List(ctx, found, client.MatchingFields{Field: policy}); err != nil {
		return nil, fmt.Errorf("listing the users of PodTransitionPolicy %q: %w", policy, err)
	}
	var users []User
	for i := range found.Items {
		users = append(users, Of(&found.Items[i], policy)...)
	}
	slices.SortFunc(users, func(a, b User) int {
		return cmp.Or(
			cmp.Compare(a.Object.Namespace, b.Object.Namespace),
			cmp.Compare(a.Object.Name, b.Object.Name),
			cmp.Compare(a.Rule, b.Rule),
		)
	})
	return users, nil
}
