package podtransitionpolicy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/state/policyusers"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// broken returns the rules that can use the old policy and cannot use the new one, because of their parameters or since it is a
// library now, and the first error of each. Rules that can use neither are not broken by this edit.
func (v *Validator) broken(
	ctx context.Context, policy *appsv1alpha1.PodTransitionPolicy, declared *parameters.Schema, old *appsv1alpha1.PodTransitionPolicy,
) ([]brokenUser, error) {
	before, errs := parameters.Parse(old.Spec.Parameters, nil)
	isLibrary := imports.IsLibrary(policy)
	if len(errs) > 0 || imports.IsLibrary(old) || !isLibrary && equality.Semantic.DeepEqual(policy.Spec.Parameters, old.Spec.Parameters) {
		return nil, nil
	}
	users, err := policyusers.List(ctx, v.cached, policy.Name)
	if err != nil {
		return nil, err
	}
	var broken []brokenUser
	for _, user := range policyusers.OnlyActive(users) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("checking the parameters of %d rules: %w", len(users), inspection.ErrTimeout)
		}
		if _, errs := before.Complete(user.Parameters, nil); len(errs) > 0 {
			continue
		}
		if isLibrary {
			broken = append(broken, brokenUser{User: user, err: field.Invalid(field.NewPath("rego", "policyRef", "name"), policy.Name, "is a library")})
		} else if _, errs := declared.Complete(user.Parameters, field.NewPath("rego", "parameters")); len(errs) > 0 {
			broken = append(broken, brokenUser{User: user, err: errs[0]})
		}
	}
	return broken, nil
}

// brokenImporters returns the policies that compile with the old policy and do not with the new one, and the first error of
// each.
func (v *Validator) brokenImporters(
	ctx context.Context, known imports.Policies, policy, old *appsv1alpha1.PodTransitionPolicy,
) ([]brokenImporter, error) {
	before, after := maps.Clone(known), maps.Clone(known)
	before[policy.Name], after[policy.Name] = old, policy
	var broken []brokenImporter
	for _, name := range before.Importers(policy.Name) {
		errs, _, err := v.check(ctx, after, known[name])
		if err != nil && !errors.As(err, new(*imports.NotFoundError)) {
			return nil, err
		}
		if err == nil && len(errs) == 0 {
			continue
		}
		worked, _, beforeErr := v.check(ctx, before, known[name])
		if beforeErr != nil && !errors.As(beforeErr, new(*imports.NotFoundError)) {
			return nil, beforeErr
		}
		if beforeErr != nil || len(worked) > 0 {
			continue
		}
		if err == nil {
			err = errs[0]
		}
		broken = append(broken, brokenImporter{name: name, err: err})
	}
	return broken, nil
}

// brokenImporter is a policy that does not compile with an edit of one that it imports.
type brokenImporter struct {
	name string
	err  error
}

// brokenUser is a rule whose parameters do not fit an edit of its policy.
type brokenUser struct {
	policyusers.User
	err *field.Error
}

// denials returns the errors of an edit that breaks rules or policies.
func (v *Validator) denials(ctx context.Context, requester authenticationv1.UserInfo, broken []brokenUser, importers []brokenImporter) field.ErrorList {
	var errs field.ErrorList
	if len(broken) > 0 {
		errs = append(errs, v.denial(ctx, requester, broken))
	}
	if len(importers) > 0 {
		names := make([]string, 0, maxNamed)
		for _, one := range importers[:min(len(importers), maxNamed)] {
			names = append(names, one.name)
		}
		errs = append(errs, field.Forbidden(field.NewPath("spec"), fmt.Sprintf(
			"%d PodTransitionPolicies that import it would no longer compile: %s (the first: %v); edit them first, or set the annotation %s=true",
			len(importers), strings.Join(names, ", "), importers[0].err, appsv1alpha1.IgnoreUsersAnnotationKey)))
	}
	return errs
}

// denial names the broken users that the requester may see.
func (v *Validator) denial(ctx context.Context, requester authenticationv1.UserInfo, broken []brokenUser) *field.Error {
	users := make([]policyusers.User, 0, len(broken))
	for _, b := range broken {
		users = append(users, b.User)
	}
	named := visible(ctx, v.mayRead, requester, users)
	first := ""
	for _, b := range broken {
		if len(named) > 0 && b.Object == named[0].Object && b.Rule == named[0].Rule {
			first = fmt.Sprintf(" (the first: %v)", b.err)
		}
	}
	return field.Forbidden(field.NewPath("spec", "parameters"), fmt.Sprintf(
		"the parameters of rules that use it would no longer fit: %s%s; edit them first, make the new schema accept them, or set the annotation %s=true",
		list(named, len(users)), first, appsv1alpha1.IgnoreUsersAnnotationKey))
}

