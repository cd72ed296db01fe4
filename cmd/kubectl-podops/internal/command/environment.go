// Package command has the parts that all verbs of the plugin share: streams, the cluster of the
// kubeconfig, and exit codes.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Environment is the environment of a verb: its streams, the kubeconfig of the user, and the clock.
type Environment struct {
	genericiooptions.IOStreams

	// Config has the flags that select cluster, user and namespace, as in kubectl.
	Config *genericclioptions.ConfigFlags

	// Now returns the time that ages and durations are counted from.
	Now func() time.Time
}

// NewEnvironment returns the environment of a process with these streams.
func NewEnvironment(streams genericiooptions.IOStreams) *Environment {
	return &Environment{
		IOStreams: streams,
		Config:    genericclioptions.NewConfigFlags(true).WithWarningPrinter(streams),
		Now:       time.Now,
	}
}

// REST returns the configuration of the cluster that the kubeconfig selects. The rights are the
// rights of the kubeconfig's user.
func (e *Environment) REST() (*rest.Config, error) {
	config, err := e.Config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// A verb reads many objects at once; the API server has priority and fairness.
	config.QPS, config.Burst = 50, 100
	return config, nil
}

// Reach returns an error unless the API server answers; that the user lacks rights is an answer. The discovery of
// a client has no context, and waits for a server that does not answer once for each kind.
func (e *Environment) Reach(ctx context.Context) error {
	config, err := e.REST()
	if err != nil {
		return err
	}
	var status apierrors.APIStatus
	if _, err := e.Kubernetes(ctx); err != nil && !errors.As(err, &status) {
		return fmt.Errorf("the API server %s does not answer: %w", config.Host, errors.Unwrap(err))
	}
	return nil
}

// Client returns a client of the cluster, for the types of Kubernetes and PodOps, if the API server answers.
// It reads from the API server and caches nothing.
func (e *Environment) Client(ctx context.Context) (client.WithWatch, error) {
	if err := e.Reach(ctx); err != nil {
		return nil, err
	}
	config, err := e.REST()
	if err != nil {
		return nil, err
	}
	reader, err := client.NewWithWatch(config, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return reader, nil
}

// User returns the name that the API server knows the user by.
func (e *Environment) User(ctx context.Context, c client.Client) (string, error) {
	user, err := e.UserInfo(ctx, c)
	return user.Username, err
}

// UserInfo returns the name and the groups that the API server knows the user by.
func (e *Environment) UserInfo(ctx context.Context, c client.Client) (authenticationv1.UserInfo, error) {
	var self authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &self); err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("reading your name: %w", err)
	}
	return self.Status.UserInfo, nil
}

// Clientset returns a client of the cluster for the types of Kubernetes and their subresources, if the API server
// answers.
func (e *Environment) Clientset(ctx context.Context) (kubernetes.Interface, error) {
	if err := e.Reach(ctx); err != nil {
		return nil, err
	}
	config, err := e.REST()
	if err != nil {
		return nil, err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return clientset, nil
}

// Kubernetes returns the version of the API server.
func (e *Environment) Kubernetes(ctx context.Context) (version.Info, error) {
	config, err := e.REST()
	if err != nil {
		return version.Info{}, err
	}
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return version.Info{}, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	info, err := server.ServerVersionWithContext(ctx)
	if err != nil {
		return version.Info{}, fmt.Errorf("reading the version of the API server: %w", err)
	}
	return *info, nil
}

// Scheme returns the types that verbs read and write.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(appsv1alpha1.AddToScheme(scheme))
	return scheme
}

// Namespace returns the namespace of --namespace, or else that of the context in the
// kubeconfig.
func (e *Environment) Namespace() (string, error) {
	namespace, _, err := e.Config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the namespace of the kubeconfig: %w", err)
	}
	return namespace, nil
}

// Terminal returns the size of the terminal that standard output is, and false if it is another file.
func (e *Environment) Terminal() (width, height int, is bool) {
	file, ok := e.Out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	return width, height, err == nil
}

// Columns returns the width for printed text: that of the terminal, from 80 to 120 characters.
func (e *Environment) Columns() int {
	width, _, _ := e.Terminal()
	return min(max(width, 80), 120)
}

// Interactive reports whether standard input is a terminal, on which a user can answer.
func (e *Environment) Interactive() bool {
	file, ok := e.In.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Colors reports whether output has colors: on a terminal, unless NO_COLOR is set.
func (e *Environment) Colors() bool {
	_, _, terminal := e.Terminal()
	return terminal && os.Getenv("NO_COLOR") == ""
}

// Cluster adds the flags that select the cluster to a verb that reads a cluster.
func (e *Environment) Cluster(verb *cobra.Command) *cobra.Command {
	e.Config.AddFlags(verb.Flags())
	return verb
}
