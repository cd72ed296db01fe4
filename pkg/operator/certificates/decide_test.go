package certificates

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// epoch is the start of the tests.
var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

var testNames = []string{"podops-webhook.podops-system.svc", "127.0.0.1"}

// issued returns the state after the decision at the given time.
func issued(t *testing.T, state State, carriedSince, at time.Time) State {
	t.Helper()
	l := DefaultLifetimes()
	next, err := l.Issue(l.Decide(state, testNames, carriedSince, at), testNames, at)
	if err != nil {
		t.Fatalf("issuing: %v", err)
	}
	return next
}

func TestDecide(t *testing.T) {
	const caDue, servingDue = 245 * day, 61 * day
	fresh := issued(t, State{}, time.Time{}, epoch)
	renewed := issued(t, fresh, time.Time{}, epoch.Add(200*day))
	rotating := issued(t, renewed, time.Time{}, epoch.Add(caDue))
	rotated := issued(t, rotating, epoch.Add(caDue), epoch.Add(caDue+time.Minute))
	without := func(state State, change func(*State)) State {
		change(&state)
		return state
	}

	cases := map[string]struct {
		state     State
		names     []string
		carried   time.Duration // after epoch; zero: not carried
		at        time.Duration // after epoch
		wantSteps []Step
		wantCAs   int // in the bundle of the kept state
	}{
		"no state yet: everything is made at once": {
			wantSteps: []Step{MakeNext, Promote, Sign},
		},
		"fresh: nothing to do": {
			state: fresh, wantCAs: 1,
		},
		"serving certificate just before two thirds of its life": {
			state: fresh, at: 59 * day, wantCAs: 1,
		},
		"serving certificate after two thirds of its life": {
			state: fresh, at: servingDue, wantSteps: []Step{Sign}, wantCAs: 1,
		},
		"serving certificate expired": {
			state: fresh, at: 91 * day, wantSteps: []Step{Sign}, wantCAs: 1,
		},
		"serving certificate lost": {
			state:     without(fresh, func(s *State) { s.Serving = Pair{} }),
			wantSteps: []Step{Sign}, wantCAs: 1,
		},
		"a name is not covered": {
			state: fresh, names: []string{"elsewhere.example"},
			wantSteps: []Step{Sign}, wantCAs: 1,
		},
		"fewer names than covered are fine": {
			state: fresh, names: testNames[:1], wantCAs: 1,
		},
		"serving certificate of an unknown CA": {
			state:     without(fresh, func(s *State) { s.Serving = issued(t, State{}, time.Time{}, epoch).Serving }),
			wantSteps: []Step{Sign}, wantCAs: 1,
		},
		"CA after two thirds of its life: the next one is made, and not used": {
			state: renewed, at: caDue, wantSteps: []Step{MakeNext}, wantCAs: 1,
		},
		"next CA not carried: waits": {
			state: rotating, at: caDue + 10*time.Hour, wantCAs: 2,
		},
		"next CA carried for less than the grace time: waits": {
			state: rotating, carried: caDue + time.Hour, at: caDue + time.Hour + 59*time.Second, wantCAs: 2,
		},
		"next CA carried for the grace time: signs": {
			state: rotating, carried: caDue + time.Hour, at: caDue + time.Hour + time.Minute,
			wantSteps: []Step{Promote, Sign}, wantCAs: 2,
		},
		"next CA never carried: the current one stays in use": {
			state: rotating, at: caDue + 20*day, wantSteps: []Step{Sign}, wantCAs: 2,
		},
		"after the rotation the old CA stays trusted": {
			state: rotated, at: caDue + day, wantCAs: 2,
		},
		"the old CA leaves at the end of its life": {
			state: rotated, at: 366 * day, wantSteps: []Step{Sign}, wantCAs: 1,
		},
		"current CA cannot sign: its certificate is served until the next CA is known": {
			state:     without(fresh, func(s *State) { s.Current.Key = nil }),
			wantSteps: []Step{MakeNext}, wantCAs: 1,
		},
		"current CA cannot sign and no certificate can be served: the next CA signs at once": {
			state:     without(fresh, func(s *State) { s.Current.Key, s.Serving = nil, Pair{} }),
			wantSteps: []Step{MakeNext, Promote, Sign}, wantCAs: 1,
		},
		"current CA expired and a next one exists: the next one signs at once": {
			state: rotating, at: 366 * day, wantSteps: []Step{Promote, Sign}, wantCAs: 1,
		},
		"everything expired": {
			state: rotated, at: 3 * 365 * day, wantSteps: []Step{MakeNext, Promote, Sign},
		},
		"clocks of API servers up to an hour behind": {
			state: fresh, at: -time.Hour, wantCAs: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			names, carriedSince := tc.names, time.Time{}
			if names == nil {
				names = testNames
			}
			if tc.carried != 0 {
				carriedSince = epoch.Add(tc.carried)
			}
			got := DefaultLifetimes().Decide(tc.state, names, carriedSince, epoch.Add(tc.at))
			if diff := cmp.Diff(tc.wantSteps, got.Steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if cas := len(got.Keep.authorities()); cas != tc.wantCAs {
				t.Errorf("kept CAs: want %d, got %d", tc.wantCAs, cas)
			}
		})
	}
}

func TestWake(t *testing.T) {
	fresh := issued(t, State{}, time.Time{}, epoch)
	renewed := issued(t, fresh, time.Time{}, epoch.Add(200*day))
	rotating := issued(t, renewed, time.Time{}, epoch.Add(245*day))
	rotated := issued(t, rotating, epoch.Add(245*day), epoch.Add(246*day))

	cases := map[string]struct {
		state   State
		carried time.Time
		want    time.Time
	}{
		"renewal of the serving certificate": {
			state: fresh, want: renewAt(fresh.Serving.Cert),
		},
		"renewal of the CA": {
			state: renewed, want: renewAt(renewed.Current.Cert),
		},
		"end of the grace time": {
			state: rotating, carried: epoch.Add(245 * day), want: epoch.Add(245*day + time.Minute),
		},
		"next CA not carried yet: the serving certificate is renewed next": {
			state: rotating, want: renewAt(rotating.Serving.Cert),
		},
		"after the rotation": {
			state: rotated, want: renewAt(rotated.Serving.Cert),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := DefaultLifetimes().Wake(tc.state, tc.carried); !got.Equal(tc.want) {
				t.Errorf("want %s, got %s", tc.want, got)
			}
		})
	}
}

func TestLifetimesValidate(t *testing.T) {
	cases := map[string]struct {
		change func(*Lifetimes)
		want   bool
	}{
		"the defaults":                         {func(*Lifetimes) {}, true},
		"no grace":                             {func(l *Lifetimes) { l.Grace = 0 }, true},
		"negative grace":                       {func(l *Lifetimes) { l.Grace = -1 }, false},
		"negative skew":                        {func(l *Lifetimes) { l.Skew = -1 }, false},
		"no life":                              {func(l *Lifetimes) { l.Serving = 0 }, false},
		"a grace that no renewal can wait for": {func(l *Lifetimes) { l.Grace = l.Serving / 3 }, false},
		"a CA with a shorter life than its certificates": {func(l *Lifetimes) { l.CA = l.Serving - 1 }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := DefaultLifetimes()
			tc.change(&l)
			if err := l.Validate(); (err == nil) != tc.want {
				t.Errorf("want valid %v, got %v", tc.want, err)
			}
		})
	}
}
