// Package admission reviews PodTransitionRules and PodTransitionPolicies with the webhooks of the manager, without
// a cluster.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
	policywebhook "github.com/podops-dev/podops/pkg/webhooks/podtransitionpolicy"
	rulewebhook "github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
)

// busyTries is how often a module is checked while the machine is too busy.
const busyTries = 5

// Modules checks a module. It is a *sandbox.Sandbox.
type Modules interface {
	Check(ctx context.Context, source opa.Source) (spent time.Duration, err error)
	Known(source opa.Source) (opa.Inspection, bool)
}

// Reviewer reviews objects as though they were created.
type Reviewer struct {
	objects client.Reader
	decoder admission.Decoder
	modules Modules
	guard   webhookclient.Guard
}

// New returns a Reviewer. objects are the other objects of the cluster, and guard has the addresses that webhook
// rules may reach.
func New(objects client.Reader, modules Modules, guard webhookclient.Guard) (*Reviewer, error) {
	scheme := runtime.NewScheme()
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering types: %w", err)
	}
	return &Reviewer{objects: objects, decoder: admission.NewDecoder(scheme), modules: modules, guard: guard}, nil
}

// Problem is a problem of a module in a field.
type Problem struct {
	Field string
	opa.Problem
}

// Answer is the answer of the webhooks.
type Answer struct {
	// Causes are the reasons of the object's denial, by field; Problems are the problems of
	// modules.
	Causes   []metav1.StatusCause
	Problems []Problem

	// Denied is why the object is denied, if it has no causes.
	Denied string

	Warnings []string
}

// checker checks modules, and keeps their problems with their places.
type checker struct {
	check    func(opa.Source) error
	known    func(opa.Source) (opa.Inspection, bool)
	problems []Problem
}

// Known implements the checkers of the webhooks.
func (c *checker) Known(module inspection.Module) (opa.Inspection, bool) {
	return c.known(opa.Source{Owner: module.Owner, Module: module.Source, ParametersSchema: module.ParametersSchema})
}

// newChecker returns a checker without the time limit of the webhooks: no API server waits for the answer.
func (r *Reviewer) newChecker(ctx context.Context) *checker {
	return &checker{known: r.modules.Known, check: func(source opa.Source) (err error) {
		for range busyTries {
			if _, err = r.modules.Check(ctx, source); !errors.Is(err, opa.ErrNotReached) {
				break
			}
		}
		return err
	}}
}

// Check implements the checkers of the webhooks. It returns no error about a module.
func (c *checker) Check(_ context.Context, modules ...inspection.Module) (field.ErrorList, error) {
	for _, module := range modules {
		err := c.check(opa.Source{Owner: module.Owner, Module: module.Source, ParametersSchema: module.ParametersSchema})
		wrong := &opa.CompileError{}
		if errors.As(err, &wrong) {
			for _, problem := range wrong.Problems {
				c.problems = append(c.problems, Problem{Field: module.Path.String(), Problem: problem})
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: inspecting the module: %w", module.Path, err)
		}
	}
	return nil, nil
}

// Normalize returns a PodTransitionRule in its canonical spelling, as the mutating webhook stores it.
func (r *Reviewer) Normalize(ctx context.Context, raw []byte) ([]byte, Answer, error) {
	response := rulewebhook.NewMutator(r.decoder).Handle(ctx, request(raw))
	answer := newAnswer(response, nil)
	if !response.Allowed || len(response.Patches) == 0 {
		return raw, answer, nil
	}
	operations, err := json.Marshal(response.Patches)
	if err != nil {
		return nil, answer, fmt.Errorf("encoding the patch: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, answer, fmt.Errorf("reading the patch: %w", err)
	}
	normalized, err := patch.Apply(raw)
	if err != nil {
		return nil, answer, fmt.Errorf("applying the patch: %w", err)
	}
	return normalized, answer, nil
}

// Rule reviews a PodTransitionRule in its canonical spelling.
func (r *Reviewer) Rule(ctx context.Context, raw []byte) Answer {
	checked := r.newChecker(ctx)
	// The objects come from the files that are reviewed, so nothing is kept secret from their reader.
	ctx = clientauth.WithVerified(ctx, true)
	return newAnswer(rulewebhook.NewValidator(r.decoder, r.objects, r.objects, checked, r.guard.CheckURL).Handle(ctx, request(raw)), checked)
}

// Policy reviews a PodTransitionPolicy.
func (r *Reviewer) Policy(ctx context.Context, raw []byte) Answer {
	checked := r.newChecker(ctx)
	return newAnswer(policywebhook.NewValidator(r.decoder, r.objects, r.objects, checked, nil).Handle(ctx, request(raw)), checked)
}

func request(raw []byte) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}}}
}

func newAnswer(response admission.Response, checked *checker) Answer {
	answer := Answer{Warnings: response.Warnings}
	if checked != nil {
		answer.Problems = checked.problems
	}
	switch {
	case response.Allowed:
	case response.Result != nil && response.Result.Details != nil && len(response.Result.Details.Causes) > 0:
		answer.Causes = response.Result.Details.Causes
	case response.Result != nil:
		answer.Denied = response.Result.Message
	default:
		answer.Denied = "admission denies the object"
	}
	return answer
}
