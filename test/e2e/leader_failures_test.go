package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/managerprocess"
)

// moment is when a leader fails.
type moment string

const (
	// reservationSeen is when a batch was reserved, and its pods are being permitted.
	reservationSeen moment = "reservation"

	// permitSeen is when a pod was permitted; others of its batch may follow.
	permitSeen moment = "permit"
)

// leaderFailures makes leaders fail at observed moments.
type leaderFailures struct {
	moments chan moment

	mu   sync.Mutex
	done []moment
}

// failLeaders makes the leader fail a number of times, at the moments in turn. fail returns
// once another manager leads.
func failLeaders(p scenario, times int, fail func(context.Context)) *leaderFailures {
	GinkgoHelper()
	a := &leaderFailures{moments: make(chan moment, 1000)}
	reserved, permitted := map[appsv1alpha1.ReservedPod]bool{}, map[string]bool{}
	rules, pods := &appsv1alpha1.PodTransitionRuleList{}, &corev1.PodList{}
	follow(p, rules, func() []*appsv1alpha1.PodTransitionRule { return pointers(rules.Items) },
		func(_ watch.EventType, rule *appsv1alpha1.PodTransitionRule) {
			if rule.Status.Permits == nil {
				return
			}
			for _, pod := range rule.Status.Permits.Reserved {
				if !reserved[pod] {
					reserved[pod] = true
					a.moments <- reservationSeen
				}
			}
		})
	follow(p, pods, func() []*corev1.Pod { return pointers(pods.Items) }, func(_ watch.EventType, pod *corev1.Pod) {
		for key, at := range pod.Labels {
			permit := fmt.Sprint(pod.UID, key, at)
			if strings.HasPrefix(key, preChecked) && !permitted[permit] {
				permitted[permit] = true
				a.moments <- permitSeen
			}
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(ended)
		for i := range times {
			wanted := []moment{reservationSeen, permitSeen}[i%2]
			if !a.await(ctx, wanted) {
				return
			}
			fail(ctx)
			a.mu.Lock()
			a.done = append(a.done, wanted)
			a.mu.Unlock()
		}
	}()
	DeferCleanup(func() {
		stop()
		Eventually(ended).Should(BeClosed())
	})
	return a
}

// await waits for a future moment; earlier ones are dropped.
func (a *leaderFailures) await(ctx context.Context, wanted moment) bool {
	for len(a.moments) > 0 {
		<-a.moments
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case seen := <-a.moments:
			if seen == wanted {
				return true
			}
		}
	}
}

// sprung returns the moments at which a leader has failed and another manager took over.
func (a *leaderFailures) sprung() []moment {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.done)
}

// team is a leader and its standby.
type team struct {
	flags  []string
	leader *manager
}

// newTeam starts two managers, and returns once one of them leads.
func newTeam(ctx context.Context, flags ...string) *team {
	GinkgoHelper()
	t := &team{flags: flags}
	t.add()
	t.add()
	t.awaitLeader(ctx)
	Eventually(ctx, managers.running).Should(HaveEach(WithTransform((*manager).Ready, Succeed())))
	return t
}

// add starts one more manager. The log of a leader that is killed or overthrown may contain errors of a webhook that ended
// with it during a call.
func (t *team) add() {
	GinkgoHelper()
	m := managers.launch(t.flags...)
	m.complaints = afterLoss
	managers.keep(m, t.flags)
}

// awaitLeader waits until a manager leads that has not led before.
func (t *team) awaitLeader(ctx context.Context) {
	GinkgoHelper()
	former := t.leader
	Eventually(ctx, managers.leaders).Should(ContainElement(Not(BeIdenticalTo(former)), &t.leader))
	Eventually(ctx, t.leader.Ready).Should(Succeed())
}

// killLeader kills the leader.
func (t *team) killLeader(ctx context.Context) {
	GinkgoHelper()
	t.leader.Kill()
	t.add()
	t.awaitLeader(ctx)
}

// overthrowLeader gives the lease to the standby, while the leader continues.
func (t *team) overthrowLeader(ctx context.Context) {
	GinkgoHelper()
	lease := &coordinationv1.Lease{}
	get := func() string {
		Expect(suiteCluster.admin.Get(ctx, client.ObjectKey{Namespace: managerprocess.Namespace, Name: managerprocess.Account}, lease)).To(Succeed())
		return *lease.Spec.HolderIdentity
	}
	former := get()
	Eventually(ctx, func() string {
		if get() == former {
			lease.Spec.HolderIdentity = new("")
			// The leader may renew it in between: then the next iteration retries.
			if err := suiteCluster.admin.Update(ctx, lease); !apierrors.IsConflict(err) {
				Expect(client.IgnoreNotFound(err)).To(Succeed())
			}
		}
		return get()
	}).ShouldNot(BeElementOf("", former))
	Eventually(ctx, func() int { return len(managers.leaders()) }).Should(BeNumerically(">=", 2), "both lead now")
	t.add()
}
