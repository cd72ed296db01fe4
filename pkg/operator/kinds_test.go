package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// kindServer is a mapper of kinds that an API server serves from a moment on.
type kindServer struct {
	meta.RESTMapper // panics on every other method
	from            map[string]time.Time
	broken          error
}

func (d kindServer) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if d.broken != nil {
		return nil, d.broken
	}
	if from, ok := d.from[kind.Kind]; !ok || time.Now().Before(from) {
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return &meta.RESTMapping{GroupVersionKind: kind.WithVersion(versions[0])}, nil
}

// served returns the kinds of PodOps, served after a delay each.
func served(policy, operation, rule, adapter time.Duration) map[string]time.Time {
	now := time.Now()
	return map[string]time.Time{
		"PodTransitionPolicy": now.Add(policy), "PodOperation": now.Add(operation), "PodOperationApproval": now,
		"PodTransitionRule": now.Add(rule), "TrafficAdapter": now.Add(adapter),
	}
}

// recorded returns a logger, and the lines that it got.
func recorded() (logr.Logger, *[]string) {
	lines := &[]string{}
	return funcr.New(func(_, args string) { *lines = append(*lines, args) }, funcr.Options{}), lines
}

func TestAManagerWaitsForItsKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := recorded()
		begin := time.Now()
		if err := awaitKinds(t.Context(), kindServer{from: served(0, 0, 3*time.Second, 2*time.Second)}, log); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("took %v, want as long as the last kind: 3s", took)
		}
		want := []string{
			`"level"=0 "msg"="Waiting for the API server to serve kinds" "group"="apps.kusionstack.io/v1alpha1" "kinds"=["PodTransitionRule" "TrafficAdapter"] "timeout"="1m0s"`,
			`"level"=0 "msg"="Waiting for the API server to serve kinds" "group"="apps.kusionstack.io/v1alpha1" "kinds"=["PodTransitionRule"] "timeout"="1m0s"`,
		}
		if diff := cmp.Diff(want, *lines); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestAManagerDoesNotWaitForKindsThatAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := recorded()
		begin := time.Now()
		if err := awaitKinds(t.Context(), kindServer{from: served(0, 0, 0, 0)}, log); err != nil || time.Since(begin) != 0 || len(*lines) != 0 {
			t.Errorf("error %v after %v, log %q", err, time.Since(begin), *lines)
		}
	})
}

func TestAManagerEndsWithoutItsKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		err := awaitKinds(t.Context(), kindServer{from: served(0, time.Hour, 0, 0)}, logr.Discard())
		if missing := (*kindsNotServedError)(nil); !errors.As(err, &missing) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want a kindsNotServedError", err)
		}
		if took := time.Since(begin); took != kindsPatience {
			t.Errorf("took %v, want %v", took, kindsPatience)
		}
		const want = "the API server does not serve PodOperation of apps.kusionstack.io/v1alpha1: apply the CustomResourceDefinitions " +
			"(kubectl podops install --crds-only, or install.yaml): "
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %q, want the prefix %q", err, want)
		}
	})
}

func TestAnErrorOfDiscoveryEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, forbidden := time.Now(), errors.New("forbidden")
		if err := awaitKinds(t.Context(), kindServer{broken: forbidden}, logr.Discard()); !errors.Is(err, forbidden) || time.Since(begin) != 0 {
			t.Errorf("error %v after %v, want %v at once", err, time.Since(begin), forbidden)
		}
	})
}

// TestEveryKindIsAwaited fails when the API has a kind that awaitKinds does not wait for.
func TestEveryKindIsAwaited(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for kind, object := range scheme.KnownTypes(appsv1alpha1.GroupVersion()) {
		if strings.HasPrefix(object.PkgPath(), "github.com/podops-dev/podops/") && !strings.HasSuffix(kind, "List") {
			want = append(want, kind)
		}
	}
	unknown, err := unknownKinds(kindServer{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), unknown); diff != "" {
		t.Errorf("kinds (-scheme +awaited):\n%s", diff)
	}
}
