package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// Flags are the flags of a verb that reads targets.
type Flags struct {
	AllNamespaces    bool
	Selector         string
	ManagerNamespace string
}

// Add adds the flags to a verb, including the flags of the kubeconfig, and the completion of its
// arguments.
func (f *Flags) Add(env *command.Environment, verb *cobra.Command, offered ...Kind) *cobra.Command {
	env.Cluster(verb)
	verb.Flags().BoolVarP(&f.AllNamespaces, "all-namespaces", "A", false, "read all namespaces")
	verb.Flags().StringVarP(&f.Selector, "selector", "l", "", "label selector, instead of a name")
	f.AddManager(verb)
	verb.ValidArgsFunction = Complete(env, offered...)
	return verb
}

// AddManager adds the flag of the manager's namespace.
func (f *Flags) AddManager(verb *cobra.Command) {
	verb.Flags().StringVar(&f.ManagerNamespace, "podops-namespace", DefaultManagerNamespace, "namespace of the manager")
}

// Namespaces returns the namespaces to read, sorted: for --all-namespaces the namespaces with a
// PodTransitionRule or a controlled pod, otherwise that of --namespace or the kubeconfig.
func (f *Flags) Namespaces(ctx context.Context, env *command.Environment, reader client.Reader) ([]string, error) {
	if !f.AllNamespaces {
		namespace, err := env.Namespace()
		return []string{namespace}, err
	}
	pods, err := metadata(ctx, reader, corev1.SchemeGroupVersion.WithKind("PodList"), "",
		client.MatchingLabels{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of all namespaces: %w", err)
	}
	rules, err := metadata(ctx, reader, appsv1alpha1.GroupVersion().WithKind("PodTransitionRuleList"), "")
	if err != nil {
		return nil, fmt.Errorf("listing the PodTransitionRules of all namespaces: %w", err)
	}
	var namespaces []string
	for _, object := range append(pods, rules...) {
		namespaces = append(namespaces, object.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces), nil
}

// Complete returns a completion of targets: "<kind>/<name>" for the kinds, and the names of pods. Without
// the right to list a kind nothing is offered.
func Complete(env *command.Environment, offered ...Kind) cobra.CompletionFunc {
	return func(verb *cobra.Command, arguments []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(arguments) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		short, name, named := strings.Cut(typed, "/")
		if !named {
			var choices []cobra.Completion
			for _, kind := range offered {
				choices = append(choices, kind.Short()+"/")
			}
			choices = append(choices, names(verb.Context(), env, KindPod, "")...)
			return withPrefix(choices, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		kind, ok := kinds()[strings.ToLower(short)]
		if !ok || !slices.Contains(offered, kind) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return withPrefix(names(verb.Context(), env, kind, short+"/"), short+"/"+name), cobra.ShellCompDirectiveNoFileComp
	}
}

func withPrefix(choices []cobra.Completion, typed string) []cobra.Completion {
	return slices.DeleteFunc(choices, func(choice cobra.Completion) bool { return !strings.HasPrefix(choice, typed) })
}

// names returns the object names of a kind in the namespace of the kubeconfig, each after a prefix.
func names(ctx context.Context, env *command.Environment, kind Kind, prefix string) []cobra.Completion {
	reader, err := env.Client(ctx)
	if err != nil {
		return nil
	}
	namespace, err := env.Namespace()
	if err != nil {
		return nil
	}
	group := appsv1.SchemeGroupVersion
	switch kind {
	case KindPod:
		group = corev1.SchemeGroupVersion
	case KindRule:
		group = appsv1alpha1.GroupVersion()
	default:
	}
	objects, err := metadata(ctx, reader, group.WithKind(string(kind)+"List"), namespace)
	if err != nil {
		return nil
	}
	var found []cobra.Completion
	for _, object := range objects {
		found = append(found, prefix+object.Name)
	}
	return found
}
