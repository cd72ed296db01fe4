package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/world/apiserver"
)

// The laws. Those of the first group hold at every write, those of the second at the end.
const (
	// lawWorks: the schedule itself can be played.
	lawWorks = "works"

	// lawAvailable: no act of PodOps, and none that it lets pass, leaves fewer available pods than a rule allows.
	lawAvailable = "available"

	// lawWanted: no pod is removed, or taken off traffic for its removal, that neither a client nor its owner wants
	// removed at that moment.
	lawWanted = "wanted"

	// lawRefused: what was refused is not carried out by PodOps.
	lawRefused = "refused"

	// lawTraffic: no pod is removed while its traffic is on.
	lawTraffic = "traffic"

	// lawNumber: PodOps never writes the number of replicas of a ReplicaSet, and the number of its author is
	// stored.
	lawNumber = "number"

	// lawStrangers: no request for an object without the control label is refused by PodOps, or delayed.
	lawStrangers = "strangers"

	// lawInVain: no pod whose containers are ready is kept off traffic for longer than a bound.
	lawInVain = "in vain"

	// lawRequests: no client sends more than a bound of requests of a kind in five minutes in which nothing happens.
	lawRequests = "requests"

	// lawTrue: what other controllers read is true again after a hold: no conflict of server-side apply, no annotation
	// of Deployments that differs from the number.
	lawTrue = "true"

	// lawServes: in the end every pod serves or is gone.
	lawServes = "serves"

	// lawOwners: in the end owners have the number of pods that they want, of the revision that they want.
	lawOwners = "owners"

	// lawRemains: in the end no label, annotation, finalizer or deletion cost of PodOps is left.
	lawRemains = "remains"

	// lawAndThen: after the end, a scale-in, a scale-out and a rollout of every workload complete.
	lawAndThen = "and then"
)

const (
	// recently is the time for which an earlier wish, rule or failure still explains an act: watches are late by up to
	// 2 s, and an act that was decided before is written after it.
	recently = 15 * time.Second

	// late is the time by which a watch is late at most, apart from watches that the schedule makes late.
	late = 3 * time.Second

	// requested is the time for which the request of a client explains that its pod leaves.
	requested = 2*time.Minute + recently

	// owed is the time within which the request of a client must be seen that explains that its pod went off traffic.
	owed = 30 * time.Second

	// inVain is the time for which a pod may be kept off traffic with ready containers.
	inVain = 2 * time.Minute

	// quiet is the time for which requests are counted, and most the number of requests of a kind that a client may
	// send in it.
	quiet = 5 * time.Minute
	most  = 1000
)

// laws watch the writes of a world. They are safe for concurrent use.
type laws struct {
	world *World

	mu       sync.Mutex
	mirror   mirror
	acting   bool // the acts have begun
	writes   int
	removed  map[string]int           // pods by workload
	atEnd    map[string]int           // the same, before the end began
	left     map[string]int           // pods by workload, before the end began
	past     map[string]bool          // why pods were removed past their rules, as events have it
	off      map[string]time.Duration // the longest time off traffic of a pod that came back, by workload
	violated []Violation
	wished   map[string][]dated // by workload, the newest last
	bounds   map[string][]dated // by namespace and name of a rule
	pods     map[string]*podFacts
	freed    map[string][]time.Time // by workload, when pods without the control label were removed
	evicted  map[string][]time.Time // by workload, when others than controllers removed pods
	taken    map[string]time.Time   // by workload, when a user last removed a pod
	nodes    map[string]time.Time   // when a node was created, or its labels changed last
	lastAct  time.Time
	counted  map[string]int
	since    time.Time // of counted
}

// dated is a number that holds from a time on, and of a workload also the revision.
type dated struct {
	at time.Time
	n  int
	revision
}

// revision is what the pods of a revision have in common.
type revision struct {
	image    string
	labelled bool
}

// podFacts are what laws remember of a pod, by UID.
type podFacts struct {
	created   time.Time
	templated bool      // it was created with the control label
	labelled  time.Time // since when it has the control label
	requested time.Time // when a client last requested its removal
	failed    time.Time // when its containers last became unready
	vain      time.Time // since when it is off traffic with ready containers, but for moments
	back      time.Time // since when it is not; zero while it is
	served    bool      // it has been in service
	off       time.Time // since when it could serve, and is off traffic
	debt      time.Time // when it went off traffic although only the request of a client can explain that
	law, why  string    // that are violated if no client requests the removal
}

