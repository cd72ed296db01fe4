package webhooktask

import (
	"hash/fnv"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

// The service is called again for pods after 10 s, 20 s, 40 s and so on, at most 10 minutes: after
// a failure, and after a polled task that did not approve them, since each call starts another
// task. After a POST that rejected them, it is called again at the steady interval of
// Rule.RejectionRetry.
const (
	firstDelay = 10 * time.Second
	maxDelay   = 10 * time.Minute

	// interruptedDelay follows calls during which the manager ended. It does not grow, because the
	// service did not fail; it bounds the calls of a manager that restarts repeatedly.
	interruptedDelay = 3 * time.Second
)

// delay returns the delay before the next call after a number of failures. The service may raise
// it.
func delay(attempts int32, retryAfter time.Duration) time.Duration {
	return min(maxDelay, max(backoff.Delay(firstDelay, int(attempts)-1, maxDelay), retryAfter))
}

// spread returns an interval that is up to a fifth shorter or longer, by the id of the call, so
// that calls of many rules that were made together are not repeated together.
func spread(interval time.Duration, traceID string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(traceID))
	return interval + time.Duration((float64(hash.Sum32())/math.MaxUint32-0.5)*0.4*float64(interval))
}

// roundedUp rounds up to a whole second, so that a time in status is never too early.
func roundedUp(at time.Time) metav1.Time {
	whole := at.Truncate(time.Second)
	if whole.Before(at) {
		whole = whole.Add(time.Second)
	}
	return metav1.NewTime(whole)
}

// retryTime returns when an ended task may be repeated; its NextTime is set. A time that is further
// ahead than any delay was written before the clock was set back: the task is due.
func retryTime(task appsv1alpha1.TaskInfo, now time.Time) time.Time {
	if task.NextTime.Sub(now) > maxDelay+time.Second {
		return now
	}
	return task.NextTime.Time
}
