package deferreddelete

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// requested is when the lifecycles of the tests begin.
var requested = time.Unix(1_800_000_000, 0)

var since = strconv.FormatInt(requested.UnixNano(), 10)

// pending records a request on a pod, as it begins a lifecycle.
func pending(request Request) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID] = since
		pod.Annotations = map[string]string{appsv1alpha1.PendingDeleteAnnotationKey: Encode(request.Begin(pod, since))}
	}
}

// seen has a request repeated some time after the lifecycle began.
func seen(after time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		record, _ := Pending(pod)
		record.Seen = requested.Add(after).UnixNano()
		pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = Encode(record)
	}
}

func TestPending(t *testing.T) {
	evictor := Request{Method: MethodEviction, Actor: ActorEvictor, User: "jane"}
	annotation := func(value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = value }
	}
	tests := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a record of this lifecycle":       {pod: controlled(pending(evictor)), want: true},
		"a pod without one":                {pod: controlled()},
		"a record of an earlier lifecycle": {pod: controlled(pending(evictor), labelled(appsv1alpha1.OperatingLabelPrefix+"/pod-delete", "7"))},
		"a record without a lifecycle": {pod: controlled(pending(evictor), func(pod *corev1.Pod) {
			delete(pod.Labels, appsv1alpha1.OperatingLabelPrefix+"/pod-delete")
		})},
		"a record of an earlier pod": {pod: controlled(pending(evictor), func(pod *corev1.Pod) { pod.UID = "later" })},
		"no JSON":                    {pod: controlled(pending(evictor), annotation("{"))},
		"a record that is too long":  {pod: controlled(pending(evictor), annotation(`{"user":"`+strings.Repeat("x", 5<<10)+`"}`))},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := Pending(tc.pod)
			if ok != tc.want {
				t.Fatalf("record %+v, %t, want %t", got, ok, tc.want)
			}
			want := appsv1alpha1.PendingDelete{
				UID: "web-0", Since: since, Method: "Eviction", Actor: "Evictor", User: "jane",
			}
			if diff := cmp.Diff(want, got); ok && diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// TestARecordIsBounded shows that no user name makes a record that is not read again.
func TestARecordIsBounded(t *testing.T) {
	pod := controlled(pending(Request{Method: MethodDeleteCollection, Actor: ActorClient, User: strings.Repeat("\x01", 100_000)}))
	if _, ok := Pending(pod); !ok {
		t.Errorf("a record of %d bytes is not read", len(pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey]))
	}
}

