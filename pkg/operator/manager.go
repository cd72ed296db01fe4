package operator

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/controllers/podtransitionrule"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
	"github.com/podops-dev/podops/pkg/runtime/buildinfo"
	"github.com/podops-dev/podops/pkg/runtime/kubeversion"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// Run runs a manager until ctx ends, and for Options.Serving.ShutdownDelay longer.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	ending := newDrain(ctx, options.Serving.ShutdownDelay)
	parts, err := options.parts(ending)
	if err != nil {
		return fmt.Errorf("making the servers of the manager: %w", err)
	}
	mgr, err := Assemble(ctx, config, options, parts)
	if err != nil {
		return fmt.Errorf("setting up the manager: %w", err)
	}
	return ending.run(mgr.Start)
}

// Parts are what a manager has besides its client of the API server and its flags. Run makes the parts of a process,
// which listens on ports; a test has others, such as a webhook server that only collects handlers.
type Parts struct {
	// Manager has the servers of the manager. Assemble adds what follows from flags and kinds.
	Manager ctrl.Options

	// Metrics of PodOps, which the webhook server may count in, too.
	Metrics *Metrics

	// Certificates are those of the servers in Manager, which the manager issues and publishes. Nil: it issues none.
	Certificates *certificates.Serving

	// ending makes the manager unready before it ends. The zero drain never does.
	ending drain
}

// checks returns the checks of readiness, and which certificates of webhooks are known.
func (p Parts) checks(mgr manager.Manager, options Options) (checks map[string]healthz.Checker, known func(string) bool, err error) {
	checks = map[string]healthz.Checker{"shutdown": p.ending.Ready}
	if p.Certificates == nil {
		return checks, func(string) bool { return false }, nil
	}
	certs, err := newCertificates(mgr, p.Certificates, p.Metrics.certificates, options)
	if err != nil {
		return nil, nil, err
	}
	checks["webhook-certificate"] = certs.Ready
	return checks, p.Certificates.Known, nil
}

// Assemble returns a manager with every controller and webhook registered. It reads from the
// API server the user name of the manager: requests of that user may set the labels that only
// PodOps sets.
func Assemble(ctx context.Context, config *rest.Config, options Options, parts Parts) (manager.Manager, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	// The API server's priority and fairness limits requests, not a limit in the client.
	config = rest.CopyConfig(config)
	config.QPS = -1
	// The API server would compress every watch event, at a cost to both.
	config.DisableCompression = true

	server, err := connect(ctx, config)
	if err != nil {
		return nil, err
	}
	kinds, err := servedKinds(ctx, config, ctrl.Log.WithName("kinds"))
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	measured := parts.Metrics
	index := newRuleIndex(measured)
	pods, err := controlledPods(config, scheme)
	if err != nil {
		return nil, err
	}
	base := parts.Manager
	base.Scheme, base.Cache = scheme, cacheOptions(options)
	base.Cache.NewInformer = newInformer(index.Index, pods)
	//nolint:forbidigo // The type of the field names the client, which is not used.
	base.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kinds, nil }
	mgr, err := newManager(config, base, options, measured)
	if err != nil {
		return nil, err
	}
	if mgr, err = withEventQueue(mgr, server.clientset, measured.events, options.EventRate); err != nil {
		return nil, err
	}
	checks, known, err := parts.checks(mgr, options)
	if err != nil {
		return nil, err
	}
	if err := (&assembly{
		Manager: mgr, clientset: server.clientset, identity: server.identity, index: index, known: known, measured: measured, options: options,
	}).register(); err != nil {
		return nil, err
	}
	if err := addChecks(ctx, mgr, checks, options.webhooksAt()); err != nil {
		return nil, err
	}
	mgr.GetLogger().Info("Manager made", "version", buildinfo.Read().Version, "kubernetes", server.version,
		"identity", server.identity, "namespace", options.Namespace, "webhookURL", options.WebhookURL)
	return mgr, nil
}

// connection is a client of the API server, with its version and the user that it takes this manager for.
type connection struct {
	clientset *kubernetes.Clientset
	version   string
	identity  string
}

// connect returns a client of the API server. It fails if PodOps does not support its version.
func connect(ctx context.Context, config *rest.Config) (server connection, err error) {
	if server.clientset, err = newClientset(config); err != nil {
		return connection{}, err
	}
	if server.version, err = supportedVersion(ctx, server.clientset.DiscoveryClient); err != nil {
		return connection{}, err
	}
	server.identity, err = userName(ctx, server.clientset)
	return server, err
}

// supportedVersion returns the version of the API server, and an error if PodOps does not support it.
func supportedVersion(ctx context.Context, server discovery.ServerVersionInterfaceWithContext) (string, error) {
	info, err := server.ServerVersionWithContext(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the version of the API server: %w", err)
	}
	return info.GitVersion, kubeversion.Check(*info)
}

