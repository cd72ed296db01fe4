package operator_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator"
)

// shortStep is how many writes a short test advances: the race detector makes each story take seconds.
const shortStep = 7

// ready returns a simulation whose cluster is ready.
func ready(t *testing.T, replicas int32) *simulation {
	t.Helper()
	w := newSimulation(t, replicas)
	w.run()
	if cluster := w.cluster(); cluster.Status.Phase != kvstorev1.PhaseReady {
		t.Fatalf("not ready: %+v", cluster.Status)
	}
	return w
}

func TestASteadyClusterIsReadAndNotWritten(t *testing.T) {
	w := ready(t, 3)
	before := w.writes
	w.run()
	if w.writes != before {
		t.Errorf("%d writes to a steady cluster", w.writes-before)
	}
}

func TestNothingIsWrittenBeforeTheFirstObservationOfTheStore(t *testing.T) {
	w := ready(t, 3)
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = next })
	before := w.writes
	w.unseen = true
	w.run()
	if w.writes != before {
		t.Errorf("%d writes", w.writes-before)
	}
	w.unseen = false
	w.run()
	if cluster := w.cluster(); cluster.Status.CurrentVersion != next {
		t.Errorf("not upgraded: %+v", cluster.Status)
	}
}

// TestDriftIsRepaired changes what the operator manages, by hand.
func TestDriftIsRepaired(t *testing.T) {
	for sentence, drift := range map[string]func(*simulation){
		"replicas": func(w *simulation) {
			set := w.set()
			set.Spec.Replicas = ptr.To(int32(5))
			w.must(w.api.Update(w.t.Context(), set))
		},
		"image": func(w *simulation) {
			set := w.set()
			set.Spec.Template.Spec.Containers[0].Image = "my-repo/kvstore:other"
			w.must(w.api.Update(w.t.Context(), set))
		},
		"labels": func(w *simulation) {
			set := w.set()
			set.Labels = nil
			w.must(w.api.Update(w.t.Context(), set))
		},
		"Service": func(w *simulation) {
			service := &corev1.Service{}
			service.Namespace, service.Name = "default", "db"
			w.must(w.api.Delete(w.t.Context(), service))
		},
		"label of the leader": func(w *simulation) {
			pod := w.pods()[0]
			pod.Labels[kvstorev1.RoleLabelKey] = kvstorev1.RoleLeader
			w.must(w.api.Update(w.t.Context(), pod))
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := ready(t, 3)
			want := w.end()
			drift(w)
			w.run()
			if diff := cmp.Diff(want, w.end()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// end is everything that counts of the end of a story.
type end struct {
	Gone              bool
	Phase             kvstorev1.ClusterPhase
	Current           string
	Conditions        []string
	Replicas          int32
	Version, Strategy string
	Pods              []string
	Claims            int
	Leaders           []string
}

func (w *simulation) end() end {
	w.t.Helper()
	var claims corev1.PersistentVolumeClaimList
	w.must(w.api.List(w.t.Context(), &claims))
	e := end{Gone: true, Claims: len(claims.Items)}
	for ordinal, pod := range w.pods() {
		e.Pods = append(e.Pods, fmt.Sprint(ordinal, versionOf(pod.Spec), operating(pod)))
		if pod.Labels[kvstorev1.RoleLabelKey] != "" {
			e.Leaders = append(e.Leaders, pod.Name)
		}
	}
	slices.Sort(e.Pods)
	if set := w.set(); set != nil {
		e.Replicas, e.Version = *set.Spec.Replicas, versionOf(set.Spec.Template.Spec)
		e.Strategy = fmt.Sprint(set.Spec.UpdateStrategy.Type, ptr.Deref(set.Spec.UpdateStrategy.RollingUpdate.Partition, -1))
	}
	cluster := w.cluster()
	if cluster == nil {
		return e
	}
	e.Gone, e.Phase, e.Current = false, cluster.Status.Phase, cluster.Status.CurrentVersion
	for _, c := range cluster.Status.Conditions {
		e.Conditions = append(e.Conditions, fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason))
	}
	slices.Sort(e.Conditions)
	return e
}

// TestAnOperatorThatEndsAtAnyCallIsContinued ends the operator at each of its calls of the API server in
// turn, before the call and after it took effect, and lets another continue: every story ends as it does
// without that.
func TestAnOperatorThatEndsAtAnyCallIsContinued(t *testing.T) {
	for sentence, begin := range map[string]func(*simulation){
		"a canary upgrade": func(w *simulation) {
			w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = next })
		},
		"an upgrade that is rolled back": func(w *simulation) {
			w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = bad })
		},
		"a scale-in": func(w *simulation) {
			w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Replicas = 1 })
		},
		"a deletion": func(w *simulation) {
			w.must(w.api.Delete(w.t.Context(), w.cluster()))
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			w := ready(t, 3)
			before := w.calls
			begin(w)
			w.run()
			want, calls, writes := w.end(), w.calls-before, 0
			for n := 1; n <= calls; n++ {
				write := w.wrote[before+n]
				if write {
					writes++
				}
				if testing.Short() && (!write || writes%shortStep != 0) {
					continue // an operator that ends at a read ends as after the write before it
				}
				for _, lost := range losses(write) {
					w := ready(t, 3)
					w.last, w.lost = w.calls+n, lost
					begin(w)
					w.run()
					if diff := cmp.Diff(want, w.end()); diff != "" {
						t.Fatalf("ended at call %d of %d, lost %t (-want +got):\n%s", n, calls, lost, diff)
					}
				}
			}
			t.Logf("%d calls, %d of them write; the end: %+v", calls, writes, want)
		})
	}
}

