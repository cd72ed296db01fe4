package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	informersv1 "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// installDefinitions installs the CustomResourceDefinitions of the options, as objects and as resources, and returns
// the handler that serves custom resources and leaves other requests to the container.
func (a *api) installDefinitions() (http.Handler, error) {
	definitions := make([]*apiextensionsv1.CustomResourceDefinition, len(a.server.options.Definitions))
	for i, d := range a.server.options.Definitions {
		definitions[i] = established(d)
	}
	if err := a.installDefinitionObjects(definitions); err != nil {
		return nil, err
	}
	for _, version := range versionsOf(definitions) {
		if err := a.discoverVersion(version, definitions); err != nil {
			return nil, err
		}
	}
	handler, err := a.customResources(definitions)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
			handler.ServeHTTP(w, r)
			return
		}
		a.container.Dispatch(w, r)
	}), nil
}

// customResources returns the handler of apiextensions-apiserver, whose informer has the definitions from the start
// and is never run.
func (a *api) customResources(definitions []*apiextensionsv1.CustomResourceDefinition) (http.Handler, error) {
	client, err := clientset.NewForConfig(a.server.Config(serverUser, user.SystemPrivilegedGroup))
	if err != nil {
		return nil, fmt.Errorf("build a client: %w", err)
	}
	informer := externalversions.NewSharedInformerFactory(client, 0).Apiextensions().V1().CustomResourceDefinitions()
	if err := fill(informer, definitions); err != nil {
		return nil, err
	}
	return extensions.NewCustomResourceDefinitionHandler(nil, nil, informer, http.HandlerFunc(a.container.Dispatch),
		a.server, a.admission, nil, nil, nil, 1, a.authorizer, requestTimeout, minRequestTimeout, nil, 0)
}

func fill(
	informer informersv1.CustomResourceDefinitionInformer, definitions []*apiextensionsv1.CustomResourceDefinition,
) error {
	for _, d := range definitions {
		if err := informer.Informer().GetIndexer().Add(d); err != nil {
			return fmt.Errorf("add definition %s: %w", d.Name, err)
		}
	}
	return nil
}

// established returns a definition as it is once its names are accepted.
func established(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	d = d.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(d)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&d.Spec)
	d.UID, d.Generation = types.UID("definition-"+d.Name), 1
	d.CreationTimestamp = metav1.Now().Rfc3339Copy()
	// The handlers make the first clients of a definition wait for a while after it was established.
	since := metav1.NewTime(time.Now().Add(-time.Hour)).Rfc3339Copy()
	d.Status.AcceptedNames = d.Spec.Names
	d.Status.StoredVersions = nil
	for _, v := range d.Spec.Versions {
		if v.Storage {
			d.Status.StoredVersions = append(d.Status.StoredVersions, v.Name)
		}
	}
	d.Status.Conditions = nil
	for _, condition := range []apiextensionsv1.CustomResourceDefinitionConditionType{
		apiextensionsv1.NamesAccepted, apiextensionsv1.Established,
	} {
		d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: condition, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: since, Reason: "InitialNamesAccepted",
		})
	}
	return d
}

// installDefinitionObjects serves the definitions themselves. A definition that is written later is stored, and not
// served.
func (a *api) installDefinitionObjects(definitions []*apiextensionsv1.CustomResourceDefinition) error {
	group := genericapiserver.NewDefaultAPIGroupInfo(
		apiextensions.GroupName, extensions.Scheme, metav1.ParameterCodec, extensions.Codecs)
	storage, err := customresourcedefinition.NewREST(extensions.Scheme, a.server)
	if err != nil {
		return err
	}
	group.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{
		"customresourcedefinitions":        storage,
		"customresourcedefinitions/status": customresourcedefinition.NewStatusREST(extensions.Scheme, storage),
	}
	if err := a.install(group); err != nil {
		return err
	}
	for _, d := range definitions {
		object := &apiextensions.CustomResourceDefinition{}
		if err := extensions.Scheme.Convert(d, object, nil); err != nil {
			return fmt.Errorf("convert definition %s: %w", d.Name, err)
		}
		key, err := storage.KeyFunc(context.Background(), d.Name)
		if err != nil {
			return err
		}
		if err := storage.Storage.Create(context.Background(), key, object, nil, 0, false); err != nil {
			return fmt.Errorf("store definition %s: %w", d.Name, err)
		}
	}
	return nil
}

// versionsOf returns the versions that definitions serve, each once.
func versionsOf(definitions []*apiextensionsv1.CustomResourceDefinition) []schema.GroupVersion {
	var versions []schema.GroupVersion
	seen := map[schema.GroupVersion]bool{}
	for _, d := range definitions {
		for _, v := range d.Spec.Versions {
			version := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
			if v.Served && !seen[version] {
				versions, seen[version] = append(versions, version), true
			}
		}
	}
	return versions
}

// discoverVersion adds the custom resources of a version to discovery.
func (a *api) discoverVersion(
	version schema.GroupVersion, definitions []*apiextensionsv1.CustomResourceDefinition,
) error {
	var resources []metav1.APIResource
	for _, d := range definitions {
		for _, v := range d.Spec.Versions {
			if d.Spec.Group == version.Group && v.Name == version.Version && v.Served {
				resources = append(resources, resourcesOf(d, v)...)
			}
		}
	}
	found, err := endpoints.ConvertGroupVersionIntoToDiscovery(resources)
	if err != nil {
		return err
	}
	a.aggregated.AddGroupVersion(version.Group, apidiscoveryv2.APIVersionDiscovery{
		Version: version.Version, Resources: found, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
	})
	a.addGroup([]schema.GroupVersion{version})
	list := discovery.APIResourceListerFunc(func() []metav1.APIResource { return resources })
	a.versions["/apis/"+version.String()] = discovery.NewAPIVersionHandler(legacyscheme.Codecs, version, list)
	return nil
}

// resourcesOf returns a custom resource and its subresources as discovery has them.
func resourcesOf(
	d *apiextensionsv1.CustomResourceDefinition, v apiextensionsv1.CustomResourceDefinitionVersion,
) []metav1.APIResource {
	names, namespaced := d.Spec.Names, d.Spec.Scope == apiextensionsv1.NamespaceScoped
	resources := []metav1.APIResource{{
		Name: names.Plural, SingularName: names.Singular, Kind: names.Kind, Namespaced: namespaced,
		ShortNames: names.ShortNames, Categories: names.Categories, StorageVersionHash: "-",
		Verbs: metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
	}}
	change := metav1.Verbs{"get", "patch", "update"}
	if v.Subresources != nil && v.Subresources.Status != nil {
		resources = append(resources, metav1.APIResource{
			Name: names.Plural + "/status", Kind: names.Kind, Namespaced: namespaced, Verbs: change})
	}
	if v.Subresources != nil && v.Subresources.Scale != nil {
		resources = append(resources, metav1.APIResource{
			Name: names.Plural + "/scale", Group: "autoscaling", Version: "v1", Kind: "Scale",
			Namespaced: namespaced, Verbs: change})
	}
	return resources
}
