package podtransitionrule_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
)

// full returns loaded PodTransitionRules that leave less than 2 KiB of the budget of a namespace.
func full(t *testing.T, namespace string) []client.Object {
	t.Helper()
	var objects []client.Object
	for left := appsv1alpha1.MaxNamespaceRuleBytes; left > 2<<10; {
		object := &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("full-%d", left)},
			Spec: appsv1alpha1.PodTransitionRuleSpec{Rules: []appsv1alpha1.TransitionRule{{
				Name: "a", Rego: &appsv1alpha1.RegoRule{Module: strings.Repeat("x", max(0, min(left, 200<<10)-(3<<10)))},
			}}},
		}
		if _, err := objectbounds.Load(object); err != nil {
			t.Fatal(err)
		}
		left -= objectbounds.LoadedSize(object)
		objects = append(objects, object)
	}
	return objects
}

func TestBudgetOfANamespace(t *testing.T) {
	rule := func(value string) string {
		return object(``, selectWeb, `{"name":"a","stage":"PreCheck","enforcement":"Enforce","labelCheck":{"requires":{"matchLabels":{"a":"`+value+`"}}}}`)
	}
	cached := policies(t, full(t, "default")...)
	v := podtransitionrule.NewValidator(decoder(t), cached, cached, &checker{}, webhookclient.Guard{}.CheckURL)
	response := v.Handle(t.Context(), request(rule("b")))
	if response.Allowed || response.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(response.Result.Message, "at most 4194304 are allowed") {
		t.Errorf("one more: %+v", response.Result)
	}
	if response := v.Handle(t.Context(), edited(rule("longer"), rule("b"))); !response.Allowed {
		t.Errorf("one that shrinks: %+v", response.Result)
	}
	if response := v.Handle(t.Context(), edited(rule("b"), rule("longer"))); response.Allowed {
		t.Error("one that grows is allowed")
	}
	elsewhere := policies(t, full(t, "another")...)
	v = podtransitionrule.NewValidator(decoder(t), elsewhere, elsewhere, &checker{}, webhookclient.Guard{}.CheckURL)
	if response := v.Handle(t.Context(), request(rule("b"))); !response.Allowed {
		t.Errorf("beside a full namespace: %+v", response.Result)
	}
}
