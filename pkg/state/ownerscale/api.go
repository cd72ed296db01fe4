package ownerscale

import (
	"context"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
)

// Resource is the resource of a kind.
type Resource struct {
	schema.GroupVersionResource

	// Scalable is true if the objects are in namespaces and have a scale subresource.
	Scalable bool
}

// API makes the requests of a Reader. It is a *Client.
type API interface {
	// Resolve returns the resource of a kind. The error is an UnknownKindError if the kind has no
	// resource.
	Resolve(ctx context.Context, kind Kind) (Resource, error)

	// Scale returns the scale of an object.
	Scale(ctx context.Context, resource Resource, namespace, name string) (*autoscalingv1.Scale, error)

	// Metadata lists and watches the metadata of the objects in all namespaces.
	Metadata(resource Resource) cache.ListerWatcherWithContext
}

// UnknownKindError is the error for a kind that the API server does not serve.
type UnknownKindError struct{ Kind }

// Error implements error.
func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("the API server does not serve %s in %s", e.Kind.Kind, e.APIVersion)
}

// Client is an API server.
type Client struct {
	resources discovery.ServerResourcesInterfaceWithContext
	scales    rest.Interface
	metadata  metadata.Interface
}

var _ API = &Client{}

// NewClient returns a client.
func NewClient(config *rest.Config) (*Client, error) {
	resources, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of discovery: %w", err)
	}
	config = rest.CopyConfig(config)
	config.GroupVersion = &schema.GroupVersion{}
	config.NegotiatedSerializer = scale.NewScaleConverter().Codecs().WithoutConversion()
	scales, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of scales: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of metadata: %w", err)
	}
	return &Client{resources: resources, scales: scales, metadata: objects}, nil
}

// Resolve returns the resource of a kind, in the version of the kind.
func (c *Client) Resolve(ctx context.Context, kind Kind) (Resource, error) {
	version, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil || version.Version == "" {
		return Resource{}, &UnknownKindError{kind}
	}
	served, err := c.resources.ServerResourcesForGroupVersionWithContext(ctx, kind.APIVersion)
	switch {
	case apierrors.IsNotFound(err):
		return Resource{}, &UnknownKindError{kind}
	case err != nil:
		return Resource{}, fmt.Errorf("reading the resources of %s: %w", kind.APIVersion, err)
	}
	return findResource(kind, version, served.APIResources)
}

func findResource(kind Kind, version schema.GroupVersion, served []metav1.APIResource) (Resource, error) {
	scalable := map[string]bool{}
	for _, one := range served {
		if name, found := strings.CutSuffix(one.Name, "/scale"); found {
			scalable[name] = true
		}
	}
	for _, one := range served {
		if one.Kind == kind.Kind && !strings.Contains(one.Name, "/") {
			return Resource{GroupVersionResource: version.WithResource(one.Name), Scalable: one.Namespaced && scalable[one.Name]}, nil
		}
	}
	return Resource{}, &UnknownKindError{kind}
}

// Scale returns the scale of an object.
func (c *Client) Scale(ctx context.Context, resource Resource, namespace, name string) (*autoscalingv1.Scale, error) {
	getter := scale.New(c.scales, resolved(resource.GroupVersionResource), dynamic.LegacyAPIPathResolverFunc, nil)
	read, err := getter.Scales(namespace).Get(ctx, resource.GroupResource(), name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading its scale: %w", err)
	}
	return read, nil
}

// resolved is a mapper for one resource, in a version that is known.
type resolved schema.GroupVersionResource

// ResourceFor returns the resource.
func (r resolved) ResourceFor(schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return schema.GroupVersionResource(r), nil
}

// Metadata lists and watches the metadata of the objects in all namespaces.
func (c *Client) Metadata(resource Resource) cache.ListerWatcherWithContext {
	objects := c.metadata.Resource(resource.GroupVersionResource)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, options)
		},
	}
}
