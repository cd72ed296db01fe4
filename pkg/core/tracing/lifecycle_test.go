package tracing_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/test/golden"
)

// epoch is the begin of the lifecycles of these tests.
func epoch() time.Time { return time.Unix(1_700_000_000, 0) }

func after(seconds int) time.Time { return epoch().Add(time.Duration(seconds) * time.Second) }

// version is a version of the pod web-0 with labels of the id me. A label of a time is "<prefix> <seconds>".
func version(labels ...string) *tracing.Pod {
	pod := &tracing.Pod{Namespace: "shop", Name: "web-0", UID: "u-0", Workload: "Deployment/web", Labels: map[string]string{"app": "web"}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, " ")
		if seconds, err := strconv.Atoi(value); err == nil {
			value = strconv.FormatInt(after(seconds).UnixNano(), 10)
		}
		switch key {
		case "service-available":
			pod.Labels[appsv1alpha1.ServiceAvailableLabelKey] = value
		case "deleted":
			pod.Terminating = after(seconds(value))
		default:
			pod.Labels[key+".podopslifecycle.kusionstack.io/me"] = value
		}
	}
	return pod
}

func seconds(value string) int {
	at, _ := lifecycle.ParseTime(value)
	return int(at.Sub(epoch()).Seconds())
}

// withheld returns a version with the annotation of a rule that withholds the pod.
func withheld(pod *tracing.Pod) *tracing.Pod {
	pod.Annotations = map[string]string{appsv1alpha1.DetailAnnotationPrefix + "/web": `{"stage":"PreCheck","passed":false,` +
		`"rejectInfo":[{"ruleName":"half","reason":"NoSlots: 2 of 4 pods are unavailable"},{"ruleName":"approved","reason":"Denied: not approved"}]}`}
	return pod
}

// spansOf returns the spans that a sequence of versions ends. The clock shows the time of the last label.
func spansOf(now time.Time, versions ...*tracing.Pod) []tracing.Span {
	var spans []tracing.Span
	for i := 1; i < len(versions); i++ {
		spans = append(spans, tracing.Lifecycles(versions[i-1], versions[i], now)...)
	}
	return spans
}

// text renders spans, one in a line, with their attributes.
func text(spans []tracing.Span) string {
	var lines strings.Builder
	for _, span := range spans {
		parent := "root"
		if span.Parent.IsValid() {
			parent = "in " + span.Parent.String()
		}
		fmt.Fprintf(&lines, "%s %s %s %q from %v to %v\n", span.Trace, span.ID, parent, span.Name, span.Start.Sub(epoch()), span.End.Sub(epoch()))
		for _, a := range span.Attributes {
			fmt.Fprintf(&lines, "  %s = %s\n", a.Key, a.Value.String())
		}
		if span.Failure != "" {
			fmt.Fprintf(&lines, "  failure: %s\n", span.Failure)
		}
	}
	return lines.String()
}

