package evaluation

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// fullRecollection is that of a rule that refused pods with a text each.
func fullRecollection(facts []*rule.PodFact, text string) *recollection {
	remembered := newRecollection()
	var requests []rule.Request
	var verdicts []rule.Verdict
	for i, fact := range facts {
		request := rule.Request{
			Pod: fact, Stage: appsv1alpha1.StagePreCheck, ID: strings.Repeat("i", 62), Type: strings.Repeat("t", 63),
			Attempt: fmt.Sprint(1_700_000_000_000_000_000 + i), Task: rule.Task{State: rule.TaskFailed, Message: strings.Clone(text)},
		}
		requests = append(requests, request)
		verdict := rule.Verdict{Code: rule.CodeDenied, Message: strings.Clone(text), Details: strings.Clone(text)}
		verdicts = append(verdicts, verdict)
		if remembered.lastDenials == nil {
			remembered.lastDenials, remembered.counted = lastDenials{}, map[string]counted{}
		}
		key := request.Key()
		remembered.lastDenials[key] = lastDenial{verdict: verdict}
		remembered.nextChecks[request.Key()] = time.Unix(1, 0)
		remembered.counted[request.Key()+"@"+request.Attempt] = counted{}
		remembered.messageCache.explain(rule.CodeLabelMismatch, appsv1alpha1.TransitionRule{}, request, nil)
	}
	remembered.memo.Remember(requests, verdicts, rule.Environment{}, 1)
	remembered.fallback.Remember(slices.Clone(requests), slices.Clone(verdicts), rule.Environment{}, 1)
	return remembered
}

// TestRecollectionsCountTheirHeap compares with the bytes that the values keep alive on the heap.
func TestRecollectionsCountTheirHeap(t *testing.T) {
	for _, pods := range []int{0, 1, 2, 7, 8, 15, 1000, 1800} {
		for _, text := range []string{"", strings.Repeat("x", rule.MaxMessageBytes)} {
			var facts []*rule.PodFact
			for i := range pods {
				facts = append(facts, &rule.PodFact{UID: types.UID(fmt.Sprintf("%036d", i)), Name: fmt.Sprint("web-", i)})
			}
			all := make([]*recollection, 1+2000/(pods+1))
			before := heapInUse()
			for i := range all {
				all[i] = fullRecollection(facts, text)
			}
			got, heap := all[0].bytes(), (heapInUse()-before)/int64(len(all))
			if got < heap*9/10 || got > 2*heap+2*recollectionBytes {
				t.Errorf("%d pods with texts of %d bytes: counts %d bytes, takes %d", pods, len(text), got, heap)
			}
			runtime.KeepAlive(facts)
			runtime.KeepAlive(all)
		}
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
