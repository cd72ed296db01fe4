package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/podops-dev/podops/test/managerprocess"
)

const (
	// endpointLag is after how long the endpoints of the Service reflect readiness, and shutdownDelay how
	// long a replica serves after SIGTERM: six times as long.
	endpointLag   = 500 * time.Millisecond
	shutdownDelay = 3 * time.Second

	// leaseDuration is shorter than by default, so that five leaders can be killed.
	leaseDuration = 6 * time.Second
)

// replicas are the replicas of the manager's Deployment, and its Service.
type replicas struct {
	system     *system
	service    *managerprocess.Service
	kubeconfig string // of the ServiceAccount

	// killing is locked while a leader is killed: a request that meets it is unanswered, and a webhook with
	// failurePolicy Ignore lets it pass.
	killing sync.RWMutex

	mu      sync.Mutex
	all     []*replica
	killed  []time.Time
	crashed []string // logs of replicas that ended by themselves
	closed  bool
}

// replica is a manager.
type replica struct {
	*managerprocess.Process
	release release
	webhook string // address of the webhook server
	log     string

	leaving bool // it got SIGTERM, or is killed
}

// errClosed means that the suite has ended.
var errClosed = errors.New("the suite has ended")

// openReplicas opens the Service. Replicas that still run end with the suite.
func openReplicas(s *system) *replicas {
	GinkgoHelper()
	r := &replicas{system: s, kubeconfig: filepath.Join(s.Dir(), "manager.kubeconfig")}
	var err error
	r.service, err = managerprocess.OpenService(func() []managerprocess.Endpoint {
		var all []managerprocess.Endpoint
		for _, m := range r.running() {
			all = append(all, managerprocess.Endpoint{Process: m.Process, Webhook: m.webhook})
		}
		return all
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(r.service.Close)
	DeferCleanup(r.service.Lag(endpointLag))
	DeferCleanup(func() {
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		for _, m := range r.running() {
			m.Kill()
		}
	})
	return r
}

// launch starts a replica of a release. A replica that ends by itself, or is killed, is started again, as a kubelet
// does.
func (r *replicas) launch(version release) (*replica, error) {
	webhook, err := managerprocess.FreeAddress()
	if err != nil {
		return nil, err
	}
	probe, err := managerprocess.FreeAddress()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	m := &replica{release: version, webhook: webhook, log: filepath.Join(r.system.Dir(), fmt.Sprintf("manager-%d-%s.log", len(r.all)+1, version.name))}
	m.Process, err = managerprocess.Start(managerprocess.Options{
		Command: []string{
			version.manager, "--kubeconfig", r.kubeconfig, "--webhook-url", r.service.URL(), "--webhook-bind-address", webhook,
			"--metrics-bind-address", "0", "--health-probe-bind-address", probe, "--shutdown-delay", shutdownDelay.String(),
			"--rule-webhook-allow-cidr", "127.0.0.0/8", "--leader-elect",
			"--leader-elect-lease-duration", leaseDuration.String(), "--leader-elect-renew-deadline", "5s", "--leader-elect-retry-period", "500ms",
		},
		Log: m.log, Probe: probe,
	})
	if err != nil {
		return nil, err
	}
	r.all = append(r.all, m)
	go r.restart(m)
	return m, nil
}

// restart starts a replica again when it has ended without SIGTERM.
func (r *replicas) restart(m *replica) {
	defer GinkgoRecover()
	<-m.Ended()
	r.mu.Lock()
	again := !r.closed && !m.leaving
	if again {
		r.crashed = append(r.crashed, m.log)
	}
	r.mu.Unlock()
	if again {
		_, err := r.launch(m.release)
		Expect(err).To(Or(Succeed(), MatchError(errClosed)))
	}
}

// start starts both replicas, and returns once they are ready and a leader is elected.
func (r *replicas) start(ctx context.Context, version release) {
	GinkgoHelper()
	Expect(managerprocess.WriteKubeconfig(ctx, r.system.Config(), r.kubeconfig)).To(Succeed())
	for range 2 {
		_, err := r.launch(version)
		Expect(err).NotTo(HaveOccurred())
	}
	Eventually(ctx, r.leader).ShouldNot(BeNil())
	Eventually(ctx, r.running).Should(And(HaveLen(2), HaveEach(WithTransform((*replica).Ready, Succeed()))))
}

// running returns the replicas that have not ended, oldest first.
func (r *replicas) running() []*replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.all), func(m *replica) bool { return m.HasEnded() })
}

