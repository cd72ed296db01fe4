package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
)

// follower maintains a load balancer on the side without PodOps, as an ingress controller
// does: ready pods get requests, deleted and unready pods get no requests as soon as the
// watch reports it. No operation waits for it.
type follower struct {
	client  *runtimeapi.Client
	backend string
	pods    func(context.Context) ([]corev1.Pod, error)
	port    func() uint16
	changed <-chan struct{}
	failed  atomic.Pointer[error] // of the last round; nil before the first
}

// following is a follower that runs until end is called. No context bounds it: the callers
// of start are parts of an operation, and the load balancer outlives each of them.
type following struct {
	follower *follower
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// start runs a follower.
func start(f *follower) *following {
	ctx, stop := context.WithCancel(context.Background())
	r := &following{follower: f, stop: stop}
	r.running.Go(func() { f.run(ctx) })
	return r
}

// end returns when the follower has ended. A nil following has.
func (r *following) end() {
	if r == nil {
		return
	}
	r.stop()
	r.running.Wait()
}

// err returns the error of the last round, nil if it has changed all that it wanted to.
func (r *following) err() error {
	if r == nil {
		return nil
	}
	if last := r.follower.failed.Load(); last != nil {
		return *last
	}
	return nil
}

// retryEvery is the interval at which the follower retries a failed change.
const retryEvery = 200 * time.Millisecond

// run follows until ctx ends. Failed changes are retried.
func (f *follower) run(ctx context.Context) {
	ticker := time.NewTicker(retryEvery)
	defer ticker.Stop()
	for {
		err := f.follow(ctx)
		f.failed.Store(&err)
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		case <-ticker.C:
		}
	}
}

func (f *follower) follow(ctx context.Context) error {
	pods, err := f.pods(ctx)
	if err != nil {
		return err
	}
	servers, err := f.client.Servers(ctx, f.backend)
	if err != nil {
		return fmt.Errorf("listing servers: %w", err)
	}
	wanted := map[string]netip.AddrPort{}
	for i := range pods {
		if address, err := netip.ParseAddr(pods[i].Status.PodIP); err == nil && ready(&pods[i]) {
			wanted[serverOn(pods[i].Name, f.port())] = netip.AddrPortFrom(address, f.port())
		}
	}
	var errs []error
	for name, address := range wanted {
		server, there := servers[name]
		errs = append(errs, f.putIn(ctx, name, address, there && server.Serves(), there))
	}
	for name, server := range servers {
		if _, ok := wanted[name]; !ok {
			errs = append(errs, f.takeOut(ctx, server))
		}
	}
	return errors.Join(errs...)
}

// serverOn names the server of a pod on a port.
func serverOn(pod string, port uint16) string {
	if port == podPort {
		return pod
	}
	return fmt.Sprintf("%s-%d", pod, port)
}

func (f *follower) takeOut(ctx context.Context, server runtimeapi.Server) error {
	if server.State == runtimeapi.StateReady {
		return f.client.SetState(ctx, f.backend, server.Name, runtimeapi.StateDrain)
	}
	if server.Sessions > 0 {
		return nil // they may end, if another client ends them
	}
	if err := f.client.SetState(ctx, f.backend, server.Name, runtimeapi.StateMaint); err != nil {
		return err
	}
	return f.client.Delete(ctx, f.backend, server.Name)
}

func (f *follower) putIn(ctx context.Context, name string, address netip.AddrPort, serves, there bool) error {
	if serves {
		return nil
	}
	if !there {
		if err := f.client.Add(ctx, f.backend, runtimeapi.NewServer{Name: name, Address: address, Weight: 1}); err != nil {
			return err
		}
	}
	return f.client.SetState(ctx, f.backend, name, runtimeapi.StateReady)
}