func TestJoin(t *testing.T) {
	foreign := labelled(appsv1alpha1.OperatingLabelPrefix+"/pod-delete", since)
	tests := map[string]struct {
		pod     *corev1.Pod
		request Request
		after   time.Duration // since the lifecycle began
		want    appsv1alpha1.PendingDelete
	}{
		"the owner keeps its request, which counts as surplus": {pod: controlled(pending(Request{Actor: ActorOwner})), request: Request{Actor: ActorClient}, after: time.Hour},
		"an owner that repeats after an edit is written": {
			pod: controlled(pending(Request{Actor: ActorOwner, OwnerGeneration: 1})), request: Request{Actor: ActorOwner, OwnerGeneration: 2},
			want: appsv1alpha1.PendingDelete{Actor: "Owner", OwnerGeneration: 2, Seen: requested.UnixNano()},
		},
		"an owner that repeats without one is not": {pod: controlled(pending(Request{Actor: ActorOwner, OwnerGeneration: 2})), request: Request{Actor: ActorOwner, OwnerGeneration: 2}, after: time.Minute},
		"a Job that repeats is": {
			pod: controlled(ownedBy("batch/v1", "Job"), pending(Request{Actor: ActorOwner})), request: Request{Actor: ActorOwner}, after: time.Minute,
			want: appsv1alpha1.PendingDelete{Actor: "Owner", Seen: requested.Add(time.Minute).UnixNano(), Interval: time.Minute.Nanoseconds()},
		},
		"another review of the same request is no repeat": {pod: controlled(pending(Request{Actor: ActorEvictor})), request: Request{Actor: ActorEvictor}, after: repeatedAfter - 1},
		"a later one is, while the client waits": {
			pod: controlled(pending(Request{Actor: ActorEvictor}), seen(5*time.Second)), request: Request{Actor: ActorEvictor}, after: 8 * time.Second,
			want: appsv1alpha1.PendingDelete{Actor: "Evictor", Seen: requested.Add(8 * time.Second).UnixNano()},
		},
		"it is not for a withheld pod, so soon": {
			pod:     controlled(pending(Request{Actor: ActorEvictor}), seen(5*time.Second), func(pod *corev1.Pod) { pod.Annotations[appsv1alpha1.DetailAnnotationKey("web")] = "{}" }),
			request: Request{Actor: ActorEvictor}, after: 8 * time.Second,
		},
		"it is not for a pod that is prepared": {
			pod:     controlled(pending(Request{Actor: ActorEvictor}), seen(5*time.Second), labelled(appsv1alpha1.PrepareLabelPrefix+"/pod-delete", since)),
			request: Request{Actor: ActorEvictor}, after: 8 * time.Second,
		},
		"it is for a pod that is prepared, after half of the time in which it lapses": {
			pod:     controlled(pending(Request{Actor: ActorEvictor}), seen(5*time.Second), labelled(appsv1alpha1.PrepareLabelPrefix+"/pod-delete", since)),
			request: Request{Actor: ActorEvictor}, after: 5*time.Second + MinLapse/2,
			want: appsv1alpha1.PendingDelete{Actor: "Evictor", Seen: requested.Add(5*time.Second + MinLapse/2).UnixNano()},
		},
		"the first repeat is written, with its interval": {
			pod: controlled(pending(Request{Actor: ActorEvictor})), request: Request{Actor: ActorEvictor}, after: 5 * time.Second,
			want: appsv1alpha1.PendingDelete{Actor: "Evictor", Seen: requested.Add(5 * time.Second).UnixNano(), Interval: (5 * time.Second).Nanoseconds()},
		},
		"a request of another client counts as a repeat": {
			pod: controlled(pending(Request{Actor: ActorEvictor, User: "jane"})), request: Request{Actor: ActorClient, User: "joe"}, after: 5 * time.Second,
			want: appsv1alpha1.PendingDelete{Actor: "Evictor", User: "jane", Seen: requested.Add(5 * time.Second).UnixNano(), Interval: (5 * time.Second).Nanoseconds()},
		},
		"a request of another client takes the place of one that was refused": {
			pod: controlled(pending(Request{Actor: ActorEvictor, User: "jane"}), seen(5*time.Second), func(pod *corev1.Pod) {
				pod.Annotations[appsv1alpha1.DetailAnnotationKey("web")] = "{}"
			}),
			request: Request{Actor: ActorClient, User: "joe", Groups: []string{"sre"}}, after: 6 * time.Second,
			want: appsv1alpha1.PendingDelete{Actor: "Client", User: "joe", Groups: []string{"sre"}, Seen: requested.Add(6 * time.Second).UnixNano()},
		},
		"clients leave the lifecycle of another controller":    {pod: controlled(foreign), request: Request{Actor: ActorClient}},
		"the owner leaves the lifecycle of another controller": {pod: controlled(foreign), request: Request{Actor: ActorOwner}},
		"the label joins the lifecycle of another controller":  {pod: controlled(foreign), request: Request{Actor: ActorLabel}, want: appsv1alpha1.PendingDelete{Actor: "Label", Seen: requested.UnixNano()}},
		"the label takes over, since PodOps deletes for it": {
			pod: controlled(pending(Request{Actor: ActorOwner})), request: Request{Actor: ActorLabel}, want: appsv1alpha1.PendingDelete{Actor: "Label", Seen: requested.UnixNano()},
		},
		"no client takes over from the label": {pod: controlled(pending(Request{Actor: ActorLabel})), request: Request{Actor: ActorClient}, after: time.Minute},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, changed := tc.request.Join(tc.pod, requested.Add(tc.after))
			if changed != (tc.want.Actor != "") {
				t.Fatalf("changed %t: %+v", changed, got)
			}
			tc.want.UID, tc.want.Since = "web-0", since
			if diff := cmp.Diff(tc.want, got); changed && diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRepeats shows that a request does not lapse while any one of its repetitions is lost, and that a client that repeats it every two
// seconds does not have every request written.
func TestRepeats(t *testing.T) {
	const requests = 20
	for _, interval := range []time.Duration{2 * time.Second, 4 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second} {
		for lost := 2; lost < requests; lost++ {
			pod := controlled(pending(Request{Actor: ActorEvictor}))
			pod.Annotations[appsv1alpha1.DetailAnnotationKey("web")] = "{}"
			writes := 0
			for at := 1; at <= requests; at++ {
				if at == lost {
					continue
				}
				now := requested.Add(time.Duration(at) * interval)
				record, _ := Pending(pod)
				if step, lapse, _ := Next(State{Pod: pod, Record: record, Withheld: true}, now.Add(-1)); at > 1 && step != Wait {
					t.Fatalf("every %s without request %d: the request lapses (%s) before request %d", interval, lost, lapse, at)
				}
				record, changed := Request{Actor: ActorEvictor}.Join(pod, now)
				if changed {
					writes++
					pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = Encode(record)
				}
			}
			if interval < 5*time.Second && writes > requests/2+2 {
				t.Errorf("every %s: %d of %d requests are written", interval, writes, requests)
			}
		}
	}
}

func TestUnrepeated(t *testing.T) {
	evicted := func(name, user string, edits ...func(*corev1.Pod)) *corev1.Pod {
		return controlled(append([]func(*corev1.Pod){func(pod *corev1.Pod) { pod.Name, pod.UID = name, types.UID(name) }, pending(Request{Actor: ActorEvictor, User: user})}, edits...)...)
	}
	record := func(change func(*appsv1alpha1.PendingDelete)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			value, _ := Pending(pod)
			change(&value)
			pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = Encode(value)
		}
	}
	const wait = 10 * time.Second
	now := metav1.Now()
	bystander := controlled(func(pod *corev1.Pod) { pod.UID = "web-1" })
	tests := map[string]struct {
		pod      *corev1.Pod
		sibling  *corev1.Pod
		withheld bool
		refusal  Refusal
		after    time.Duration
		want     bool
	}{
		"a pod that rules withhold":                 {sibling: evicted("web-1", "jane"), withheld: true, want: true},
		"a pod whose request waits":                 {sibling: evicted("web-1", "jane"), after: time.Second},
		"a pod whose request has ended":             {sibling: evicted("web-1", "jane"), after: wait, want: true},
		"a pod that rules withheld before":          {sibling: evicted("web-1", "jane"), refusal: Refusal{Refused: true, Age: time.Second}, after: 2 * time.Second, want: true},
		"a pod whose earlier request was refused":   {sibling: evicted("web-1", "jane"), refusal: Refusal{Refused: true, Age: time.Minute}, after: time.Second},
		"a pod whose lifecycle is about to begin":   {sibling: bystander, refusal: Refusal{Refused: true, Age: time.Second}, want: true},
		"a pod whose lifecycle has ended":           {sibling: bystander, refusal: Refusal{Refused: true, Age: time.Minute}},
		"a pod that another client requested first": {sibling: evicted("web-1", "joe"), refusal: Refusal{Refused: true, Age: time.Second}},
		"a pod whose request is repeated":           {sibling: evicted("web-1", "jane", record(func(r *appsv1alpha1.PendingDelete) { r.Seen = 1 })), withheld: true},
		"a pod of another user":                     {sibling: evicted("web-1", "joe"), withheld: true},
		"a pod that is being deleted":               {sibling: evicted("web-1", "jane", func(pod *corev1.Pod) { pod.DeletionTimestamp = &now }), withheld: true},
		"a pod of another owner":                    {sibling: evicted("web-1", "jane", func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "other" }), withheld: true},
		"a pod that its owner deletes":              {sibling: evicted("web-1", "jane", record(func(r *appsv1alpha1.PendingDelete) { r.Actor = string(ActorOwner) })), withheld: true},
		"the pod itself":                            {sibling: controlled(), withheld: true},
		"a pod of a request of the user":            {pod: evicted("web-0", "jane"), sibling: evicted("web-1", "jane"), withheld: true},
		"a pod without an owner":                    {pod: controlled(bare), sibling: evicted("web-1", "jane", bare), withheld: true},
		"a pod without a request":                   {sibling: bystander, withheld: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod
			if pod == nil {
				pod = controlled()
			}
			requester := Requester{
				User: "jane", Wait: wait,
				Refusal:  func(*corev1.Pod) Refusal { return tc.refusal },
				Withheld: func(*corev1.Pod) bool { return tc.withheld },
			}
			got := requester.Unrepeated(pod, []*corev1.Pod{tc.sibling}, requested.Add(tc.after))
			if (got != nil) != tc.want {
				t.Errorf("got %v, want one: %t", got, tc.want)
			}
		})
	}
}