func newLaws(w *World) *laws {
	l := &laws{
		world: w, mirror: mirror{}, removed: map[string]int{}, past: map[string]bool{}, off: map[string]time.Duration{},
		wished: map[string][]dated{}, bounds: map[string][]dated{},
		pods: map[string]*podFacts{}, nodes: map[string]time.Time{}, taken: map[string]time.Time{},
		freed: map[string][]time.Time{}, evicted: map[string][]time.Time{},
	}
	for _, workload := range w.schedule.Workloads {
		l.wished[workload.Name] = []dated{{w.began, workload.Replicas, revision{first, workload.isLabelled()}}}
	}
	return l
}

// begin is called when the acts begin. Laws do not watch the creation of the workloads.
func (l *laws) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acting, l.lastAct = true, time.Now()
	l.counted, l.since = l.world.server.Counts(), time.Now()
}

// act is called before each act.
func (l *laws) act() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastAct = time.Now()
}

// wishes is called when the wish for a workload changed.
func (l *laws) wishes(name string) {
	wish := l.world.wished(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.wished[name]
	now := list[len(list)-1] // by the last write: another act may be about to note its own
	now.at = time.Now()
	if on, _ := l.world.schedule.workload(name); on.Kind == Job {
		now.n = wish.replicas
	}
	l.wished[name] = append(list, now)
}

// latest returns the number and the revision that a workload is to have, by its last write.
func (l *laws) latest(name string) dated {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.wished[name]
	return list[len(list)-1]
}

// report records a violation.
func (l *laws) report(law, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violate(time.Now(), law, text)
}

// violate records a violation: the first of each law, and no more than ten.
func (l *laws) violate(at time.Time, law, text string) {
	if len(l.violated) >= 10 || slices.ContainsFunc(l.violated, func(v Violation) bool { return v.Law == law }) {
		return
	}
	l.violated = append(l.violated, Violation{Law: law, At: at.Sub(l.world.began).Truncate(time.Millisecond), Text: text})
	l.world.trace.add(at, "!! "+law+": "+text)
}

// end is called before the end begins.
func (l *laws) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.atEnd = map[string]int{}, maps.Clone(l.removed)
	for _, pod := range l.mirror.active(func(*corev1.Pod) bool { return true }) {
		l.left[pod.Labels[app]]++
	}
}

func (l *laws) found() Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Verdict{Violations: slices.Clone(l.violated), Writes: l.writes, Removed: l.atEnd, Left: l.left,
		OffTraffic: maps.Clone(l.off), Unguarded: slices.Sorted(maps.Keys(l.past))}
}

// write checks the laws of writes.
func (l *laws) write(write apiserver.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	if !l.acting {
		l.mirror.apply(write)
		l.remember(write)
		return
	}
	l.strangers(write)
	l.rememberEvent(write)
	l.refusedAct(write)
	l.number(write)
	l.rememberRequest(write)
	before, pod := write.Before.(*corev1.Pod)
	if pod {
		l.removal(write, before)
	}
	l.mirror.apply(write)
	l.remember(write)
	if pod {
		l.available(write, before)
	}
}

// isRemoval reports whether a write made an active pod terminate or removed it.
func isRemoval(write apiserver.Write) bool {
	before, ok := write.Before.(*corev1.Pod)
	if !ok || before.DeletionTimestamp != nil {
		return false
	}
	after, ok := write.After.(*corev1.Pod)
	return !ok || after == nil || after.DeletionTimestamp != nil
}

// isGuarded reports whether PodOps guards a pod against removals by a user: the pod has its label and gate, which no
// request of the last seconds changed, and the user is not a part of Kubernetes whose removals pass.
func (l *laws) isGuarded(user string, pod *corev1.Pod) bool {
	facts := l.facts(pod)
	return isControlled(pod) && time.Since(facts.labelled) > recently && hasGate(pod) && l.world.managers.guards() && !passes(user) &&
		!l.mirror.terminates(pod.Namespace)
}

