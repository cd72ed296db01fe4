package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// approvedLabel is the label that the labelCheck rules of the scenarios require.
const approvedLabel = "e2e.podops.dev/approved"

// scenario is the namespace of one scenario.
type scenario struct {
	*cluster
	namespace string
}

// once returns the scenario with an administrator that repeats no request.
func (p scenario) once() scenario {
	GinkgoHelper()
	return p.with(p.as("", nil))
}

// with returns the scenario with another administrator.
func (p scenario) with(admin client.WithWatch) scenario {
	other := *p.cluster
	other.admin = admin
	p.cluster = &other
	return p
}

// newScenario creates a namespace that is deleted with the scenario.
func newScenario(ctx context.Context) scenario {
	GinkgoHelper()
	return newScenarioOn(ctx, suiteCluster)
}

// newScenarioOn does the same on another cluster.
func newScenarioOn(ctx context.Context, c *cluster) scenario {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "story-"}}
	Expect(c.admin.Create(ctx, namespace)).To(Succeed())
	p := scenario{cluster: c, namespace: namespace.Name}
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(c.admin.Delete(ctx, namespace))).To(Succeed())
	})
	return p
}

// labels returns the labels of every pod of a scenario.
func labels() map[string]string {
	return map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels()},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{{Name: "web", Image: "registry.example.com/web:v1"}},
		},
	}
}

// pod creates a bare pod; change may be nil.
func (p scenario) pod(ctx context.Context, name string, change func(*corev1.Pod)) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name, Labels: labels()}, Spec: template().Spec}
	if change != nil {
		change(pod)
	}
	Expect(p.admin.Create(ctx, pod)).To(Succeed())
	return pod
}

// pods creates bare pods and waits until they are available.
func (p scenario) pods(ctx context.Context, count int, change func(*corev1.Pod)) {
	GinkgoHelper()
	for i := range count {
		p.pod(ctx, fmt.Sprintf("web-%02d", i), change)
	}
	p.awaitAvailable(ctx, count)
}

// service creates a Service that selects the pods of the scenario.
func (p scenario) service(ctx context.Context, name string) *corev1.Service {
	GinkgoHelper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	Expect(p.admin.Create(ctx, service)).To(Succeed())
	return service
}

// deployment creates the Deployment web and waits until its pods are available.
func (p scenario) deployment(ctx context.Context, replicas int32, change func(*appsv1.Deployment)) *appsv1.Deployment {
	GinkgoHelper()
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: template(),
		},
	}
	if change != nil {
		change(deployment)
	}
	Expect(p.admin.Create(ctx, deployment)).To(Succeed())
	p.awaitAvailable(ctx, int(replicas))
	return deployment
}

// replicaSet creates the ReplicaSet web and waits until its pods are available.
func (p scenario) replicaSet(ctx context.Context, replicas int32) *appsv1.ReplicaSet {
	GinkgoHelper()
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: template(),
		},
	}
	Expect(p.admin.Create(ctx, set)).To(Succeed())
	p.awaitAvailable(ctx, int(replicas))
	return set
}

// scale sets the replicas of a workload.
func (p scenario) scale(ctx context.Context, workload client.Object, replicas int) {
	GinkgoHelper()
	p.patch(ctx, workload, `{"spec":{"replicas":%d}}`, replicas)
}

// patch sends a merge patch as the administrator.
func (p scenario) patch(ctx context.Context, object client.Object, format string, args ...any) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
	Expect(p.admin.Patch(ctx, object, patch)).To(Succeed())
}

// label sets a label of a pod as the administrator.
func (p scenario) label(ctx context.Context, pod *corev1.Pod, key, value string) {
	GinkgoHelper()
	p.patch(ctx, pod, `{"metadata":{"labels":{%q:%q}}}`, key, value)
}

// begin begins an operation as the administrator.
func (p scenario) begin(ctx context.Context, pod *corev1.Pod, id, operationType string) {
	GinkgoHelper()
	p.setLabels(ctx, pod, beginLabels(id, operationType))
}

