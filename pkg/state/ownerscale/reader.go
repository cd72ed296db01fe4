package ownerscale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// Index stores the owners that a Reader has read. It is a *podindex.Index.
type Index interface {
	SetOwner(owner podindex.Owner)
	DeleteOwner(namespace string, uid types.UID)
}

// Reader reads the scales of owners. It is safe for concurrent use.
type Reader struct {
	api      API
	index    Index
	clock    clock.WithTicker
	metrics  *Metrics
	schedule *Schedule
	watches  chan struct{}

	// kinds in use. It belongs to the goroutine of Start, as schedule does.
	kinds map[Kind]*watchedKind
	mail  *mailbox
}

// NewReader returns a Reader of all owners that are passed to Refer.
func NewReader(api API, index Index, metrics *Metrics, clk clock.WithTicker) *Reader {
	return &Reader{
		api: api, index: index, clock: clk, metrics: metrics, schedule: NewSchedule(DefaultBounds()),
		watches: make(chan struct{}, maxWatches), kinds: map[Kind]*watchedKind{}, mail: newMailbox(),
	}
}

// Refer records that the first pod of a controller has appeared, or that its last pod has disappeared. It
// does not call the index.
func (r *Reader) Refer(controller podindex.Controller, present bool) {
	if version, err := schema.ParseGroupVersion(controller.APIVersion); err != nil || isWatched(version.Group, controller.Kind) {
		return
	}
	r.mail.refer(Owner{
		Key:  Key{Namespace: controller.Namespace, UID: controller.UID},
		Kind: Kind{APIVersion: controller.APIVersion, Kind: controller.Kind}, Name: controller.Name,
	}, present)
}

// isWatched reports whether the controller of rules watches a kind itself.
func isWatched(group, kind string) bool {
	switch group {
	case "apps":
		return kind == "Deployment" || kind == "ReplicaSet" || kind == "StatefulSet" || kind == "DaemonSet"
	case "batch":
		return kind == "Job"
	default:
		return false
	}
}