// passes reports whether removals by a user are not held: kubelets, the collectors of garbage.
func passes(user string) bool {
	return strings.HasPrefix(user, "system:node") || strings.HasSuffix(user, ":generic-garbage-collector") ||
		strings.HasSuffix(user, ":pod-garbage-collector") || strings.HasSuffix(user, ":namespace-controller")
}

func isControlled(pod *corev1.Pod) bool {
	return pod.Labels[appsv1alpha1.ControlLabelKey] == appsv1alpha1.ControlLabelValue
}

func hasGate(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool {
		return g.ConditionType == appsv1alpha1.ServiceReadyGate
	})
}

// waitsForTraffic reports whether the removal of a pod by a user waits until its traffic is off, and has not. The pods of an owner
// that was deleted go at once. On a node that was deleted no kubelet reports that traffic is off.
func (l *laws) waitsForTraffic(user string, pod *corev1.Pod) bool {
	wish := l.world.wished(pod.Labels[app])
	if l.mirror.get("nodes", "", pod.Spec.NodeName) == nil && pod.Spec.NodeName != "" {
		return false
	}
	return l.isGuarded(user, pod) && isTrue(pod, corev1.PodReady) && (!wish.gone || wish.orphaned) && !l.lostLeader(pod)
}

// unseen records a removal that PodOps may not see before its next act.
func (l *laws) unseen(write apiserver.Write, pod *corev1.Pod, on Workload) {
	if write.User == person {
		l.taken[on.Name] = write.Time
	}
	if !isControlled(pod) {
		l.freed[on.Name] = append(l.freed[on.Name], write.Time)
	}
	if !isController(write.User) && isActive(pod) {
		l.evicted[on.Name] = append(l.evicted[on.Name], write.Time)
	}
}

// removal checks the laws of the removal of a pod.
func (l *laws) removal(write apiserver.Write, pod *corev1.Pod) {
	if !isRemoval(write) {
		return
	}
	on, _ := l.world.schedule.workload(pod.Labels[app])
	l.removed[on.Name]++
	l.unseen(write, pod, on)
	if !isActive(pod) {
		return
	}
	if l.waitsForTraffic(write.User, pod) {
		l.violate(write.Time, lawTraffic, fmt.Sprintf("%s removed %s while its traffic was on", shortUser(write.User), pod.Name))
	}
	if isManager(write.User) && !isRequestedByLabel(pod) && !isOf(pod, "StatefulSet") {
		l.violate(write.Time, lawRefused, fmt.Sprintf("PodOps removed %s: no label requests that", pod.Name))
	}
	if !isController(write.User) && !isManager(write.User) || passes(write.User) || !isControlled(pod) || !l.world.managers.guards() {
		return
	}
	if why := l.isWanted(on, pod); why != "" && !l.isRequested(pod) {
		l.violate(write.Time, lawWanted, fmt.Sprintf("%s removed %s: %s", shortUser(write.User), pod.Name, why))
	}
}

// isRequestedByLabel reports whether a request that PodOps carries out itself is in the pod.
func isRequestedByLabel(pod *corev1.Pod) bool {
	if _, ok := pod.Labels[appsv1alpha1.ToDeleteLabelKey]; ok {
		return true
	}
	for key := range pod.Labels {
		if strings.HasPrefix(key, appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodOperationIDPrefix) {
			return true
		}
	}
	return false
}

func isOf(pod *corev1.Pod, kind string) bool {
	controller := metav1.GetControllerOf(pod)
	return controller != nil && controller.Kind == kind
}

func isController(user string) bool {
	return strings.HasPrefix(user, "system:serviceaccount:kube-system:") && strings.HasSuffix(user, "-controller") || user == owner
}

// refusedAct is the law of acts that PodOps carries out although their requests were refused: an eviction, too, is one.
func (l *laws) refusedAct(write apiserver.Write) {
	if write.Resource != "pods" || write.Subresource != "eviction" || !isManager(write.User) || write.Code >= 300 {
		return
	}
	pod, ok := l.mirror.get("pods", write.Namespace, write.Name).(*corev1.Pod)
	if ok && !isRequestedByLabel(pod) && !isOf(pod, "StatefulSet") {
		l.violate(write.Time, lawRefused, fmt.Sprintf("PodOps evicted %s: no label requests that", write.Name))
	}
}

