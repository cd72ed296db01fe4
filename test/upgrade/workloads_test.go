package upgrade_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

const (
	// approvedLabel is the label that the labelCheck rules require.
	approvedLabel = "upgrade.podops.dev/approved"

	// firstImage is the image of new pods.
	firstImage = "registry.example.com/web:v1"

	// operator is the id of lifecycles of this suite.
	operator = "updater"
)

// space is a namespace.
type space struct {
	*system
	namespace string
}

func newSpace(ctx context.Context, s *system, name string) space {
	GinkgoHelper()
	Expect(s.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	return space{s, name}
}

// list returns the pods, by name.
func (p space) list() []*corev1.Pod { return p.pods.in(p.namespace) }

// create creates an object.
func (p space) create(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Expect(p.admin.Create(ctx, object)).To(Succeed())
}

// rule creates a PodTransitionRule of the name of the label app that it selects.
func (p space) rule(ctx context.Context, app string, rules ...appsv1alpha1.TransitionRule) {
	GinkgoHelper()
	p.create(ctx, newRule(p.namespace, app, app, rules...))
}

// pod creates a bare pod.
func (p space) pod(ctx context.Context, name, app string, change func(*corev1.Pod)) {
	GinkgoHelper()
	template := templateOf(app)
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = p.namespace, name
	if change != nil {
		change(pod)
	}
	p.create(ctx, pod)
}

// deployment creates a Deployment of the name of the label app of its pods.
func (p space) deployment(ctx context.Context, app string, replicas int32) {
	GinkgoHelper()
	p.create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: templateOf(app),
		},
	})
}

// service creates a Service of the name of the label lb of its pods.
func (p space) service(ctx context.Context, name string) {
	GinkgoHelper()
	p.create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"lb": name}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
}

// awaitServing waits until there are that many pods, and all of them are available without a lifecycle.
func (p space) awaitServing(ctx context.Context, count int) {
	GinkgoHelper()
	Eventually(ctx, p.list).Should(And(HaveLen(count), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
}

func templateOf(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app, appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{{Name: "web", Image: firstImage}},
		},
	}
}

// approved requires the approved label.
func approved() appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "approved", LabelCheck: &appsv1alpha1.LabelCheck{
		Requires: &metav1.LabelSelector{MatchLabels: map[string]string{approvedLabel: "true"}},
	}}
}

func maxUnavailable(count int) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "max-unavailable", AvailablePolicy: &appsv1alpha1.AvailablePolicy{
		MaxUnavailableValue: new(intstr.FromInt(count)),
	}}
}

func minAvailable(count int) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "min-available", AvailablePolicy: &appsv1alpha1.AvailablePolicy{
		MinAvailableValue: new(intstr.FromInt(count)),
	}}
}

// called calls the approval service, and polls it every second.
func (s *system) called(path string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "approval", Webhook: &appsv1alpha1.TransitionRuleWebhook{
		ClientConfig: appsv1alpha1.WebhookClientConfig{URL: s.approvalURL(path), Poll: &appsv1alpha1.WebhookPoll{
			URL: s.approvalURL("/result"), IntervalSeconds: new(int64(1)), TimeoutSeconds: new(int64(1800)),
		}},
	}}
}

// insist repeats a request while it conflicts with another request, or no manager answers its review. Unanswered
// reviews are in the audit log.
func insist(ctx context.Context, request func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, polling, patience, true, func(ctx context.Context) (bool, error) {
		last = request(ctx)
		if apierrors.IsConflict(last) || isUnanswered(last) {
			return false, nil
		}
		return last == nil, last
	})
	if errors.Is(err, context.DeadlineExceeded) && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// isUnanswered reports whether a webhook with failurePolicy Fail did not answer.
func isUnanswered(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed calling webhook")
}

// patch sends a merge patch until it succeeds.
func (p space) patch(ctx context.Context, object client.Object, format string, args ...any) error {
	object.SetNamespace(p.namespace)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
	return insist(ctx, func(ctx context.Context) error { return p.admin.Patch(ctx, object, patch) })
}

// named returns an object that has a name only.
func named[T client.Object](object T, name string) T {
	object.SetName(name)
	return object
}

// change is the change of a pod by an actor; the zero value changes nothing.
type change struct {
	Labels     map[string]any // nil removes a label
	Finalizers *[]string
	Image      string
}

func (c change) isNone() bool { return c.Labels == nil && c.Finalizers == nil && c.Image == "" }