func TestNext(t *testing.T) {
	type state struct {
		request  Request
		edits    []func(*corev1.Pod)
		after    time.Duration
		may      bool
		wake     time.Duration
		want     Want
		unwanted time.Duration
		withheld bool
		interval time.Duration

		unobserved time.Duration
	}
	daemon, stateful := ownedBy("apps/v1", "DaemonSet"), ownedBy("apps/v1", "StatefulSet")
	operable := func(at time.Duration) func(*corev1.Pod) {
		return labelled(appsv1alpha1.OperateLabelPrefix+"/pod-delete", strconv.FormatInt(requested.Add(at).UnixNano(), 10))
	}
	succeeded := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }
	toDelete := labelled(appsv1alpha1.ToDeleteLabelKey, "")
	client, evictor, owner, label := Request{Actor: ActorClient}, Request{Actor: ActorEvictor, Method: MethodEviction}, Request{Actor: ActorOwner}, Request{Actor: ActorLabel}
	tests := map[string]struct {
		state
		step  Step
		lapse Lapse
		again time.Duration
	}{
		"a client's delete that rules withhold waits": {state: state{request: client, withheld: true, after: time.Second}, again: MinLapse - time.Second},
		"it lapses when it is not repeated":           {state: state{request: client, withheld: true, after: MinLapse}, step: Cancel, lapse: LapseRepeated},
		"a prepared pod waits longer":                 {state: state{request: client, may: true, after: MinLapse}, again: MaxWait},
		"a client that takes its time has longer":     {state: state{request: client, may: true, interval: 20 * time.Second, after: time.Minute}, again: MaxWait},
		"it has no more than that":                    {state: state{request: client, may: true, interval: time.Hour, after: MaxLapse}, step: Cancel, lapse: LapseRepeated},
		"another manager leads since": {
			state: state{request: client, withheld: true, after: 2 * MinLapse, unobserved: 2*MinLapse - time.Second}, again: MinLapse - time.Second,
		},
		"it goes back without a request":               {state: state{request: client, may: true, after: MinLapse + MaxWait}, step: Cancel, lapse: LapseRepeated},
		"it is never deleted by PodOps, and goes back": {state: state{request: client, may: true, after: MaxLapse}, step: Cancel, lapse: LapseRepeated},
		"nor is an eviction":                           {state: state{request: evictor, may: true, after: MaxLapse}, step: Cancel, lapse: LapseRepeated},
		"an eviction that rules withhold lapses":       {state: state{request: evictor, withheld: true, after: MinLapse}, step: Cancel, lapse: LapseRepeated},
		"a custom controller backs off":                {state: state{request: Request{Actor: ActorController}, withheld: true, after: MinLapse}, again: MaxLapse - MinLapse},
		"the label waits without an end":               {state: state{request: label, edits: []func(*corev1.Pod){toDelete}, after: 100 * time.Hour}},
		"it is finished":                               {state: state{request: label, edits: []func(*corev1.Pod){toDelete}, may: true}, step: Finish},
		"taking it off withdraws the request":          {state: state{request: label, may: true}, step: Cancel, lapse: LapseWithdrawn},

		"a StatefulSet's delete waits without an end":     {state: state{request: owner, edits: []func(*corev1.Pod){stateful}, want: Wanted, after: 100 * time.Hour}},
		"it is finished with its traffic off":             {state: state{request: owner, edits: []func(*corev1.Pod){stateful}, want: Wanted, may: true}, step: Finish},
		"it is not while the revision is unknown":         {state: state{request: owner, edits: []func(*corev1.Pod){stateful}, want: WantUnknown, may: true}},
		"it waits a while when the pod is needed again":   {state: state{request: owner, edits: []func(*corev1.Pod){stateful}, want: Unwanted, unwanted: time.Second, may: true}, again: UnwantedLapse - time.Second},
		"it is cancelled then":                            {state: state{request: owner, edits: []func(*corev1.Pod){stateful}, want: Unwanted, unwanted: UnwantedLapse, may: true}, step: Cancel, lapse: LapseUnwanted},
		"a DaemonSet's delete is left to its controller":  {state: state{request: owner, edits: []func(*corev1.Pod){daemon, operable(0)}, want: Wanted, may: true, after: time.Second}, again: OperateLapse - time.Second},
		"it is cancelled when the controller forgoes it":  {state: state{request: owner, edits: []func(*corev1.Pod){daemon, operable(0)}, want: Wanted, may: true, after: OperateLapse}, step: Cancel, lapse: LapseForgone},
		"it waits for its rules":                          {state: state{request: owner, edits: []func(*corev1.Pod){daemon}, want: Wanted, after: 100 * time.Hour}},
		"it is cancelled after an edit that ends it":      {state: state{request: owner, edits: []func(*corev1.Pod){daemon}, want: Unwanted, unwanted: UnwantedLapse}, step: Cancel, lapse: LapseUnwanted},
		"a Job's delete waits until it is repeated":       {state: state{request: owner, edits: []func(*corev1.Pod){ownedBy("batch/v1", "Job")}, after: time.Minute}, again: MaxLapse - time.Minute},
		"it lapses, and the controller may repeat it":     {state: state{request: owner, edits: []func(*corev1.Pod){ownedBy("batch/v1", "Job")}, after: MaxLapse}, step: Cancel, lapse: LapseRepeated},
		"a Job keeps a pod that has succeeded":            {state: state{request: owner, edits: []func(*corev1.Pod){ownedBy("batch/v1", "Job"), succeeded}, want: Wanted}, step: Cancel, lapse: LapseEnded},
		"a client may delete it at any time":              {state: state{request: client, edits: []func(*corev1.Pod){succeeded}, withheld: true}, step: Cancel, lapse: LapseEnded},
		"a label operate that is no time ends the delete": {state: state{request: owner, edits: []func(*corev1.Pod){daemon, labelled(appsv1alpha1.OperateLabelPrefix+"/pod-delete", "x")}, want: Wanted}, step: Cancel, lapse: LapseForgone},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := controlled(append(tc.edits, pending(tc.request))...)
			record, ok := Pending(pod)
			if !ok {
				t.Fatal("the pod has no record")
			}
			record.Interval = tc.interval.Nanoseconds()
			step, lapse, again := Next(State{
				Pod: pod, Record: record, May: tc.may, Wake: tc.wake, Want: tc.want, UnwantedFor: tc.unwanted, Withheld: tc.withheld,
				Unobserved: tc.unobserved,
			}, requested.Add(tc.after))
			if step != tc.step || lapse != tc.lapse || again != tc.again {
				t.Errorf("step %d (%s) and again after %s, want %d (%s) and %s", step, lapse, again, tc.step, tc.lapse, tc.again)
			}
		})
	}
}