// number is the law of the numbers of ReplicaSets.
func (l *laws) number(write apiserver.Write) {
	if write.Resource != "replicasets" || !isManager(write.User) {
		return
	}
	if changes := fieldChangesOf(write); len(changes) > 0 {
		l.violate(write.Time, lawNumber, fmt.Sprintf("PodOps changed ReplicaSet %s: %s", write.Name, strings.Join(changes, ", ")))
	}
}

func fieldChangesOf(write apiserver.Write) []string {
	if write.Before == nil || write.After == nil {
		return nil
	}
	return fieldChanges(write.Before, write.After)
}

// strangers is the law of requests for objects without the label.
func (l *laws) strangers(write apiserver.Write) {
	message := strings.ReplaceAll(strings.ToLower(write.Message), group().Group, "")
	if write.Code < 400 || !strings.Contains(message, "podops") {
		return
	}
	labelled := func(on Workload) bool { return on.Stranger && l.world.wished(on.Name).labelled }
	if write.Name == "" && slices.ContainsFunc(l.world.schedule.Workloads, labelled) {
		return // the request has no name, and may be for a pod with the label of a template
	}
	stranger := write.Namespace == Strangers
	if pod, ok := l.mirror.get(write.Resource, write.Namespace, write.Name).(*corev1.Pod); ok {
		stranger = !isControlled(pod) && l.facts(pod).labelled.IsZero()
	}
	if stranger && !isManager(write.User) && write.User != labeller {
		l.violate(write.Time, lawStrangers, fmt.Sprintf("%s may not %s %s/%s %s, which has no label: %s",
			shortUser(write.User), write.Verb, write.Resource, write.Subresource, write.Name, cut(write.Message, 160)))
	}
}

// rememberEvent remembers why pods were removed past their rules, as PodOps reports it.
func (l *laws) rememberEvent(write apiserver.Write) {
	event, ok := write.After.(*corev1.Event)
	if !ok || event == nil || event.Reason != "DeletedUnguarded" || l.atEnd != nil {
		return
	}
	if _, why, ok := strings.Cut(event.Message, "had not permitted it: "); ok {
		l.past[why] = true
	}
}

// rememberRequest remembers requests of clients for the removal of a pod.
func (l *laws) rememberRequest(write apiserver.Write) {
	if write.Resource != "pods" || write.Verb != "delete" && write.Subresource != "eviction" || isManager(write.User) {
		return
	}
	pod, ok := l.mirror.get("pods", write.Namespace, write.Name).(*corev1.Pod)
	if !ok && !isController(write.User) { // the request has waited, and others have removed the pod meanwhile
		for uid, facts := range l.pods {
			if strings.Contains(write.Message, uid) {
				facts.debt = time.Time{}
			}
		}
	}
	if !ok || passes(write.User) || isController(write.User) && !isOf(pod, string(Fleet)) {
		return
	}
	facts := l.facts(pod)
	facts.requested, facts.debt = write.Time, time.Time{}
}

// live returns copies of a workload's pods by name, as the API server has them: actors that poll read them without a request.
func (l *laws) live(on Workload) []corev1.Pod {
	return l.liveWith(on, func(*corev1.Pod) bool { return true })
}

// liveWith returns copies of the pods that a function selects, as live does. The function is called with l.mu, and changes no pod.
func (l *laws) liveWith(on Workload, selects func(*corev1.Pod) bool) []corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pods []corev1.Pod
	for _, object := range l.mirror["pods"] {
		if pod := object.(*corev1.Pod); pod.Labels[app] == on.Name && pod.Namespace == on.Namespace() && selects(pod) {
			pods = append(pods, *pod.DeepCopy())
		}
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// liveSets returns copies of a workload's ReplicaSets by name, as live does.
func (l *laws) liveSets(on Workload) []*appsv1.ReplicaSet {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sets []*appsv1.ReplicaSet
	for _, object := range l.mirror["replicasets"] {
		if set := object.(*appsv1.ReplicaSet); set.Labels[app] == on.Name && set.Namespace == on.Namespace() {
			sets = append(sets, set.DeepCopy())
		}
	}
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int { return strings.Compare(a.Name, b.Name) })
	return sets
}

