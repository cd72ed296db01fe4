// Package clients_test plays stories of programs that remove pods beside PodOps, on the local control plane: the programs
// themselves where their Go modules can be built, and imitations of others. Each story is played with the control label and
// without it, and compared with the table of docs/workloads.md.
package clients_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// cluster is a control plane with a manager, which the stories share.
type cluster struct{ *stagetest.Cluster }

// account creates a ServiceAccount with all rights, and returns the path of its kubeconfig: rights are no part of the stories.
func (w *cluster) account(ctx context.Context, name types.NamespacedName) (kubeconfig string, err error) {
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name.Namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name.Namespace, Name: name.Name}},
		},
	}
	for _, object := range objects {
		if err := w.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return "", fmt.Errorf("creating the ServiceAccount %s: %w", name, err)
		}
	}
	path := filepath.Join(w.Dir(), name.Name+".kubeconfig")
	return path, managerprocess.WriteKubeconfigOf(ctx, w.Config(), name, path)
}

// program returns the path of another project's program, and whether it has been built.
func (w *cluster) program(name string) (path string, built bool) {
	path = filepath.Join(w.Bin, "clients", name)
	_, err := os.Stat(path)
	return path, err == nil
}

// run runs a program to its end, and returns its output and its exit code.
func run(ctx context.Context, path string, args ...string) (output string, code int, err error) {
	combined, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(combined), exit.ExitCode(), nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("running %s: %w", path, err)
	}
	return string(combined), 0, nil
}

// freePort returns a port that no program listens on.
func freePort() (string, error) {
	address, err := managerprocess.FreeAddress()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("reading the address %s: %w", address, err)
	}
	return port, nil
}
