package imports_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
)

func policy(name, module, data string, imported ...string) *appsv1alpha1.PodTransitionPolicy {
	object := &appsv1alpha1.PodTransitionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec:       appsv1alpha1.PodTransitionPolicySpec{Module: module, Imports: imported},
	}
	if data != "" {
		object.Spec.Data = &apiextensionsv1.JSON{Raw: []byte(data)}
	}
	return object
}

func library(name string, imported ...string) *appsv1alpha1.PodTransitionPolicy {
	return policy(name, "package lib."+name+"\n", "", imported...)
}

func known(objects ...*appsv1alpha1.PodTransitionPolicy) imports.Policies {
	all := imports.Policies{}
	for _, object := range objects {
		all[object.Name] = object
	}
	return all
}

func TestSource(t *testing.T) {
	for name, tc := range map[string]struct {
		policy *appsv1alpha1.PodTransitionPolicy
		others imports.Policies
		want   string
	}{
		"without imports": {policy("freeze", "package rule", ""), nil, "package rule"},
		"a library, and data": {
			policy("freeze", "package rule\n", "", "days", "zones"), known(library("zones"), policy("days", "", `{"off":["<a>"],"n":1.50}`)),
			"package rule\n# podops: import config/days.rego\npackage config[\"days\"]\n\nn := 1.50\n\noff := [\"<a>\"]\n" +
				"# podops: import lib/zones.rego\npackage lib.zones\n",
		},
		"imports of imports, once": {
			policy("freeze", "package rule\n", "", "a", "b"), known(library("a", "c"), library("b", "c"), library("c")),
			"package rule\n# podops: import lib/a.rego\npackage lib.a\n# podops: import lib/b.rego\npackage lib.b\n# podops: import lib/c.rego\npackage lib.c\n",
		},
		"its own data": {
			policy("freeze", "package rule\n", `{"off":true}`), nil,
			"package rule\n# podops: import config/freeze.rego\npackage config[\"freeze\"]\n\noff := true\n",
		},
		"of a library, which denies": {
			policy("zones", "# METADATA\n# title: Zones\n\npackage lib.zones", ""), nil,
			"package rule\n\nallow := false\n\nreason := \"a library decides nothing\"\n# podops: import lib/zones.rego\n# METADATA\n# title: Zones\n\npackage lib.zones",
		},
		"a module of package library is no library": {policy("zones", "package library", ""), nil, "package library"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.others.Source(tc.policy)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSourceOfAPolicyThatCannotBeCompiled(t *testing.T) {
	stub := policy("zones", "package lib.zones\n", "")
	stub.Spec.Description = strings.Repeat("x", appsv1alpha1.MaxPolicySpecBytes)
	if _, err := objectbounds.Load(stub); err != nil {
		t.Fatal(err)
	}
	var many []string
	var libraries []*appsv1alpha1.PodTransitionPolicy
	for i := range 17 {
		many = append(many, fmt.Sprintf("l%02d", i))
		libraries = append(libraries, library(many[i]))
	}
	for name, tc := range map[string]struct {
		policy *appsv1alpha1.PodTransitionPolicy
		others imports.Policies
		want   string
		is     func(error) bool
	}{
		"an import that does not exist": {
			policy("freeze", "package rule", "", "zones"), nil, `PodTransitionPolicy "freeze" imports "zones", which does not exist`, isNotFound,
		},
		"an import of an import that does not exist": {
			policy("freeze", "package rule", "", "zones"), known(library("zones", "days")), `PodTransitionPolicy "zones" imports "days", which does not exist`, isNotFound,
		},
		"itself": {library("a", "a"), nil, `spec.imports: Invalid value: "a": a imports itself`, isField},
		"a cycle": {
			library("a", "b"), known(library("b", "c"), library("c", "a")), `spec.imports: Invalid value: "b": a and b import each other`, isField,
		},
		"a cycle among its imports": {
			policy("freeze", "package rule", "", "a"), known(library("a", "b"), library("b", "a")), `spec.imports: Invalid value: "b": a and b import each other`, isField,
		},
		"a policy for rules": {
			policy("freeze", "package rule", "", "other"), known(policy("other", "package rule", `{"a":1}`)),
			`spec.imports: Invalid value: "other": its package is not lib, and it has a module: policies import libraries and data`, isField,
		},
		"too many":                    {policy("freeze", "package rule", "", many...), known(libraries...), "spec.imports: Too many: 17: must have at most 16 items", isField},
		"a policy that is not loaded": {policy("freeze", "package rule", "", "zones"), known(stub), "exceeds its size bounds", func(err error) bool { return errors.Is(err, objectbounds.ErrTooLarge) }},
		"data with a name that Rego does not have": {
			policy("days", "", `{"a-b":1}`), nil, `spec.data: Invalid value: "a-b": the name of a field must be one of Rego`, isField,
		},
		"data that is no object": {policy("days", "", `[1]`), nil, "spec.data: Invalid value: \"\": must be an object", isField},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.others.Source(tc.policy)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !tc.is(err) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func isNotFound(err error) bool { return errors.As(err, new(*imports.NotFoundError)) }

func isField(err error) bool { return errors.As(err, new(*field.Error)) }

func TestVersionChangesWithEachImport(t *testing.T) {
	all := known(policy("freeze", "package rule", "", "a"), library("a", "b"), library("b"), library("other"))
	first := all.Version("freeze")
	for _, change := range []struct {
		name   string
		change func()
		same   bool
	}{
		{"nothing", func() {}, true},
		{"another policy", func() { all["other"].Generation++ }, true},
		{"an import of an import", func() { all["b"].Generation++ }, false},
		{"an import that was created again", func() { all["a"].UID = "new" }, false},
		{"an import that is gone", func() { delete(all, "b") }, false},
		{"a policy that is gone", func() { delete(all, "freeze") }, false},
	} {
		change.change()
		next := all.Version("freeze")
		if (next == first) != change.same {
			t.Errorf("%s: %q after %q", change.name, next, first)
		}
		first = next
	}
}

func TestImporters(t *testing.T) {
	all := known(policy("freeze", "package rule", "", "a"), library("a", "b"), policy("other", "package rule", ""))
	if diff := cmp.Diff([]string{"a", "freeze"}, all.Importers("b")); diff != "" {
		t.Errorf("of a policy that does not exist (-want +got):\n%s", diff)
	}
	if got := all.Importers("freeze"); got != nil {
		t.Errorf("got %v", got)
	}
}