// object returns a copy of an object as the API server has it; nil if it does not exist.
func (l *laws) object(resource, namespace, name string) runtime.Object {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.mirror.get(resource, namespace, name)
	if found == nil {
		return nil
	}
	return found.DeepCopyObject()
}

// facts returns what is remembered of a pod.
func (l *laws) facts(pod *corev1.Pod) *podFacts {
	known, ok := l.pods[string(pod.UID)]
	if !ok {
		known = &podFacts{created: time.Now()}
		l.pods[string(pod.UID)] = known
	}
	return known
}

// remember updates what is remembered of a pod, a rule, a node or a workload.
func (l *laws) remember(write apiserver.Write) {
	if rule, ok := newest(write).(*appsv1alpha1.PodTransitionRule); ok {
		l.rememberRule(write, rule)
		return
	}
	if node, ok := write.After.(*corev1.Node); ok {
		if before, ok := write.Before.(*corev1.Node); !ok || !maps.Equal(before.Labels, node.Labels) {
			l.nodes[node.Name] = write.Time
		}
		return
	}
	pod, ok := write.After.(*corev1.Pod)
	if !ok || pod == nil {
		l.rememberWorkload(write)
		return
	}
	before, _ := write.Before.(*corev1.Pod)
	l.rememberPod(write.Time, before, pod)
}

// rememberPod updates what is remembered of a pod; before is nil for a pod that was created.
func (l *laws) rememberPod(at time.Time, before, pod *corev1.Pod) {
	facts := l.facts(pod)
	if before == nil {
		facts.templated = isControlled(pod)
	}
	if isControlled(pod) && (before == nil || !isControlled(before)) {
		facts.labelled = at
	}
	if before != nil && isTrue(before, corev1.ContainersReady) && !isTrue(pod, corev1.ContainersReady) {
		facts.failed = at
	}
	l.measureOff(at, facts, pod)
	facts.measureVain(at, isInVain(pod))
}

// newest returns the object of a write: after it, or before it if it is gone.
func newest(write apiserver.Write) runtime.Object {
	if write.After != nil {
		return write.After
	}
	return write.Before
}

// watch checks the laws that time breaks.
func (l *laws) watch(ctx context.Context) {
	for pause(ctx, 10*time.Second) {
		l.overdue(time.Now())
		l.requests(l.world.server.Counts())
	}
}

// overdue checks how long pods are off traffic, and that requests explain it in time.
func (l *laws) overdue(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bound := inVain - time.Duration(l.world.schedule.Strict)*(inVain-time.Second)
	for _, object := range l.mirror["pods"] {
		pod := object.(*corev1.Pod)
		vain, back := l.facts(pod).vain, l.facts(pod).back
		if !vain.IsZero() && back.IsZero() && now.Sub(vain) > bound && l.acting && l.world.managers.guards() {
			l.violate(now, lawInVain, fmt.Sprintf("the containers of %s are ready, and its gate is False since %s",
				pod.Name, vain.Sub(l.world.began).Truncate(time.Second)))
		}
	}
	for _, facts := range l.pods {
		if !facts.debt.IsZero() && now.Sub(facts.debt) > owed {
			l.violate(facts.debt, facts.law, facts.why)
			facts.debt = time.Time{}
		}
	}
}

// requests is the law of requests. It counts over five minutes without an act, for controllers alone: actors poll.
func (l *laws) requests(counts map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.acting || time.Since(l.since) < quiet {
		return
	}
	bound := most - l.world.schedule.Strict*(most-1)
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		user, _, _ := strings.Cut(kind, " ")
		n := counts[kind] - l.counted[kind]
		if l.lastAct.Before(l.since) && n > bound && (isManager(user) || isController(user)) {
			l.violate(time.Now(), lawRequests, fmt.Sprintf("%d requests %s in %s", n, kind, time.Since(l.since).Truncate(time.Second)))
		}
	}
	l.counted, l.since = counts, time.Now()
}
