package podfacts

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

const (
	// forgottenFor is the time for which an employer that was dropped from the annotation
	// of a pod is not dropped again: a controller that has put it back may know more than
	// its Service shows, and two controllers must not keep reverting each other's writes.
	forgottenFor = 10 * time.Minute

	// forgottenBytes bounds the memory of dropped employers, about 20,000. Beyond it the namespace
	// with the most of them loses its oldest, which may be dropped again.
	forgottenBytes = 10 << 20
)

// Employers determines which employers of a pod no longer exist or no longer select it. It is safe
// for concurrent use.
type Employers struct {
	cached    client.Reader
	apiReader client.Reader
	clock     clock.PassiveClock
	forgotten *fairshare.Cache[entry, time.Time] // when an employer was dropped
}

// entry is one employer in the annotation of one pod.
type entry struct {
	pod      types.UID
	employer string
}

// NewEmployers returns Employers that read Services from a cache, and from the API server
// before an employer counts as gone.
func NewEmployers(cached, apiReader client.Reader, clk clock.PassiveClock) *Employers {
	return &Employers{cached: cached, apiReader: apiReader, clock: clk, forgotten: fairshare.NewCache[entry, time.Time](forgottenBytes)}
}

// Gone returns the employers that the pod names, whose finalizer it does not carry, and
// that will never add it: Services that do not exist, are terminating, are in another
// namespace or do not select the pod. Employers of other kinds are never gone: the manager
// may not read them. With an error the list contains the employers that are known to be in this state.
func (e *Employers) Gone(ctx context.Context, pod *corev1.Pod, facts lifecycle.PodFacts) ([]string, error) {
	if facts.Terminating || !facts.Controlled() {
		return nil, nil
	}
	var gone []string
	for _, employer := range facts.Missing() {
		service, ok := podstate.ParseEmployer(employer)
		if !ok {
			continue
		}
		isGone, err := e.isGone(ctx, pod, entry{pod.UID, employer}, service)
		if err != nil {
			return gone, fmt.Errorf("looking for employer %s: %w", employer, err)
		}
		if isGone {
			gone = append(gone, employer)
		}
	}
	return gone, nil
}

func (e *Employers) isGone(ctx context.Context, pod *corev1.Pod, at entry, service types.NamespacedName) (bool, error) {
	employs, err := e.employs(ctx, e.cached, pod, service)
	if err != nil {
		return false, err
	}
	if employs {
		e.forgotten.Remove(at)
		return false, nil
	}
	if last, before := e.forgotten.Get(at); before && e.clock.Since(last) < forgottenFor {
		return false, nil
	}
	// The cache may be behind the controller that has written the entry.
	employs, err = e.employs(ctx, e.apiReader, pod, service)
	return !employs && err == nil, err
}

// Forgot records employers that were dropped from the annotation of a pod.
func (e *Employers) Forgot(pod *corev1.Pod, employers []string) {
	for _, employer := range employers {
		e.forgotten.Add(pod.Namespace, entry{pod.UID, employer}, e.clock.Now(), int64(len(pod.UID)+len(employer)))
	}
}

// employs reports whether a Service exists, is not terminating and selects a pod.
func (e *Employers) employs(ctx context.Context, reader client.Reader, pod *corev1.Pod, key types.NamespacedName) (bool, error) {
	if key.Namespace != pod.Namespace {
		return false, nil
	}
	service := &corev1.Service{}
	if err := reader.Get(ctx, key, service); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return service.DeletionTimestamp == nil && podstate.Selects(service, pod), nil
}
