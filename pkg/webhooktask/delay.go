package webhooktask

import (
	"hash/fnv"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Pods are asked about again after 10 s, 20 s, 40 s and so on, never later than after 10 minutes: after
// a failure, and after a polled task that did not approve them, since each call begins another task.
// A no to a POST is asked about again at the steady interval of Rule.AskAgain.
const (
	firstDelay = 10 * time.Second
	maxDelay   = 10 * time.Minute

	// interruptedDelay is for calls during which the manager ended. The service has done
	// nothing wrong, so it does not grow; a manager that ends again and again calls no more
	// often than this all the same.
	interruptedDelay = 3 * time.Second
)

// delay before the next call, after so many that failed. What the service asks for raises it.
func delay(attempts int32, asked time.Duration) time.Duration {
	return min(maxDelay, max(doubled(firstDelay, int(attempts)-1, maxDelay), asked))
}

// spread returns an interval that is up to a fifth shorter or longer, by the id of the call, so that
// pods that were asked about together in many rules do not come back together.
func spread(interval time.Duration, traceID string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(traceID))
	return interval + time.Duration((float64(hash.Sum32())/math.MaxUint32-0.5)*0.4*float64(interval))
}

// doubled so many times, up to a limit.
func doubled(start time.Duration, times int, limit time.Duration) time.Duration {
	for ; times > 0 && start < limit; times-- {
		start *= 2
	}
	return min(start, limit)
}

// roundedUp to a whole second, so that what status keeps is never too early.
func roundedUp(at time.Time) metav1.Time {
	whole := at.Truncate(time.Second)
	if whole.Before(at) {
		whole = whole.Add(time.Second)
	}
	return metav1.NewTime(whole)
}

// retryTime returns when a task that has ended may be tried again; its NextTime is set. One
// that is further ahead than any delay was written under a clock that has been set back since:
// the task is due.
func retryTime(task appsv1alpha1.TaskInfo, now time.Time) time.Time {
	if task.NextTime.Sub(now) > maxDelay+time.Second {
		return now
	}
	return task.NextTime.Time
}