// losses returns whether the last call of an operator takes effect: a read has none.
func losses(write bool) []bool {
	if write {
		return []bool{false, true}
	}
	return []bool{false}
}

func TestADeletedClusterWithoutFinalizerIsLeft(t *testing.T) {
	w := ready(t, 3)
	cluster := w.cluster()
	cluster.Finalizers = []string{"example.com/other"}
	w.must(w.api.Update(t.Context(), cluster))
	w.must(w.api.Delete(t.Context(), cluster))
	before := w.writes
	w.run()
	if w.writes != before {
		t.Errorf("%d writes", w.writes-before)
	}
}

// condition returns a condition's reason and message.
func (w *simulation) condition(kind string) string {
	w.t.Helper()
	found := meta.FindStatusCondition(w.cluster().Status.Conditions, kind)
	if found == nil {
		return "none"
	}
	return found.Reason + ": " + found.Message
}

func (w *simulation) reconcile() error {
	_, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "db"}})
	return err
}

// TestADeletionWhoseBackupCannotBeginReportsWhy has a namespace in which no Job can be created at first.
func TestADeletionWhoseBackupCannotBeginReportsWhy(t *testing.T) {
	w := ready(t, 1)
	w.must(w.api.Delete(t.Context(), w.cluster()))
	w.forbidJobs = true
	w.restart()
	for range 2 { // the status is written before the step, so the second has the failure
		if err := w.reconcile(); err == nil {
			t.Error("no error, so the operator does not try again")
		}
	}
	const want = "StepFailed: creating Job db-backup-0: "
	for _, kind := range []string{kvstorev1.ConditionBackedUp, kvstorev1.ConditionReconciling, kvstorev1.ConditionReady} {
		if got := w.condition(kind); !strings.HasPrefix(got, want) || !strings.Contains(got, "exceeded quota: jobs") {
			t.Errorf("%s is %q", kind, got)
		}
	}
	select {
	case event := <-w.events.Events:
		if !strings.HasPrefix(event, "Warning Failing ") || !strings.Contains(event, "exceeded quota: jobs") {
			t.Errorf("the event is %q", event)
		}
	default:
		t.Error("no event")
	}
	writes := w.writes
	if err := w.reconcile(); err == nil || w.writes != writes {
		t.Errorf("%v, %d writes for a step that fails again", err, w.writes-writes)
	}
	w.forbidJobs = false
	w.must(w.reconcile())
	w.must(w.reconcile())
	if got := w.condition(kvstorev1.ConditionBackedUp); !strings.HasPrefix(got, "BackupRunning: ") {
		t.Errorf("BackedUp is %q once the Job is created", got)
	}
	w.run()
	if w.cluster() != nil {
		t.Error("the cluster remains")
	}
}

