package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/builders"
)

const otherGate = "example.com/warm"

func TestFactsOf(t *testing.T) {
	since, gated := builders.Epoch.Add(time.Minute), builders.Epoch
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want lifecycle.PodFacts
	}{
		"an empty pod has no gate": {
			pod:  &corev1.Pod{},
			want: lifecycle.PodFacts{Gate: lifecycle.GateMissing},
		},
		"a new pod has a gate that was never written": {
			pod:  builders.MakePod("web-0").Obj(),
			want: lifecycle.PodFacts{Gate: lifecycle.GateUnset},
		},
		"a condition counts for nothing when the gate is not in the spec": {
			pod:  builders.MakePod("web-0").Gateless().Gate(false).Obj(),
			want: lifecycle.PodFacts{Gate: lifecycle.GateMissing, GateSince: gated},
		},
		"a ready pod": {
			pod:  builders.MakePod("web-0").Gate(true).ReadySince(since).Obj(),
			want: lifecycle.PodFacts{Gate: lifecycle.GateTrue, GateSince: gated, Ready: true, ReadySince: since, ContainersReady: true},
		},
		"a pod that only the gate of PodOps keeps unready": {
			pod:  builders.MakePod("web-0").Gate(false).UnreadyByGate(since).Obj(),
			want: lifecycle.PodFacts{Gate: lifecycle.GateFalse, GateSince: gated, ReadySince: since, ContainersReady: true, GatesOnly: true},
		},
		"a pod that another gate keeps unready": {
			pod:  withGate(builders.MakePod("web-0").Gate(false).UnreadyByGate(since).Condition(otherGate, false, "", since).Obj()),
			want: lifecycle.PodFacts{Gate: lifecycle.GateFalse, GateSince: gated, ReadySince: since, ContainersReady: true},
		},
		"a pod whose other gate was never written": {
			pod:  withGate(builders.MakePod("web-0").Gate(false).UnreadyByGate(since).Obj()),
			want: lifecycle.PodFacts{Gate: lifecycle.GateFalse, GateSince: gated, ReadySince: since, ContainersReady: true},
		},
		"a pod whose other gate is true": {
			pod:  withGate(builders.MakePod("web-0").Gate(false).UnreadyByGate(since).Condition(otherGate, true, "", since).Obj()),
			want: lifecycle.PodFacts{Gate: lifecycle.GateFalse, GateSince: gated, ReadySince: since, ContainersReady: true, GatesOnly: true},
		},
		"a pod whose containers are not ready": {
			pod:  builders.MakePod("web-0").Gate(true).Unready(since).Obj(),
			want: lifecycle.PodFacts{Gate: lifecycle.GateTrue, GateSince: gated, ReadySince: since},
		},
		"a gate of status Unknown keeps traffic off": {
			pod:  withStatus(builders.MakePod("web-0").Gate(true).Obj(), appsv1alpha1.ServiceReadyGate, corev1.ConditionUnknown),
			want: lifecycle.PodFacts{Gate: lifecycle.GateFalse, GateSince: gated},
		},
		"a Ready of status Unknown is not ready": {
			pod:  withStatus(builders.MakePod("web-0").Gate(true).ReadySince(since).Obj(), corev1.PodReady, corev1.ConditionUnknown),
			want: lifecycle.PodFacts{Gate: lifecycle.GateTrue, GateSince: gated, ReadySince: since, ContainersReady: true},
		},
		"a terminating pod": {
			pod:  builders.MakePod("web-0").Terminating(since).Obj(),
			want: lifecycle.PodFacts{Gate: lifecycle.GateUnset, Terminating: true},
		},
		"expected finalizers by employer": {
			pod: builders.MakePod("web-0").Expect("Service/default/web", "prot.b").Expect("Service/default/db", "prot.a").
				Expect("Service/default/www", "prot.b").Obj(),
			want: lifecycle.PodFacts{Gate: lifecycle.GateUnset, Expected: map[string]string{
				"Service/default/db": "prot.a", "Service/default/web": "prot.b", "Service/default/www": "prot.b",
			}},
		},
		"malformed conditions are an error, not an absence": {
			pod:  builders.MakePod("web-0").Annotation(appsv1alpha1.AvailableConditionsAnnotationKey, "{").Obj(),
			want: lifecycle.PodFacts{Gate: lifecycle.GateUnset, ExpectedFinalizersErr: cmpopts.AnyError},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Labels, tc.want.Finalizers = tc.pod.Labels, tc.pod.Finalizers
			got := lifecycle.NewPodFacts(tc.pod)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateErrors(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("facts differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpectedFinalizersLeaveOutEmployersThatAreGone(t *testing.T) {
	facts := lifecycle.NewPodFacts(builders.MakePod("web-0").Expect("Service/default/web", "prot.b").Expect("Service/default/db", "prot.a").
		Expect("Service/default/www", "prot.b").Finalizer("prot.a").Obj())
	if diff := cmp.Diff([]string{"prot.a", "prot.b"}, facts.ExpectedFinalizers()); diff != "" {
		t.Errorf("each finalizer once, sorted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Service/default/web", "Service/default/www"}, facts.Missing()); diff != "" {
		t.Errorf("employers whose finalizer is missing (-want +got):\n%s", diff)
	}
	facts.Gone = []string{"Service/default/db", "Service/default/web"}
	if diff := cmp.Diff([]string{"prot.b"}, facts.ExpectedFinalizers()); diff != "" {
		t.Errorf("the finalizer that another employer expects too stays (-want +got):\n%s", diff)
	}
}

// withGate adds a readiness gate of another owner.
func withGate(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: otherGate})
	return pod
}

func withStatus(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) *corev1.Pod {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			pod.Status.Conditions[i].Status = status
		}
	}
	return pod
}

