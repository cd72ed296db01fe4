package podstate_test

import (
	"testing"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
)

func TestFreeze(t *testing.T) {
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]rule.Freeze{
		"":                                       {},
		"- frozen by jane: INC-1":                {Message: "frozen by jane: INC-1"},
		"2026-12-01T12:00:00Z frozen by jane: x": {Message: "frozen by jane: x", Until: noon},
		"2026-12-01T12:00:00Z":                   {Message: "frozen", Until: noon},
		"-":                                      {Message: "frozen"},
		"tomorrow frozen by jane: x":             {Message: "tomorrow frozen by jane: x"},
	} {
		got := podstate.Freeze(map[string]string{appsv1alpha1.FreezeAnnotationKey: value})
		if got.Message != want.Message || !got.Until.Equal(want.Until) {
			t.Errorf("%q: want %+v, got %+v", value, want, got)
		}
	}
	timed := rule.Freeze{Message: "x", Until: noon}
	if !timed.Holds(noon.Add(-1)) || timed.Holds(noon) || (rule.Freeze{}).Holds(noon) || !(rule.Freeze{Message: "x"}).Holds(noon) {
		t.Error("a freeze holds until its end, and without one until it is ended")
	}
}
