package evaluation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/heapsize"
	"github.com/podops-dev/podops/pkg/rule"
)

// fullRecollection is that of a rule that refused so many pods with a text each.
func fullRecollection(pods int, text string) (*recollection, []*rule.PodFact) {
	remembered := newRecollection()
	var facts []*rule.PodFact
	var requests []rule.Request
	var verdicts []rule.Verdict
	for i := range pods {
		fact := &rule.PodFact{UID: types.UID(fmt.Sprintf("%036d", i)), Name: fmt.Sprint("web-", i)}
		request := rule.Request{
			Pod: fact, Stage: appsv1alpha1.StagePreCheck, ID: strings.Repeat("i", 62), Type: strings.Repeat("t", 63),
			Attempt: fmt.Sprint(1_700_000_000_000_000_000 + i), Task: rule.Task{State: rule.TaskFailed, Message: strings.Clone(text)},
		}
		facts, requests = append(facts, fact), append(requests, request)
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
	return remembered, facts
}

// TestRecollectionBytes compares with the bytes that the values keep alive on the heap.
func TestRecollectionBytes(t *testing.T) {
	for _, pods := range []int{0, 1, 2, 7, 8, 15, 1000, 1800} {
		for _, text := range []string{"", strings.Repeat("x", rule.MaxMessageBytes)} {
			remembered, facts := fullRecollection(pods, text)
			got, heap := remembered.bytes(), heapsize.New(heapsize.Options{Shared: []any{facts}}).Of(remembered)
			if got < heap || got > 2*heap+2*recollectionBytes {
				t.Errorf("%d pods with texts of %d bytes: counts %d bytes, takes %d", pods, len(text), got, heap)
			}
		}
	}
}