// userName returns the user that the API server takes this manager for.
func userName(ctx context.Context, clientset kubernetes.Interface) (string, error) {
	review, err := clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the identity of this manager from the API server: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// ruleIndex is the index of pods and rules, which the cache of the manager fills with pods, and
// the Notifier that it reports changes to.
type ruleIndex struct {
	*podindex.Index
	notifier *podtransitionrule.Notifier
}

func newRuleIndex(measured *Metrics) ruleIndex {
	notifier := podtransitionrule.NewNotifier(measured.clock)
	index := podindex.NewIndex(notifier.Notify)
	index.Observe(measured.phases)
	index.ObserveBudgets(measured.budgets)
	return ruleIndex{index, notifier}
}

// newInformer returns the constructor of the cache's informers. Pods come from their own
// source, which decodes less of them.
func newInformer(
	index *podindex.Index, pods toolscache.ListerWatcher,
) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, isPod := object.(*corev1.Pod); isPod {
			source = pods
		}
		return index.NewInformer(source, object, resync, indexers)
	}
}

// newClientset returns a client for built-in kinds, which sends and reads them as protocol buffers:
// events cost a fraction of their cost as JSON.
func newClientset(config *rest.Config) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	return clientset, nil
}

// addChecks adds the probes, with these readiness checks and those of every manager. The manager is ready while it responds to requests of API servers,
// and its caches are full.
func addChecks(ctx context.Context, mgr manager.Manager, checks map[string]healthz.Checker, where string) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	synced, err := cachesSynced(ctx, mgr)
	if err != nil {
		return err
	}
	checks["webhook-server"], checks["caches"] = mgr.GetWebhookServer().StartedChecker(), synced
	for name, check := range checks {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("adding the readiness check %s: %w", name, err)
		}
	}
	ready := announcement{log: mgr.GetLogger(), checks: slices.Collect(maps.Values(checks)), where: where}
	if err := mgr.Add(ready); err != nil {
		return fmt.Errorf("announcing readiness: %w", err)
	}
	return nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

// newManager returns a manager of base, with the lease of the flags.
func newManager(config *rest.Config, base ctrl.Options, options Options, measured *Metrics) (manager.Manager, error) {
	base.LeaderElection = options.LeaderElection
	base.LeaderElectionID = appsv1alpha1.ManagerName
	base.LeaderElectionNamespace = options.Namespace
	base.LeaderElectionReleaseOnCancel = true
	base.LeaseDuration, base.RenewDeadline, base.RetryPeriod = &options.LeaseDuration, &options.RenewDeadline, &options.RetryPeriod
	mgr, err := ctrl.NewManager(config, base)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	measured.phases.Lead(mgr.Elected())
	measured.budgets.Lead(mgr.Elected())
	return mgr, nil
}

// cacheOptions returns options that keep in memory only the fields in use: of controlled
// pods the fields that slimPod keeps, of workloads the few fields for counts. Adapters read all of a Service; without adapters in the
// manager the fields of slimService suffice.
func cacheOptions(options Options) cache.Options {
	byObject := certificates.CacheByObject(options.Namespace)
	services := cache.ByObject{Transform: boundService}
	if options.EnableAdapters == "" {
		services.Transform = slimService
	}
	byObject[&corev1.Service{}] = services
	byObject[&appsv1alpha1.PodOperationApproval{}] = cache.ByObject{Transform: slimApproval}
	byObject[&appsv1alpha1.PodOperation{}] = cache.ByObject{Transform: slimOperation}
	byObject[&corev1.Pod{}] = cache.ByObject{
		Label:     controlled(),
		Transform: (&sharedContainers{}).transform,
	}
	for _, workload := range []client.Object{
		&appsv1.ReplicaSet{}, &appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &batchv1.Job{},
	} {
		byObject[workload] = cache.ByObject{Transform: slimWorkload}
	}
	byObject[&policyv1.PodDisruptionBudget{}] = cache.ByObject{Transform: slimDisruptionBudget}
	byObject[&corev1.Node{}] = cache.ByObject{Transform: slimNode}
	for _, bounded := range []client.Object{&appsv1alpha1.PodTransitionRule{}, &appsv1alpha1.PodTransitionPolicy{}} {
		byObject[bounded] = cache.ByObject{Transform: objectbounds.Load}
	}
	return cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: byObject}
}

// slimApproval drops labels and annotations, which users choose the size of.
func slimApproval(object any) (any, error) {
	if o, ok := object.(*appsv1alpha1.PodOperationApproval); ok {
		return &appsv1alpha1.PodOperationApproval{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, CreationTimestamp: o.CreationTimestamp,
		}, Spec: o.Spec}, nil
	}
	return object, nil
}

