package replicasetscale

import (
	"cmp"
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

const (
	// ExchangeAfter is the least time between two exchanges in a ReplicaSet.
	ExchangeAfter = 2 * time.Second

	// WithheldFor is for how long a deletion waits before a verdict on its pod has another pod begin in its place. The
	// annotation that has the verdict follows after 10 s.
	WithheldFor = 15 * time.Second

	// ExchangeAgainAfter is the time after which pods begin again that were withheld before, once every pod was. It
	// doubles each time, to LongestExchangePause.
	ExchangeAgainAfter = 5 * time.Minute

	// LongestExchangePause bounds that time.
	LongestExchangePause = time.Hour

	// MaxExchanges is the number of withheld deletions that are cancelled at a time.
	MaxExchanges = 5
)

// Attempt is a deletion of a pod that was cancelled so that another pod of its ReplicaSet may go.
type Attempt struct {
	At time.Time

	// Metadata is a hash of the labels and annotations of the pod, without those of PodOps: once it changes,
	// the rules may permit the pod.
	Metadata uint64
}

// AttemptOn returns an attempt on a pod that ends now.
func AttemptOn(pod *corev1.Pod, now time.Time) Attempt {
	return Attempt{At: now, Metadata: metadataHash(pod)}
}

// Candidates returns the active pods whose deletion has not begun, in the order in which deletions begin: first pods that are not Ready,
// which no Ready pod may replace, then pods without an attempt, then the oldest attempt, and then that of Victims.
func (s Snapshot) Candidates(now time.Time) []*corev1.Pod {
	pods := slices.DeleteFunc(Victims(s.Pods, s.Workload.Pods, now), IsDeleting)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(falseFirst(isReady(a), isReady(b)), s.attempted(a).Compare(s.attempted(b)))
	})
	return pods
}

// attempted returns when the pod's deletion was cancelled last; zero if its labels or annotations have changed since.
func (s Snapshot) attempted(pod *corev1.Pod) time.Time {
	attempt, ok := s.Attempts[pod.UID]
	if !ok || attempt.Metadata != metadataHash(pod) {
		return time.Time{}
	}
	return attempt.At
}

// exchange returns the waiting pods whose deletions are to be cancelled so that those of others begin:
//   - others have to go first by now, by their health or their deletion cost,
//   - a rule withholds the pod for what the pod is, not for the number of pods, and may permit another pod.
//
// A pod that a rule has permitted stays, and so does one whose removal a client has requested. A pod that is not Ready gives way to
// no Ready pod: the workload would have one less, and the step of a rolling update may be for the former. exchange returns how soon
// to call it again; 0 if only a change matters.
func (s Snapshot) exchange(waits Waits, now time.Time) (pods []*corev1.Pod, after Waits, wait time.Duration) {
	waiting, others := s.exchangeable()
	if len(waiting) == 0 || len(others) == 0 {
		return nil, waits, 0
	}
	if left := ExchangeAfter - now.Sub(waits.Exchanged); left > 0 {
		return nil, waits, left
	}
	if pods = preceded(waiting, s.fresh(others)); len(pods) > 0 {
		waits.Exchanged = now
		return pods, waits, 0
	}
	isUnready := func(pod *corev1.Pod) bool { return !isReady(pod) }
	ready, unready := slices.DeleteFunc(slices.Clone(waiting), isUnready), slices.DeleteFunc(waiting, isReady)
	pods, after, wait = s.replaceable(unready, slices.DeleteFunc(slices.Clone(others), isReady), waits, now)
	if len(pods) > 0 {
		return pods, after, wait
	}
	pods, after, left := s.replaceable(ready, others, waits, now)
	return pods, after, backoff.MinDelay(wait, left)
}

// replaceable returns the waiting pods that rules withhold for what they are, at most one for each other pod, whose turn it is.
func (s Snapshot) replaceable(
	waiting, others []*corev1.Pod, waits Waits, now time.Time,
) (pods []*corev1.Pod, after Waits, wait time.Duration) {
	if len(others) == 0 {
		return nil, waits, 0
	}
	for _, pod := range waiting {
		if !isWithheld(pod) {
			continue
		}
		if left := WithheldFor - now.Sub(begunAt(pod)); left > 0 {
			wait = backoff.MinDelay(wait, left)
			continue
		}
		pods = append(pods, pod)
	}
	if len(pods) == 0 {
		return nil, waits, wait
	}
	if fresh := s.fresh(others); len(fresh) > 0 {
		waits.Exchanged = now
		return pods[:min(len(pods), len(fresh), MaxExchanges)], waits, wait
	}
	if left := backoff.Delay(ExchangeAgainAfter, waits.Passes, LongestExchangePause) - now.Sub(waits.Exchanged); left > 0 {
		return nil, waits, backoff.MinDelay(wait, left)
	}
	waits.Exchanged, waits.Passes = now, waits.Passes+1
	return pods[:min(len(pods), len(others), MaxExchanges)], waits, wait
}

