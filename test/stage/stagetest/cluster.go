// Package stagetest starts a stage for a test, and follows the pods of a namespace in it.
package stagetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/stage"
)

// Cluster is a control plane with a manager, and a client of its administrator.
type Cluster struct {
	*stage.Stage
	client.Client
	Audit *audit.Log

	// Bin is the folder of the programs.
	Bin    string
	scheme *runtime.Scheme
}

// Start starts a control plane and a manager, which end with the test. root is the path of the repository, and name is part of the
// path of the logs, which are kept if the test fails.
func Start(t *testing.T, root, name string) *Cluster {
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	bin := os.Getenv("PODOPS_BIN")
	if bin == "" {
		bin = filepath.Join(root, "bin")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "podops-"+name+"-")
	if err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	w := &Cluster{Bin: bin, scheme: runtime.NewScheme(), Stage: stage.New(stage.Options{
		Bin: bin, Dir: dir, Out: &output, Manifests: filepath.Join(root, "config", "local"), ManagerFlags: []string{"--settle-time", "0s"},
	})}
	if err := w.Up(t.Context()); err != nil {
		t.Fatalf("starting the control plane: %v\n%s", err, &output)
	}
	t.Cleanup(func() {
		if err := w.Down(); err != nil {
			t.Errorf("ending the control plane: %v", err)
		}
		// The manager goes on after a panic of a controller, and tries again.
		if log, err := os.ReadFile(w.ManagerLog()); err != nil || strings.Contains(string(log), "[recovered]") {
			t.Errorf("the log of the manager has a panic, or cannot be read: %v", err)
		}
		if !t.Failed() {
			_ = os.RemoveAll(dir) // a folder of temporary files
			return
		}
		t.Log("logs are kept in", dir)
	})
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(w.scheme); err != nil {
			t.Fatal(err)
		}
	}
	if w.Client, err = w.As(""); err != nil {
		t.Fatal(err)
	}
	if w.Audit, err = audit.Open(w.AuditLog()); err != nil {
		t.Fatal(err)
	}
	return w
}

// As returns a client with the name of a user, and all rights; of the administrator without a name.
func (w *Cluster) As(user string) (client.Client, error) {
	config := rest.CopyConfig(w.Config())
	config.WarningHandler = rest.NoWarnings{}
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	}
	made, err := client.New(config, client.Options{Scheme: w.scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return made, nil
}