// leader returns the replica that holds the lease; nil while none does.
func (r *replicas) leader() *replica {
	for _, m := range slices.Backward(r.running()) {
		if m.leads() {
			return m
		}
	}
	return nil
}

func (r *replica) leads() bool { return strings.Contains(r.Log(), "Successfully acquired lease") }

// replace replaces a replica by a replica of another release, as a Deployment with maxSurge 1 and maxUnavailable 0
// does: the old replica gets SIGTERM when the new replica is ready.
func (r *replicas) replace(ctx context.Context, old *replica, version release) {
	GinkgoHelper()
	fresh, err := r.launch(version)
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, fresh.Ready).Should(Succeed(), fresh.Tail)
	r.mu.Lock()
	old.leaving = true
	r.mu.Unlock()
	Expect(old.Signal(syscall.SIGTERM)).To(Succeed())
	Eventually(ctx, old.Ended()).Should(BeClosed())
	Eventually(ctx, r.leader).ShouldNot(BeNil())
}

// follower returns a replica of a release that does not lead, or its leader when it has no other.
func (r *replicas) follower(version release) *replica {
	return r.ranked(version, func(m *replica) bool { return !m.leads() })
}

// leading returns the leader when it is of a release, or another replica of that release.
func (r *replicas) leading(version release) *replica {
	return r.ranked(version, (*replica).leads)
}

// ranked returns a running replica of a release, with the property if any replica has it.
func (r *replicas) ranked(version release, property func(*replica) bool) *replica {
	GinkgoHelper()
	all := slices.DeleteFunc(r.running(), func(m *replica) bool { return m.release != version })
	Expect(all).NotTo(BeEmpty(), "replicas of the %s release", version.name)
	if at := slices.IndexFunc(all, property); at >= 0 {
		return all[at]
	}
	return all[0]
}

// killLeader kills the leader, and returns once another replica leads, and two are ready.
func (r *replicas) killLeader(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, r.leader).ShouldNot(BeNil())
	r.killing.Lock()
	defer r.killing.Unlock()
	former := r.leader()
	r.mu.Lock()
	former.leaving = true
	r.killed = append(r.killed, time.Now())
	r.mu.Unlock()
	former.Kill()
	_, err := r.launch(former.release)
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, r.leader).ShouldNot(BeNil())
	Eventually(ctx, r.running).Should(And(HaveLen(2), HaveEach(WithTransform((*replica).Ready, Succeed()))))
}

// betweenKills calls a function while no leader is killed.
func (r *replicas) betweenKills(do func()) {
	r.killing.RLock()
	defer r.killing.RUnlock()
	do()
}

// nearKill reports whether a request that was received at a time may have met a replica that was killed: during
// its review, or while the endpoints of the Service still had it.
func (r *replicas) nearKill(at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.killed, func(kill time.Time) bool {
		return at.After(kill.Add(-3*time.Second)) && at.Before(kill.Add(4*endpointLag))
	})
}

// panics returns the logs with a panic.
func (r *replicas) panics() (logs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.all {
		if strings.Contains(m.Log(), "panic") {
			logs = append(logs, m.log)
		}
	}
	return logs
}

func (r *replicas) tails() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all strings.Builder
	for _, m := range r.all {
		fmt.Fprintf(&all, "%s\n%s\n", m.log, m.Tail())
	}
	return all.String()
}
