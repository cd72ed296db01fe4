package eval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
	"github.com/podops-dev/podops/pkg/runtime/text"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
)

var (
	errNoRule = errors.New("the files have no PodTransitionRule")
	errNoPod  = errors.New("the files have no pod")
)

func byName(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// read returns the objects to evaluate, and the time of the decision.
func (v *verb) read(ctx context.Context) (objects offline.Objects, now time.Time, err error) {
	if now, err = v.time(); err != nil {
		return objects, now, err
	}
	namespace := "default"
	live := v.live()
	if live || *v.Config.Namespace != "" {
		if namespace, err = v.Namespace(); err != nil {
			return objects, now, err
		}
	}
	if live {
		if objects, err = v.readCluster(ctx, namespace); err != nil {
			return objects, now, err
		}
	}
	if len(v.files) > 0 {
		given, err := v.readFiles(v.files, namespace, now)
		if err != nil {
			return objects, now, err
		}
		// Rules of files are evaluated alone; policies of files replace the policies of the
		// cluster.
		objects.Rules = nil
		objects.Replace(given)
		objects.Pods = append(objects.Pods, given.Pods...)
	}
	if len(v.pods) > 0 {
		given, err := v.readFiles(v.pods, namespace, now)
		if err != nil {
			return objects, now, err
		}
		objects.Pods, objects.Owners, objects.Namespaces = given.Pods, given.Owners, given.Namespaces
		objects.Budgets, objects.Nodes, objects.Approvals = given.Budgets, given.Nodes, given.Approvals
		objects.Replace(offline.Objects{Rules: given.Rules, Policies: given.Policies})
	}
	return objects, now, v.check(objects)
}

// live reports whether objects of the cluster are read.
func (v *verb) live() bool { return len(v.pods) == 0 || len(v.files) == 0 }

// identify sets the user who requests the operation: the user of the kubeconfig or, for files alone, that of --as; none without it.
func (v *verb) identify(ctx context.Context, requester *rule.Requester) error {
	user := authenticationv1.UserInfo{Username: *v.Config.Impersonate, Groups: *v.Config.ImpersonateGroup}
	if v.live() {
		reader, err := v.Client(ctx)
		if err != nil {
			return err
		}
		if user, err = v.UserInfo(ctx, reader); err != nil {
			return err
		}
	}
	if user.Username == "" {
		*requester = rule.Requester{}
		return nil
	}
	groups, truncated := lifecycle.BoundGroups(user.Groups)
	requester.User, requester.Groups, requester.GroupsTruncated = text.Prefix(user.Username, lifecycle.MaxUserBytes), strings.Join(groups, "\n"), truncated
	return nil
}

// check returns an error for files without the objects that they are read for.
func (v *verb) check(objects offline.Objects) error {
	switch {
	case len(v.files) > 0 && len(objects.Rules) == 0:
		return errNoRule
	case len(v.pods) > 0 && len(objects.Pods) == 0:
		return errNoPod
	default:
		return nil
	}
}

// readFiles reads the objects of files. Pods without a status serve.
func (v *verb) readFiles(paths []string, namespace string, now time.Time) (offline.Objects, error) {
	var objects offline.Objects
	documents, err := manifests.Read(v.In, command.Scheme(), paths...)
	if err != nil {
		return objects, err
	}
	for _, document := range documents {
		object := document.Object
		if pod, ok := object.(*corev1.Pod); ok && pod.Status.Phase == "" {
			object = offline.Serving(pod, now.Add(-time.Hour))
		}
		if object != nil {
			objects.Add(object, namespace)
		}
	}
	return objects, nil
}

// readCluster reads the objects of a namespace with the rights of the kubeconfig. Kinds that it may not read
// are left out, with a note; pods must be readable.
func (v *verb) readCluster(ctx context.Context, namespace string) (offline.Objects, error) {
	var objects offline.Objects
	reader, err := v.Client(ctx)
	if err != nil {
		return objects, err
	}
	in := client.InNamespace(namespace)
	for _, kind := range []struct {
		name    string
		list    client.ObjectList
		options []client.ListOption
	}{
		{"pods", &corev1.PodList{}, []client.ListOption{in}},
		{"podtransitionrules", &appsv1alpha1.PodTransitionRuleList{}, []client.ListOption{in}},
		{"podoperationapprovals", &appsv1alpha1.PodOperationApprovalList{}, []client.ListOption{in}},
		{"podtransitionpolicies", &appsv1alpha1.PodTransitionPolicyList{}, nil},
		{"nodes", &corev1.NodeList{}, nil},
		{"namespace", &corev1.NamespaceList{}, []client.ListOption{client.MatchingFields{metav1.ObjectNameField: namespace}}},
		{"deployments", &appsv1.DeploymentList{}, []client.ListOption{in}},
		{"replicasets", &appsv1.ReplicaSetList{}, []client.ListOption{in}},
		{"statefulsets", &appsv1.StatefulSetList{}, []client.ListOption{in}},
		{"daemonsets", &appsv1.DaemonSetList{}, []client.ListOption{in}},
		{"jobs", &batchv1.JobList{}, []client.ListOption{in}},
		{"poddisruptionbudgets", &policyv1.PodDisruptionBudgetList{}, []client.ListOption{in}},
	} {
		found, err := cluster.ListAll[client.Object](ctx, reader, kind.list, kind.options...)
		if apierrors.IsForbidden(err) && kind.name != "pods" {
			_, _ = fmt.Fprintf(v.ErrOut, "note: %s may not be read, so verdicts can differ from the verdicts of the manager: %v\n", kind.name, err)
			continue
		}
		if err != nil {
			return objects, fmt.Errorf("listing %s: %w", kind.name, err)
		}
		for _, object := range found {
			objects.Add(object, namespace)
		}
	}
	return objects, nil
}

// maxAnswerBytes bounds the file of answers.
const maxAnswerBytes = 1 << 20

// readAnswers reads the answers of services.
func (v *verb) readAnswers() ([]offline.Answer, error) {
	if v.answers == "" {
		return nil, nil
	}
	file, err := os.Open(v.answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the file was only read
	content, err := io.ReadAll(io.LimitReader(file, maxAnswerBytes))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", v.answers, err)
	}
	given := struct {
		Answers []offline.Answer `json:"answers"`
	}{}
	if err := yaml.UnmarshalStrict(content, &given); err != nil {
		return nil, fmt.Errorf("%s: %s", v.answers, strings.TrimPrefix(err.Error(), "error unmarshaling JSON: "))
	}
	for i, one := range given.Answers {
		if err := one.Validate(); err != nil {
			return nil, fmt.Errorf("%s: answers[%d]: %w", v.answers, i, err)
		}
	}
	return given.Answers, nil
}
