package e2e_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/telemetry/decisionlog"
	"github.com/podops-dev/podops/test/approvals"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("Traces of lifecycles", Ordered, func() {
	const id = "updater"

	BeforeAll(func() { managers.stopAll() })
	AfterEach(func() { managers.stopAll() })
	AfterAll(func(ctx context.Context) { managers.start(ctx) })

	// launch starts a manager that exports traces and leads.
	launch := func(ctx context.Context, flags ...string) *manager {
		GinkgoHelper()
		m := managers.launch(flags...)
		Eventually(ctx, m.Ready).Should(Succeed(), m.Tail)
		Eventually(ctx, managers.leaders).Should(ContainElement(m))
		return m
	}
	// begun creates a pod with a service controller under rules of both stages, and begins an update of it.
	begun := func(ctx context.Context) (p scenario, name string) {
		GinkgoHelper()
		const good = "e2e.podops.dev/good"
		p = newScenario(ctx)
		service := openApprovalService(nil, approvals.Options{})
		p.rule(ctx, approved(), service.callsOnce("/approve"), inPostCheck(appsv1alpha1.TransitionRule{Name: "good", LabelCheck: &appsv1alpha1.LabelCheck{
			Requires: &metav1.LabelSelector{MatchLabels: map[string]string{good: "true"}},
		}}))
		controller := serviceController{employer: p.service(ctx, "web").Name}
		act(p, controller.wants)
		p.pods(ctx, 1, controller.announce)
		name = p.list(ctx)[0].Name
		p.label(ctx, p.get(ctx, name), good, "true")
		p.begin(ctx, p.get(ctx, name), id, "update")
		Expect(p.get(ctx, name)).To(expect.BeWaiting(id))
		return p, name
	}
	operate := func(ctx context.Context, p scenario, name string) {
		GinkgoHelper()
		p.approve(ctx)
		Eventually(ctx, p.seeing(name)).Should(expect.BeOperable(id))
	}
	finish := func(ctx context.Context, p scenario, name string) {
		GinkgoHelper()
		p.setLabels(ctx, p.get(ctx, name), map[string]any{appsv1alpha1.OperatingLabelPrefix + "/" + id: nil})
		Eventually(ctx, p.seeing(name)).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
	}

	It("a lifecycle that outlasts a manager is one trace, and the decision log has its id", func(ctx context.Context) {
		receiver := openTraceReceiver()
		log := filepath.Join(managers.cluster.dir, "decisions.jsonl")
		flags := []string{"--otlp-traces-endpoint", receiver.URL, "--decision-log", log}
		first := launch(ctx, flags...)
		p, name := begun(ctx)
		operate(ctx, p, name)

		By("replacing the manager while the operation runs")
		first.stop()
		Eventually(first.Ended()).Should(BeClosed())
		before := len(tracesOfDecisions(log, p.namespace))
		Expect(before).To(BeNumerically(">", 0))
		launch(ctx, flags...)
		finish(ctx, p, name)
		Eventually(func() int { return len(tracesOfDecisions(log, p.namespace)) }).Should(BeNumerically(">", before))

		By("receiving the spans")
		Eventually(func() []string { return receiver.names(p.namespace) }).Should(ContainElements(
			"PreCheck", "evaluation", "webhook POST", "Preparing", "Operating", "PostCheck", "Completing", "lifecycle update"))
		spans := receiver.spans(p.namespace)
		traces := distinct(spans, (*tracepb.Span).GetTraceId)
		Expect(traces).To(HaveLen(1), "all spans belong to one trace")
		Expect(tracesOfDecisions(log, p.namespace)).To(HaveEach(traces[0]), "the decision log has the trace, before and after the restart")

		root := receiver.span(p.namespace, "lifecycle update")
		Expect(root.GetParentSpanId()).To(BeEmpty())
		Expect(attributesOf(root)).To(And(
			HaveKeyWithValue("k8s.pod.name", name), HaveKeyWithValue("podops.operation.id", id), HaveKeyWithValue("podops.outcome", "Completed")))
		for _, phase := range []string{"PreCheck", "Preparing", "Operating", "PostCheck", "Completing"} {
			span := receiver.span(p.namespace, phase)
			Expect(span.GetParentSpanId()).To(Equal(root.GetSpanId()), phase)
			Expect(span.GetStartTimeUnixNano()).To(BeNumerically(">=", root.GetStartTimeUnixNano()), phase)
			Expect(span.GetEndTimeUnixNano()).To(BeNumerically("<=", root.GetEndTimeUnixNano()), phase)
		}
		evaluation := receiver.span(p.namespace, "evaluation")
		Expect(decisions(log, p.namespace)).To(ContainElement(HaveField("ID", attributesOf(evaluation)["podops.decision.id"])))
	})

	It("a receiver that is down neither delays a lifecycle nor the end of a manager, and lost spans are counted and logged", func(ctx context.Context) {
		m := launch(ctx, "--otlp-traces-endpoint", "http://"+freeAddress())
		m.complaints = append(m.complaints, "Spans are lost")
		p, name := begun(ctx)
		operate(ctx, p, name)
		finish(ctx, p, name)
		Eventually(ctx, func(ctx context.Context) string { return m.metrics(ctx) }).
			Should(MatchRegexp(`podops_trace_spans_dropped_total\{reason="failed"\} [1-9]`))
		Eventually(m.Log).Should(ContainSubstring("Spans are lost"))
		m.stop()
		Eventually(m.Ended()).Should(BeClosed())
	})

	It("a manager that exports no traces writes no label for them", func(ctx context.Context) {
		launch(ctx)
		p, name := begun(ctx)
		Expect(p.get(ctx, name).Labels).NotTo(HaveKey(appsv1alpha1.BeganLabelPrefix + "/" + id))
	})
})

