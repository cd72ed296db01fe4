package cluster

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func options(change func(*Options)) Options {
	o := Options{Bin: "/programs", Dir: "/state", Kubeconfig: "/kubeconfig", Nodes: 2, PodCIDR: netip.MustParsePrefix("127.64.0.0/16")}
	change(&o)
	return o
}

func TestNodesDivideThePodRange(t *testing.T) {
	c, err := newConfig(options(func(*Options) {}))
	if err != nil {
		t.Fatal(err)
	}
	want := []node{
		{Name: "node-1", Kubeconfig: "/state/kubeconfigs/node-1", IP: "127.64.1.254", PodCIDR: "127.64.1.0/24"},
		{Name: "node-2", Kubeconfig: "/state/kubeconfigs/node-2", IP: "127.64.2.254", PodCIDR: "127.64.2.0/24"},
	}
	if diff := cmp.Diff(want, c.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestInvalidOptions(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		want   string
	}{
		"no nodes":                     {func(o *Options) { o.Nodes = 0 }, "1 to 254"},
		"more nodes than ranges":       {func(o *Options) { o.Nodes = 255 }, "1 to 254"},
		"a range that is not loopback": {func(o *Options) { o.PodCIDR = netip.MustParsePrefix("10.0.0.0/16") }, "127.0.0.0/8"},
		"a range of another size":      {func(o *Options) { o.PodCIDR = netip.MustParsePrefix("127.64.0.0/24") }, "/16"},
		"no range":                     {func(o *Options) { o.PodCIDR = netip.Prefix{} }, "/16"},
		"a parent that has ended":      {func(o *Options) { o.ParentPID = 1 << 30 }, "parent"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := newConfig(options(tc.change)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want an error about %q, got %v", tc.want, err)
			}
		})
	}
}

func TestPortsDiffer(t *testing.T) {
	p, err := pickPorts()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range []int{p.Etcd, p.EtcdPeer, p.APIServer, p.ControllerManager, p.Scheduler} {
		if port == 0 || seen[port] {
			t.Errorf("port %d twice or not picked: %+v", port, p)
		}
		seen[port] = true
	}
}

func TestReadConfig(t *testing.T) {
	if _, err := readConfig(t.TempDir()); !errors.Is(err, errNoCluster) {
		t.Errorf("an empty folder: want %v, got %v", errNoCluster, err)
	}
	want := config{Bin: "/programs", Dir: t.TempDir(), Parent: &process{PID: 7, Start: "9"}, Ports: ports{Etcd: 1}}
	if err := writeJSON(want.file(configFile), want); err != nil {
		t.Fatal(err)
	}
	got, err := readConfig(want.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-written +read):\n%s", diff)
	}
}

func TestRemoveRejectsAForeignFolder(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := remove(dir, os.Stderr); err == nil {
		t.Error("a foreign folder was removed without an error")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("the file was removed: %v", err)
	}
	if err := remove(filepath.Join(dir, "nothing"), os.Stderr); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
}
