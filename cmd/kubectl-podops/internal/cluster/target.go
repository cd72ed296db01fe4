package cluster

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Kind is a kind of target, as the API has it.
type Kind string

// The kinds of targets.
const (
	KindPod         Kind = "Pod"
	KindDeployment  Kind = "Deployment"
	KindStatefulSet Kind = "StatefulSet"
	KindDaemonSet   Kind = "DaemonSet"
	KindReplicaSet  Kind = "ReplicaSet"
	KindRule        Kind = "PodTransitionRule"
)

// kinds returns the kinds by the names that kubectl accepts for them.
func kinds() map[string]Kind {
	return map[string]Kind{
		"po": KindPod, "pod": KindPod, "pods": KindPod,
		"deploy": KindDeployment, "deployment": KindDeployment, "deployments": KindDeployment, "deployments.apps": KindDeployment,
		"deployment.apps": KindDeployment,
		"sts":             KindStatefulSet, "statefulset": KindStatefulSet, "statefulsets": KindStatefulSet, "statefulset.apps": KindStatefulSet,
		"ds": KindDaemonSet, "daemonset": KindDaemonSet, "daemonsets": KindDaemonSet, "daemonset.apps": KindDaemonSet,
		"rs": KindReplicaSet, "replicaset": KindReplicaSet, "replicasets": KindReplicaSet, "replicaset.apps": KindReplicaSet,
		"ptr": KindRule, "podtransitionrule": KindRule, "podtransitionrules": KindRule, "podtransitionrule.apps.kusionstack.io": KindRule,
	}
}

// Short returns the shortest name of a kind that kubectl accepts.
func (k Kind) Short() string {
	switch k {
	case KindDeployment:
		return "deploy"
	case KindStatefulSet:
		return "sts"
	case KindDaemonSet:
		return "ds"
	case KindReplicaSet:
		return "rs"
	case KindRule:
		return "ptr"
	default:
		return "pod"
	}
}

// Target is the target of a verb: an object by name, or all objects of a kind that fit a selector.
type Target struct {
	Kind Kind

	// Name is empty for all objects of the kind.
	Name string

	// Selector restricts the objects by label; everything if it is not set.
	Selector labels.Selector
}

// ParseTarget returns the target of arguments as kubectl has them: "pod/x", "pod x", "deploy/x", "ptr", or the
// name of a pod. Without arguments it is all pods. selector is the value of -l.
func ParseTarget(arguments []string, selector string) (Target, error) {
	target := Target{Kind: KindPod, Selector: labels.Everything()}
	if selector != "" {
		parsed, err := labels.Parse(selector)
		if err != nil {
			return Target{}, fmt.Errorf("reading the selector -l %s: %w", selector, err)
		}
		target.Selector = parsed
	}
	kind, name, err := parts(arguments)
	if err != nil {
		return Target{}, err
	}
	target.Name = name
	if kind != "" {
		known, ok := kinds()[strings.ToLower(kind)]
		if !ok {
			return Target{}, fmt.Errorf("%s is neither pod, deploy, sts, ds, rs nor ptr", kind)
		}
		target.Kind = known
	}
	if target.Name != "" && selector != "" {
		return Target{}, fmt.Errorf("a name and a selector -l: %s %s", target.Name, selector)
	}
	return target, nil
}

// parts returns the kind and the name of arguments; both may be empty.
func parts(arguments []string) (kind, name string, err error) {
	several := fmt.Errorf("more than one object: %s; select several with -l", strings.Join(arguments, " "))
	switch len(arguments) {
	case 0:
		return "", "", nil
	case 1:
	case 2:
		if strings.Contains(arguments[0], "/") {
			return "", "", several
		}
		return arguments[0], arguments[1], nil
	default:
		return "", "", several
	}
	before, after, found := strings.Cut(arguments[0], "/")
	switch _, isKind := kinds()[strings.ToLower(before)]; {
	case found && (before == "" || after == ""):
		return "", "", fmt.Errorf("%s: want KIND/NAME, such as deploy/web", arguments[0])
	case found:
		return before, after, nil
	case isKind:
		return before, "", nil
	default:
		return "", before, nil
	}
}

// String returns the target as a user may write it.
func (t Target) String() string {
	if t.Name == "" {
		return t.Kind.Short()
	}
	return t.Kind.Short() + "/" + t.Name
}