// Start reads owners until ctx ends.
func (r *Reader) Start(ctx context.Context) error {
	var reads sync.WaitGroup
	defer func() {
		reads.Wait()
		for _, kind := range r.kinds {
			kind.end()
		}
	}()
	for {
		r.receive()
		r.endIdle()
		wait := idleFor
		for {
			read, ok, left := r.schedule.Next(r.clock.Now())
			if !ok {
				if left > 0 {
					wait = min(wait, left)
				}
				break
			}
			kind := r.kind(read.Kind)
			reads.Go(func() { r.mail.result(read, r.read(ctx, kind, read)) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.mail.more:
		case <-r.clock.After(wait):
		}
	}
}

// receive takes the events since the last call into the schedule, and stores results.
func (r *Reader) receive() {
	mail, now := r.mail.take(), r.clock.Now()
	for _, one := range mail.results {
		r.store(one, now)
	}
	for _, one := range mail.referred {
		if one.present {
			r.refer(one.owner, now)
			continue
		}
		for _, admitted := range r.schedule.Release(one.owner.Key, now) {
			r.index.DeleteOwner(admitted.Namespace, admitted.UID)
		}
		r.index.DeleteOwner(one.owner.Namespace, one.owner.UID)
	}
	for key, spec := range mail.changed {
		r.schedule.Changed(key, spec, now)
	}
	for kind := range mail.kinds {
		r.schedule.KindChanged(kind, now)
	}
}

func (r *Reader) refer(owner Owner, now time.Time) {
	if !r.schedule.Refer(owner, now) {
		bounds := DefaultBounds()
		r.index.SetOwner(unreadable(owner, fmt.Errorf(
			"the pods of the namespace have more than %d owners, or more than %d kinds of owners", bounds.Owners, bounds.Kinds)))
	}
}

// store stores a result, if its owner still has pods.
func (r *Reader) store(one finished, now time.Time) {
	r.metrics.reads.WithLabelValues(one.result).Inc()
	if !r.schedule.Done(one.read, one.retry, now) {
		return
	}
	switch {
	case one.owner != nil:
		r.index.SetOwner(*one.owner)
	case !one.keeps && one.result != resultWaiting:
		r.index.DeleteOwner(one.read.Namespace, one.read.UID)
	}
}

// kind returns the entry of a kind.
func (r *Reader) kind(kind Kind) *watchedKind {
	known := r.kinds[kind]
	if known == nil {
		known = &watchedKind{kind: kind, api: r.api, changed: r.mail.kindChanged, object: r.mail.objectChanged, watches: r.watches}
		r.kinds[kind] = known
	}
	return known
}

// endIdle ends the watches of kinds without owners.
func (r *Reader) endIdle() {
	used, now := r.schedule.Kinds(), r.clock.Now()
	for kind, entry := range r.kinds {
		switch {
		case used[kind] > 0:
			entry.idle = time.Time{}
		case entry.idle.IsZero():
			entry.idle = now
		case now.Sub(entry.idle) >= idleFor:
			delete(r.kinds, kind)
			entry.end()
		}
	}
	r.metrics.watches.Set(float64(len(r.watches)))
}

// outcome of one read.
type outcome struct {
	result string
	retry  Retry

	// owner to store; nil: no owner.
	owner *podindex.Owner

	// keeps is true for a read that has failed and changes nothing that is stored.
	keeps bool
}

// read reads the scale of an owner.
func (r *Reader) read(running context.Context, kind *watchedKind, read Read) outcome {
	owner := read.Owner
	ctx, cancel := context.WithTimeout(running, requestTimeout)
	defer cancel()
	resource, err := kind.prepare(ctx, running, r.clock.Now())
	switch {
	case errors.Is(err, errNotSynced):
		return outcome{result: resultWaiting} // the kind changes once it is
	case err != nil:
		return failed(read, err)
	case !resource.Scalable:
		return outcome{result: resultNoScale, retry: Later}
	}
	object := kind.stored(owner.Namespace, owner.Name)
	if object == nil || object.UID != owner.UID {
		return outcome{result: resultGone}
	}
	scale, err := r.api.Scale(ctx, resource, owner.Namespace, owner.Name)
	switch {
	case err != nil:
		if apierrors.IsNotFound(err) {
			kind.forgetResource() // the object exists, so its kind may have lost the subresource
		}
		return failed(read, err)
	case scale.UID != "" && scale.UID != owner.UID:
		return outcome{result: resultGone}
	}
	counted := newOwner(owner)
	counted.Desired, counted.Observed = int(max(0, scale.Spec.Replicas)), int(scale.Status.Replicas)
	counted.Terminating = object.DeletionTimestamp != nil
	return outcome{result: resultCounted, owner: &counted}
}

// patience is how many successive reads may fail, because the API server is busy, before an owner counts as one that cannot be read: its
// controller may be about to change the numbers of its ReplicaSets, which count instead then.
const patience = 1

func failed(read Read, err error) outcome {
	if read.Failures < patience && isTransient(err) {
		return outcome{result: resultFailed, retry: Failed, keeps: true}
	}
	stored := unreadable(read.Owner, err)
	return outcome{result: resultFailed, retry: Failed, owner: &stored}
}

func newOwner(owner Owner) podindex.Owner {
	return podindex.Owner{UID: owner.UID, Namespace: owner.Namespace, Kind: owner.Kind.Kind, Name: owner.Name, Scale: true}
}

// unreadable returns the entry of an owner whose numbers cannot be read.
func unreadable(owner Owner, err error) podindex.Owner {
	entry := newOwner(owner)
	entry.Uncounted, entry.Unreadable = true, problem(err)
	return entry
}

// maxProblemBytes bounds the text of an error.
const maxProblemBytes = 300

// problem returns the text of an error, which is the same for the same cause.
func problem(err error) string {
	if isTimeout(err) {
		return "the API server does not respond in time"
	}
	return text.Line(err.Error(), maxProblemBytes)
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// isTransient reports whether the API server was too busy.
func isTransient(err error) bool { return isTimeout(err) || apierrors.IsTooManyRequests(err) }
