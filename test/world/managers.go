package world

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	manifests "github.com/podops-dev/podops/config"
	"github.com/podops-dev/podops/pkg/operator"
	"github.com/podops-dev/podops/test/world/admission"
	"github.com/podops-dev/podops/test/world/apiserver"
)

const (
	// managerNamespace and managerUser are those of the manifests.
	managerNamespace = "podops-system"
	managerUser      = "system:serviceaccount:podops-system:podops-controller-manager"

	// deploymentController is the user of the Deployment controller.
	deploymentController = "system:serviceaccount:kube-system:deployment-controller"

	// starting is the time from the start of a manager until its Service sends it reviews, and ending the time from the
	// end of a manager until it does no more.
	starting = 3 * time.Second
	ending   = 2 * time.Second
)

// isManager reports whether a user is a manager of PodOps.
func isManager(user string) bool { return user == managerUser }

// Fixture are the parts of a cluster that every schedule shares: manifests, compiled once. It is made outside of bubbles.
type Fixture struct {
	// TraceLines is the number of lines that the trace of a verdict has at most.
	TraceLines int

	configuration *admission.Configuration
	definitions   []*apiextensionsv1.CustomResourceDefinition
}

// NewFixture reads the manifests of PodOps.
func NewFixture() (*Fixture, error) {
	configuration, err := admission.Read(manifests.Manifests, "webhook", "rbac")
	if err != nil {
		return nil, fmt.Errorf("reading the webhooks and policies: %w", err)
	}
	f := &Fixture{TraceLines: 60, configuration: configuration, definitions: customDefinitions()}
	const bases = "crd/bases"
	files, err := fs.ReadDir(manifests.Manifests, bases)
	if err != nil {
		return nil, fmt.Errorf("reading the definitions: %w", err)
	}
	for _, file := range files {
		content, err := fs.ReadFile(manifests.Manifests, path.Join(bases, file.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file.Name(), err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, definition); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", file.Name(), err)
		}
		f.definitions = append(f.definitions, definition)
	}
	return f, nil
}

// customDefinitions returns the definitions of Fleets and Rollouts.
func customDefinitions() []*apiextensionsv1.CustomResourceDefinition {
	var all []*apiextensionsv1.CustomResourceDefinition
	preserve, selector := true, ".status.selector"
	for plural, kind := range map[string]Kind{"fleets": Fleet, "rollouts": Rollout} {
		all = append(all, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group().Group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: group().Group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{
					Plural: plural, Singular: plural[:len(plural)-1], Kind: string(kind), ListKind: string(kind) + "List",
				},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: group().Version, Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: &preserve,
					}},
					Subresources: &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{
						SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &selector,
					}},
				}},
			},
		})
	}
	return all
}

// managers are the managers of PodOps, and the admission chain that calls them.
type managers struct {
	world   *World
	chain   *admission.Chain
	pool    []*admission.Server // for managers that start later
	locks   []*lock             // by manager; managers that share a lease have the same
	running sync.WaitGroup

	mu     sync.Mutex
	now    []*incarnation       // by manager; nil if it does not run
	steady time.Time            // since when reviews are answered; zero if they are not
	denied map[string]time.Time // until when others deny an operation
}

// incarnation is one run of a manager.
type incarnation struct {
	server *admission.Server
	cache  *endingCache
	mute   context.CancelFunc // ends the events of its watches
	end    context.CancelFunc // as SIGTERM does
	cut    context.CancelFunc // ends its connections
}

// newManagers makes the managers of a schedule, and their admission chain.
func newManagers(w *World) *managers {
	m := &managers{world: w, now: make([]*incarnation, w.schedule.Managers), denied: map[string]time.Time{}}
	starts := 2 * w.schedule.Managers
	for _, act := range w.schedule.Acts {
		if act.Verb == "start" {
			starts++
		}
	}
	for range starts {
		m.pool = append(m.pool, admission.NewServer())
	}
	shared := newLock(w.began)
	for range w.schedule.Managers {
		own := shared
		if w.schedule.BothLead {
			own = newLock(w.began)
		}
		m.locks = append(m.locks, own)
	}
	m.chain = admission.New(admission.Options{
		Seed: w.schedule.Seed, Configuration: w.fixture.configuration, Managers: append([]*admission.Server(nil), m.pool...),
		Authorize: authorize, Objections: m.objections(),
	})
	return m
}

