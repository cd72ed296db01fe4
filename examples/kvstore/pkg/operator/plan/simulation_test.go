package plan_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
)

// Versions of the simulation.
const (
	good    = "1.0"
	better  = "2.0"
	unready = "never-ready" // its pods never become ready
	sick    = "sick"        // its health checks fail
)

func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func settings() plan.Settings {
	return plan.Settings{Image: "my-repo/kvstore", ProgressDeadline: 10 * time.Minute}
}

// member is a pod of the simulation.
type member struct {
	uid         int
	version     string
	image       string // after an operation of another controller; empty: of the version
	begun       map[plan.Operation]bool
	allowed     map[plan.Operation]bool
	healthy     bool
	since       time.Time // when healthy changed
	terminating bool
	labelled    bool
}

// heal changes whether a pod is healthy.
func (m *member) heal(healthy bool, now time.Time) {
	if m.healthy != healthy {
		m.healthy, m.since = healthy, now
	}
}

func (m *member) offTraffic() bool {
	return slices.Contains(slices.Collect(maps.Values(m.allowed)), true)
}

// simulation is a cluster in memory: the controllers of StatefulSets and Jobs, kubelets, PodOps and a store.
type simulation struct {
	now      time.Time
	cluster  *kvstorev1.KVStoreCluster
	service  *corev1.Service
	set      *appsv1.StatefulSet
	pods     map[int32]*member
	jobs     map[string]*batchv1.Job
	claims   map[int32]bool
	leader   int32 // -1: none
	voters   map[string]bool
	observed time.Time
	uids     int

	// current is the version of the current revision of the StatefulSet.
	current string

	backupDown bool

	// schema is the version of the schema that the store has. Migrations fail, or hang.
	schema                        int32
	migrationFails, migrationHang bool
	gone                          bool
	writes                        int

	// violations are broken properties.
	violations []string
}

func newSimulation(replicas int32, strategy kvstorev1.UpgradeStrategyType) *simulation {
	return &simulation{
		now: epoch(), leader: -1, pods: map[int32]*member{}, jobs: map[string]*batchv1.Job{}, claims: map[int32]bool{}, voters: map[string]bool{},
		cluster: &kvstorev1.KVStoreCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db-uid", Generation: 1},
			Spec: kvstorev1.KVStoreClusterSpec{
				Version: good, Replicas: replicas, UpgradeStrategy: strategy, Storage: kvstorev1.StorageSpec{ClassName: "fast", Size: "1Gi"},
			},
		},
	}
}

func (w *simulation) violated(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// offTraffic reports whether a pod was permitted.
func (w *simulation) offTraffic() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(w.pods)), (*member).offTraffic)
}

// snapshot returns the simulation as an operator reads it.
func (w *simulation) snapshot() plan.Snapshot {
	s := plan.Snapshot{
		Cluster: w.cluster.DeepCopy(), Service: w.service, StatefulSet: w.set, Members: map[int32]plan.Member{}, Jobs: maps.Clone(w.jobs),
	}
	for ordinal, m := range w.pods {
		permissions := map[plan.Operation]plan.Permission{}
		for _, operation := range []plan.Operation{plan.Upgrade, plan.ScaleIn} {
			permissions[operation] = plan.Permission{Begun: m.begun[operation], Allowed: m.allowed[operation]}
		}
		s.Members[ordinal] = plan.Member{Pod: w.pod(ordinal, m), Permissions: permissions}
	}
	for _, ordinal := range slices.Sorted(maps.Keys(w.claims)) {
		s.Claims = append(s.Claims, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("data-db-%d", ordinal)}})
	}
	if !w.observed.IsZero() {
		s.Store = plan.Observation{At: w.observed, Members: slices.Sorted(maps.Keys(w.voters))}
		if w.leader >= 0 {
			s.Store.Leader = plan.PodName("db", w.leader)
		}
	}
	return s
}