func TestFinishes(t *testing.T) {
	owner := Request{Actor: ActorOwner}
	tests := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"of a ReplicaSet":                      {controlled(pending(owner)), false},
		"of a StatefulSet":                     {controlled(ownedBy("apps/v1", "StatefulSet"), pending(owner)), true},
		"of a DaemonSet":                       {controlled(ownedBy("apps/v1", "DaemonSet"), pending(owner)), false},
		"evicted":                              {controlled(ownedBy("apps/v1", "StatefulSet"), pending(Request{Actor: ActorEvictor})), false},
		"without an owner":                     {controlled(bare, pending(Request{Actor: ActorClient})), false},
		"of the label to-delete":               {controlled(pending(Request{Actor: ActorLabel})), true},
		"of a controller that speaks by label": {controlled(labelled(appsv1alpha1.OperatingLabelPrefix+"/pod-delete", since)), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Finishes(tc.pod); got != tc.want {
				t.Errorf("Finishes = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestWantOfStatefulSet(t *testing.T) {
	now := metav1.Now()
	newSet := func(edit func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "web", Generation: 2}}
		set.Spec.Replicas = new(int32(3))
		set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		set.Status.ObservedGeneration, set.Status.UpdateRevision, set.Status.AvailableReplicas = 2, "web-new", 2
		if edit != nil {
			edit(set)
		}
		return set
	}
	pod := func(name, revision string) *corev1.Pod {
		return controlled(ownedBy("apps/v1", "StatefulSet"), labelled("controller-revision-hash", revision), func(pod *corev1.Pod) { pod.Name = name })
	}
	ready := func(pod *corev1.Pod) *corev1.Pod {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return pod
	}
	tests := map[string]struct {
		set  *appsv1.StatefulSet
		pod  *corev1.Pod
		want Want
	}{
		"a pod of an old revision":      {newSet(nil), pod("web-2", "web-old"), Wanted},
		"a pod of the new revision":     {newSet(nil), pod("web-2", "web-new"), Unwanted},
		"another pod is unavailable":    {newSet(func(s *appsv1.StatefulSet) { s.Status.AvailableReplicas = 1 }), pod("web-2", "web-old"), Unwanted},
		"another pod is, and is not it": {newSet(nil), ready(pod("web-2", "web-old")), Unwanted},
		"another pod is, and in parallel": {newSet(func(s *appsv1.StatefulSet) {
			s.Status.AvailableReplicas, s.Spec.PodManagementPolicy = 1, appsv1.ParallelPodManagement
		}), pod("web-2", "web-old"), Wanted},
		"another pod is, and two may be": {newSet(func(s *appsv1.StatefulSet) {
			s.Status.AvailableReplicas, s.Spec.UpdateStrategy.RollingUpdate = 1, &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: new(intstr.FromInt32(2))}
		}), pod("web-2", "web-old"), Wanted},
		"both others are, and two may be": {newSet(func(s *appsv1.StatefulSet) {
			s.Status.AvailableReplicas, s.Spec.UpdateStrategy.RollingUpdate = 0, &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: new(intstr.FromString("90%"))}
		}), pod("web-2", "web-old"), Unwanted},
		"a pod beyond the range goes first": {newSet(func(s *appsv1.StatefulSet) { s.Status.Replicas, s.Status.AvailableReplicas = 4, 4 }), pod("web-2", "web-old"), Unwanted},
		"a pod beyond the range goes, and in parallel": {newSet(func(s *appsv1.StatefulSet) {
			s.Status.Replicas, s.Status.AvailableReplicas, s.Spec.PodManagementPolicy = 4, 4, appsv1.ParallelPodManagement
		}), pod("web-2", "web-old"), Wanted},
		"another is, beyond the range":     {newSet(func(s *appsv1.StatefulSet) { s.Status.AvailableReplicas = 1 }), pod("web-3", "web-old"), Wanted},
		"an ordinal above the range":       {newSet(nil), pod("web-3", "web-new"), Wanted},
		"an ordinal below its start":       {newSet(func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1} }), pod("web-0", "web-new"), Wanted},
		"the last of a range with a start": {newSet(func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1} }), pod("web-3", "web-new"), Unwanted},
		"one replica by default":           {newSet(func(s *appsv1.StatefulSet) { s.Spec.Replicas = nil }), pod("web-1", "web-new"), Wanted},
		"an ordinal below the partition": {newSet(func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}
		}), pod("web-1", "web-old"), Unwanted},
		"an ordinal from the partition on": {newSet(func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}
		}), pod("web-2", "web-old"), Wanted},
		"a strategy that replaces nothing":       {newSet(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType }), pod("web-2", "web-old"), Unwanted},
		"an edit that is not observed yet":       {newSet(func(s *appsv1.StatefulSet) { s.Generation = 3 }), pod("web-2", "web-old"), WantUnknown},
		"a scale-in that is not observed yet":    {newSet(func(s *appsv1.StatefulSet) { s.Generation, s.Spec.Replicas = 3, new(int32(2)) }), pod("web-2", "web-new"), Wanted},
		"a set that does not exist":              {nil, pod("web-2", "web-old"), Unwanted},
		"another set of the name":                {newSet(func(s *appsv1.StatefulSet) { s.UID = "later" }), pod("web-2", "web-old"), Unwanted},
		"a set that is being deleted":            {newSet(func(s *appsv1.StatefulSet) { s.DeletionTimestamp = &now }), pod("web-2", "web-old"), Unwanted},
		"a pod whose name ends without a number": {newSet(nil), pod("web-x", "web-old"), WantUnknown},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := WantOfStatefulSet(tc.set, tc.pod); got != tc.want {
				t.Errorf("want %d, got %d", tc.want, got)
			}
		})
	}
}