// admission returns the chain; nil without managers.
func (m *managers) admission() apiserver.Admission {
	if m.world.schedule.Managers == 0 {
		return nil
	}
	return m.chain
}

// authorize allows every verb of the API to every user, and any other verb to the managers alone.
func authorize(a authorizer.Attributes) bool {
	switch a.GetVerb() {
	case "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection":
		return a.GetAPIGroup() != "apps.kusionstack.io" || a.GetName() == ""
	default:
		return a.GetUser() != nil && isManager(a.GetUser().GetName())
	}
}

// objections returns the policies and webhooks of others, which the act "deny" switches on.
func (m *managers) objections() []admission.Objection {
	concerns := func(key string, about func(*apiserver.Request) bool) func(*apiserver.Request) bool {
		return func(r *apiserver.Request) bool { return about(r) && m.denies(key) }
	}
	scale := admission.NoScale("no-scale", person)
	scale.Concerns = concerns("scale", scale.Concerns)
	quota := admission.Exceeded("pods", 1)
	quota.Concerns = concerns("quota", quota.Concerns)
	return []admission.Objection{
		scale,
		admission.Hostile("no-delete", 1, 0, concerns("delete", admission.On(admissionv1.Delete, "pods", person))),
		admission.Hostile("no-evict", 1, 0, concerns("evict", admission.On(admissionv1.Create, "pods/eviction", person, evictor))),
		admission.Hostile("no-steps", 1, 0, concerns("steps", admission.On(admissionv1.Update, "replicasets", deploymentController))),
		admission.Hostile("slow", 0, 8*time.Second, concerns("slow", admission.On(admissionv1.Delete, "pods"))),
		quota,
	}
}

func (m *managers) denies(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.denied[key])
}

// deny makes policies and webhooks of others deny an operation for a time: Text is scale, delete or evict for those of users, and
// steps for the numbers that the controller of Deployments writes. With
// quota a ResourceQuota rejects every new pod, and with slow a webhook of others takes up to 8 s for each delete of a pod.
func (w *World) deny(_ context.Context, a Act, _ Workload) error {
	w.managers.mu.Lock()
	defer w.managers.mu.Unlock()
	w.managers.denied[a.Text] = time.Now().Add(a.For)
	return nil
}

// manager kills, stops, starts or hangs the Nth manager.
func (w *World) manager(ctx context.Context, a Act, _ Workload) error {
	m := w.managers
	if len(m.now) == 0 {
		return nil
	}
	n := a.N % len(m.now)
	switch a.Verb {
	case "start":
		return m.begin(ctx, n)
	case "hang":
		if run := m.current(n); run != nil {
			m.unsteady()
			run.server.Hang(true)
			pause(ctx, a.For)
			run.server.Hang(false)
			m.settle()
		}
	case "kill", "stop":
		m.finish(n, a.Verb == "kill")
	}
	return nil
}

func (m *managers) current(n int) *incarnation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now[n]
}

// unsteady records that reviews may not be answered from now on, and settle that they are.
func (m *managers) unsteady() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steady = time.Time{}
}

func (m *managers) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, run := range m.now {
		if run != nil {
			m.steady = time.Now()
		}
	}
}

// guards reports whether reviews have been answered for a time.
func (m *managers) guards() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.steady.IsZero() && time.Since(m.steady) > recently
}

