package pod_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	realclock "k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/pod"
	"github.com/podops-dev/podops/test/builders"
)

// beginning begins the lifecycles of pods as the manager does, after a time.
type beginning struct {
	cache client.Client
	after time.Duration
}

func (b *beginning) Ended(types.NamespacedName, types.UID, deferreddelete.Lapse) {}

func (b *beginning) Defer(key types.NamespacedName, _ types.UID, request deferreddelete.Request) {
	after := b.after // the schedule changes it
	go func() {
		time.Sleep(after)
		change(b.cache, key.Name, func(current *corev1.Pod) {
			if deferreddelete.IsDeferred(current.Labels) {
				if record, changed := request.Join(current, time.Now()); changed {
					current.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = deferreddelete.Encode(record)
				}
				return
			}
			since := strconv.FormatInt(time.Now().UnixNano(), 10)
			metav1.SetMetaDataLabel(&current.ObjectMeta, appsv1alpha1.OperatingLabelPrefix+"/pod-delete", since)
			metav1.SetMetaDataLabel(&current.ObjectMeta, appsv1alpha1.PreCheckLabelPrefix+"/pod-delete", since)
			metav1.SetMetaDataAnnotation(&current.ObjectMeta, appsv1alpha1.PendingDeleteAnnotationKey, deferreddelete.Encode(request.Begin(current, since)))
		})
	}()
}

// change changes a pod in a cache.
func change(cache client.Client, name string, edit func(*corev1.Pod)) {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current := &corev1.Pod{}
		if err := cache.Get(context.Background(), types.NamespacedName{Namespace: "default", Name: name}, current); err != nil {
			return err
		}
		edit(current)
		return cache.Update(context.Background(), current)
	})
	if err != nil {
		panic(fmt.Errorf("changing pod %s: %w", name, err))
	}
}

// withhold changes the verdict of the rules on a pod that waits.
func withhold(current *corev1.Pod, withheld bool) {
	if _, waits := current.Labels[appsv1alpha1.PreCheckLabelPrefix+"/pod-delete"]; !waits {
		return
	}
	if withheld {
		metav1.SetMetaDataAnnotation(&current.ObjectMeta, appsv1alpha1.DetailAnnotationKey("web"),
			`{"stage":"PreCheck","rejectInfo":[{"ruleName":"approved","reason":"LabelMismatch: label approved is missing"}]}`)
		return
	}
	delete(current.Annotations, appsv1alpha1.DetailAnnotationKey("web"))
	delete(current.Labels, appsv1alpha1.PreCheckLabelPrefix+"/pod-delete")
}

// undo ends the lifecycle of a pod, as for a request that lapses.
func undo(current *corev1.Pod) {
	delete(current.Labels, appsv1alpha1.OperatingLabelPrefix+"/pod-delete")
	delete(current.Labels, appsv1alpha1.PreCheckLabelPrefix+"/pod-delete")
	delete(current.Annotations, appsv1alpha1.PendingDeleteAnnotationKey)
	delete(current.Annotations, appsv1alpha1.DetailAnnotationKey("web"))
}

// step is what the client, the rules or the clock do in TestOneUnrepeatedRemoval.
type step struct {
	act      string
	pod      string
	withheld bool
	after    time.Duration
}

// steps generates steps on pods.
func steps(pods int) *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		s := step{
			act: rapid.SampledFrom([]string{"request", "request", "request", "verdict", "lapse", "time"}).Draw(t, "act"),
			pod: fmt.Sprint("web-", rapid.IntRange(0, pods-1).Draw(t, "pod")),
		}
		switch s.act {
		case "request": // and its lifecycle begins
			s.after = time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond
		case "verdict":
			s.withheld = rapid.Bool().Draw(t, "withheld")
		case "time":
			s.after = time.Duration(rapid.IntRange(0, 14_000).Draw(t, "ms")) * time.Millisecond
		}
		return s
	}), 1, 25)
}

// TestOneUnrepeatedRemoval shows that a client that sends one request after the other has at most one pending removal
// for an owner that it has not repeated, with any verdicts of the rules meanwhile, and for each time that its requests
// wait.
func TestOneUnrepeatedRemoval(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		schedule := steps(4).Draw(rt, "steps")
		var pending []string
		synctest.Test(t, func(t *testing.T) { pending = pendingAfter(t, schedule, 4) })
		if len(pending) > 1 {
			rt.Errorf("pods %v are pending for requests that were refused and not repeated", pending)
		}
	})
}

// pendingAfter plays a schedule, and returns the pods with a pending removal that the user has not repeated.
func pendingAfter(t *testing.T, schedule []step, pods int) []string {
	t.Helper()
	var objects []client.Object
	for i := range pods {
		objects = append(objects, builders.MakePod(fmt.Sprint("web-", i)).Available().OwnedBy(replicaSet).Obj())
	}
	cache := cacheOf(t, objects...)
	deferrer := &beginning{cache: cache}
	handler := pod.NewDeleteDeferrer(deferConfig(t, cache, cache, deferrer, pod.NewWaits(10*time.Second, realclock.RealClock{})))
	ctx := clientauth.WithVerified(t.Context(), true)
	for _, step := range schedule {
		switch step.act {
		case "request":
			deferrer.after = step.after
			request := byUser(t, step.pod)
			request.OldObject.Raw = encode(t, read(t, cache, step.pod))
			if got := visibleOf(handler.Handle(ctx, request)); got.Code != http.StatusTooManyRequests {
				t.Errorf("%s: got %+v, want 429", step.pod, got)
			}
		case "verdict":
			change(cache, step.pod, func(current *corev1.Pod) { withhold(current, step.withheld) })
		case "lapse":
			change(cache, step.pod, undo)
		case "time":
			time.Sleep(step.after)
		}
	}
	time.Sleep(time.Second) // the last lifecycle begins
	return unrepeated(t, cache, user)
}

func read(t *testing.T, cache client.Client, name string) *corev1.Pod {
	t.Helper()
	current := &corev1.Pod{}
	if err := cache.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: name}, current); err != nil {
		t.Fatal(err)
	}
	return current
}

// unrepeated returns the pods with a pending removal for a user who has not repeated the request.
func unrepeated(t *testing.T, cache client.Client, user string) []string {
	t.Helper()
	list := &corev1.PodList{}
	if err := cache.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		record, ok := deferreddelete.Pending(&list.Items[i])
		if ok && record.Seen == 0 && record.User == user {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}
