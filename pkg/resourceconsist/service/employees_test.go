package service_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/podops-dev/podops/pkg/resourceconsist/service"
)

func pod(namespace, name, app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app, "x": "y"}}}
}

func newService(selector map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Selector: selector}}
}

func TestSelectedReturnsThePodsOfAService(t *testing.T) {
	reader := fake.NewClientBuilder().WithObjects(
		pod("shop", "web-1", "web"), pod("shop", "web-0", "web"), pod("shop", "db-0", "db"), pod("other", "web-2", "web")).Build()
	for sentence, tc := range map[string]struct {
		selector map[string]string
		want     []string
	}{
		"pods with its labels, in its namespace, by name": {map[string]string{"app": "web"}, []string{"web-0", "web-1"}},
		"only pods with all of its labels":                {map[string]string{"app": "web", "x": "z"}, []string{}},
		"none without a selector":                         {nil, []string{}},
		"none with an empty selector":                     {map[string]string{}, []string{}},
	} {
		got, err := service.Names(t.Context(), reader, newService(tc.selector))
		if err != nil {
			t.Errorf("%s: %v", sentence, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
}

func TestOtherEmployersAreAnError(t *testing.T) {
	var noService *corev1.Service
	for sentence, employer := range map[string]client.Object{"nil": nil, "a nil Service": noService, "a ConfigMap": &corev1.ConfigMap{}} {
		if _, err := service.Of(employer); err == nil {
			t.Errorf("%s: no error", sentence)
		}
		if _, err := service.Names(t.Context(), fake.NewClientBuilder().Build(), employer); err == nil {
			t.Errorf("%s: Names returns no error", sentence)
		}
	}
}

func TestAFailedListIsAnError(t *testing.T) {
	down := errors.New("connection refused")
	if pods, err := service.Names(t.Context(), failing{err: down}, newService(map[string]string{"app": "web"})); !errors.Is(err, down) {
		t.Errorf("Names = %v, %v, want the error", pods, err)
	}
}

type failing struct {
	client.Reader
	err error
}

func (f failing) List(context.Context, client.ObjectList, ...client.ListOption) error { return f.err }

func TestAFailedItemDoesNotStopTheOthers(t *testing.T) {
	odd := errors.New("odd")
	succeeded, failed, err := service.Each(t.Context(), []int{1, 2, 3, 4}, func(_ context.Context, n int) error {
		if n%2 == 1 {
			return odd
		}
		return nil
	})
	if diff := cmp.Diff([][]int{{2, 4}, {1, 3}}, [][]int{succeeded, failed}); diff != "" {
		t.Errorf("succeeded and failed (-want +got):\n%s", diff)
	}
	if !errors.Is(err, odd) {
		t.Errorf("err = %v", err)
	}
}

func TestRemainingItemsFailWhenTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	succeeded, failed, err := service.Each(ctx, []int{1, 2, 3}, func(context.Context, int) error {
		cancel()
		return nil
	})
	if diff := cmp.Diff([][]int{{1}, {2, 3}}, [][]int{succeeded, failed}); diff != "" {
		t.Errorf("succeeded and failed (-want +got):\n%s", diff)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}
