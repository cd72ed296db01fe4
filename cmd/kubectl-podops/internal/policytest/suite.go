package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
)

// suiteKind is the kind of the documents that are suites.
const suiteKind = "PodTransitionRuleTest"

// suite is a document of the kind PodTransitionRuleTest: rules, pods, and the verdicts that are expected.
type suite struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Files have the rules, policies, and other objects, relative to the file of the suite.
	Files []string `json:"files"`

	// Now is the time of the decisions; default 2026-01-01T00:00:00Z.
	Now *metav1.Time `json:"now,omitempty"`

	// Pods are the pods for tests without pods of their own.
	Pods []testPod `json:"pods,omitempty"`

	// Nodes are the nodes of tests that have none, by name. Any other node is ready, without labels.
	Nodes map[string]testNode `json:"nodes,omitempty"`

	Tests []testCase `json:"tests"`
}

// testPod is a pod that serves under PodOps, unless its fields differ.
type testPod struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Node        string            `json:"node,omitempty"`

	// Available is whether the pod serves; default true.
	Available *bool `json:"available,omitempty"`

	// Waits is whether the pod waits for the operation; default true.
	Waits *bool `json:"waits,omitempty"`

	// Since is for how long it has been available; default 1h.
	Since *metav1.Duration `json:"since,omitempty"`

	// Age is for how long it has existed; default Since.
	Age *metav1.Duration `json:"age,omitempty"`

	// Owner is its workload, such as Deployment/web; default none. The workload wants as many pods as the test has
	// of it, unless Desired of the test differs.
	Owner string `json:"owner,omitempty"`

	// Revision is Newest, which is the default, Outdated or Abandoned, for pods with an owner.
	Revision rule.RevisionState `json:"revision,omitempty"`

	// Permitted is whether the operation of the pod has its permit already.
	Permitted bool `json:"permitted,omitempty"`
}

// testNode is a ready node, unless its conditions differ.
type testNode struct {
	Labels        map[string]string `json:"labels,omitempty"`
	Unschedulable bool              `json:"unschedulable,omitempty"`

	// Conditions are statuses by type, such as {Ready: "False"}.
	Conditions map[string]corev1.ConditionStatus `json:"conditions,omitempty"`
}

// object returns the node.
func (n testNode) object(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: n.Labels}, Spec: corev1.NodeSpec{Unschedulable: n.Unschedulable}}
	statuses := map[string]corev1.ConditionStatus{string(corev1.NodeReady): corev1.ConditionTrue}
	maps.Copy(statuses, n.Conditions)
	for kind, status := range statuses {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(kind), Status: status})
	}
	return node
}