// setLabels sets labels of a pod, or removes labels whose value is nil.
func (p scenario) setLabels(ctx context.Context, pod *corev1.Pod, labels map[string]any) {
	GinkgoHelper()
	Expect(p.trySetLabels(ctx, pod, labels)).To(Succeed())
}

// trySetLabels does the same and returns the error.
func (p scenario) trySetLabels(ctx context.Context, pod *corev1.Pod, labels map[string]any) error {
	GinkgoHelper()
	patch, err := json.Marshal(wish{Metadata: metadata{Labels: labels}})
	Expect(err).NotTo(HaveOccurred())
	return p.admin.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch))
}

// approve sets the label that labelCheck rules require on every pod.
func (p scenario) approve(ctx context.Context) {
	GinkgoHelper()
	for _, pod := range p.list(ctx) {
		p.label(ctx, pod, approvedLabel, "true")
	}
}

// rule creates the PodTransitionRule web.
func (p scenario) rule(ctx context.Context, rules ...appsv1alpha1.TransitionRule) *appsv1alpha1.PodTransitionRule {
	GinkgoHelper()
	return p.ruleNamed(ctx, "web", rules...)
}

func (p scenario) ruleNamed(ctx context.Context, name string, rules ...appsv1alpha1.TransitionRule) *appsv1alpha1.PodTransitionRule {
	GinkgoHelper()
	rule := &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Rules: rules,
		},
	}
	Expect(p.admin.Create(ctx, rule)).To(Succeed())
	return rule
}

func maxUnavailable(value string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "max-unavailable", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: intOrString(value)}}
}

func minAvailable(value string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "min-available", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: intOrString(value)}}
}

// approved requires the approved label.
func approved() appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "approved", LabelCheck: &appsv1alpha1.LabelCheck{
		Requires: &metav1.LabelSelector{MatchLabels: map[string]string{approvedLabel: "true"}},
	}}
}

func intOrString(value string) *intstr.IntOrString { return new(intstr.Parse(value)) }

// list returns all pods of the scenario, including terminating pods.
func (p scenario) list(ctx context.Context) []*corev1.Pod {
	GinkgoHelper()
	pods := &corev1.PodList{}
	Expect(p.admin.List(ctx, pods, client.InNamespace(p.namespace))).To(Succeed())
	return pointers(pods.Items)
}

// listRules returns all PodTransitionRules of the scenario.
func (p scenario) listRules(ctx context.Context) []*appsv1alpha1.PodTransitionRule {
	GinkgoHelper()
	rules := &appsv1alpha1.PodTransitionRuleList{}
	Expect(p.admin.List(ctx, rules, client.InNamespace(p.namespace))).To(Succeed())
	return pointers(rules.Items)
}

// get reads a pod again.
func (p scenario) get(ctx context.Context, name string) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{}
	Expect(p.admin.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, pod)).To(Succeed())
	return pod
}

// seeing returns a function for Eventually that reads a pod.
func (p scenario) seeing(name string) func(context.Context) (*corev1.Pod, error) {
	return func(ctx context.Context) (*corev1.Pod, error) {
		pod := &corev1.Pod{}
		err := p.admin.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, pod)
		return pod, err
	}
}

// seeingRule does the same with a PodTransitionRule.
func (p scenario) seeingRule(name string) func(context.Context) (*appsv1alpha1.PodTransitionRule, error) {
	return func(ctx context.Context) (*appsv1alpha1.PodTransitionRule, error) {
		rule := &appsv1alpha1.PodTransitionRule{}
		err := p.admin.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, rule)
		return rule, err
	}
}

// awaitAvailable waits until there are exactly count pods, and all of them are available
// without a lifecycle.
func (p scenario) awaitAvailable(ctx context.Context, count int) {
	GinkgoHelper()
	Eventually(ctx, p.list).Should(And(HaveLen(count), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
}

// uids returns the UIDs of the pods, unsorted.
func uids(pods []*corev1.Pod) []types.UID {
	ids := make([]types.UID, len(pods))
	for i, pod := range pods {
		ids[i] = pod.UID
	}
	return ids
}
