package lifecycle_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/builders"
)

// recorder drives the lifecycles of a pod with an option that records when they began, and without it.
type recorder struct {
	t     *testing.T
	facts lifecycle.PodFacts
	bare  lifecycle.PodFacts
	now   time.Time
}

func newRecorder(t *testing.T) *recorder {
	facts := lifecycle.NewPodFacts(builders.MakePod("web-0").Available().Obj())
	return &recorder{t: t, facts: facts, bare: facts, now: builders.Epoch}
}

// began returns the label began of the id me.
func (r *recorder) began() string { return r.facts.Labels[appsv1alpha1.BeganLabelPrefix+"/me"] }

// request lets a client change the labels.
func (r *recorder) request(change func(labels map[string]string)) {
	r.t.Helper()
	r.now = r.now.Add(time.Second)
	for _, record := range []bool{true, false} {
		pod := r.pod(record)
		requested := *pod
		requested.Labels = maps.Clone(pod.Labels)
		change(requested.Labels)
		admission := lifecycle.AdmitUpdate(*pod, requested, false, lifecycle.Options{RecordBegin: record}, r.now)
		if len(admission.Denials) > 0 {
			r.t.Fatalf("denied: %v", admission.Denials)
		}
		admitted := requested
		admitted.Labels = admission.Change.Apply(requested.Labels)
		if denials := lifecycle.CheckUpdate(*pod, admitted, false, lifecycle.Options{RecordBegin: record}, r.now.Add(time.Millisecond)); len(denials) > 0 {
			r.t.Fatalf("the check denies the labels of admission: %v", denials)
		}
		pod.Labels = admitted.Labels
	}
	r.compare()
}

// advance lets PodOps advance the pod, whose gate is followed at once.
func (r *recorder) advance(permits func(attempt string) lifecycle.Permits) {
	r.t.Helper()
	r.now = r.now.Add(time.Second)
	for _, record := range []bool{true, false} {
		pod := r.pod(record)
		attempt := ""
		for _, waiting := range lifecycle.WaitingIDs(*pod) {
			attempt = waiting.Attempt
		}
		change := lifecycle.Advance(*pod, permits(attempt), lifecycle.Options{RecordBegin: record}, r.now)
		pod.Labels = change.Apply(pod.Labels)
		if change.Gate != nil {
			pod.Gate, pod.Ready = lifecycle.GateFalse, *change.Gate
			if *change.Gate {
				pod.Gate = lifecycle.GateTrue
			}
		}
		pod.SteadyFor = time.Hour
	}
	r.compare()
}

func (r *recorder) pod(record bool) *lifecycle.PodFacts {
	if record {
		return &r.facts
	}
	return &r.bare
}

// compare fails if more than the label began differs.
func (r *recorder) compare() {
	r.t.Helper()
	without := maps.Clone(r.facts.Labels)
	delete(without, appsv1alpha1.BeganLabelPrefix+"/me")
	if !maps.Equal(without, r.bare.Labels) {
		r.t.Fatalf("labels are %v, and %v without the option", slices.Sorted(maps.Keys(r.facts.Labels)), slices.Sorted(maps.Keys(r.bare.Labels)))
	}
}

func begin(labels map[string]string) {
	labels[appsv1alpha1.OperatingLabelPrefix+"/me"] = "1"
	labels[appsv1alpha1.OperationTypeLabelPrefix+"/me"] = "upgrade"
}

func finish(labels map[string]string) { delete(labels, appsv1alpha1.OperatingLabelPrefix+"/me") }

func noPermit(string) lifecycle.Permits { return lifecycle.Permits{} }

func preCheck(attempt string) lifecycle.Permits {
	return lifecycle.Permits{PreCheck: map[string]string{"me": attempt}}
}

func postCheck(attempt string) lifecycle.Permits {
	return lifecycle.Permits{PostCheck: map[string]string{"me": attempt}}
}

// TestTheBeginOfALifecycleIsRecordedUntilItsEnd shows that the label is the same in every phase, and that no step
// depends on it.
func TestTheBeginOfALifecycleIsRecordedUntilItsEnd(t *testing.T) {
	r := newRecorder(t)
	r.request(begin)
	first := r.began()
	if first != builders.Stamp(r.now) {
		t.Fatalf("the label is %q after begin, want its time", first)
	}
	r.advance(preCheck)
	r.advance(noPermit)
	if !hasLabel(r, appsv1alpha1.OperateLabelPrefix) || r.began() != first {
		t.Fatalf("labels are %v while the operation runs, want operate and the same begin", r.facts.Labels)
	}
	r.request(finish)
	if !hasLabel(r, appsv1alpha1.PostCheckLabelPrefix) || r.began() != first {
		t.Fatalf("labels are %v after finish, want post-check and the same begin", r.facts.Labels)
	}
	r.request(begin)
	second := r.began()
	if second == first || second == "" {
		t.Fatalf("the label is %q after it began again, and %q before", second, first)
	}
	r.request(finish) // a cancel: the PostCheck rules of the first operation are evaluated
	if !hasLabel(r, appsv1alpha1.PostCheckLabelPrefix) || r.began() != second {
		t.Fatalf("labels are %v after the cancel, want post-check and the begin of the second lifecycle", r.facts.Labels)
	}
	r.advance(postCheck)
	r.advance(noPermit)
	if len(lifecycle.IDs(r.facts.Labels)) != 0 {
		t.Errorf("labels are %v at the end, want no label of an id", r.facts.Labels)
	}
}

func hasLabel(r *recorder, prefix string) bool {
	_, ok := r.facts.Labels[prefix+"/me"]
	return ok
}

// TestOnlyPodOpsRecordsABegin shows that no client chooses the trace of its lifecycle.
func TestOnlyPodOpsRecordsABegin(t *testing.T) {
	old := lifecycle.NewPodFacts(builders.MakePod("web-0").Available().Obj())
	forged := old
	forged.Labels = maps.Clone(old.Labels)
	begin(forged.Labels)
	forged.Labels[appsv1alpha1.BeganLabelPrefix+"/me"] = "1"
	if admission := lifecycle.AdmitUpdate(old, forged, false, lifecycle.Options{RecordBegin: true}, builders.Epoch); len(admission.Denials) == 0 {
		t.Error("a client may set the label")
	}
}
