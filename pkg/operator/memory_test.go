package operator

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
	"github.com/podops-dev/podops/pkg/runtime/loadshed"
)

func TestMemoryIsDivided(t *testing.T) {
	const children = 408 << 20 // the race detector multiplies the memory of a child, hence not childrenBytes
	for name, limit := range map[string]uint64{"64 MiB": 64 << 20, "512 MiB": 512 << 20, "1 GiB": 1 << 30, "16 GiB": 16 << 30} {
		t.Run(name, func(t *testing.T) {
			heap, err := heapLimit(memlimit.Limit(limit), children)()
			if err != nil {
				t.Fatal(err)
			}
			if heap < limit/2 || heap > limit*9/10 {
				t.Errorf("Go may use %d of %d bytes", heap, limit)
			}
			if limit >= 1<<30 && heap+children > limit*91/100 {
				t.Errorf("Go and the children may use %d of %d bytes", heap+children, limit)
			}
			if engine := engineBytes(int64(heap)); engine < leastEngineBytes || engine > mostEngineBytes || engine > int64(heap) {
				t.Errorf("the engine may use %d of %d bytes", engine, heap)
			}
			if rules := ruleBytes(int64(heap)); rules < leastRuleBytes || rules > mostRuleBytes || rules > int64(heap)/4 {
				t.Errorf("rules may keep %d of %d bytes", rules, heap)
			}
		})
	}
	if got := engineBytes(math.MaxInt64) + ruleBytes(math.MaxInt64); got != 0 {
		t.Errorf("without a limit the engine and rules may use %d bytes, want their defaults", got)
	}
	unreadable := errors.New("unreadable")
	if _, err := heapLimit(func() (uint64, error) { return 0, unreadable }, children)(); !errors.Is(err, unreadable) {
		t.Errorf("got %v", err)
	}
}

func TestWorkersFitIntoTheContainer(t *testing.T) {
	for _, tc := range []struct {
		container   uint64
		cores, want int
	}{
		{64 << 20, 64, 1}, {1 << 30, 1, 1}, {math.MaxInt64, 2, 1}, {math.MaxInt64, 4, 3}, {math.MaxInt64, 64, mostWorkers},
		{4 * 3 * sandbox.ChildBytes, 64, 3},
	} {
		if got := workers(tc.container, tc.cores); got != tc.want {
			t.Errorf("%d bytes and %d cores have %d workers, want %d", tc.container, tc.cores, got, tc.want)
		}
	}
}

func TestARequestWithoutMemoryIsRejected(t *testing.T) {
	used := int64(0)
	handled := 0
	handler := gated{
		gate: loadshed.New(loadshed.Options{Limit: 1000, Used: func() int64 { return used }, Collect: func() {}}),
		Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
			handled++
			return admission.Allowed("")
		}),
		least: 4,
	}
	send := func(bytes int) admission.Response {
		return handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Object: runtime.RawExtension{Raw: []byte(strings.Repeat("x", bytes))},
		}})
	}
	for range 10 { // a finished request takes no memory
		if response := send(40); !response.Allowed {
			t.Fatalf("got %+v below the limit", response.Result)
		}
	}
	used = 700
	response := send(40)
	if response.Allowed || response.Result.Code != http.StatusTooManyRequests || response.Result.Details.RetryAfterSeconds != 5 {
		t.Errorf("got %+v above the limit", response.Result)
	}
	if handled != 10 {
		t.Errorf("%d requests were handled", handled)
	}
	if response := send(3); !response.Allowed {
		t.Errorf("a small request is rejected: %+v", response.Result)
	}
}
