package approval

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods are asked about again after 10 s, 20 s, 40 s and so on, never later than after 10 minutes.
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
