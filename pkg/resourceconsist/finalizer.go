package resourceconsist

import (
	"crypto/md5" // the wire format of KusionStack; it keeps nothing secret
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// CleanFinalizerPrefix and the name of the employer form the clean finalizer. It stays
	// on an employer while the provider or an employee still holds something of it.
	CleanFinalizerPrefix = cleanFinalizerDomain + "/" + cleanFinalizerStem

	cleanFinalizerDomain = "resource-consist.kusionstack.io"
	cleanFinalizerStem   = "clean-"
)

// GenerateLifecycleFinalizerKey returns the key of an employer in the annotation of
// expected finalizers: <Kind>/<namespace>/<name>. It takes the kind from the object, which
// is empty for a typed object read from an API server; EmployerKey does not depend on it.
func GenerateLifecycleFinalizerKey(employer client.Object) string {
	return lifecycleKey(employer.GetObjectKind().GroupVersionKind().Kind, employer.GetNamespace(), employer.GetName())
}

// EmployerKey is GenerateLifecycleFinalizerKey with the kind from the scheme.
func EmployerKey(employer client.Object, scheme *runtime.Scheme) (string, error) {
	gvk, err := apiutil.GVKForObject(employer, scheme)
	if err != nil {
		return "", fmt.Errorf("reading the kind of employer %s/%s: %w", employer.GetNamespace(), employer.GetName(), err)
	}
	return lifecycleKey(gvk.Kind, employer.GetNamespace(), employer.GetName()), nil
}

// KeyOfService is EmployerKey for a Service.
func KeyOfService(service *corev1.Service) string {
	return lifecycleKey("Service", service.Namespace, service.Name)
}

func lifecycleKey(kind, namespace, name string) string {
	return kind + "/" + namespace + "/" + name
}

// GenerateLifecycleFinalizer returns the protection finalizer that an employer of this name
// puts on its employees. It depends on the name alone, so employers of two kinds with the
// same name share it.
func GenerateLifecycleFinalizer(employerName string) string {
	sum := md5.Sum([]byte(employerName))
	return appsv1alpha1.ProtectionFinalizerPrefix + "/" + hex.EncodeToString(sum[:])[8:24]
}

// CleanFinalizer returns the clean finalizer of the employer with this name. A name that does
// not fit into the 63 characters of a finalizer's name is replaced by a hash.
func CleanFinalizer(employerName string) string {
	if len(cleanFinalizerStem)+len(employerName) <= validation.DNS1123LabelMaxLength {
		return CleanFinalizerPrefix + employerName
	}
	sum := md5.Sum([]byte(employerName))
	return CleanFinalizerPrefix + hex.EncodeToString(sum[:])
}
