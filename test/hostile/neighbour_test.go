package hostile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

const (
	neighbourNamespace = "neighbour"
	neighbourPods      = 6
	operationID        = "updater"

	// patience bounds each wait of the neighbour. An attack that exceeds it has blocked it.
	patience = 2 * time.Minute
)

// neighbour is a namespace that operates on its pods one after the other.
type neighbour struct {
	admin      client.WithWatch
	replicaSet client.Client // with the identity of the ReplicaSet controller
	pods       chan corev1.Pod
}

// newNeighbour creates the namespace, a ReplicaSet with available pods, and a rule.
func newNeighbour(ctx context.Context, f *target) *neighbour {
	GinkgoHelper()
	n := &neighbour{
		admin:      f.admin,
		replicaSet: f.as("system:serviceaccount:kube-system:replicaset-controller", []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}),
		pods:       make(chan corev1.Pod, 1000),
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: neighbourNamespace}}
	Expect(n.admin.Create(ctx, namespace)).To(Succeed())
	Expect(n.admin.Create(ctx, ruleset(neighbourNamespace, "web", appsv1alpha1.TransitionRule{
		Name: "available", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: new(intstr.FromInt32(2))},
	}))).To(Succeed())
	replicas := int32(neighbourPods)
	Expect(n.admin.Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: neighbourNamespace, Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels()}, Spec: podSpec()},
		},
	})).To(Succeed())
	Eventually(ctx, n.list).Should(And(HaveLen(neighbourPods), expect.All(expect.BeAvailable())))
	n.watch()
	return n
}

func podLabels() map[string]string {
	return map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)),
		Containers:                    []corev1.Container{{Name: "web", Image: "registry.example.com/web:v1"}},
	}
}

// ruleset returns a PodTransitionRule that selects the pods of a namespace.
func ruleset(namespace, name string, rules ...appsv1alpha1.TransitionRule) *appsv1alpha1.PodTransitionRule {
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Rules: rules,
		},
	}
}

func (n *neighbour) list(ctx context.Context) []*corev1.Pod {
	GinkgoHelper()
	pods := &corev1.PodList{}
	Expect(n.admin.List(ctx, pods, client.InNamespace(neighbourNamespace))).To(Succeed())
	all := make([]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		all[i] = &pods.Items[i]
	}
	return all
}

// watch delivers every version of the neighbour's pods until the suite ends.
func (n *neighbour) watch() {
	GinkgoHelper()
	ctx, stop := context.WithCancel(context.Background())
	DeferCleanup(stop)
	watcher, err := n.admin.Watch(ctx, &corev1.PodList{}, client.InNamespace(neighbourNamespace))
	Expect(err).NotTo(HaveOccurred())
	go func() {
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			if pod, isPod := event.Object.(*corev1.Pod); isPod {
				n.pods <- *pod
			}
		}
	}()
}

// work operates on one pod after the other for a while and returns the waits. It completes
// a lifecycle that has begun.
func (n *neighbour) work(ctx context.Context, during time.Duration) times {
	GinkgoHelper()
	var all times
	end := time.Now().Add(during)
	for i := 0; time.Now().Before(end); i++ {
		pods := n.list(ctx)
		n.lifecycle(ctx, pods[i%len(pods)].Name, &all)
		n.hold(ctx, pods[(i+1)%len(pods)], &all)
	}
	return all
}

// lifecycle runs an operation that changes nothing on a pod.
func (n *neighbour) lifecycle(ctx context.Context, name string, all *times) {
	GinkgoHelper()
	start := time.Now()
	n.label(ctx, name, map[string]any{
		appsv1alpha1.OperatingLabelPrefix + "/" + operationID:     strconv.FormatInt(start.UnixNano(), 10),
		appsv1alpha1.OperationTypeLabelPrefix + "/" + operationID: "update",
	})
	begun := time.Now()
	all.admission = append(all.admission, begun.Sub(start))
	n.await(ctx, name, "a permit", func(pod *corev1.Pod) bool {
		return has(pod, appsv1alpha1.PreCheckedLabelPrefix)
	})
	all.permit = append(all.permit, time.Since(begun))
	n.await(ctx, name, "operate", func(pod *corev1.Pod) bool { return has(pod, appsv1alpha1.OperateLabelPrefix) })
	n.label(ctx, name, map[string]any{appsv1alpha1.OperatingLabelPrefix + "/" + operationID: nil})
	n.await(ctx, name, "service-available", func(pod *corev1.Pod) bool {
		return expect.IsAvailable(pod) && !has(pod, appsv1alpha1.OperatedLabelPrefix) && !has(pod, appsv1alpha1.OperatingLabelPrefix)
	})
}

// hold deletes a pod as its ReplicaSet controller, in a dry run.
func (n *neighbour) hold(ctx context.Context, pod *corev1.Pod, all *times) {
	GinkgoHelper()
	start := time.Now()
	err := n.replicaSet.Delete(ctx, pod, client.DryRunAll)
	all.held = append(all.held, time.Since(start))
	Expect(err).To(Satisfy(apierrors.IsTooManyRequests), "a delete that rules withhold must be deferred")
}

func has(pod *corev1.Pod, prefix string) bool {
	_, found := pod.Labels[prefix+"/"+operationID]
	return found
}

func (n *neighbour) label(ctx context.Context, name string, labels map[string]any) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	Expect(err).NotTo(HaveOccurred())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: neighbourNamespace, Name: name}}
	Expect(n.admin.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// await waits until a version of the pod arrives for which the condition holds.
func (n *neighbour) await(ctx context.Context, name, what string, holds func(*corev1.Pod) bool) {
	GinkgoHelper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case pod := <-n.pods:
			if pod.Name == name && holds(&pod) {
				return
			}
		case <-late.C:
			Fail(fmt.Sprintf("pod %s of the neighbour waits for %s for more than %s", name, what, patience))
		case <-ctx.Done():
			Fail(ctx.Err().Error())
		}
	}
}
