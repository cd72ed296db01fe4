package podtransitionrule_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
)

// TestValidatorWarnsOfDeployments shows warnings for a rule that selects a Deployment with three replicas.
func TestValidatorWarnsOfDeployments(t *testing.T) {
	const recreate, counted = "spec.rules: a Deployment of the strategy Recreate never finishes a rollout under an availability rule below 100 %, " +
		"since it creates no new pod before every old pod is deleted: use RollingUpdate, or exempt its pods",
		"spec.rules[0].availablePolicy: with the Deployments that it selects, the rule permits all of 3 pods at once: maxUnavailableValue is 3"
	rolling, controlled := appsv1.RollingUpdateDeploymentStrategyType, map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	for sentence, tc := range map[string]struct {
		strategy  appsv1.DeploymentStrategyType
		labels    map[string]string
		most      string
		anonymous bool
		want      []string
	}{
		"a bound below the number of pods":               {strategy: rolling, labels: controlled, most: "2"},
		"a count as high":                                {strategy: rolling, labels: controlled, most: "3", want: []string{counted}},
		"the strategy Recreate":                          {strategy: appsv1.RecreateDeploymentStrategyType, labels: controlled, most: "2", want: []string{recreate}},
		"the strategy Recreate, and a count as high":     {strategy: appsv1.RecreateDeploymentStrategyType, labels: controlled, most: "3", want: []string{counted}},
		"a Deployment that is not under PodOps":          {strategy: rolling, labels: map[string]string{"app": "web"}, most: "3"},
		"other pods":                                     {strategy: rolling, labels: map[string]string{"app": "db", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}, most: "3"},
		"a client that is not known as the API server":   {strategy: rolling, labels: controlled, most: "3", anonymous: true},
		"Recreate, for a client that is not known as it": {strategy: appsv1.RecreateDeploymentStrategyType, labels: controlled, most: "2", anonymous: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{appsv1alpha1.AddToScheme, appsv1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
			deployment.Spec.Replicas, deployment.Spec.Strategy.Type, deployment.Spec.Template.Labels = new(int32(3)), tc.strategy, tc.labels
			cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(deployment).Build()
			rule := object(``, selectWeb, staged([]string{`{"name":"a",$s,"availablePolicy":{"maxUnavailableValue":` + tc.most + `}}`})...)
			response := podtransitionrule.NewValidator(decoder(t), cached, cached, &checker{}, webhookclient.Guard{}.CheckURL).
				Handle(clientauth.WithVerified(t.Context(), !tc.anonymous), request(rule))
			if !response.Allowed {
				t.Fatalf("got %+v", response.Result)
			}
			if diff := cmp.Diff(tc.want, response.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
