package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/podops-dev/podops/test/world/apiserver"
)

// Options are the parameters of a Chain.
type Options struct {
	// Seed decides which manager reviews a request, and which requests others deny and delay.
	Seed uint64
	// Configuration has the webhooks and policies.
	Configuration *Configuration
	// Managers review requests, each from the moment when it is ready.
	Managers []*Server
	// Namespace returns a namespace; nil, or a nil namespace, is one with its name for a label.
	Namespace func(name string) *corev1.Namespace
	// Authorize decides for the variable authorizer of expressions. nil allows everything.
	Authorize func(authorizer.Attributes) bool
	// Objections are the policies, webhooks and quotas of others.
	Objections []Objection
}

// Chain is the admission chain of one cluster.
type Chain struct {
	configuration *Configuration
	options       Options

	mu       sync.Mutex
	requests map[string]uint64
	quiet    bool
}

var _ apiserver.Admission = (*Chain)(nil)

// New returns a Chain.
func New(options Options) *Chain {
	return &Chain{configuration: options.Configuration, options: options, requests: map[string]uint64{}}
}

// Quiet ends the objections of others.
func (c *Chain) Quiet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet = true
}

// Mutate calls the mutating webhooks, one after the other.
func (c *Chain) Mutate(ctx context.Context, r *apiserver.Request) error {
	if r.Object == nil || !slices.ContainsFunc(c.configuration.mutating, func(h hook) bool { return h.scope.names(bare(r)) }) {
		return nil
	}
	return c.mutate(ctx, r)
}

// Validate evaluates the policies, calls the validating webhooks all at once, and applies the quotas.
func (c *Chain) Validate(ctx context.Context, r *apiserver.Request) error {
	attributes := bare(r)
	concerned := slices.ContainsFunc(c.configuration.validating, func(h hook) bool { return h.scope.names(attributes) }) ||
		slices.ContainsFunc(c.configuration.policies, func(p policy) bool { return p.scope.names(attributes) })
	objections := c.objections(r)
	if !concerned && len(objections) == 0 {
		return nil
	}
	versioned := attributesFor(r)
	if err := c.decide(ctx, r, versioned); err != nil {
		return err
	}
	if err := objections.at(Policy).denial(r); err != nil {
		return err
	}
	if err := c.validate(ctx, r, versioned, objections.at(Webhook)); err != nil {
		return err
	}
	return objections.at(Quota).denial(r)
}

// number returns how many requests there were with this key, and counts one more.
func (c *Chain) number(key string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[key]++
	return c.requests[key]
}

func (c *Chain) namespace(name string) *corev1.Namespace {
	if name == "" {
		return nil
	}
	if c.options.Namespace != nil {
		if found := c.options.Namespace(name); found != nil {
			return found
		}
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
}

func (c *Chain) labels(namespace string) labels.Set { return c.namespace(namespace).Labels }

// authorizing is a function that decides for the variable authorizer.
type authorizing func(authorizer.Attributes) bool

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a authorizing) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if a == nil || a(attributes) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

// bare returns the attributes of a request without its objects.
func bare(r *apiserver.Request) admission.Attributes { return record(r, nil, nil) }

func record(r *apiserver.Request, object, old runtime.Object) admission.Attributes {
	info := &user.DefaultInfo{Name: r.User.Username, UID: r.User.UID, Groups: r.User.Groups}
	return admission.NewAttributesRecord(object, old, schema.GroupVersionKind(r.Kind), r.Namespace, r.Name,
		schema.GroupVersionResource(r.Resource), r.Subresource, admission.Operation(r.Operation), r.Options, r.DryRun, info)
}

// attributesFor returns the attributes of a request as webhooks and expressions receive them: every object has its kind.
func attributesFor(r *apiserver.Request) *admission.VersionedAttributes {
	object, old := named(r.Object, r.Kind), named(r.OldObject, r.Kind)
	return &admission.VersionedAttributes{
		Attributes: record(r, object, old), VersionedKind: schema.GroupVersionKind(r.Kind),
		VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old),
	}
}

// named returns a copy of an object with its kind.
func named(object runtime.Object, kind metav1.GroupVersionKind) runtime.Object {
	if object == nil {
		return nil
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind(kind))
	return object
}

// identity returns a text that is equal for requests that are alike.
func identity(r *apiserver.Request) string {
	return fmt.Sprintf("%s %s %s/%s %s/%s", r.User.Username, r.Operation, r.Resource.Resource, r.Subresource, r.Namespace, r.Name)
}
