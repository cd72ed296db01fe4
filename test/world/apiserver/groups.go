package apiserver

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/discovery"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/apis/core"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	admissionregistrationrest "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	appsrest "k8s.io/kubernetes/pkg/registry/apps/rest"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	autoscalingrest "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batchrest "k8s.io/kubernetes/pkg/registry/batch/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	endpointstore "k8s.io/kubernetes/pkg/registry/core/endpoint/storage"
	limitrangestore "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	nodestore "k8s.io/kubernetes/pkg/registry/core/node/storage"
	pvstore "k8s.io/kubernetes/pkg/registry/core/persistentvolume/storage"
	pvcstore "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	podtemplatestore "k8s.io/kubernetes/pkg/registry/core/podtemplate/storage"
	controllerstore "k8s.io/kubernetes/pkg/registry/core/replicationcontroller/storage"
	corerest "k8s.io/kubernetes/pkg/registry/core/rest"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
	servicestore "k8s.io/kubernetes/pkg/registry/core/service/storage"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	policyrest "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storagerest "k8s.io/kubernetes/pkg/registry/storage/rest"

	// The kinds of each group, their defaults and conversions.
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

// served returns the versions of the API that are served.
func served() *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	config.EnableVersions(
		corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion, policyv1.SchemeGroupVersion,
		coordinationv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion,
		rbacv1.SchemeGroupVersion, schedulingv1.SchemeGroupVersion, storagev1.SchemeGroupVersion,
		autoscalingv1.SchemeGroupVersion, autoscalingv2.SchemeGroupVersion,
		authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion,
		admissionregistrationv1.SchemeGroupVersion,
	)
	return config
}

// installGroups installs every group of Kubernetes that is served except the core group.
func (a *api) installGroups() error {
	client, err := discovery.NewDiscoveryClientForConfig(a.server.Config(serverUser, user.SystemPrivilegedGroup))
	if err != nil {
		return fmt.Errorf("build a client: %w", err)
	}
	for _, provider := range []interface {
		GroupName() string
		NewRESTStorage(
			serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error)
	}{
		authenticationrest.RESTStorageProvider{Authenticator: authenticator.RequestFunc(authenticate)},
		authorizationrest.RESTStorageProvider{Authorizer: a.authorizer},
		appsrest.StorageProvider{},
		autoscalingrest.RESTStorageProvider{},
		batchrest.RESTStorageProvider{},
		coordinationrest.RESTStorageProvider{},
		discoveryrest.StorageProvider{},
		policyrest.RESTStorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: a.authorizer},
		schedulingrest.RESTStorageProvider{},
		storagerest.RESTStorageProvider{},
		admissionregistrationrest.RESTStorageProvider{Authorizer: a.authorizer, DiscoveryClient: client},
		eventsrest.RESTStorageProvider{TTL: eventTTL},
	} {
		group, err := provider.NewRESTStorage(served(), a.server)
		if err != nil {
			return fmt.Errorf("build group %s: %w", provider.GroupName(), err)
		}
		if err := a.install(group); err != nil {
			return err
		}
	}
	return nil
}

// eventTTL is the time for which Kubernetes keeps events. The server keeps them for good.
const eventTTL = time.Hour

// authenticate reviews the token of a request: a token is the name of its user.
func authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	name, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found || name == "" {
		return nil, false, nil
	}
	info := &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}
	return &authenticator.Response{User: info}, true, nil
}

// coreGroup returns the core group, without the subresources that reach into containers.
func (a *api) coreGroup() (genericapiserver.APIGroupInfo, error) {
	config := corerest.GenericConfig{EventTTL: eventTTL}
	group, err := config.NewRESTStorage(served(), a.server)
	if err != nil {
		return group, err
	}
	resources := group.VersionedResourcesStorageMap["v1"]
	for _, add := range []func(map[string]rest.Storage) error{
		a.addPods, a.addVolumes, a.addOthers,
	} {
		if err := add(resources); err != nil {
			return group, err
		}
	}
	return group, nil
}