// testRequest is the client that requests the operation.
type testRequest struct {
	Method string   `json:"method,omitempty"`
	Actor  string   `json:"actor,omitempty"`
	User   string   `json:"user,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

// testCase is one test: the verdicts on pods that wait for an operation.
type testCase struct {
	Name string `json:"name"`

	// Operation is the operation type, default delete, and Stage the stage, default PreCheck.
	Operation string                       `json:"operation,omitempty"`
	Stage     appsv1alpha1.TransitionStage `json:"stage,omitempty"`

	// Request is the client of the operation delete, as in input.operation.request.
	Request *testRequest `json:"request,omitempty"`

	Now  *metav1.Time `json:"now,omitempty"`
	Pods []testPod    `json:"pods,omitempty"`

	// Nodes are its nodes; default those of the suite.
	Nodes map[string]testNode `json:"nodes,omitempty"`

	// Namespace are the labels of the namespace.
	Namespace map[string]string `json:"namespace,omitempty"`

	// Desired are the replicas of workloads, such as {Deployment/web: 3}.
	Desired map[string]int `json:"desired,omitempty"`

	// Paused are the Deployments that are paused, such as [Deployment/web].
	Paused []string `json:"paused,omitempty"`

	Answers []offline.Answer `json:"answers,omitempty"`
	Expect  []expectation    `json:"expect"`
}

// expectation is the expected verdict on a pod. Empty fields match anything.
type expectation struct {
	Pod   string        `json:"pod"`
	State offline.State `json:"state,omitempty"`

	// Rule is "<PodTransitionRule>/<rule>"; the other fields are about its verdict. Without it, they are
	// about any rule.
	Rule      string    `json:"rule,omitempty"`
	RuleState string    `json:"ruleState,omitempty"`
	Code      rule.Code `json:"code,omitempty"`

	// Message is a part of the message.
	Message string `json:"message,omitempty"`
}

// defaultNow returns the time of decisions for suites without a time: tests give the same result on any
// day.
func defaultNow() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// parseSuite returns the suite of a document.
func parseSuite(document manifests.Document) (suite, error) {
	var read suite
	if err := yaml.UnmarshalStrict(document.JSON, &read); err != nil {
		return read, fmt.Errorf("%s: %s", document.Place(), strings.TrimPrefix(err.Error(), "error unmarshaling JSON: "))
	}
	if len(read.Tests) == 0 || len(read.Files) == 0 {
		return read, fmt.Errorf("%s: a %s needs files and tests", document.Place(), suiteKind)
	}
	return read, nil
}

// run evaluates the tests of a suite that are selected.
func (s suite) run(ctx context.Context, modules modules, document manifests.Document, selected func(name string) bool) ([]result, error) {
	var paths []string
	for _, file := range s.Files {
		paths = append(paths, filepath.Join(filepath.Dir(document.File), file))
	}
	documents, err := manifests.Read(nil, command.Scheme(), paths...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", document.Place(), err)
	}
	var results []result
	var inputs []testInput
	for i, test := range s.Tests {
		made := result{Suite: cmp.Or(s.Name, document.File), Name: test.Name, File: document.File, Line: document.LineAt(fmt.Sprintf("tests[%d]", i))}
		if !selected(made.Suite + "/" + made.Name) {
			continue
		}
		began := time.Now()
		// The engine keeps facts by pod version, and pods in other tests have the same names.
		version := fmt.Sprintf("%s:%d", document.Place(), i)
		made.Message, err = s.check(ctx, modules, documents, test, version)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: test %q: %w", made.File, made.Line, test.Name, err)
		}
		made.Duration, made.Failed = time.Since(began), made.Message != ""
		results = append(results, made)
		inputs = append(inputs, modules.takeInputs(made)...)
	}
	warnings, err := modules.absentFacts(ctx, inputs)
	if err != nil {
		return nil, fmt.Errorf("%s: removing facts: %w", document.Place(), err)
	}
	return append(results, warnings...), nil
}

// namespace has the objects of a suite.
const namespace = "default"

// objects returns the objects of the files, with the pods of a test and their workloads.
func (s suite) objects(documents []manifests.Document, test testCase, now time.Time) (offline.Objects, error) {
	var objects offline.Objects
	pods := test.Pods
	if pods == nil {
		pods = s.Pods
	}
	if err := test.addFiles(&objects, documents, len(pods), now); err != nil {
		return objects, err
	}
	if test.Namespace != nil {
		objects.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: test.Namespace}}, "")
	}
	counts, templates := map[string]map[rule.RevisionState]int{}, map[string]*corev1.Pod{}
	for i, pod := range pods {
		made, err := pod.object(test, i-len(pods), now)
		if err != nil {
			return objects, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		objects.Add(made, namespace)
		if pod.Owner == "" {
			continue
		}
		if counts[pod.Owner] == nil {
			counts[pod.Owner], templates[pod.Owner] = map[rule.RevisionState]int{}, made
		}
		counts[pod.Owner][cmp.Or(pod.Revision, rule.RevisionNewest)]++
	}
	s.addNodes(&objects, test)
	return objects, test.addWorkloads(&objects, counts, templates, now)
}

// addFiles adds the objects in files. As with eval, their pods wait, if they may, and have begun before the test's own pods: others is
// how many these are.
func (t testCase) addFiles(objects *offline.Objects, documents []manifests.Document, others int, now time.Time) error {
	place := -others
	for _, document := range documents {
		if _, isPod := document.Object.(*corev1.Pod); isPod {
			place--
		}
	}
	for _, document := range documents {
		object := document.Object
		if pod, isPod := object.(*corev1.Pod); isPod {
			if pod.Status.Phase == "" {
				pod = offline.Serving(pod, now.Add(-time.Hour))
			}
			waiting, err := t.begin(pod, place, now)
			if err != nil {
				return err
			}
			object, place = waiting, place+1
		}
		if object != nil {
			objects.Add(object, namespace)
		}
	}
	return nil
}

// addNodes adds the nodes that the test, the suite or a pod names.
func (s suite) addNodes(objects *offline.Objects, test testCase) {
	nodes := map[string]testNode{}
	for _, pod := range objects.Pods {
		isGiven := func(node *corev1.Node) bool { return node.Name == pod.Spec.NodeName }
		if pod.Spec.NodeName != "" && !slices.ContainsFunc(objects.Nodes, isGiven) {
			nodes[pod.Spec.NodeName] = testNode{}
		}
	}
	maps.Copy(nodes, s.Nodes)
	maps.Copy(nodes, test.Nodes)
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		objects.Add(nodes[name].object(name), "")
	}
}

// addWorkloads adds the owners of the pods.
func (t testCase) addWorkloads(
	objects *offline.Objects, counts map[string]map[rule.RevisionState]int, templates map[string]*corev1.Pod, now time.Time,
) error {
	for owner := range t.Desired {
		if counts[owner] == nil {
			return fmt.Errorf("desired: no pod has the owner %q", owner)
		}
	}
	for _, owner := range t.Paused {
		if counts[owner] == nil || !strings.HasPrefix(owner, "Deployment/") {
			return fmt.Errorf("paused: no pod has the owner %q, which is to be Deployment/NAME", owner)
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(counts)) {
		found, err := parseWorkload(owner)
		if err != nil {
			return err
		}
		replicas, given := t.Desired[owner]
		if !given {
			for _, number := range counts[owner] {
				replicas += number
			}
		}
		found.add(objects, templates[owner], counts[owner], wish{replicas, slices.Contains(t.Paused, owner)}, now)
	}
	return nil
}

// begin returns a pod as it waits for the operation of a test. place orders the begins of operations.
func (t testCase) begin(pod *corev1.Pod, place int, now time.Time) (*corev1.Pod, error) {
	if !offline.MayBegin(pod) || offline.Waits(pod) {
		return pod, nil
	}
	return offline.Begin(pod, t.operation(place, now))
}

func (t testCase) operation(place int, now time.Time) offline.Operation {
	operation := offline.Operation{
		Type: cmp.Or(t.Operation, appsv1alpha1.DeleteOperationType), Stage: cmp.Or(t.Stage, appsv1alpha1.StagePreCheck),
		At: now.Add(time.Duration(place) * time.Microsecond),
	}
	if t.Request != nil {
		groups, truncated := lifecycle.BoundGroups(t.Request.Groups)
		operation.Requester = rule.Requester{
			Method: t.Request.Method, Actor: t.Request.Actor, User: t.Request.User, Groups: strings.Join(groups, "\n"), GroupsTruncated: truncated,
		}
	}
	return operation
}

// check returns how the verdicts differ from the expected verdicts; empty if they do not.
func (s suite) check(ctx context.Context, modules modules, documents []manifests.Document, test testCase, version string) (string, error) {
	now := defaultNow()
	for _, given := range []*metav1.Time{s.Now, test.Now} {
		if given != nil {
			now = given.Time
		}
	}
	for i, answer := range test.Answers {
		if err := answer.Validate(); err != nil {
			return "", fmt.Errorf("answers[%d]: %w", i, err)
		}
	}
	objects, err := s.objects(documents, test, now)
	if err != nil {
		return "", err
	}
	for _, pod := range objects.Pods {
		pod.ResourceVersion = version
	}
	verdicts, err := offline.Evaluate(ctx, objects, offline.Options{Engine: modules.engine, Now: now, Answers: test.Answers, Prepared: modules.log.Prepared})
	if err != nil {
		return "", err
	}
	var failures []string
	for _, expected := range test.Expect {
		if failure := expected.failure(verdicts); failure != "" {
			failures = append(failures, failure)
		}
	}
	return strings.Join(failures, "\n"), nil
}

// object returns the pod of a test. place orders the begins of operations.
func (p testPod) object(test testCase, place int, now time.Time) (*corev1.Pod, error) {
	since := time.Hour
	if p.Since != nil {
		since = p.Since.Duration
	}
	age := since
	if p.Age != nil {
		age = p.Age.Duration
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: namespace, Labels: maps.Clone(p.Labels), Annotations: p.Annotations, CreationTimestamp: metav1.NewTime(now.Add(-age)),
		},
		Spec: corev1.PodSpec{NodeName: p.Node},
	}
	if p.Owner != "" {
		owner, err := parseWorkload(p.Owner)
		if err != nil {
			return nil, err
		}
		if err := owner.own(pod, p.Revision); err != nil {
			return nil, err
		}
	} else if p.Revision != "" {
		return nil, errors.New("revision: a pod without an owner has none")
	}
	pod = offline.Serving(pod, now.Add(-since))
	if p.Available != nil && !*p.Available {
		pod = offline.Unavailable(pod, now.Add(-since))
	}
	if p.Permitted {
		return offline.Permit(pod, test.operation(place, now))
	}
	if p.Waits != nil && !*p.Waits {
		return pod, nil
	}
	return test.begin(pod, place, now)
}

// failure returns how the verdict on the pod differs from the expected verdict; empty if it does
// not.
func (e expectation) failure(verdicts []offline.Verdict) string {
	at := slices.IndexFunc(verdicts, func(verdict offline.Verdict) bool { return verdict.Pod == e.Pod })
	if at < 0 {
		return fmt.Sprintf("there is no pod %q", e.Pod)
	}
	verdict := verdicts[at]
	if e.State != "" && e.State != verdict.State {
		return fmt.Sprintf("pod %s: want state %s, got %s", e.Pod, e.State, describe(verdict))
	}
	if e.wanted() == "" || slices.ContainsFunc(verdict.Rules, e.matches) {
		return ""
	}
	return fmt.Sprintf("pod %s: want a verdict with%s, got %s", e.Pod, e.wanted(), describe(verdict))
}

// matches reports whether the verdict of a rule is the expected verdict.
func (e expectation) matches(found offline.RuleVerdict) bool {
	return (e.Rule == "" || e.Rule == found.Rule) && (e.RuleState == "" || e.RuleState == string(found.State)) &&
		(e.Code == "" || e.Code == found.Code) && strings.Contains(found.Message, e.Message)
}

// wanted returns the expected fields of a rule's verdict.
func (e expectation) wanted() string {
	text := ""
	for _, field := range []struct{ name, value string }{
		{"rule", e.Rule}, {"ruleState", e.RuleState}, {"code", string(e.Code)}, {"message", e.Message},
	} {
		if field.value != "" {
			text += fmt.Sprintf(" %s %q", field.name, field.value)
		}
	}
	return text
}

// describe returns a verdict in one line.
func describe(verdict offline.Verdict) string {
	parts := []string{string(verdict.State)}
	for _, found := range verdict.Rules {
		text := fmt.Sprintf("%s %s", found.Rule, found.State)
		if found.Code != "" {
			text += fmt.Sprintf(" (%s: %s)", found.Code, found.Message)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