func (w *simulation) pod(ordinal int32, m *member) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: plan.PodName("db", ordinal), UID: types.UID(fmt.Sprint(m.uid)), Labels: plan.MemberLabels("db"),
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: plan.ContainerName, Image: cmp.Or(m.image, "my-repo/kvstore:"+m.version), Args: []string{"serve", "--version=" + m.version},
		}}},
		Status: corev1.PodStatus{PodIP: fmt.Sprintf("10.0.0.%d", ordinal+1)},
	}
	pod.Labels[appsv1alpha1.ControlLabelKey] = appsv1alpha1.ControlLabelValue
	if m.labelled {
		pod.Labels[kvstorev1.RoleLabelKey] = kvstorev1.RoleLeader
	}
	if m.terminating {
		pod.DeletionTimestamp = &metav1.Time{Time: w.now}
	}
	containers := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(m.since)}
	if m.healthy {
		containers.Status = corev1.ConditionTrue
	}
	pod.Status.Conditions = append(pod.Status.Conditions, containers)
	if m.healthy && !m.offTraffic() {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		pod.Labels[appsv1alpha1.ServiceAvailableLabelKey] = "1"
	}
	return pod
}

// operate runs one round of an operator that ends after a number of writes. It returns how many writes
// the decision has.
func (w *simulation) operate(limit int) int {
	if w.gone {
		return 0
	}
	s := w.snapshot()
	d := plan.Decide(s, settings(), w.now)
	done := 0
	write := func(wanted bool, effect func()) {
		if !wanted {
			return
		}
		if done++; done <= limit {
			w.writes++
			effect()
		}
	}
	write(d.AddFinalizer, func() { w.cluster.Finalizers = append(w.cluster.Finalizers, kvstorev1.Finalizer) })
	write(d.KeepDependents, func() {
		w.cluster.Finalizers = slices.DeleteFunc(w.cluster.Finalizers, func(name string) bool { return name == metav1.FinalizerDeleteDependents })
	})
	write(!statusEqual(d.Status, s.Cluster.Status), func() {
		begins := d.Status.Upgrade != nil && (s.Cluster.Status.Upgrade == nil || s.Cluster.Status.Upgrade.ToVersion != d.Status.Upgrade.ToVersion)
		if d.Status.SchemaVersion > w.schema || begins && w.schema < w.cluster.Spec.SchemaVersion {
			w.violated("the schema has version %d: %+v", w.schema, d.Status)
		}
		w.cluster.Status = *d.Status.DeepCopy()
	})
	for _, undo := range d.Undo {
		write(true, func() { w.end(undo) })
	}
	write(d.Begin != nil, func() {
		ordinal, _ := plan.Ordinal("db", d.Begin.Pod.Name)
		if m := w.pods[ordinal]; m != nil {
			m.begun[d.Begin.Operation] = true
		}
	})
	w.store(d, write)
	write(d.Service != nil, func() { w.service = d.Service })
	write(d.StatefulSet != nil, func() {
		if slices.Contains(w.cluster.Finalizers, metav1.FinalizerDeleteDependents) {
			w.violated("a StatefulSet is created for the garbage collector to delete")
		}
		w.set = d.StatefulSet.DeepCopy()
		w.set.Generation++
		if w.current == "" {
			w.current = w.updateVersion()
		}
	})
	write(d.DeletePod != nil, func() {
		ordinal, _ := plan.Ordinal("db", d.DeletePod.Name)
		w.remove(ordinal, d.DeletePod.UID)
	})
	write(d.CreateJob != nil, func() {
		for name, job := range w.jobs {
			if isMigration(d.CreateJob) && isMigration(job) && len(job.Status.Conditions) == 0 {
				w.violated("%s begins while %s runs", d.CreateJob.Name, name)
			}
		}
		w.jobs[d.CreateJob.Name] = d.CreateJob.DeepCopy()
	})
	for _, job := range d.DeleteJobs {
		write(true, func() { delete(w.jobs, job.Name) })
	}
	write(d.DeleteStatefulSet != nil, func() { w.set = nil })
	for _, claim := range d.DeleteClaims {
		write(true, func() {
			if !meta.IsStatusConditionTrue(w.cluster.Status.Conditions, kvstorev1.ConditionBackedUp) {
				w.violated("%s is deleted before a backup", claim.Name)
			}
			if ordinal, ok := plan.Ordinal("data-db", claim.Name); ok {
				delete(w.claims, ordinal)
			}
		})
	}
	write(d.RemoveFinalizer, func() { w.gone = true })
	return done
}