func TestWantOfDaemonSet(t *testing.T) {
	pod := controlled(ownedBy("apps/v1", "DaemonSet"))
	set := func(generation int64, edits ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
		s := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "web", Generation: generation}}
		s.Status = appsv1.DaemonSetStatus{ObservedGeneration: generation, CurrentNumberScheduled: 3, UpdatedNumberScheduled: 2}
		for _, edit := range edits {
			edit(s)
		}
		return s
	}
	updated := func(s *appsv1.DaemonSet) { s.Status.UpdatedNumberScheduled = 3 }
	misscheduled := func(s *appsv1.DaemonSet) { s.Status.NumberMisscheduled, s.Status.CurrentNumberScheduled = 1, 2 }
	onDelete := func(s *appsv1.DaemonSet) { s.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType }
	tests := map[string]struct {
		set      *appsv1.DaemonSet
		recorded int64
		want     Want
	}{
		"a DaemonSet that rolls":                                {set(2), 2, Wanted},
		"a DaemonSet that was edited":                           {set(3), 2, Unwanted},
		"a DaemonSet that the cache has older":                  {set(1), 2, Wanted},
		"a DaemonSet that was not known at the time":            {set(2), 0, WantUnknown},
		"another DaemonSet of the name":                         {set(2, func(s *appsv1.DaemonSet) { s.UID = "later" }), 2, Unwanted},
		"no DaemonSet":                                          {nil, 2, Unwanted},
		"a node is not selected":                                {set(2, updated, misscheduled), 2, Wanted},
		"all nodes are selected again":                          {set(2, updated), 2, Unwanted},
		"a status that is behind":                               {set(2, updated, func(s *appsv1.DaemonSet) { s.Status.ObservedGeneration = 1 }), 2, Wanted},
		"a DaemonSet that its controller has not seen":          {set(0, updated), 0, WantUnknown},
		"OnDelete: all nodes are selected again":                {set(2, onDelete), 2, Unwanted},
		"OnDelete: a node is not selected":                      {set(2, onDelete, misscheduled), 2, Wanted},
		"a node is not selected, and the generation is unknown": {set(2, misscheduled), 0, WantUnknown},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := WantOfDaemonSet(tc.set, pod, appsv1alpha1.PendingDelete{OwnerGeneration: tc.recorded}); got != tc.want {
				t.Errorf("want %d, got %d", tc.want, got)
			}
		})
	}
}