// slimNode keeps what rules read of a node, podindex.NewNode, and its addresses.
func slimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		slim := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels}}
		slim.Spec.Unschedulable, slim.Status.Addresses = node.Spec.Unschedulable, node.Status.Addresses
		for _, condition := range node.Status.Conditions {
			slim.Status.Conditions = append(slim.Status.Conditions, corev1.NodeCondition{Type: condition.Type, Status: condition.Status})
		}
		return slim, nil
	}
	return object, nil
}

// controlled selects the controlled pods.
func controlled() labels.Selector {
	return labels.SelectorFromSet(labels.Set{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue})
}

// workloadAnnotations returns the annotations of workloads that PodOps reads.
func workloadAnnotations() []string {
	return slices.Concat(replicasetscale.Annotations(), approval.Annotations(), []string{appsv1alpha1.DeploymentRevisionAnnotationKey})
}

// slimWorkload drops the unused fields: most of a workload is the spec of its pods.
func slimWorkload(object any) (any, error) {
	if o, ok := object.(client.Object); ok {
		o.SetManagedFields(nil)
		approval.Stamp(o)
		all := o.GetAnnotations()
		o.SetAnnotations(nil)
		kept := map[string]string{}
		for _, key := range workloadAnnotations() {
			if value, ok := all[key]; ok && len(value) <= maxReferenceBytes {
				kept[key] = value
			}
		}
		if len(kept) > 0 {
			o.SetAnnotations(kept)
		}
		boundWorkload(o)
	}
	switch o := object.(type) {
	case *appsv1.ReplicaSet:
		o.Spec.Template.Spec, o.Status = corev1.PodSpec{}, appsv1.ReplicaSetStatus{
			Replicas: o.Status.Replicas, FullyLabeledReplicas: o.Status.FullyLabeledReplicas, AvailableReplicas: o.Status.AvailableReplicas,
		}
	case *appsv1.Deployment:
		o.Spec.Template.Spec, o.Status = corev1.PodSpec{}, appsv1.DeploymentStatus{}
	case *appsv1.StatefulSet:
		o.Spec.Template.Spec, o.Spec.VolumeClaimTemplates = corev1.PodSpec{}, nil
		o.Status = appsv1.StatefulSetStatus{
			ObservedGeneration: o.Status.ObservedGeneration, UpdateRevision: o.Status.UpdateRevision, CurrentRevision: o.Status.CurrentRevision,
			Replicas: o.Status.Replicas, AvailableReplicas: o.Status.AvailableReplicas,
		}
	case *appsv1.DaemonSet:
		o.Spec.Template.Spec, o.Status.Conditions = corev1.PodSpec{}, nil
	case *batchv1.Job:
		o.Spec.Template.Spec, o.Spec.PodFailurePolicy = corev1.PodSpec{}, nil
	}
	return object, nil
}

// slimDisruptionBudget keeps the name, the generation, the record of permits, the selector and the numbers of a
// PodDisruptionBudget. A budget whose selector exceeds the bounds of selectors of rules selects
// nothing here: the eviction API still applies it.
func slimDisruptionBudget(object any) (any, error) {
	budget, ok := object.(*policyv1.PodDisruptionBudget)
	if !ok {
		return object, nil
	}
	selector := budget.Spec.Selector
	if len(objectbounds.Selector(selector, field.NewPath("spec", "selector"))) > 0 {
		selector = nil
	}
	slim := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: budget.Namespace, Name: budget.Name, UID: budget.UID, ResourceVersion: budget.ResourceVersion, Generation: budget.Generation,
		},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, UnhealthyPodEvictionPolicy: budget.Spec.UnhealthyPodEvictionPolicy},
		Status: policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: budget.Status.ObservedGeneration, DesiredHealthy: budget.Status.DesiredHealthy,
			CurrentHealthy: budget.Status.CurrentHealthy, ExpectedPods: budget.Status.ExpectedPods,
		},
	}
	if record := budget.Annotations[appsv1alpha1.PermitsAnnotationKey]; record != "" && len(record) <= permit.MaxAnnotationBytes {
		slim.Annotations = map[string]string{appsv1alpha1.PermitsAnnotationKey: record}
	}
	if allowed := meta.FindStatusCondition(budget.Status.Conditions, policyv1.DisruptionAllowedCondition); allowed != nil {
		slim.Status.Conditions = []metav1.Condition{*allowed}
	}
	return slim, nil
}

// slimService keeps the name, the deletion timestamp and the selector of a Service, and of a Service
// under PodOps also the fields that TrafficAdapters match. A cut selector selects more pods.
func slimService(object any) (any, error) {
	service, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	slim := trafficadapter.Slim(service)
	slim.Namespace, slim.Name, slim.UID, slim.ResourceVersion = service.Namespace, service.Name, service.UID, service.ResourceVersion
	slim.DeletionTimestamp, slim.Spec.Selector = service.DeletionTimestamp, bounded(service.Spec.Selector, maxMapBytes)
	return slim, nil
}
