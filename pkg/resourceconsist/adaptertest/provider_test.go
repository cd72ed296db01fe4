package adaptertest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// script is a provider with a pool "web" and a server "web-0" that is on.
type script struct {
	*testing.T
	*FakeProvider
	faults *FakeFaults
}

func newScript(t *testing.T) *script {
	t.Helper()
	provider, faults := NewFakeFaults()
	s := &script{T: t, FakeProvider: provider, faults: faults}
	s.want(nil, provider.CreatePool(t.Context(), "web", "i"))
	s.want(nil, provider.AddServer(t.Context(), "web", web0()))
	return s
}

func web0() FakeServer { return FakeServer{ID: "web-0", Address: "192.0.2.1", On: true, Weight: 1} }

func (s *script) want(want, got error) {
	s.Helper()
	if !errors.Is(got, want) {
		s.Errorf("error: %v, want %v", got, want)
	}
}

func (s *script) wantServers(want ...FakeServer) {
	s.Helper()
	got, err := s.Servers(s.Context(), "web")
	if err != nil {
		s.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("servers (-want +got):\n%s", diff)
	}
}

func (s *script) wantOn(want bool) {
	s.Helper()
	if got := s.faults.Traffic(s, "web")["web-0"].On; got != want {
		s.Errorf("new requests go to web-0: %v, want %v", got, want)
	}
}

func (s *script) off() error {
	server := web0()
	server.On = false
	return s.SetServer(s.Context(), "web", server)
}

func TestTheFakeProviderRejectsInvalidRequests(t *testing.T) {
	s := newScript(t)
	ctx := t.Context()
	s.want(ErrExists, s.CreatePool(ctx, "web", "ii"))
	s.want(ErrExists, s.AddServer(ctx, "web", web0()))
	s.want(ErrInUse, s.DeletePool(ctx, "web"))
	s.want(ErrNotFound, s.AddServer(ctx, "api", web0()))
	s.want(ErrNotFound, s.SetServer(ctx, "web", FakeServer{ID: "web-1"}))
	s.want(ErrNotFound, s.RemoveServer(ctx, "web", "web-1"))
	s.want(ErrNotFound, s.SetPool(ctx, "api", "i"))
	s.want(ErrNotFound, s.DeletePool(ctx, "api"))
	_, err := s.Pool(ctx, "api")
	s.want(ErrNotFound, err)
	s.wantServers(web0())
}

func TestTheFakeProviderFailsOneOperation(t *testing.T) {
	s := newScript(t)
	s.faults.Inject(t, Fault{Kind: Fail, Op: UpdateEmployees})
	s.want(ErrInternal, s.off())
	s.wantOn(true)
	s.want(nil, s.AddServer(t.Context(), "web", FakeServer{ID: "web-1"}))
	s.faults.Mend(t)
	s.want(nil, s.off())
	s.wantOn(false)
}

func TestTheFakeProviderFailsForOneEmployee(t *testing.T) {
	s := newScript(t)
	s.faults.Inject(t, Fault{Kind: FailOne, Op: CreateEmployees, Employee: "web-1"})
	s.want(ErrInternal, s.AddServer(t.Context(), "web", FakeServer{ID: "web-1"}))
	s.want(nil, s.AddServer(t.Context(), "web", FakeServer{ID: "web-2"}))
	s.wantServers(web0(), FakeServer{ID: "web-2"})
}

func TestALostReplyTakesEffect(t *testing.T) {
	s := newScript(t)
	s.faults.Inject(t, Fault{Kind: LostReply, Op: UpdateEmployees})
	s.want(ErrInternal, s.off())
	s.wantOn(false)
}

func TestALateEffectIsAcceptedAtOnce(t *testing.T) {
	s := newScript(t)
	s.faults.Inject(t, Fault{Kind: LateEffect})
	s.want(nil, s.off())
	s.want(nil, s.AddServer(t.Context(), "web", FakeServer{ID: "web-1"}))
	s.want(ErrExists, s.AddServer(t.Context(), "web", FakeServer{ID: "web-1"}))
	s.wantOn(true)
	s.wantServers(web0())
	s.faults.Mend(t)
	s.want(nil, s.SetPool(t.Context(), "web", "ii"))
	s.wantOn(true) // a later change does not overtake
	s.faults.Settle(t)
	s.wantOn(false)
}

func TestStaleReadsReturnTheStateBeforeTheFault(t *testing.T) {
	s := newScript(t)
	s.faults.Inject(t, Fault{Kind: StaleReads})
	s.want(nil, s.off())
	s.wantOn(false)
	s.wantServers(web0())
	s.faults.Settle(t)
	off := web0()
	off.On = false
	s.wantServers(off)
}

func TestARestartLosesTheState(t *testing.T) {
	s := newScript(t)
	s.faults.Occupy(t, "web", "web-0", 2)
	s.faults.Inject(t, Fault{Kind: Restart})
	s.wantServers()
	if got := s.faults.Remains(t, "web"); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
	if got := s.faults.Cut(t); got != 2 {
		t.Errorf("%d sessions were cut, want 2", got)
	}
}

func TestARemovedServerCutsItsSessions(t *testing.T) {
	s := newScript(t)
	s.faults.Occupy(t, "web", "web-0", 3)
	s.want(nil, s.off())
	if got := s.faults.Cut(t); got != 0 {
		t.Errorf("%d sessions were cut by turning a server off", got)
	}
	s.want(nil, s.RemoveServer(t.Context(), "web", "web-0"))
	if got := s.faults.Cut(t); got != 3 {
		t.Errorf("%d sessions were cut, want 3", got)
	}
}

func TestThrottlingRejectsAndCounts(t *testing.T) {
	s := newScript(t)
	before := s.faults.Calls(t)
	s.faults.Inject(t, Fault{Kind: Throttle})
	s.want(ErrThrottled, s.off())
	_, err := s.Servers(t.Context(), "web")
	s.want(ErrThrottled, err)
	s.wantOn(true)
	if got := s.faults.Calls(t) - before; got != 2 {
		t.Errorf("%d requests were counted, want 2", got)
	}
}

func TestAHangEndsWithItsContextOrWithMend(t *testing.T) {
	s := newScript(t)
	s.faults.Inject(t, Fault{Kind: Hang, Op: UpdateEmployees})
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan error)
	go func() { answers <- s.SetServer(ctx, "web", FakeServer{ID: "web-0"}) }()
	cancel()
	s.want(context.Canceled, <-answers)
	s.wantOn(true)
	s.wantServers(web0()) // reads do not hang

	go func() { answers <- s.off() }()
	s.faults.Mend(t)
	s.want(nil, <-answers)
	s.wantOn(false)
}

func TestOldVersionsAreDropped(t *testing.T) {
	s := newScript(t)
	for range 100 {
		s.want(nil, s.off())
		s.want(nil, s.SetServer(t.Context(), "web", web0()))
		s.faults.Settle(t)
	}
	if got := len(s.versions); got > 3 {
		t.Errorf("%d versions are kept; reads go back by %v only", got, FakeLag)
	}
}