// short renders spans by name and time.
func short(spans []tracing.Span) []string {
	lines := []string{}
	for _, span := range spans {
		line := fmt.Sprintf("%s %v-%v", span.Name, span.Start.Sub(epoch()).Seconds(), span.End.Sub(epoch()).Seconds())
		for _, a := range span.Attributes {
			if a.Key == "podops.outcome" {
				line += " " + a.Value.String()
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func wholeLifecycle() []*tracing.Pod {
	return []*tracing.Pod{
		version("service-available -60"),
		version("began 0", "pre-check 0", "operating 0", "operation-type upgrade", "service-available -60"),
		withheld(version("began 0", "pre-check 0", "operating 0", "operation-type upgrade", "service-available -60")),
		version("began 0", "pre-checked 12", "prepare 12", "operating 0", "operation-type upgrade"),
		version("began 0", "pre-checked 12", "operate 20", "operating 0", "operation-type upgrade"),
		version("began 0", "operated 30", "post-check 30", "done-operation-type upgrade"),
		version("began 0", "operated 30", "post-checked 31", "complete 31", "done-operation-type upgrade"),
		version("service-available 35"),
	}
}

func TestALifecycleIsOneTrace(t *testing.T) {
	golden.Check(t, "testdata/lifecycle.txt", text(spansOf(after(100), wholeLifecycle()...)))
}

// TestATraceDependsOnThePodAlone shows that every span has the trace and the parent that the pod of any version gives.
func TestATraceDependsOnThePodAlone(t *testing.T) {
	versions := wholeLifecycle()
	for i, pod := range versions[1 : len(versions)-1] {
		of, ok := tracing.NewLifecycle(pod.Namespace, pod.Name, pod.UID, pod.Labels, "me")
		first, _ := tracing.NewLifecycle(pod.Namespace, pod.Name, pod.UID, versions[1].Labels, "me")
		if !ok || of.Trace != first.Trace {
			t.Errorf("version %d has the trace %s, want %s", i+1, of.Trace, first.Trace)
		}
	}
}

func TestTracesDiffer(t *testing.T) {
	seen := map[trace.TraceID]string{}
	for name, of := range map[string][3]string{
		"one": {"u-0", "me", "1"}, "another pod": {"u-1", "me", "1"}, "another id": {"u-0", "you", "1"}, "a later lifecycle": {"u-0", "me", "2"},
	} {
		labels := map[string]string{appsv1alpha1.BeganLabelPrefix + "/" + of[1]: of[2]}
		got, ok := tracing.NewLifecycle("shop", "web-0", types.UID(of[0]), labels, of[1])
		if other := seen[got.Trace]; !ok || other != "" {
			t.Errorf("%s has the trace of %s", name, other)
		}
		seen[got.Trace] = name
	}
	if _, ok := tracing.NewLifecycle("shop", "web-0", "u-0", map[string]string{"operating.podopslifecycle.kusionstack.io/me": "1"}, "me"); ok {
		t.Error("a lifecycle whose begin is not recorded has a trace")
	}
}

func TestLifecyclesEnd(t *testing.T) {
	for name, test := range map[string]struct {
		versions []*tracing.Pod
		want     []string
	}{
		"cancelled": {
			[]*tracing.Pod{version("began 0", "pre-check 0", "operation-type upgrade", "service-available -60"), version("service-available -60")},
			[]string{"PreCheck 0-100", "lifecycle upgrade 0-100 Undone"},
		},
		"undone while it operates": {
			[]*tracing.Pod{version("began 0", "pre-checked 5", "operate 6", "operation-type upgrade"), version()},
			[]string{"Operating 6-100", "lifecycle upgrade 0-100 Undone"},
		},
		"undone in PostCheck": {
			[]*tracing.Pod{version("began 0", "operated 30", "post-check 30", "done-operation-type upgrade"), version()},
			[]string{"PostCheck 30-100", "lifecycle upgrade 0-100 Undone"},
		},
		"available with the post permit": {
			[]*tracing.Pod{version("began 0", "operated 30", "post-check 30", "done-operation-type upgrade"), version("service-available 33")},
			[]string{"PostCheck 30-33", "lifecycle upgrade 0-33 Completed"},
		},
		"deleted": {
			[]*tracing.Pod{
				version("began 0", "pre-checked 5", "operate 6", "operation-type delete"),
				version("began 0", "pre-checked 5", "operate 6", "operation-type delete", "deleted 8"), nil,
			},
			[]string{"Operating 6-8", "Terminating 8-100", "lifecycle delete 0-100 Removed"},
		},
		"begun again": {
			[]*tracing.Pod{
				version("began 0", "operated 30", "post-check 30", "done-operation-type upgrade"),
				version("began 40", "pre-check 40", "operation-type upgrade"),
			},
			[]string{"PostCheck 30-40", "lifecycle upgrade 0-40 BegunAgain"},
		},
		"phases between two versions": {
			[]*tracing.Pod{
				version("began 0", "pre-check 0", "operation-type upgrade"),
				version("began 0", "pre-checked 5", "operate 6", "operation-type upgrade"),
			},
			[]string{"PreCheck 0-5", "Preparing 5-6"},
		},
		"a begin between two versions": {
			[]*tracing.Pod{version(), version("began 0", "pre-checked 5", "prepare 5", "operation-type upgrade")},
			[]string{"PreCheck 0-5"},
		},
		"a change that ends nothing": {
			[]*tracing.Pod{version("began 0", "pre-check 0", "operation-type upgrade"), version("began 0", "pre-check 0", "operation-type upgrade", "x y")},
			[]string{},
		},
		"the first sight": {
			[]*tracing.Pod{nil, version("began 0", "pre-checked 5", "operate 6", "operation-type upgrade")},
			[]string{},
		},
		"no recorded begin": {
			[]*tracing.Pod{version("pre-check 0", "operation-type upgrade"), version("pre-checked 5", "operation-type upgrade"), nil},
			[]string{},
		},
		"a begin that is no time": {
			[]*tracing.Pod{version("began soon", "pre-check 0", "operation-type upgrade"), nil},
			[]string{},
		},
		"a clock that is behind": {
			[]*tracing.Pod{version("began 0", "operated 130", "post-check 130", "done-operation-type upgrade"), nil},
			[]string{"PostCheck 130-130", "lifecycle upgrade 0-100 Removed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, short(spansOf(after(100), test.versions...))); diff != "" {
				t.Errorf("spans differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvaluationsAndCallsAreInTheirPhase(t *testing.T) {
	pod := wholeLifecycle()[1]
	request := rule.Request{ID: "me", Pod: &rule.PodFact{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: pod.Labels}}
	of, ok := tracing.LifecycleOfRequest(request)
	if !ok {
		t.Fatal("the request has no trace")
	}
	id := rule.RuleID{Ruleset: types.NamespacedName{Namespace: "shop", Name: "web"}, Rule: "approval"}
	evaluation := tracing.Evaluation{
		Rule: id, Stage: appsv1alpha1.StagePreCheck, Decision: "0123456789abcdef", Pods: 3, Start: after(1), End: after(2), Failure: "it took too long",
	}
	post := tracing.Call{
		Rule: id, Stage: appsv1alpha1.StagePreCheck, TraceID: "7b1c", Server: "approvals.shop", Submitted: after(3), Of: []tracing.Lifecycle{of},
	}
	poll := post
	poll.Poll, poll.Stage, poll.Submitted = true, appsv1alpha1.StagePostCheck, after(5)
	spans := evaluation.Spans([]tracing.Lifecycle{of})
	spans = append(spans, post.Spans(after(3), after(4), "", "")...)
	spans = append(spans, poll.Spans(after(5), after(6), "Timeout", "the service did not answer in time")...)
	golden.Check(t, "testdata/detail.txt", text(spans)+"traceparent: "+post.TraceParent()+"\n")
}

func TestABatchHasSpansInABoundedNumberOfTraces(t *testing.T) {
	of := make([]tracing.Lifecycle, tracing.MaxTraces+1)
	if got := len((tracing.Evaluation{}).Spans(of)); got != tracing.MaxTraces {
		t.Errorf("an evaluation has %d spans, want %d", got, tracing.MaxTraces)
	}
	if got := len((tracing.Call{Of: of}).Spans(epoch(), epoch(), "", "")); got != tracing.MaxTraces {
		t.Errorf("a call has %d spans, want %d", got, tracing.MaxTraces)
	}
}

func TestASampleIsAShareOfTheTraces(t *testing.T) {
	for share, want := range map[float64][2]int{0: {0, 0}, 0.25: {2200, 2800}, 1: {10_000, 10_000}} {
		sampled := 0
		for i := range 10_000 {
			labels := map[string]string{appsv1alpha1.BeganLabelPrefix + "/me": strconv.Itoa(i)}
			of, _ := tracing.NewLifecycle("shop", "web-0", "u-0", labels, "me")
			if tracing.Sampled(of.Trace, share) {
				sampled++
			}
		}
		if sampled < want[0] || sampled > want[1] {
			t.Errorf("a share of %v selects %d of 10000 traces, want from %d to %d", share, sampled, want[0], want[1])
		}
	}
}

// Admission denies more ids, but it does not review changes of a pod that is being deleted.
func TestAPodOfManyIDsHasBoundedSpans(t *testing.T) {
	labels := map[string]string{}
	for i := range 10 * lifecycle.MaxIDs {
		labels[fmt.Sprintf("%s/id-%d", appsv1alpha1.BeganLabelPrefix, i)] = "1700000000000000000"
	}
	pod := &tracing.Pod{Namespace: "shop", Name: "web-0", UID: "u-0", Labels: labels}
	if got := len(tracing.Lifecycles(pod, nil, time.Unix(1_700_000_001, 0))); got != 2*lifecycle.MaxIDs {
		t.Errorf("%d spans, want a phase and a lifecycle of %d ids", got, lifecycle.MaxIDs)
	}
}