// maxConfirmed is for how many users a delete calls the API server, because the cache may
// be behind.
const maxConfirmed = 10

// DeleteGuard is the webhook of DELETE. It uses the stored object only, so a dry run
// and each object of a deletecollection get the same response.
type DeleteGuard struct {
	decoder   admission.Decoder
	cached    client.Reader
	apiReader client.Reader
	mayRead   MayRead
}

// NewDeleteGuard returns the webhook. cached is as for NewValidator; apiReader reads the API
// server, so that rules that were just deleted do not count.
func NewDeleteGuard(decoder admission.Decoder, cached, apiReader client.Reader, mayRead MayRead) *DeleteGuard {
	return &DeleteGuard{decoder: decoder, cached: cached, apiReader: apiReader, mayRead: mayRead}
}

// Handle denies the deletion of a policy in use, naming the users that the requester may
// see. With IgnoreUsersAnnotationKey it warns instead.
func (g *DeleteGuard) Handle(ctx context.Context, req admission.Request) admission.Response {
	policy := &appsv1alpha1.PodTransitionPolicy{}
	if err := g.decoder.DecodeRaw(req.OldObject, policy); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding PodTransitionPolicy: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, inspection.Timeout)
	defer cancel()
	users, err := policyusers.List(ctx, g.cached, policy.Name)
	if err == nil {
		users, err = g.confirmed(ctx, policy.Name, policyusers.OnlyActive(users))
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	importers, err := g.importers(ctx, policy.Name)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	switch {
	case len(users)+len(importers) == 0:
		return admission.Allowed("")
	case ignoresUsers(policy):
		return admission.Allowed("").WithWarnings(heldBack(len(users), len(importers)))
	case len(users) == 0:
		return admission.Denied(fmt.Sprintf("PodTransitionPolicy %q is imported by %s; remove it from their spec.imports first, or set the annotation %s=true",
			policy.Name, strings.Join(importers, ", "), appsv1alpha1.IgnoreUsersAnnotationKey))
	}
	return admission.Denied(fmt.Sprintf(
		"PodTransitionPolicy %q is in use by %s; remove these rules, or their rego.policyRef, first, or set the annotation %s=true",
		policy.Name, list(visible(ctx, g.mayRead, req.UserInfo, users), len(users)), appsv1alpha1.IgnoreUsersAnnotationKey))
}

// confirmed removes the users at the head of the list that no longer exist in the API server. The
// first user that exists suffices for a denial, so the remaining users are not checked.
func (g *DeleteGuard) confirmed(ctx context.Context, policy string, users []policyusers.User) ([]policyusers.User, error) {
	for called := 0; len(users) > 0 && called < maxConfirmed; called++ {
		object := users[0].Object
		current := &appsv1alpha1.PodTransitionRule{}
		err := g.apiReader.Get(ctx, object, current)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading PodTransitionRule %s: %w", object, err)
		}
		if err == nil && len(policyusers.OnlyActive(policyusers.Of(current, policy))) > 0 {
			return users, nil
		}
		for len(users) > 0 && users[0].Object == object {
			users = users[1:]
		}
	}
	return users, nil
}

// importers returns the first policies by name that import a policy, as the API server has them. It reads at most maxConfirmed:
// with that many out of date, the others count.
func (g *DeleteGuard) importers(ctx context.Context, policy string) ([]string, error) {
	known, err := policyusers.Policies(ctx, g.cached)
	if err != nil {
		return nil, err
	}
	var importers []string
	for name, one := range known {
		if name != policy && slices.Contains(one.Spec.Imports, policy) {
			importers = append(importers, name)
		}
	}
	slices.Sort(importers)
	for called := 0; len(importers) > 0 && called < maxConfirmed; called++ {
		current := &appsv1alpha1.PodTransitionPolicy{}
		err := g.apiReader.Get(ctx, client.ObjectKey{Name: importers[0]}, current)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading PodTransitionPolicy %s: %w", importers[0], err)
		}
		if err == nil && slices.Contains(current.Spec.Imports, policy) {
			break
		}
		importers = importers[1:]
	}
	return importers[:min(len(importers), maxNamed)], nil
}
