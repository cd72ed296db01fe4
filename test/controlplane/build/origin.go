package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/podops-dev/podops/test/controlplane/fetch"
)

// The variables of the environment that decide where programs come from.
const (
	kubeVariable   = "PODOPS_KUBE"
	mirrorVariable = "PODOPS_KUBE_MIRROR"
)

// Values of PODOPS_KUBE.
const (
	modeBuild = "build"
	modeFetch = "fetch"
	modeAuto  = "" // fetch if the release sites can be reached, otherwise build
)

// Origin is where the programs of Kubernetes and etcd come from.
type Origin struct {
	mode   string
	sites  fetch.Sites
	limits fetch.Limits
}

// OriginOf reads PODOPS_KUBE and PODOPS_KUBE_MIRROR.
func OriginOf(getenv func(string) string) (Origin, error) {
	// A build takes about as long as the longest fetch.
	o := Origin{mode: getenv(kubeVariable), sites: fetch.Official(), limits: fetch.Limits{Answer: 3 * time.Second, Total: 10 * time.Minute}}
	switch o.mode {
	case modeAuto, modeBuild:
	case modeFetch:
		o.limits = fetch.Limits{Answer: 30 * time.Second, Total: time.Hour}
	default:
		return Origin{}, fmt.Errorf("%s=%s: it is %s, %s or unset", kubeVariable, o.mode, modeBuild, modeFetch)
	}
	if mirror := getenv(mirrorVariable); mirror != "" {
		sites, err := fetch.Mirror(mirror)
		if err != nil {
			return Origin{}, fmt.Errorf("%s: %w", mirrorVariable, err)
		}
		o.sites = sites
	}
	return o, nil
}

// accepts returns the stamps of programs that need no change: key is the identity of their sources.
func (o Origin) accepts(key string) []string {
	switch o.mode {
	case modeBuild:
		return []string{builtStamp(key)}
	case modeFetch:
		return []string{fetchedStamp(key)}
	default:
		return []string{builtStamp(key), fetchedStamp(key)}
	}
}

func builtStamp(key string) string   { return "built " + key + "\n" }
func fetchedStamp(key string) string { return "fetched " + key + "\n" }

// fetch fetches the official programs into bin. It returns false if they are to be built.
func (t Target) fetch(ctx context.Context, source, bin string, origin Origin, out io.Writer) (bool, error) {
	if origin.mode == modeBuild {
		return false, nil
	}
	kubernetes, etcd, err := versions(source)
	if err != nil {
		return false, err
	}
	programs := origin.sites.Programs(kubernetes, etcd, runtime.GOARCH, t.official...)
	fmt.Fprintf(out, "fetching the official programs of Kubernetes %s\n", kubernetes)
	err = fetch.Run(ctx, bin, programs, origin.limits, out)
	switch {
	case err == nil:
		return true, removeBuilt(bin)
	case ctx.Err() != nil:
		return false, err
	case origin.mode == modeFetch:
		return false, fmt.Errorf("fetching the control plane: %w\n"+
			"%s=%s builds it instead, %s=https://... names a mirror, and HTTPS_PROXY a proxy", err, kubeVariable, modeBuild, mirrorVariable)
	default:
		fmt.Fprintf(out, "%v\nbuilding all programs instead; %s=%s does so at once, and %s=https://... names a mirror\n",
			err, kubeVariable, modeBuild, mirrorVariable)
		return false, nil
	}
}

// removeBuilt removes the binary of an earlier build, which no program is a link to any more.
func removeBuilt(bin string) error {
	if err := os.Remove(filepath.Join(bin, kubeBinary)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the programs of the last build: %w", err)
	}
	return nil
}

// versions returns the versions of Kubernetes and etcd that go.mod requires; etcd's is empty if it requires none.
func versions(source string) (kubernetes, etcd string, err error) {
	data, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", "", fmt.Errorf("reading the versions of the programs: %w", err)
	}
	found := kubernetesVersion.FindStringSubmatch(string(data))
	if found == nil {
		return "", "", fmt.Errorf("%s/go.mod requires no k8s.io/kubernetes", source)
	}
	if server := etcdVersion.FindStringSubmatch(string(data)); server != nil {
		etcd = server[1]
	}
	return found[1], etcd, nil
}
