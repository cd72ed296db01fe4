// Package kubernetes runs the controllers of Kubernetes that own, count and remove pods, as
// kube-controller-manager runs them: the code of k8s.io/kubernetes, shared informers, and a
// client with a user of its own for each controller.
package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"
)

const (
	// User reads for the shared informers.
	User = "system:kube-controller-manager"

	// Namespace has the service accounts of the controllers.
	Namespace = "kube-system"

	// workers is the number of workers of a controller, the default of kube-controller-manager.
	workers = 5

	// terminatedPods is the number of terminated pods above which the pod GC deletes the oldest.
	terminatedPods = 12500

	// discoveryPeriod is the time between two reads of the resources by the garbage collector. That of Kubernetes is 30 s: here
	// no resource comes later.
	discoveryPeriod = 24 * time.Hour

	// syncTimeout is the time that the garbage collector waits for its caches.
	syncTimeout = 30 * time.Second
)

// Config returns the configuration of a client of the user.
type Config func(user string, groups ...string) *rest.Config

// Account returns the user name of a controller, such as "replicaset-controller".
func Account(controller string) string {
	return "system:serviceaccount:" + Namespace + ":" + controller
}

// Groups returns the groups of the user of a controller.
func Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace, "system:authenticated"}
}

// Controllers are running controllers.
type Controllers struct {
	running sync.WaitGroup
}

// Wait waits for the end of every controller, which the end of the context of Start brings.
func (c *Controllers) Wait() { c.running.Wait() }

// Start starts the controllers of Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and
// PodDisruptionBudgets, the garbage collector and the pod garbage collector. They run until the
// context ends.
func Start(ctx context.Context, config Config) (*Controllers, error) {
	s, err := newStarter(config)
	if err != nil {
		return nil, err
	}
	for _, add := range []func(context.Context) error{s.apps, s.batch, s.disruption, s.podGC, s.garbage} {
		if err := add(ctx); err != nil {
			return nil, err
		}
	}
	s.typed.Start(ctx.Done())
	s.metadata.Start(ctx.Done())
	close(s.started)
	controllers := &Controllers{}
	for _, run := range s.run {
		controllers.running.Go(func() { run(ctx) })
	}
	controllers.running.Go(func() {
		<-ctx.Done()
		s.typed.Shutdown()
	})
	return controllers, nil
}

// starter has the parts that controllers share.
type starter struct {
	config   Config
	typed    informers.SharedInformerFactory
	metadata metadatainformer.SharedInformerFactory
	mapper   *restmapper.DeferredDiscoveryRESTMapper
	started  chan struct{}
	run      []func(context.Context)
}

func newStarter(config Config) (*starter, error) {
	shared, err := clientset.NewForConfig(config(User, "system:authenticated"))
	if err != nil {
		return nil, fmt.Errorf("making the client of informers: %w", err)
	}
	objects, err := metadata.NewForConfig(config(User, "system:authenticated"))
	if err != nil {
		return nil, fmt.Errorf("making the client of informers of metadata: %w", err)
	}
	return &starter{
		config: config, started: make(chan struct{}),
		typed:    informers.NewSharedInformerFactory(shared, 0),
		metadata: metadatainformer.NewSharedInformerFactory(objects, 0),
		mapper:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(shared.Discovery())),
	}, nil
}

// client returns the client of a controller.
func (s *starter) client(controller string) (clientset.Interface, error) {
	client, err := clientset.NewForConfig(s.config(Account(controller), Groups()...))
	if err != nil {
		return nil, fmt.Errorf("making the client of %s: %w", controller, err)
	}
	return client, nil
}

// add adds the loop of a controller.
func (s *starter) add(run func(context.Context, int)) {
	s.run = append(s.run, func(ctx context.Context) { run(ctx, workers) })
}

func (s *starter) apps(ctx context.Context) error {
	apps, pods := s.typed.Apps().V1(), s.typed.Core().V1().Pods()
	client, err := s.client("deployment-controller")
	if err != nil {
		return err
	}
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), pods, client)
	if err != nil {
		return fmt.Errorf("making the controller of Deployments: %w", err)
	}
	s.add(deployments.Run)
	if client, err = s.client("replicaset-controller"); err != nil {
		return err
	}
	s.add(replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), pods, client, replicaset.BurstReplicas).Run)
	if client, err = s.client("statefulset-controller"); err != nil {
		return err
	}
	claims := s.typed.Core().V1().PersistentVolumeClaims()
	s.add(statefulset.NewStatefulSetController(ctx, pods, apps.StatefulSets(), claims, apps.ControllerRevisions(), client).Run)
	if client, err = s.client("daemon-set-controller"); err != nil {
		return err
	}
	const firstDelay, lastDelay = time.Second, 15 * time.Minute
	daemons, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), pods,
		s.typed.Core().V1().Nodes(), client, flowcontrol.NewBackOff(firstDelay, lastDelay))
	if err != nil {
		return fmt.Errorf("making the controller of DaemonSets: %w", err)
	}
	s.add(daemons.Run)
	return nil
}

func (s *starter) batch(ctx context.Context) error {
	client, err := s.client("job-controller")
	if err != nil {
		return err
	}
	jobs, err := job.NewController(ctx, client, s.typed.Core().V1().Pods(), s.typed.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		return fmt.Errorf("making the controller of Jobs: %w", err)
	}
	s.add(jobs.Run)
	return nil
}

func (s *starter) disruption(ctx context.Context) error {
	const name = "disruption-controller"
	client, err := s.client(name)
	if err != nil {
		return err
	}
	resolver := scale.NewDiscoveryScaleKindResolver(client.Discovery())
	scales, err := scale.NewForConfig(s.config(Account(name), Groups()...), s.mapper, dynamic.LegacyAPIPathResolverFunc, resolver)
	if err != nil {
		return fmt.Errorf("making the client of scales: %w", err)
	}
	apps, core := s.typed.Apps().V1(), s.typed.Core().V1()
	s.add(disruption.NewDisruptionController(ctx, core.Pods(), s.typed.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(),
		apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), client, s.mapper, scales, client.Discovery()).Run)
	return nil
}

func (s *starter) podGC(ctx context.Context) error {
	client, err := s.client("pod-garbage-collector")
	if err != nil {
		return err
	}
	collector := podgc.NewPodGC(ctx, client, s.typed.Core().V1().Pods(), s.typed.Core().V1().Nodes(), terminatedPods)
	s.run = append(s.run, collector.Run)
	return nil
}

func (s *starter) garbage(ctx context.Context) error {
	const name = "generic-garbage-collector"
	client, err := s.client(name)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(s.config(Account(name), Groups()...))
	if err != nil {
		return fmt.Errorf("making the client of the garbage collector: %w", err)
	}
	ignored := map[schema.GroupResource]struct{}{}
	for resource := range garbagecollector.DefaultIgnoredResources() {
		ignored[resource] = struct{}{}
	}
	factory := informerfactory.NewInformerFactory(s.typed, s.metadata)
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, objects, s.mapper, ignored, factory, s.started)
	collector, err := garbagecollector.NewComposedGarbageCollector(ctx, client, objects, s.mapper, graph)
	if err != nil {
		return fmt.Errorf("making the garbage collector: %w", err)
	}
	s.run = append(s.run,
		func(ctx context.Context) { collector.Run(ctx, workers, syncTimeout) },
		func(ctx context.Context) { collector.Sync(ctx, client.Discovery(), discoveryPeriod) },
	)
	return nil
}
