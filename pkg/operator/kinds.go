package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// kindsPatience bounds the wait for the kinds of PodOps. An API server serves a kind some time after its
	// CustomResourceDefinition is created, and longer when it is busy; manifests are often applied all at once.
	kindsPatience = time.Minute
	kindsInterval = 500 * time.Millisecond
)

// kindsNotServedError reports that the API server does not serve kinds that the manager reads.
type kindsNotServedError struct {
	kinds []string
	cause error
}

func (e *kindsNotServedError) Error() string {
	return fmt.Sprintf("the API server does not serve %s of %s: apply the CustomResourceDefinitions "+
		"(kubectl podops install --crds-only, or install.yaml): %v", strings.Join(e.kinds, ", "), appsv1alpha1.GroupVersion(), e.cause)
}

func (e *kindsNotServedError) Unwrap() error { return e.cause }

// servedKinds returns a mapper for the resources of the API server, once it knows every kind of PodOps. Without
// the wait, a manager that starts while its CustomResourceDefinitions are being installed would end.
func servedKinds(ctx context.Context, config *rest.Config, log logr.Logger) (meta.RESTMapper, error) {
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making an HTTP client for the discovery of resources: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, transport)
	if err != nil {
		return nil, fmt.Errorf("making a mapper of resources: %w", err)
	}
	return mapper, awaitKinds(ctx, mapper, log)
}

// awaitKinds waits until the mapper knows the kinds of PodOps. It returns a kindsNotServedError after kindsPatience,
// and any error other than that of an unknown kind at once.
func awaitKinds(ctx context.Context, mapper meta.RESTMapper, log logr.Logger) error {
	var missing []string
	err := wait.PollUntilContextTimeout(ctx, kindsInterval, kindsPatience, true, func(context.Context) (bool, error) {
		now, err := unknownKinds(mapper)
		if err != nil {
			return false, err
		}
		if len(now) > 0 && !slices.Equal(now, missing) {
			log.Info("Waiting for the API server to serve kinds", "group", appsv1alpha1.GroupVersion().String(), "kinds", now, "timeout", kindsPatience.String())
		}
		missing = now
		return len(missing) == 0, nil
	})
	if wait.Interrupted(err) && len(missing) > 0 {
		return &kindsNotServedError{kinds: missing, cause: err}
	}
	return err
}

// unknownKinds returns the kinds that the manager reads and the mapper does not know.
func unknownKinds(mapper meta.RESTMapper) (unknown []string, err error) {
	version := appsv1alpha1.GroupVersion()
	for _, kind := range []string{"PodOperation", "PodOperationApproval", "PodTransitionPolicy", "PodTransitionRule", "TrafficAdapter"} {
		_, err := mapper.RESTMapping(schema.GroupKind{Group: version.Group, Kind: kind}, version.Version)
		switch {
		case meta.IsNoMatchError(err):
			unknown = append(unknown, kind)
		case err != nil:
			return nil, fmt.Errorf("discovering the kind %s: %w", kind, err)
		}
	}
	return unknown, nil
}
