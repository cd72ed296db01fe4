package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

func TestProtect(t *testing.T) {
	serving := plan.Pod{Selected: true, Controlled: true, WantsTraffic: true, Has: true, Expects: true}
	fresh := plan.Pod{Selected: true, Controlled: true, WantsTraffic: true}
	with := func(pod plan.Pod, change func(*plan.Pod)) plan.Pod {
		change(&pod)
		return pod
	}
	preparing := with(serving, func(p *plan.Pod) { p.WantsTraffic, p.Preparing = false, true })
	terminating := with(serving, func(p *plan.Pod) { p.WantsTraffic, p.Terminating = false, true })
	unselected := with(serving, func(p *plan.Pod) { p.Selected = false })
	for sentence, tc := range map[string]struct {
		pod     plan.Pod
		traffic plan.State
		want    plan.Protection
	}{
		"a pod with traffic and finalizer does not change":                   {serving, plan.On, plan.Protection{}},
		"a new pod expects the finalizer before it has it":                   {fresh, plan.Unconfirmed, plan.Protection{Expect: true, Pending: true}},
		"a new pod gets it when its traffic is on":                           {fresh, plan.On, plan.Protection{Expect: true, Add: true}},
		"traffic that is off adds nothing":                                   {fresh, plan.Off, plan.Protection{Expect: true, Pending: true}},
		"traffic that is on too early adds nothing":                          {with(fresh, func(p *plan.Pod) { p.WantsTraffic = false }), plan.On, plan.Protection{Expect: true}},
		"a preparing pod keeps it until traffic is off":                      {preparing, plan.Unconfirmed, plan.Protection{Pending: true}},
		"a preparing pod keeps it while traffic is on":                       {preparing, plan.On, plan.Protection{Pending: true}},
		"a preparing pod loses it when traffic is off":                       {preparing, plan.Off, plan.Protection{Remove: true}},
		"a preparing pod does not get it":                                    {with(preparing, func(p *plan.Pod) { p.Has = false }), plan.On, plan.Protection{}},
		"a pod that is merely unready keeps it":                              {with(serving, func(p *plan.Pod) { p.WantsTraffic = false }), plan.Off, plan.Protection{}},
		"a terminating pod keeps it until traffic is off":                    {terminating, plan.Unconfirmed, plan.Protection{Pending: true}},
		"a terminating pod loses it when traffic is off":                     {terminating, plan.Off, plan.Protection{Remove: true}},
		"nothing is added to a terminating pod":                              {with(terminating, func(p *plan.Pod) { p.Has, p.Expects = false, false }), plan.On, plan.Protection{}},
		"a pod that is no longer selected keeps both":                        {unselected, plan.Unconfirmed, plan.Protection{Pending: true}},
		"a pod that is no longer selected loses both at once":                {unselected, plan.Off, plan.Protection{Remove: true, Forget: true}},
		"an expectation alone is removed at once":                            {with(unselected, func(p *plan.Pod) { p.Has = false }), plan.On, plan.Protection{Forget: true}},
		"a pod that is no longer controlled loses both":                      {with(serving, func(p *plan.Pod) { p.Controlled = false }), plan.Off, plan.Protection{Remove: true, Forget: true}},
		"another employer's finalizer is not touched":                        {with(preparing, func(p *plan.Pod) { p.Taken, p.Expects, p.Selected = true, false, false }), plan.Off, plan.Protection{}},
		"a collision is reported for a selected pod":                         {with(fresh, func(p *plan.Pod) { p.Taken = true }), plan.On, plan.Protection{Collides: true}},
		"an annotation that cannot be parsed is not changed, nor is the pod": {with(fresh, func(p *plan.Pod) { p.Unreadable = true }), plan.On, plan.Protection{}},
		"an unreadable annotation does not keep a finalizer on":              {with(terminating, func(p *plan.Pod) { p.Unreadable = true }), plan.Off, plan.Protection{Remove: true}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plan.Protect(tc.pod, tc.traffic)); diff != "" {
				t.Errorf("protection (-want +got):\n%s", diff)
			}
		})
	}
}