func TestParseAvailableConditions(t *testing.T) {
	lb := map[string]string{"Service/default/web": "prot.lb"}
	for name, tc := range map[string]struct {
		text    string
		absent  bool
		want    map[string]string
		wantErr bool
	}{
		"no annotation":               {absent: true, want: map[string]string{}},
		"an empty annotation":         {text: "", want: map[string]string{}},
		"an empty object":             {text: "{}", want: map[string]string{}},
		"the value null":              {text: "null", want: map[string]string{}},
		"a map that is null":          {text: `{"expectedFinalizers":null}`, want: map[string]string{}},
		"one employer":                {text: `{"expectedFinalizers":{"Service/default/web":"prot.lb"}}`, want: lb},
		"fields that are unknown":     {text: `{"expectedFinalizers":{"Service/default/web":"prot.lb"},"x":[1]}`, want: lb},
		"an employer without a name":  {text: `{"expectedFinalizers":{"Service/default/web":""}}`, want: map[string]string{}, wantErr: true},
		"JSON that ends too early":    {text: `{"expectedFinalizers":{"Service`, want: map[string]string{}, wantErr: true},
		"something after the JSON":    {text: `{} {}`, want: map[string]string{}, wantErr: true},
		"an array":                    {text: `[]`, want: map[string]string{}, wantErr: true},
		"a number for a finalizer":    {text: `{"expectedFinalizers":{"Service/default/web":1}}`, want: map[string]string{}, wantErr: true},
		"a list for the map":          {text: `{"expectedFinalizers":["prot.lb"]}`, want: map[string]string{}, wantErr: true},
		"no JSON at all":              {text: "prot.lb", want: map[string]string{}, wantErr: true},
		"deep nesting":                {text: strings.Repeat("[", 20000), want: map[string]string{}, wantErr: true},
		"as long as it may be":        {text: "{}" + strings.Repeat(" ", appsv1alpha1.MaxAnnotationBytes-2), want: map[string]string{}},
		"one byte longer":             {text: "{}" + strings.Repeat(" ", appsv1alpha1.MaxAnnotationBytes-1), want: map[string]string{}, wantErr: true},
		"300 KiB, all of them proper": {text: "{}" + strings.Repeat(" ", 300<<10), want: map[string]string{}, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{appsv1alpha1.AvailableConditionsAnnotationKey: tc.text}
			if tc.absent {
				annotations = nil
			}
			got, err := lifecycle.ParseAvailableConditions(annotations)
			if (err != nil) != tc.wantErr {
				t.Errorf("error is %v, want one: %t", err, tc.wantErr)
			}
			// A nil map is not the same as an empty one: callers write to it.
			if diff := cmp.Diff(tc.want, got.ExpectedFinalizers); diff != "" {
				t.Errorf("expected finalizers differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseTime(t *testing.T) {
	for name, tc := range map[string]struct {
		value string
		want  time.Time
		ok    bool
	}{
		"nanoseconds":                    {value: "1767225600000000001", want: time.Unix(1767225600, 1), ok: true},
		"zero":                           {value: "0"},
		"negative":                       {value: "-1"},
		"empty":                          {value: ""},
		"a word":                         {value: "soon"},
		"a fraction":                     {value: "1.5"},
		"more than fits":                 {value: "9223372036854775808"},
		"the last nanosecond that fits":  {value: "9223372036854775807"},
		"the last but one that fits":     {value: "9223372036854775806", want: time.Unix(0, 9223372036854775806), ok: true},
		"a number with a space behind":   {value: "1767225600000000001 "},
		"a number in another notation":   {value: "0x1"},
		"a number with digits separated": {value: "1_000"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := lifecycle.ParseTime(tc.value)
			if ok != tc.ok || !got.Equal(tc.want) {
				t.Errorf("got %v, %t, want %v, %t", got, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestIsProtectionFinalizer(t *testing.T) {
	for name, want := range map[string]bool{
		"prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb": true,
		"prot.podopslifecycle.kusionstack.io":                  true,
		"resource-consist.kusionstack.io/clean-web":            false,
		"example.com/prot.podopslifecycle.kusionstack.io":      false,
		"": false,
	} {
		if got := lifecycle.IsProtectionFinalizer(name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
}

func TestDenialTextNamesEveryKey(t *testing.T) {
	got := lifecycle.DenialText([]lifecycle.Denial{{Key: "operate/a", Message: "only PodOps sets this label"}, {Key: "operating/b", Message: "needs a type"}})
	want := "metadata.labels[operate/a]: only PodOps sets this label; metadata.labels[operating/b]: needs a type"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPermitted shows that a pod is permitted from the permit until it is available again.
func TestPermitted(t *testing.T) {
	since := builders.Epoch
	available := func() *builders.PodBuilder { return builders.MakePod("web-0").Available() }
	for name, tc := range map[string]struct {
		pod  *builders.PodBuilder
		want bool
	}{
		"a pod at rest":                     {pod: available()},
		"a pod without labels":              {pod: builders.MakePod("web-0").Uncontrolled()},
		"requested":                         {pod: available().Operating("a", "upgrade")},
		"waiting":                           {pod: available().Waiting("a", "upgrade", since)},
		"preparing":                         {pod: builders.MakePod("web-0").Preparing("a", "upgrade"), want: true},
		"operating":                         {pod: builders.MakePod("web-0").Allowed("a", "upgrade"), want: true},
		"finished":                          {pod: builders.MakePod("web-0").Finished("a", "upgrade", since), want: true},
		"complete":                          {pod: builders.MakePod("web-0").Complete("a", "upgrade"), want: true},
		"one id waits, another id operates": {pod: builders.MakePod("web-0").Allowed("b", "upgrade").Waiting("a", "restart", since), want: true},
		"a permission that is a remnant":    {pod: available().Label(appsv1alpha1.OperationPermissionLabelPrefix+"/upgrade", "1")},
		"a permit that was void":            {pod: available().Waiting("a", "upgrade", since).Label(appsv1alpha1.PreCheckedLabelPrefix+"/a", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lifecycle.NewPodFacts(tc.pod.Obj()).Permitted(); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