func TestAnUpgradeWhoseHealthCheckCannotBeginIsRolledBack(t *testing.T) {
	w := ready(t, 1)
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = next })
	w.forbidJobs = true
	for began := w.clock.Now(); w.cluster().Status.Phase != kvstorev1.PhaseFailed; w.controllers() {
		if w.clock.Since(began) > time.Hour {
			t.Fatalf("no deadline: %+v", w.cluster().Status)
		}
		if w.reconcile() != nil {
			w.clock.Step(time.Minute)
		}
	}
	if got := w.condition(kvstorev1.ConditionUpgraded); !strings.HasPrefix(got, "HealthCheckFailed: ") || !strings.Contains(got, "exceeded quota: jobs") {
		t.Errorf("Upgraded is %q", got)
	}
}

func TestAJobOfAnotherOwnerIsNoBackup(t *testing.T) {
	w := ready(t, 1)
	other := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-backup-0"}}
	w.must(w.api.Create(t.Context(), other))
	w.must(w.api.Delete(t.Context(), w.cluster()))
	for range 2 {
		if err := w.reconcile(); err == nil {
			t.Error("no error")
		}
	}
	if got := w.condition(kvstorev1.ConditionBackedUp); got != "StepFailed: creating Job db-backup-0: a Job of that name has another owner" {
		t.Errorf("BackedUp is %q", got)
	}
	w.must(w.api.Delete(t.Context(), other))
	w.must(w.reconcile())
	w.run()
	if w.cluster() != nil {
		t.Error("the cluster remains")
	}
}

// TestADeletionReleasesExternalResourcesLast has a service that is away at first.
func TestADeletionReleasesExternalResourcesLast(t *testing.T) {
	status, requests := http.StatusServiceUnavailable, []string{}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.Path)
		w.WriteHeader(status)
	}))
	t.Cleanup(service.Close)
	release, err := operator.NewHTTPRelease(service.URL + "/records")
	if err != nil {
		t.Fatal(err)
	}
	w := ready(t, 1)
	w.must(w.api.Delete(t.Context(), w.cluster()))
	w.restart()
	w.Releasing(release)
	for w.reconcile() == nil {
		w.controllers()
	}
	if err := w.reconcile(); err == nil || !strings.Contains(err.Error(), "503 Service Unavailable") {
		t.Errorf("error %v", err)
	}
	if got := w.condition(kvstorev1.ConditionReconciling); !strings.HasPrefix(got, "StepFailed: ") || !strings.Contains(got, "503 Service Unavailable") {
		t.Errorf("Reconciling is %q", got)
	}
	if e := w.end(); e.Gone || len(e.Pods)+e.Claims > 0 {
		t.Errorf("the resources are released before the rest is deleted: %+v", e)
	}
	status = http.StatusNoContent
	w.must(w.reconcile())
	if w.cluster() != nil {
		t.Error("the cluster remains")
	}
	if diff := cmp.Diff([]string{"DELETE /records/default/db/db-uid"}, slices.Compact(requests)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestTheURLOfExternalResourcesIsAbsolute(t *testing.T) {
	for _, url := range []string{"records", "/records", "http://[::1", ""} {
		if _, err := operator.NewHTTPRelease(url); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
}
