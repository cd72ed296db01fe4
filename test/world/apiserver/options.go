package apiserver

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Admission runs the admission chain of a request. Mutate may replace the Object of a request, and changes none. An error ends
// the request; it is a *apierrors.StatusError, which the client receives.
type Admission interface {
	Mutate(ctx context.Context, r *Request) error
	Validate(ctx context.Context, r *Request) error
}

// Request is what admission evaluates. Only Mutate may replace Object, and neither Object nor OldObject outlives
// the call.
type Request struct {
	User        authenticationv1.UserInfo
	Operation   admissionv1.Operation
	Resource    metav1.GroupVersionResource
	Subresource string
	Kind        metav1.GroupVersionKind
	Namespace   string
	Name        string
	// Object and OldObject are typed objects of the version of the request; for the subresources scale, eviction and
	// binding, a Scale, an Eviction, a Binding. A custom resource of a group that the package does not know is
	// unstructured. OldObject is nil for a CREATE, Object is nil for a DELETE.
	Object    runtime.Object
	OldObject runtime.Object
	// Options are the CreateOptions, UpdateOptions, PatchOptions or DeleteOptions as sent.
	Options runtime.Object
	DryRun  bool
	// Warnings are added by admission and returned in Warning headers.
	Warnings []string
}

// Write is one change of an object, or one request other than a read that changed nothing. A request that changes
// several objects, as a DELETE of a collection, or one object twice, as an eviction, is a Write for each change.
type Write struct {
	Time        time.Time
	User        string
	Verb        string
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	// Code is the status code of the response; for a change, it is 201 for an object that was created and 200 otherwise.
	Code int
	// Before and After are typed objects, which must not be changed. Both are nil if nothing changed; After is nil if
	// the object was removed.
	Before runtime.Object
	After  runtime.Object
	// Message is the message of the Status of a request that failed.
	Message string
}

// Options are the parameters of a Server.
type Options struct {
	// Seed decides the delays of requests and watches, and the names that are generated.
	Seed uint64
	// Admission decides about writes; nil admits everything. SetAdmission sets it later.
	Admission Admission
	// OnWrite is called for every Write, in the order of the changes, and one at a time. It must not wait.
	OnWrite func(Write)
	// Lag is the delay of a watch of a user for a resource beyond that of the seed. nil adds none.
	Lag func(user, resource string) time.Duration
	// Authorize decides about requests and access reviews; nil allows everything.
	Authorize func(authorizer.Attributes) bool
	// Definitions are the custom resources that are served.
	Definitions []*apiextensionsv1.CustomResourceDefinition
	// FieldOwners are the resources whose objects have metadata.managedFields, without which no client can apply an object that
	// exists. They cost more than the rest of a request.
	FieldOwners []string
	// WithoutEvents answers requests that write Events, and stores none: nothing reads them, and they are a tenth of all requests.
	WithoutEvents bool
	// Drop is the chance that a watch ends with an event in place of delivering it. Every other time the client is
	// answered that its resourceVersion is too old, and lists again.
	Drop float64
	// History is the number of changes of a resource that a watch can begin before; 0 means 1,000.
	History int
}