// fresh returns the pods without an attempt.
func (s Snapshot) fresh(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !s.attempted(pod).IsZero() })
}

// exchangeable returns the pods whose deletions may be cancelled so that those of others begin, and the others.
func (s Snapshot) exchangeable() (waiting, others []*corev1.Pod) {
	for _, pod := range s.Pods {
		switch {
		case !IsActive(pod):
		case !IsDeleting(pod):
			others = append(others, pod)
		case isExchangeable(pod):
			waiting = append(waiting, pod)
		}
	}
	return waiting, others
}

// preceded returns the waiting pods that others precede, one for each, starting with the pods that would go last by now.
func preceded(waiting, others []*corev1.Pod) (pods []*corev1.Pod) {
	waiting, others = slices.Clone(waiting), slices.Clone(others)
	slices.SortStableFunc(waiting, func(a, b *corev1.Pod) int { return byCondition(b, a) })
	slices.SortStableFunc(others, byCondition)
	for i := range min(len(waiting), len(others)) {
		if byCondition(others[i], waiting[i]) < 0 {
			pods = append(pods, waiting[i])
		}
	}
	return pods
}

// byCondition orders pods as Victims does, by what they or their users change: not by their nodes and ages. The cost
// of a pod that PodOps has begun to delete is the one before that.
func byCondition(a, b *corev1.Pod) int {
	return cmp.Or(
		falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(phase(a), phase(b)),
		falseFirst(isReady(a), isReady(b)),
		cmp.Compare(ownCost(a), ownCost(b)),
	)
}

// ownCost returns the deletion cost of a pod without that of PodOps.
func ownCost(pod *corev1.Pod) int64 {
	if IsBegun(pod) && pod.Annotations[corev1.PodDeletionCost] == begunCost {
		cost, _ := parseCost(pod.Annotations[appsv1alpha1.PreviousDeletionCostAnnotationKey])
		return cost
	}
	return deletionCost(pod)
}

// isExchangeable reports whether the deletion of a pod was begun for its ReplicaSet, and no rule has permitted it. The
// record of a pending delete is that of a client.
func isExchangeable(pod *corev1.Pod) bool {
	_, recorded := pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey]
	return IsBegun(pod) && !recorded && !slices.ContainsFunc([]string{
		appsv1alpha1.PreCheckedLabelPrefix, appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.OperateLabelPrefix,
		appsv1alpha1.UndoOperationTypeLabelPrefix,
	}, func(prefix string) bool {
		_, ok := pod.Labels[prefix+"/"+appsv1alpha1.PodDeleteID]
		return ok
	})
}

// isWithheld reports whether an annotation has a verdict on the pod itself.
func isWithheld(pod *corev1.Pod) bool {
	for key, value := range pod.Annotations {
		if !strings.HasPrefix(key, appsv1alpha1.DetailAnnotationPrefix+"/") || len(value) > appsv1alpha1.MaxAnnotationBytes {
			continue
		}
		var detail appsv1alpha1.Detail
		if json.Unmarshal([]byte(value), &detail) != nil {
			continue // others than PodOps may write it
		}
		if detail.Stage == appsv1alpha1.StagePreCheck && slices.ContainsFunc(detail.RejectInfo, isOfPod) {
			return true
		}
	}
	return false
}

// isOfPod reports whether a rule withholds a pod for what the pod is.
func isOfPod(info appsv1alpha1.RejectInfo) bool {
	code, _, _ := strings.Cut(info.Reason, ": ")
	return slices.Contains([]rule.Code{
		rule.CodeLabelMismatch, rule.CodeNotAllowed, rule.CodeDenied, rule.CodeUndefined, rule.CodeWebhookRejected,
	}, rule.Code(code))
}

// begunAt returns when the deletion of a pod began; zero for a label that is no time.
func begunAt(pod *corev1.Pod) time.Time {
	nanoseconds, err := strconv.ParseInt(pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

// metadataHash returns a hash of the labels and annotations of a pod that PodOps does not write.
func metadataHash(pod *corev1.Pod) uint64 {
	hash := fnv.New64a()
	for _, pairs := range []map[string]string{pod.Labels, pod.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(pairs)) {
			domain, _, _ := strings.Cut(key, "/")
			if key == corev1.PodDeletionCost || domain == appsv1alpha1.DetailAnnotationPrefix || strings.HasSuffix(domain, appsv1alpha1.LifecycleDomain) {
				continue
			}
			_, _ = hash.Write([]byte(key + "\x00" + pairs[key] + "\x00")) // a hash returns no error
		}
		_, _ = hash.Write([]byte{1})
	}
	return hash.Sum64()
}

// Forget removes the attempts on pods that the ReplicaSet does not have any more.
func (s Snapshot) Forget(attempts map[types.UID]Attempt) {
	maps.DeleteFunc(attempts, func(uid types.UID, _ Attempt) bool {
		return !slices.ContainsFunc(s.Pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
	})
}