func (w *simulation) store(d plan.Decision, write func(bool, func())) {
	for _, pod := range d.ClearRole {
		write(true, func() { w.label(pod, false) })
	}
	write(d.SetRole != nil, func() { w.label(d.SetRole, true) })
	write(d.MoveLeader != nil, func() {
		for _, pod := range d.MoveLeader.To {
			if ordinal, _ := plan.Ordinal("db", pod); w.pods[ordinal] != nil && w.pods[ordinal].healthy {
				w.leader, w.observed = ordinal, w.now
				return
			}
		}
	})
	write(d.RemoveMember != "", func() { delete(w.voters, d.RemoveMember) })
	if d.Observe {
		w.observed = w.now
	}
}

func (w *simulation) label(pod *corev1.Pod, leads bool) {
	ordinal, _ := plan.Ordinal("db", pod.Name)
	if m := w.pods[ordinal]; m != nil {
		m.labelled = leads
	}
}

func (w *simulation) end(operation plan.PodOperation) {
	ordinal, _ := plan.Ordinal("db", operation.Pod.Name)
	if m := w.pods[ordinal]; m != nil {
		delete(m.begun, operation.Operation)
		delete(m.allowed, operation.Operation)
	}
}

// updateVersion returns the version of the update revision.
func (w *simulation) updateVersion() string {
	image := w.set.Spec.Template.Spec.Containers[0].Image
	return image[len("my-repo/kvstore:"):]
}

// remove deletes a pod, as the API server does: PodOps rejects a delete that it has not allowed.
func (w *simulation) remove(ordinal int32, uid types.UID) {
	m := w.pods[ordinal]
	if m == nil || m.terminating || types.UID(fmt.Sprint(m.uid)) != uid || !m.offTraffic() {
		return
	}
	if len(w.pods) > 1 && m.healthy && w.leader == ordinal && w.now.Sub(w.observed) == 0 {
		w.violated("%s: the leader db-%d goes", w.now.Format(time.TimeOnly), ordinal)
	}
	healthy := 0
	for _, other := range w.pods {
		if other.healthy && !other.terminating {
			healthy++
		}
	}
	if m.healthy && healthy < len(w.pods) {
		w.violated("db-%d goes while another pod is not healthy", ordinal)
	}
	m.terminating = true
	m.heal(false, w.now)
	if w.leader == ordinal {
		w.leader = -1
	}
}

// controllers lets every controller but the operator act once.
func (w *simulation) controllers() {
	w.podOps()
	w.kubelets()
	w.statefulSets()
	w.runJobs()
	w.elect()
}

// podOps allows the first operation that waits, if no other pod is off traffic.
func (w *simulation) podOps() {
	for _, m := range w.pods {
		if m.offTraffic() && m.healthy {
			return
		}
	}
	for _, ordinal := range slices.Sorted(maps.Keys(w.pods)) {
		m := w.pods[ordinal]
		for _, operation := range slices.Sorted(maps.Keys(m.begun)) {
			m.allowed[operation] = true
			return
		}
	}
}

func (w *simulation) kubelets() {
	for ordinal, m := range maps.Clone(w.pods) {
		switch {
		case m.terminating:
			delete(w.pods, ordinal)
		case m.version != unready && !m.healthy:
			m.heal(true, w.now)
			w.voters[plan.PodName("db", ordinal)] = true
		}
	}
}

// statefulSets is the controller of StatefulSets.
func (w *simulation) statefulSets() {
	if w.set == nil {
		for ordinal := range maps.Clone(w.pods) {
			delete(w.pods, ordinal) // the garbage collector
		}
		return
	}
	w.set = w.set.DeepCopy()
	w.set.Status.ObservedGeneration = w.set.Generation
	partition := int32(0)
	rolling := w.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType
	if rolling {
		partition = *w.set.Spec.UpdateStrategy.RollingUpdate.Partition
	}
	for ordinal := range *w.set.Spec.Replicas {
		if w.pods[ordinal] != nil {
			continue
		}
		w.uids++
		m := &member{uid: w.uids, since: w.now, version: w.updateVersion(), begun: map[plan.Operation]bool{}, allowed: map[plan.Operation]bool{}}
		if ordinal < partition {
			m.version = w.current
		}
		w.pods[ordinal], w.claims[ordinal] = m, true
	}
	for ordinal, m := range w.pods {
		if ordinal >= *w.set.Spec.Replicas {
			w.remove(ordinal, types.UID(fmt.Sprint(m.uid)))
			delete(w.claims, ordinal)
		}
	}
	updated := true
	for ordinal := *w.set.Spec.Replicas - 1; ordinal >= 0; ordinal-- {
		m := w.pods[ordinal]
		if m.version == w.updateVersion() {
			if !m.healthy {
				return
			}
			continue
		}
		updated = false
		if rolling && ordinal >= partition {
			w.remove(ordinal, types.UID(fmt.Sprint(m.uid)))
			return
		}
	}
	if updated && rolling {
		w.current = w.updateVersion()
	}
}

