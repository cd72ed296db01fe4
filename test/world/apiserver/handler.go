package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"time"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
)

// gitVersion is the version of Kubernetes that the server answers with.
const gitVersion = "v1.37.1"

// minRequestTimeout is the shortest time that a watch without a time-out lasts.
const minRequestTimeout = 30 * time.Minute

// api builds the handlers of an API.
type api struct {
	server     *Server
	authorizer authorizer.Authorizer
	admission  chain
	container  *restful.Container
	groups     interface {
		http.Handler
		AddGroup(metav1.APIGroup)
	}
	aggregated  aggregated.ResourceManager
	equivalents runtime.EquivalentResourceRegistry
	converter   managedfields.TypeConverter
	// versions has the discovery of each version of custom resources by its path.
	versions map[string]http.Handler
}

// newHandler returns the handler of every request: the groups of Kubernetes and the custom resources, behind the
// filters for warnings, impersonation and authorization.
func (s *Server) newHandler() (http.Handler, error) {
	addresses := discovery.DefaultAddresses{DefaultAddress: "apiserver"}
	a := &api{
		server:      s,
		authorizer:  authorizer.AuthorizerFunc(s.authorize),
		admission:   chain{server: s},
		container:   restful.NewContainer(),
		groups:      discovery.NewRootAPIsHandler(addresses, legacyscheme.Codecs),
		aggregated:  aggregated.NewResourceManager("apis"),
		equivalents: runtime.NewEquivalentResourceRegistry(),
		converter:   newFieldTypes(s.options.FieldOwners),
		versions:    map[string]http.Handler{},
	}
	a.container.Router(restful.CurlyRouter{})
	if err := a.installCore(addresses); err != nil {
		return nil, fmt.Errorf("install the core group: %w", err)
	}
	if err := a.installGroups(); err != nil {
		return nil, err
	}
	custom, err := a.installDefinitions()
	if err != nil {
		return nil, fmt.Errorf("install custom resources: %w", err)
	}
	root := aggregated.WrapAggregatedDiscoveryToHandler(a.groups, a.aggregated, a.aggregated)
	a.container.Add(root.GenerateWebService("/apis", metav1.APIGroupList{}))
	mux := http.NewServeMux()
	mux.Handle("/", custom)
	mux.HandleFunc("/version", serveVersion)
	for path, version := range a.versions {
		mux.Handle(path, version)
	}

	var handler http.Handler = mux
	handler = filters.WithAuthorization(handler, a.authorizer, legacyscheme.Codecs)
	handler = impersonation.WithImpersonation(handler, a.authorizer, legacyscheme.Codecs)
	return filters.WithWarningRecorder(handler), nil
}

func serveVersion(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(version.Info{Major: "1", Minor: "37", GitVersion: gitVersion})
}

// installCore installs the group of pods, at /api.
func (a *api) installCore(addresses discovery.Addresses) error {
	group, err := a.coreGroup()
	if err != nil {
		return err
	}
	legacy := aggregated.NewResourceManager("api")
	if err := a.installVersions("/api", group, legacy); err != nil {
		return err
	}
	root := aggregated.WrapAggregatedDiscoveryToHandler(
		discovery.NewLegacyRootAPIHandler(addresses, legacyscheme.Codecs, "/api"), legacy, legacy)
	a.container.Add(root.GenerateWebService("/api", metav1.APIVersions{}))
	return nil
}

// install installs a group at /apis.
func (a *api) install(group genericapiserver.APIGroupInfo) error {
	if err := a.installVersions("/apis", group, a.aggregated); err != nil {
		return err
	}
	var served []schema.GroupVersion
	for _, v := range group.PrioritizedVersions {
		if len(group.VersionedResourcesStorageMap[v.Version]) > 0 {
			served = append(served, v)
		}
	}
	a.addGroup(served)
	return nil
}

// addGroup adds the versions of a group to discovery, the preferred one first.
func (a *api) addGroup(versions []schema.GroupVersion) {
	group := metav1.APIGroup{Name: versions[0].Group}
	for _, v := range versions {
		group.Versions = append(group.Versions,
			metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.Version})
	}
	group.PreferredVersion = group.Versions[0]
	a.groups.AddGroup(group)
	a.container.Add(discovery.NewAPIGroupHandler(legacyscheme.Codecs, group).WebService())
}

// installVersions installs the resources of each version of a group.
func (a *api) installVersions(
	root string, group genericapiserver.APIGroupInfo, resources aggregated.ResourceManager,
) error {
	for _, v := range group.PrioritizedVersions {
		storage := group.VersionedResourcesStorageMap[v.Version]
		if len(storage) == 0 {
			continue
		}
		found, _, err := a.groupVersion(root, group, v, storage).InstallREST(a.container)
		if err != nil {
			return fmt.Errorf("install %s: %w", v, err)
		}
		resources.AddGroupVersion(v.Group, apidiscoveryv2.APIVersionDiscovery{
			Version: v.Version, Resources: found, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		})
	}
	return nil
}

func (a *api) groupVersion(
	root string, group genericapiserver.APIGroupInfo, v schema.GroupVersion, storage map[string]rest.Storage,
) *endpoints.APIGroupVersion {
	served := map[string][]string{}
	for version, resources := range group.VersionedResourcesStorageMap {
		for resource := range resources {
			served[resource] = append(served[resource], path.Join(v.Group, version))
		}
	}
	return &endpoints.APIGroupVersion{
		Storage: storage, Root: root, GroupVersion: v, AllServedVersionsByResource: served,
		OptionsExternalVersion: group.OptionsExternalVersion, MetaGroupVersion: group.MetaGroupVersion,
		Serializer: group.NegotiatedSerializer, ParameterCodec: group.ParameterCodec,
		//nolint:misspell // The name of the field.
		Typer: group.Scheme, Creater: group.Scheme, Convertor: group.Scheme, ConvertabilityChecker: group.Scheme,
		Defaulter: group.Scheme, Namer: runtime.Namer(meta.NewAccessor()),
		UnsafeConvertor: runtime.UnsafeObjectConvertor(group.Scheme), TypeConverter: a.converter,
		EquivalentResourceRegistry: a.equivalents, Authorizer: a.authorizer, Admit: a.admission,
		MinRequestTimeout: minRequestTimeout,
	}
}