// TestWantOfJob has a Job of two pods at a time, which has two.
func TestWantOfJob(t *testing.T) {
	pod := controlled(ownedBy("batch/v1", "Job"))
	job := func(edit func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "web"}}
		j.Spec.Parallelism, j.Spec.Completions, j.Status.Active = new(int32(2)), new(int32(9)), 2
		if edit != nil {
			edit(j)
		}
		return j
	}
	ended := func(condition batchv1.JobConditionType) *batchv1.Job {
		return job(func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}}
		})
	}
	tests := map[string]struct {
		job  *batchv1.Job
		want Want
	}{
		"a Job that runs":                 {job(nil), Unwanted},
		"a Job that is suspended":         {job(func(j *batchv1.Job) { j.Spec.Suspend = new(true) }), Wanted},
		"a Job that fails":                {ended(batchv1.JobFailureTarget), Wanted},
		"a Job that has succeeded":        {ended(batchv1.JobSuccessCriteriaMet), Wanted},
		"a Job with parallelism 0":        {job(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(0)) }), Wanted},
		"a Job with fewer pods at a time": {job(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(1)) }), WantUnknown},
		"a Job with more pods at a time":  {job(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(3)) }), Unwanted},
		"a Job that misses a pod":         {job(func(j *batchv1.Job) { j.Status.Active = 1 }), Unwanted},
		"another Job of the name":         {job(func(j *batchv1.Job) { j.UID = "later" }), Unwanted},
		"no Job":                          {nil, Unwanted},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := WantOfJob(tc.job, pod); got != tc.want {
				t.Errorf("want %d, got %d", tc.want, got)
			}
		})
	}
}
