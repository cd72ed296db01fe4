package apiserver

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
)

// next returns the next event of a watch, as its type and the name of its object.
func next(t *testing.T, w watch.Interface) string {
	t.Helper()
	event, ok := <-w.ResultChan()
	if !ok {
		return "end"
	}
	if object, ok := event.Object.(metav1.Object); ok {
		return string(event.Type) + " " + object.GetName()
	}
	return string(event.Type)
}

func TestWatchSelects(t *testing.T) {
	world(t, Options{}, func(t *testing.T, s *Server) {
		ctx := t.Context()
		pods := client(t, s, "user").CoreV1().Pods("default")
		list := must[*corev1.PodList](t)(pods.List(ctx, metav1.ListOptions{}))
		w := must[watch.Interface](t)(pods.Watch(ctx, metav1.ListOptions{
			LabelSelector: "app=a", ResourceVersion: list.ResourceVersion}))
		defer w.Stop()

		other := must[*corev1.Pod](t)(pods.Create(ctx, pod("other", nil), metav1.CreateOptions{}))
		created := must[*corev1.Pod](t)(pods.Create(ctx, pod("a", map[string]string{"app": "a"}), metav1.CreateOptions{}))
		created.Labels = nil
		must[*corev1.Pod](t)(pods.Update(ctx, created, metav1.UpdateOptions{}))
		other.Labels = map[string]string{"app": "a"}
		must[*corev1.Pod](t)(pods.Update(ctx, other, metav1.UpdateOptions{}))

		got := []string{next(t, w), next(t, w), next(t, w)}
		if diff := cmp.Diff([]string{"ADDED a", "DELETED a", "ADDED other"}, got); diff != "" {
			t.Errorf("events differ (-want +got):\n%s", diff)
		}

		node := must[*corev1.PodList](t)(pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=,status.phase=Pending"}))
		if len(node.Items) != 2 {
			t.Errorf("selected %d pods by their fields", len(node.Items))
		}
	})
}

func TestInformerWithALag(t *testing.T) {
	lag := func(user, resource string) time.Duration {
		if user == "slow" && resource == "pods" {
			return time.Minute
		}
		return 0
	}
	world(t, Options{Lag: lag}, func(t *testing.T, s *Server) {
		ctx := t.Context()
		pods := client(t, s, "user").CoreV1().Pods("default")
		must[*corev1.Pod](t)(pods.Create(ctx, pod("a", nil), metav1.CreateOptions{}))

		factory := informers.NewSharedInformerFactory(client(t, s, "slow"), 0)
		lister := factory.Core().V1().Pods().Lister()
		stop := make(chan struct{})
		factory.Start(stop)
		factory.WaitForCacheSync(stop)
		defer factory.Shutdown()
		defer close(stop)
		names := func() int {
			list, err := lister.List(labels.Everything())
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		if got := s.Count("slow", "list", "pods"); names() != 1 || got != 0 {
			t.Errorf("the informer has %d pods after %d lists", names(), got)
		}

		must[*corev1.Pod](t)(pods.Create(ctx, pod("b", nil), metav1.CreateOptions{}))
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if names() != 1 {
			t.Errorf("the informer has %d pods before its lag", names())
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if names() != 2 {
			t.Errorf("the informer has %d pods after its lag", names())
		}
	})
}

func TestWatchTooOld(t *testing.T) {
	world(t, Options{History: 2}, func(t *testing.T, s *Server) {
		ctx := t.Context()
		pods := client(t, s, "user").CoreV1().Pods("default")
		list := must[*corev1.PodList](t)(pods.List(ctx, metav1.ListOptions{}))
		for _, name := range []string{"a", "b", "c"} {
			must[*corev1.Pod](t)(pods.Create(ctx, pod(name, nil), metav1.CreateOptions{}))
		}
		_, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		_ = refused(t, err, http.StatusGone)

		w := must[watch.Interface](t)(pods.Watch(ctx, metav1.ListOptions{TimeoutSeconds: new(int64(5)), ResourceVersion: "0"}))
		got := []string{next(t, w), next(t, w), next(t, w), next(t, w)}
		if diff := cmp.Diff([]string{"ADDED a", "ADDED b", "ADDED c", "end"}, got); diff != "" {
			t.Errorf("events differ (-want +got):\n%s", diff)
		}
	})
}

func TestInformerOfAServerThatDropsWatches(t *testing.T) {
	world(t, Options{Drop: 0.3, Seed: 1}, func(t *testing.T, s *Server) {
		ctx := t.Context()
		pods := client(t, s, "user").CoreV1().Pods("default")
		factory := informers.NewSharedInformerFactory(client(t, s, "reader"), 0)
		lister := factory.Core().V1().Pods().Lister()
		stop := make(chan struct{})
		factory.Start(stop)
		factory.WaitForCacheSync(stop)
		defer factory.Shutdown()
		defer close(stop)
		for i := range 20 {
			must[*corev1.Pod](t)(pods.Create(ctx, pod(string(rune('a'+i)), nil), metav1.CreateOptions{}))
			time.Sleep(10 * time.Second) // the informer begins another watch, with the objects that exist by then
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		list, err := lister.List(labels.Everything())
		if err != nil || len(list) != 20 {
			t.Errorf("the informer has %d pods, error %v", len(list), err)
		}
		if s.Count("reader", "watch", "pods") < 3 {
			t.Error("no watch was dropped")
		}
	})
}
