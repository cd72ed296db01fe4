package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/processes"
	"github.com/podops-dev/podops/test/stage"
)

// Names of the cluster and its image, and its size.
const (
	name     = "my-cluster"
	image    = "my-repo/kvstore"
	replicas = 5
)

// managerFlags let rules call an operator on the loopback interface.
func managerFlags() []string {
	return []string{"--settle-time", "0s", "--rule-webhook-allow-cidr", "127.0.0.0/8"}
}

// show is the stage with the operator, the processes of the store, its load and a provider of backups.
type show struct {
	stage    *stage.Stage
	bin, dir string
	cidr     netip.Prefix // addresses of the pods: other stages use others
	out      io.Writer
	all      bool
	began    time.Time

	namespace  string // of the cluster
	admin      client.WithWatch
	kubelet    *processes.Kubelet
	kubeconfig string // of the operator
	hook       string // address of the hook
	operator   *managerprocess.Process
	standby    *managerprocess.Process // the replica that serves the hook while others lead; nil: the operator serves it
	backups    *backups
	load       *load
}

// open starts everything except the stage and the operator.
func (s *show) open(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kvstorev1.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("registering kinds: %w", err)
	}
	var err error
	if s.admin, err = client.NewWithWatch(s.stage.Config(), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", "examples/kvstore/config/operator-local"},
		{"apply", "-f", "config/samples/policies/leader-last.yaml"},
		{"wait", "--for=condition=Established", "crd/kvstoreclusters.kvstore.example.com"},
	} {
		if err := s.stage.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	s.kubelet, err = processes.Start(context.WithoutCancel(ctx), processes.Options{
		Config: s.stage.Config(), Dir: filepath.Join(s.dir, "processes"), CIDR: s.cidr, Log: logr.Discard(),
		Programs: map[string]processes.Program{image: {
			Path: filepath.Join(s.bin, "kvstore"), VersionVariable: "KVSTORE_VERSION", HostsVariable: "KVSTORE_HOSTS_FILE",
		}},
	})
	if err != nil {
		return err
	}
	if s.backups, err = openBackups(); err != nil {
		return err
	}
	if s.hook, err = managerprocess.FreeAddress(); err != nil {
		return err
	}
	s.kubeconfig = filepath.Join(s.dir, "operator.kubeconfig")
	return s.writeKubeconfig(ctx, s.kubeconfig)
}

// writeKubeconfig writes a kubeconfig with the rights of the ServiceAccount of the operator.
func (s *show) writeKubeconfig(ctx context.Context, path string) error {
	account := types.NamespacedName{Namespace: operatorNamespace, Name: "kvstore-operator"}
	return managerprocess.WriteKubeconfigOf(ctx, s.stage.Config(), account, path)
}

// operatorNamespace is the namespace of the operator.
const operatorNamespace = "kvstore-system"

// Logs of the operators that lead, and of the standby.
const (
	operatorLog = "operator.log"
	standbyLog  = "standby.log"
)

// hookURL returns the base of the URL of the hook.
func (s *show) hookURL() string { return "https://" + s.hook }

// key returns the name of the cluster, and of its rules.
func (s *show) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: name}
}

// newNamespace creates the namespace of the next cluster.
func (s *show) newNamespace(ctx context.Context, namespace string) error {
	s.namespace = namespace
	if err := s.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	return nil
}

// startOperator starts the operator, and waits until it is ready.
func (s *show) startOperator(ctx context.Context) error {
	if err := s.launchOperator(); err != nil {
		return err
	}
	return s.operator.AwaitReady(ctx)
}

// launchOperator starts the operator. It serves the hook, unless a standby does.
func (s *show) launchOperator() (err error) {
	var flags []string
	if s.standby == nil {
		flags = s.hookFlags()
	}
	s.operator, err = s.launch(s.kubeconfig, operatorLog, s.operator != nil, flags...)
	return err
}

// hookFlags are the flags of an operator that serves the hook.
func (s *show) hookFlags() []string {
	return []string{"--namespace", operatorNamespace, "--hook-bind-address", s.hook, "--hook-url", s.hookURL(), "--zap-time-encoding", "rfc3339nano"}
}

// launch starts an operator with flags.
func (s *show) launch(kubeconfig, log string, appends bool, flags ...string) (*managerprocess.Process, error) {
	probe, err := managerprocess.FreeAddress()
	if err != nil {
		return nil, err
	}
	command := append([]string{
		filepath.Join(s.bin, "kvstore-operator"), "--kubeconfig", kubeconfig, "--image", image,
		"--backup-to", s.backups.url, "--health-probe-bind-address", probe, "--progress-deadline", "60s",
	}, flags...)
	return managerprocess.Start(managerprocess.Options{Command: command, Log: filepath.Join(s.dir, log), Append: appends, Probe: probe})
}

// close ends everything that open has started.
func (s *show) close() error {
	var errs []error
	if s.load != nil {
		s.load.kill()
	}
	for _, process := range []*managerprocess.Process{s.operator, s.standby} {
		if process != nil {
			process.End()
		}
	}
	if s.kubelet != nil {
		errs = append(errs, s.kubelet.Close())
	}
	if s.backups != nil {
		errs = append(errs, s.backups.close())
	}
	return errors.Join(errs...)
}

// print prints a line with the time since the beginning.
func (s *show) print(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// removeOld removes the data of an earlier run.
func removeOld(dir string) error {
	if err := os.RemoveAll(filepath.Join(dir, "processes")); err != nil {
		return fmt.Errorf("removing the data of an earlier run: %w", err)
	}
	return nil
}