// start starts every manager.
func (m *managers) start(ctx context.Context) error {
	for n := range m.now {
		if err := m.begin(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// begin starts the Nth manager if it does not run.
func (m *managers) begin(ctx context.Context, n int) error {
	m.mu.Lock()
	if m.now[n] != nil || len(m.pool) == 0 {
		m.mu.Unlock()
		return nil
	}
	server := m.pool[0]
	m.pool = m.pool[1:]
	ctx, end := context.WithCancel(ctx)
	alive, cut := context.WithCancel(context.WithoutCancel(ctx))
	muted, mute := context.WithCancel(alive)
	run := &incarnation{server: server, cache: &endingCache{alive: alive}, mute: mute, end: end, cut: cut}
	m.now[n] = run
	m.mu.Unlock()
	connection := rest.CopyConfig(m.world.server.Config(managerUser, "system:serviceaccounts", "system:serviceaccounts:"+managerNamespace, "system:authenticated"))
	connection.Wrap(func(next http.RoundTripper) http.RoundTripper { return lifeline{next, alive, muted.Done()} })
	as := &candidate{time.Now().Add(warming), m.locks[n], fmt.Sprintf("manager-%d-%d", n, len(m.pool)), alive}
	mgr, err := m.assemble(ctx, connection, as, server, run.cache)
	if err != nil {
		end()
		cut()
		return fmt.Errorf("assembling manager %d: %w", n, err)
	}
	m.running.Go(func() {
		defer cut()
		if err := mgr.Start(ctx); err != nil && alive.Err() == nil && ctx.Err() == nil {
			m.world.trace.note(fmt.Sprintf("manager %d ended: %v", n, err))
		}
	})
	m.running.Go(func() {
		if pause(ctx, starting) && mgr.GetCache().WaitForCacheSync(ctx) && alive.Err() == nil {
			server.Ready(true)
			m.settle()
		}
	})
	return nil
}

// assemble returns a manager with a connection, as a candidate for a lease, and with a server of webhooks and a cache.
func (m *managers) assemble(
	ctx context.Context, connection *rest.Config, as *candidate, server *admission.Server, filled *endingCache,
) (ctrl.Manager, error) {
	var options operator.Options
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	options.AddFlags(flags)
	if err := flags.Parse([]string{"--namespace=" + managerNamespace, "--leader-elect", "--metrics-bind-address=0", "--health-probe-bind-address=0"}); err != nil {
		return nil, fmt.Errorf("parsing flags: %w", err)
	}
	registry := prometheus.NewRegistry()
	measured, err := operator.NewMetrics(registry, logr.Discard())
	if err != nil {
		return nil, fmt.Errorf("making metrics: %w", err)
	}
	skip, recovers, patience := true, false, 20*time.Second // a panic ends the program, and is not taken for an error
	return operator.Assemble(ctx, connection, options, operator.Parts{
		Manager: ctrl.Options{
			Metrics: metricsserver.Options{BindAddress: "0"}, WebhookServer: server, Logger: logr.Discard(), GracefulShutdownTimeout: &patience,
			LeaderElectionResourceLockInterface: as, NewCache: filled.make,
			Controller: config.Controller{SkipNameValidation: &skip, RecoverPanic: &recovers},
		},
		Metrics: measured,
	})
}

// finish ends the Nth manager: as a kill does, or as SIGTERM does.
func (m *managers) finish(n int, kill bool) {
	m.mu.Lock()
	run := m.now[n]
	m.now[n], m.steady = nil, time.Time{}
	m.mu.Unlock()
	if run == nil {
		return
	}
	run.mute()
	time.Sleep(muting)
	if kill || !run.cache.filled.Load() {
		run.cut()
		run.server.Kill()
	}
	run.end()
	m.running.Go(func() {
		time.Sleep(ending)
		run.server.Ready(false)
		m.settle()
	})
}

// endingCache is the cache of a manager. controller-runtime waits in a loop without a pause for the cache when a manager ends before
// its cache is filled: time would stand still. PodOps leaves such a manager after a while, in which it does nothing else, so its
// connections are cut here, and the wait ends with them.
type endingCache struct {
	cache.Cache
	alive  context.Context
	filled atomic.Bool
}

// make implements cache.NewCacheFunc.
func (c *endingCache) make(config *rest.Config, options cache.Options) (made cache.Cache, err error) {
	c.Cache, err = cache.New(config, options)
	return c, err
}

// WaitForCacheSync implements cache.Informers.
func (c *endingCache) WaitForCacheSync(ctx context.Context) bool {
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(c.alive, end)()
	if c.Cache.WaitForCacheSync(ctx) {
		c.filled.Store(true)
	}
	return c.filled.Load() || c.alive.Err() != nil
}

// mute ends the events of the watches of every manager.
func (m *managers) mute() {
	for n := range m.now {
		if run := m.current(n); run != nil {
			run.mute()
		}
	}
	time.Sleep(muting)
}

// wait waits for the end of every manager.
func (m *managers) wait() { m.running.Wait() }
