package apiserver

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/apis/core"
)

// chain is the admission of the server: what Kubernetes always admits with as far as it matters here, the lifecycle of
// namespaces, and then the Admission of the options.
type chain struct{ server *Server }

var (
	_ admission.MutationInterface   = chain{}
	_ admission.ValidationInterface = chain{}
)

// Handles reports whether the chain decides about an operation.
func (chain) Handles(operation admission.Operation) bool { return operation != admission.Connect }

// Admit runs the mutating half.
func (c chain) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if err := c.server.namespaceAdmits(a); err != nil {
		return err
	}
	decide := c.server.options.Admission
	if decide == nil {
		return nil
	}
	r, err := c.server.request(a)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	before := r.Object
	err = decide.Mutate(ctx, r)
	warn(ctx, r)
	if err != nil || r.Object == before {
		return err
	}
	if err := c.server.converter.restore(r.Object, a.GetObject()); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("restore the mutated object: %w", err))
	}
	return nil
}

// Validate runs the validating half.
func (c chain) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	decide := c.server.options.Admission
	if decide == nil {
		return nil
	}
	r, err := c.server.request(a)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	defer warn(ctx, r)
	return decide.Validate(ctx, r)
}

func warn(ctx context.Context, r *Request) {
	for _, text := range r.Warnings {
		warning.AddWarning(ctx, "", text)
	}
}

// request returns the attributes as a Request with typed objects.
func (s *Server) request(a admission.Attributes) (*Request, error) {
	version := a.GetKind().GroupVersion()
	object, err := s.converter.external(a.GetObject(), version)
	if err != nil {
		return nil, fmt.Errorf("convert the object: %w", err)
	}
	old, err := s.converter.external(a.GetOldObject(), version)
	if err != nil {
		return nil, fmt.Errorf("convert the old object: %w", err)
	}
	r := &Request{
		Operation:   admissionv1.Operation(a.GetOperation()),
		Resource:    metav1.GroupVersionResource(a.GetResource()),
		Subresource: a.GetSubresource(),
		Kind:        metav1.GroupVersionKind(a.GetKind()),
		Namespace:   a.GetNamespace(),
		Name:        a.GetName(),
		Object:      object,
		OldObject:   old,
		Options:     a.GetOperationOptions(),
		DryRun:      a.IsDryRun(),
	}
	if info := a.GetUserInfo(); info != nil {
		r.User = authenticationv1.UserInfo{Username: info.GetName(), UID: info.GetUID(), Groups: info.GetGroups()}
	}
	return r, nil
}

// namespaceAdmits refuses new objects in a namespace that does not exist or is being deleted, and the deletion of the
// namespaces that always exist.
func (s *Server) namespaceAdmits(a admission.Attributes) error {
	isNamespace := a.GetKind().Group == "" && a.GetKind().Kind == "Namespace"
	switch {
	case isNamespace && a.GetOperation() == admission.Delete && (a.GetName() == metav1.NamespaceDefault || a.GetName() == metav1.NamespaceSystem):
		return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("this namespace may not be deleted"))
	case isNamespace, a.GetNamespace() == "", a.GetOperation() != admission.Create, a.GetResource().Group == "authorization.k8s.io":
		return nil
	}
	t := s.database.table("/namespaces", core.Resource("namespaces"))
	found, exists, _ := s.database.get(t, "/namespaces/"+a.GetNamespace())
	if !exists {
		return apierrors.NewNotFound(core.Resource("namespaces"), a.GetNamespace())
	}
	if namespace, ok := found.object.(*core.Namespace); !ok || namespace.Status.Phase != core.NamespaceTerminating {
		return nil
	}
	err := apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf(
		"unable to create new content in namespace %s because it is being terminated", a.GetNamespace()))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", a.GetNamespace()),
		Field:   "metadata.namespace",
	})
	return err
}
