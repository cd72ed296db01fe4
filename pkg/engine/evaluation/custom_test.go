package evaluation

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// failing is an Inspector whose inspections fail.
type failing struct{ err error }

func (f failing) Inspect(context.Context, opa.Source) (opa.Inspection, error) {
	return opa.Inspection{}, fmt.Errorf("inspecting a module: %w", f.err)
}

// TestFailuresOfTheMachine shows that only an error of the module itself is kept: after any other the module is compiled again.
func TestFailuresOfTheMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want rule.Code
	}{
		"an error of the module":     {&opa.CompileError{}, rule.CodeCompileFailed},
		"a panic of the compiler":    {&opa.PanicError{}, rule.CodeCompileFailed},
		"a busy machine":             {errors.New("the machine was too busy"), rule.CodeNotReached},
		"the end of the time for it": {context.DeadlineExceeded, rule.CodeNotReached},
	} {
		t.Run(name, func(t *testing.T) {
			entry := appsv1alpha1.TransitionRule{Name: "r", Rego: &appsv1alpha1.RegoRule{Module: "package rule"}}
			_, err := NewModule(t.Context(), failing{tc.err}, types.NamespacedName{Namespace: "default", Name: "web"}, entry, nil)
			prepared := preparedRule{err: err}
			if ErrorCode(err) != tc.want || prepared.unprepared() != (tc.want == rule.CodeNotReached) {
				t.Errorf("code %s, compiled again: %t; want %s", ErrorCode(err), prepared.unprepared(), tc.want)
			}
		})
	}
}