func isMigration(job *batchv1.Job) bool {
	return job.Labels[kvstorev1.ComponentLabelKey] == kvstorev1.ComponentMigration
}

func (w *simulation) runJobs() {
	for name, job := range w.jobs {
		if len(job.Status.Conditions) > 0 || isMigration(job) && w.migrationHang {
			continue
		}
		job = job.DeepCopy()
		kind := batchv1.JobComplete
		component := job.Labels[kvstorev1.ComponentLabelKey]
		version := job.Spec.Template.Spec.Containers[0].Image[len("my-repo/kvstore:"):]
		if component == kvstorev1.ComponentHealthCheck && version == sick || component == kvstorev1.ComponentBackup && w.backupDown ||
			isMigration(job) && w.migrationFails {
			kind = batchv1.JobFailed
		} else if isMigration(job) {
			w.migrate(job)
		}
		job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)}}
		w.jobs[name] = job
	}
}

// migrate is the end of a Job that migrates the store.
func (w *simulation) migrate(job *batchv1.Job) {
	args := job.Spec.Template.Spec.Containers[0].Args
	to, err := strconv.Atoi(args[2])
	if err != nil || args[0] != "migrate" || args[1] != "--to" || args[3] != "--url" {
		w.violated("a migration with the arguments %q", args)
	}
	w.schema = max(w.schema, int32(to))
}

// elect makes the first healthy pod the leader if no pod leads. The operator observes a store from its first pod on.
func (w *simulation) elect() {
	if w.observed.IsZero() && len(w.pods) > 0 {
		w.observed = w.now
	}
	if w.leader >= 0 && w.pods[w.leader] != nil && w.pods[w.leader].healthy {
		return
	}
	w.leader = -1
	for _, ordinal := range slices.Backward(slices.Sorted(maps.Keys(w.pods))) {
		if w.pods[ordinal].healthy {
			w.leader = ordinal
			return
		}
	}
}

// edit changes the spec.
func (w *simulation) edit(change func(*kvstorev1.KVStoreClusterSpec)) {
	change(&w.cluster.Spec)
	w.cluster.Generation++
}

// settle runs everything until nothing changes any more.
func (w *simulation) settle() bool {
	still := 0
	for range 3000 {
		before := w.fingerprint()
		quiet := w.operate(1000) == 0
		w.controllers()
		w.now = w.now.Add(time.Second)
		if still++; !quiet || w.fingerprint() != before || w.pending() {
			still = 0
		}
		if still == 3 {
			return true
		}
	}
	return false
}

// fingerprint returns everything that a controller may still change.
func (w *simulation) fingerprint() string {
	text := fmt.Sprint(w.writes, w.leader, len(w.jobs), w.gone, w.current)
	for _, ordinal := range slices.Sorted(maps.Keys(w.pods)) {
		text += fmt.Sprint(*w.pods[ordinal])
	}
	return text
}

// pending reports whether time alone still leads to a change.
func (w *simulation) pending() bool {
	d := plan.Decide(w.snapshot(), settings(), w.now)
	if d.Wake > 0 {
		w.now = w.now.Add(d.Wake)
	}
	return d.Wake > 0 || d.Observe || d.Begin != nil
}

// versions returns the versions that pods have.
func (w *simulation) versions() []string {
	var versions []string
	for _, m := range w.pods {
		versions = append(versions, m.version)
	}
	slices.Sort(versions)
	return slices.Compact(versions)
}
