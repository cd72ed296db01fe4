package podstate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/test/builders"
)

func TestPhase(t *testing.T) {
	epoch := builders.Epoch
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want podstate.Phase
	}{
		"a new pod":                             {pod: builders.MakePod("p").Obj(), want: podstate.PhaseUnavailable},
		"available":                             {pod: builders.MakePod("p").Available().Obj(), want: podstate.PhaseAvailable},
		"available, and became unready":         {pod: builders.MakePod("p").Available().Unready(epoch).Obj(), want: podstate.PhaseUnavailable},
		"waits, and serves":                     {pod: builders.MakePod("p").Available().Waiting("a", "upgrade", epoch).Obj(), want: podstate.PhasePreCheck},
		"prepares":                              {pod: builders.MakePod("p").Preparing("a", "upgrade").Obj(), want: podstate.PhasePreparing},
		"may be operated on":                    {pod: builders.MakePod("p").Allowed("a", "upgrade").Obj(), want: podstate.PhaseOperating},
		"one id operates and another waits":     {pod: builders.MakePod("p").Waiting("a", "x", epoch).Allowed("b", "y").Obj(), want: podstate.PhaseOperating},
		"operated":                              {pod: builders.MakePod("p").Finished("a", "upgrade", epoch).Obj(), want: podstate.PhasePostCheck},
		"complete":                              {pod: builders.MakePod("p").Complete("a", "upgrade").Obj(), want: podstate.PhaseCompleting},
		"kept offline":                          {pod: builders.MakePod("p").Gate(false).StayOffline().Obj(), want: podstate.PhaseOffline},
		"not controlled":                        {pod: builders.MakePod("p").Uncontrolled().Obj(), want: podstate.PhaseNotControlled},
		"finished":                              {pod: builders.MakePod("p").Phase(corev1.PodFailed).Obj(), want: podstate.PhaseFinished},
		"terminating, which wins over the rest": {pod: builders.MakePod("p").Allowed("a", "x").Terminating(epoch).Obj(), want: podstate.PhaseTerminating},
	} {
		t.Run(name, func(t *testing.T) {
			if got := podstate.Of(test.pod, nil).Phase; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestOperationsHaveTheirTimes(t *testing.T) {
	at := builders.Epoch.Add(time.Minute)
	state := podstate.Of(builders.MakePod("p").Available().Waiting("a", "upgrade", at).Obj(), nil)
	if len(state.Operations) != 1 {
		t.Fatalf("operations: %+v", state.Operations)
	}
	got := state.Operations[0]
	if got.ID != "a" || got.Type != "upgrade" || got.Phase != podstate.PhasePreCheck || !got.Since.Equal(at) || !state.Since.Equal(at) {
		t.Errorf("got %+v, since %s", got, state.Since)
	}
}

func TestFinalizers(t *testing.T) {
	const employer = "Service/default/web"
	name := appsv1alpha1.ProtectionFinalizerPrefix + "/web"
	missing := podstate.Of(builders.MakePod("p").Gate(true).Ready().Expect(employer, name).Obj(), nil)
	want := []podstate.Finalizer{{Name: name, Employers: []string{employer}}}
	if diff := cmp.Diff(want, missing.Finalizers); diff != "" {
		t.Errorf("expected (-want +got):\n%s", diff)
	}
	if missing.Pending == nil || missing.Pending.Reason != appsv1alpha1.ReasonCompleting {
		t.Errorf("pending: %+v", missing.Pending)
	}
	gone := podstate.Of(builders.MakePod("p").Gate(true).Ready().Expect(employer, name).Obj(), func(string) bool { return true })
	if gone.Pending != nil {
		t.Errorf("a pod waits for an employer that is gone: %+v", gone.Pending)
	}
	left := podstate.Of(builders.MakePod("p").Preparing("a", "x").Finalizer(name, "example.com/other").Obj(), nil)
	if diff := cmp.Diff([]podstate.Finalizer{{Name: name, Present: true}}, left.Finalizers); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestWithheldOfAnnotations(t *testing.T) {
	pod := builders.MakePod("p").Waiting("a", "x", builders.Epoch).
		Annotation(appsv1alpha1.DetailAnnotationKey("web"),
			`{"stage":"PreCheck","passed":false,"rejectInfo":[{"ruleName":"r","reason":"LabelMismatch: label a is missing: b"}]}`).
		Annotation(appsv1alpha1.DetailAnnotationKey("broken"), `{"stage":`).Obj()
	want := []podstate.Withheld{{Ruleset: "web", Rule: "r", Stage: appsv1alpha1.StagePreCheck, Code: "LabelMismatch", Message: "label a is missing: b"}}
	if diff := cmp.Diff(want, podstate.Of(pod, nil).Withheld); diff != "" {
		t.Errorf("withheld (-want +got):\n%s", diff)
	}
}