// traceReceiver is an OTLP receiver that keeps spans.
type traceReceiver struct {
	*httptest.Server

	mu       sync.Mutex
	received []*tracepb.Span
}

// openTraceReceiver runs a receiver until the scenario ends.
func openTraceReceiver() *traceReceiver {
	GinkgoHelper()
	r := &traceReceiver{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, request *http.Request) {
		spans, err := decodeSpans(request.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.received = append(r.received, spans...)
	})
	r.Server = httptest.NewServer(mux)
	DeferCleanup(r.Close)
	return r
}

func decodeSpans(body io.Reader) (spans []*tracepb.Span, err error) {
	plain, err := gzip.NewReader(body)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(plain)
	if err != nil {
		return nil, err
	}
	var request coltracepb.ExportTraceServiceRequest
	if err := proto.Unmarshal(content, &request); err != nil {
		return nil, err
	}
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			spans = append(spans, scope.GetSpans()...)
		}
	}
	return spans, nil
}

// spans returns the spans of the pods of a namespace.
func (r *traceReceiver) spans(namespace string) []*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.received), func(span *tracepb.Span) bool {
		return attributesOf(span)["k8s.namespace.name"] != namespace
	})
}

// span returns the first span of a namespace with a name.
func (r *traceReceiver) span(namespace, name string) *tracepb.Span {
	GinkgoHelper()
	spans := r.spans(namespace)
	at := slices.IndexFunc(spans, func(span *tracepb.Span) bool { return span.GetName() == name })
	Expect(at).To(BeNumerically(">=", 0), name)
	return spans[at]
}

func (r *traceReceiver) names(namespace string) []string {
	var names []string
	for _, span := range r.spans(namespace) {
		names = append(names, span.GetName())
	}
	return names
}

// distinct returns the distinct values of a field of spans, in hexadecimal.
func distinct(spans []*tracepb.Span, field func(*tracepb.Span) []byte) []string {
	var values []string
	for _, span := range spans {
		values = append(values, hex.EncodeToString(field(span)))
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// attributesOf returns the texts among the attributes of a span.
func attributesOf(span *tracepb.Span) map[string]string {
	attributes := map[string]string{}
	for _, attribute := range span.GetAttributes() {
		attributes[attribute.GetKey()] = attribute.GetValue().GetStringValue()
	}
	return attributes
}

// decisions returns the decisions in a log about requests of a namespace that wait.
func decisions(log, namespace string) []decisionlog.Decision {
	GinkgoHelper()
	file, err := os.Open(log)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the first decision makes it
	}
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	var found []decisionlog.Decision
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return found // a line without its end is being written
		}
		Expect(err).NotTo(HaveOccurred())
		var record decisionlog.Record
		Expect(json.Unmarshal(line, &record)).To(Succeed())
		if record.Decision != nil && len(record.Decision.TraceIDs) > 0 && strings.HasPrefix(record.Decision.Rule, namespace+"/") {
			found = append(found, *record.Decision)
		}
	}
}

// tracesOfDecisions returns the trace ids in the decisions about a namespace.
func tracesOfDecisions(log, namespace string) []string {
	GinkgoHelper()
	var ids []string
	for _, decision := range decisions(log, namespace) {
		ids = append(ids, decision.TraceIDs...)
	}
	return ids
}
