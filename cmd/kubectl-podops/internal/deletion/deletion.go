// Package deletion implements kubectl podops delete.
package deletion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/removal"
)

// Command returns the verb delete.
func Command(env *command.Environment) *cobra.Command {
	var flags removal.Flags
	var selector string
	verb := &cobra.Command{
		Use:   "delete pod NAME... | -l SELECTOR",
		Short: "Delete pods as their rules permit it",
		Long: `Delete pods as their rules permit it: request the delete of each pod, as kubectl delete does, and
repeat a request that is answered with 429. There is one line for each pod and change, with the rule
that holds it. A pod is deleted by its UID: the pod that replaces it under the same name stays. Pods
that are not under PodOps are deleted at once.

Ctrl-C and --timeout end it: requests that are left are withdrawn, and their pods are in service
again. A second Ctrl-C ends it at once; the requests lapse then, 15 seconds to 2 minutes later.

At most 100 pods are requested at a time. The exit code is 0 once each pod is gone, and otherwise 1,
with a table of the pods that are left.

It needs the rights of the user to get and delete pods (for -l to list them), and none of PodOps. To withdraw
a request it patches the label undo-operation-type of the pod: without the right, requests lapse.`,
		Example: `  # Delete three pods of a Deployment, as many at a time as its rule permits
  kubectl podops delete pod web-6d4f-a web-6d4f-b web-6d4f-c

  # All pods of an application, for ten minutes at most
  kubectl podops delete -n shop -l app=cart --timeout 10m`,
		Args: cobra.ArbitraryArgs, // namesOf checks them
	}
	verb.RunE = func(verb *cobra.Command, arguments []string) error {
		names, err := podNames(arguments, selector)
		if err != nil {
			return err
		}
		if err := flags.Validate(); err != nil {
			return err
		}
		return run(verb.Context(), env, &flags, names, selector)
	}
	set := verb.Flags()
	set.StringVarP(&selector, "selector", "l", "", "label selector of the pods")
	flags.Add(set)
	return env.Cluster(verb)
}

// podNames reads pod names from arguments as kubectl accepts them: "pod x y", "pod/x pod/y", or names alone.
func podNames(arguments []string, selector string) ([]string, error) {
	kinds := []string{"pod", "pods", "po"}
	var names []string
	for i, argument := range arguments {
		if i == 0 && slices.Contains(kinds, argument) {
			continue
		}
		kind, name, ok := strings.Cut(argument, "/")
		if !ok {
			kind, name = "pod", argument
		}
		if !slices.Contains(kinds, kind) || name == "" {
			return nil, fmt.Errorf("%q is no pod: want pod/NAME", argument)
		}
		names = append(names, name)
	}
	switch {
	case len(names) > 0 && selector != "":
		return nil, errors.New("names and a selector -l: want one of them")
	case len(names) == 0 && selector == "":
		return nil, errors.New("want the names of pods, or a selector -l")
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func run(ctx context.Context, env *command.Environment, flags *removal.Flags, names []string, selector string) error {
	namespace, err := env.Namespace()
	if err != nil {
		return err
	}
	c, err := env.Clientset(ctx)
	if err != nil {
		return err
	}
	pods, err := read(ctx, c, namespace, names, selector)
	if err != nil {
		return err
	}
	return flags.Run(ctx, env, c, false, pods)
}

// read returns the pods with these names, or else the pods that a selector matches. Nothing is deleted before
// each name is known to be a pod's.
func read(ctx context.Context, c kubernetes.Interface, namespace string, names []string, selector string) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, name := range names {
		pod, err := c.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading the pod, before any is deleted: %w", err)
		}
		pods = append(pods, pod)
	}
	if selector == "" {
		return pods, nil
	}
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.CoreV1().Pods(namespace).List(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector}, func(object runtime.Object) error {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods: %w", err)
	}
	return pods, nil
}