// addPods adds nodes and pods, and services, whose handlers know the pods.
func (a *api) addPods(resources map[string]rest.Storage) error {
	nodes, err := nodestore.NewStorage(a.server, kubeletclient.KubeletClientConfig{}, nil)
	if err != nil {
		return err
	}
	budgets, err := policyclient.NewForConfig(a.server.Config(serverUser, user.SystemPrivilegedGroup))
	if err != nil {
		return err
	}
	pods, err := podstore.NewStorage(a.server, nodes.KubeletConnectionInfo, nil, budgets, a.authorizer)
	if err != nil {
		return err
	}
	resources["nodes"], resources["nodes/status"] = nodes.Node, nodes.Status
	resources["pods"], resources["pods/status"] = pods.Pod, pods.Status
	resources["pods/binding"], resources["bindings"] = pods.Binding, pods.LegacyBinding
	resources["pods/eviction"] = pods.Eviction
	resources["pods/ephemeralcontainers"], resources["pods/resize"] = pods.EphemeralContainers, pods.Resize

	addresses, err := ipallocator.NewInMemory(&net.IPNet{IP: net.IPv4(10, 96, 0, 0).To4(), Mask: net.CIDRMask(16, 32)})
	if err != nil {
		return err
	}
	ports, err := portallocator.NewInMemory(utilnet.PortRange{Base: 30000, Size: 2768})
	if err != nil {
		return err
	}
	services, status, _, err := servicestore.NewREST(a.server, core.IPv4Protocol,
		map[core.IPFamily]ipallocator.Interface{core.IPv4Protocol: addresses}, ports, nil, pods.Pod, nil)
	if err != nil {
		return err
	}
	resources["services"], resources["services/status"] = services, status
	return nil
}

func (a *api) addVolumes(resources map[string]rest.Storage) error {
	volumes, volumeStatus, err := pvstore.NewREST(a.server)
	if err != nil {
		return err
	}
	claims, claimStatus, err := pvcstore.NewREST(a.server)
	if err != nil {
		return err
	}
	resources["persistentvolumes"], resources["persistentvolumes/status"] = volumes, volumeStatus
	resources["persistentvolumeclaims"], resources["persistentvolumeclaims/status"] = claims, claimStatus
	return nil
}

func (a *api) addOthers(resources map[string]rest.Storage) error {
	replicationControllers, err := controllerstore.NewStorage(a.server)
	if err != nil {
		return err
	}
	resources["replicationcontrollers"] = replicationControllers.Controller
	resources["replicationcontrollers/status"] = replicationControllers.Status
	resources["replicationcontrollers/scale"] = replicationControllers.Scale
	if resources["podtemplates"], err = podtemplatestore.NewREST(a.server); err != nil {
		return err
	}
	if resources["limitranges"], err = limitrangestore.NewREST(a.server); err != nil {
		return err
	}
	resources["endpoints"], err = endpointstore.NewREST(a.server)
	return err
}

// GetRESTOptions returns how a resource is stored: in the database of the server, in the preferred version of its
// group. The resources of one name and group share their objects.
func (s *Server) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig: &storagebackend.ConfigForResource{
			Config: storagebackend.Config{Codec: s.converter.codec(resource.Group)}, GroupResource: resource,
		},
		Decorator:               s.newStorage,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 1,
		ResourcePrefix:          strings.TrimSuffix("/"+resource.Resource+"."+resource.Group, "."),
	}, nil
}

// newStorage is the generic.StorageDecorator of the server.
func (s *Server) newStorage(
	config *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error),
	newFunc, _ func() runtime.Object, _ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	return &objects{
		server: s, database: s.database, table: s.database.table(prefix, config.GroupResource),
		codec: config.Codec, newFunc: newFunc,
	}, func() {}, nil
}