// render returns a patch that fails on any other version of the pod.
func (c change) render(pod *corev1.Pod) ([]byte, error) {
	metadata := map[string]any{"resourceVersion": pod.ResourceVersion}
	if c.Labels != nil {
		metadata["labels"] = c.Labels
	}
	if c.Finalizers != nil {
		metadata["finalizers"] = *c.Finalizers
	}
	patch := map[string]any{"metadata": metadata}
	if c.Image != "" {
		containers := slices.Clone(pod.Spec.Containers)
		containers[0].Image = c.Image
		patch["spec"] = map[string]any{"containers": containers}
	}
	return json.Marshal(patch)
}

// act changes pods at the versions that the watch has, as a controller with a cache does, until stop is called. The
// first error that is neither a conflict nor a missing answer ends it, and fails the suite.
func (p space) act(wants ...func(*corev1.Pod) change) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(ended)
		pace := time.NewTicker(polling / 2)
		defer pace.Stop()
		for {
			for _, pod := range p.list() {
				for _, wanted := range wants {
					Expect(p.apply(ctx, pod, wanted(pod))).To(Succeed())
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// apply changes a pod unless it has changed meanwhile.
func (p space) apply(ctx context.Context, pod *corev1.Pod, wanted change) error {
	if wanted.isNone() {
		return nil
	}
	patch, err := wanted.render(pod)
	if err != nil {
		return err
	}
	err = p.admin.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || isUnanswered(err) || ctx.Err() != nil {
		return nil //nolint:nilerr // the next version is the next chance
	}
	return err
}

// beginning returns the labels that begin a lifecycle.
func beginning() map[string]any {
	return map[string]any{
		appsv1alpha1.OperatingLabelPrefix + "/" + operator:     strconv.FormatInt(time.Now().UnixNano(), 10),
		appsv1alpha1.OperationTypeLabelPrefix + "/" + operator: "update",
	}
}

// finishing returns the labels that finish it.
func finishing() map[string]any {
	return map[string]any{appsv1alpha1.OperatingLabelPrefix + "/" + operator: nil}
}

// updating is an operation controller that updates the image of pods in place.
func updating(image func() string) func(*corev1.Pod) change {
	return func(pod *corev1.Pod) change {
		_, operating := pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+operator]
		_, allowed := pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+operator]
		updated := pod.Spec.Containers[0].Image == image()
		switch {
		case !operating && !updated && expect.IsAvailable(pod):
			return change{Labels: beginning()}
		case allowed && !updated:
			return change{Image: image()}
		case operating && allowed && runs(pod, image()):
			return change{Labels: finishing()}
		}
		return change{}
	}
}

// runs reports whether every container of the pod runs the image and is ready.
func runs(pod *corev1.Pod, image string) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Image != image || !status.Ready {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
}

// balancer is a service controller: it adds its protection finalizer to pods of a Service that are Ready, and removes
// it when they are not.
type balancer string

// finalizer returns the finalizer that ResourceConsist adapters use for a Service of the name.
func (b balancer) finalizer() string {
	sum := md5.Sum([]byte(b))
	return appsv1alpha1.ProtectionFinalizerPrefix + "/" + hex.EncodeToString(sum[:])[8:24]
}

// announce makes a new pod expect the finalizer.
func (b balancer) announce(pod *corev1.Pod) {
	pod.Labels["lb"] = string(b)
	pod.Annotations = map[string]string{appsv1alpha1.AvailableConditionsAnnotationKey: fmt.Sprintf(
		`{"expectedFinalizers":{"Service/%s/%s":%q}}`, pod.Namespace, b, b.finalizer())}
}

// balancing returns what the service controller does to a pod.
func (b balancer) balancing(pod *corev1.Pod) change {
	if pod.Labels["lb"] != string(b) {
		return change{}
	}
	ready, _ := expect.BeReady().Match(pod)
	serve := ready && pod.DeletionTimestamp == nil
	switch has := slices.Contains(pod.Finalizers, b.finalizer()); {
	case serve && !has:
		return b.attach(pod)
	case !serve && has:
		return b.detach(pod)
	}
	return change{}
}

func (b balancer) attach(pod *corev1.Pod) change {
	return change{Finalizers: new(append(slices.Clone(pod.Finalizers), b.finalizer()))}
}

func (b balancer) detach(pod *corev1.Pod) change {
	return change{Finalizers: new(slices.DeleteFunc(slices.Clone(pod.Finalizers), func(name string) bool { return name == b.finalizer() }))}
}
