package approvals_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/test/approvals"
)

// harness is a running service and an HTTP client that trusts only its CA.
type harness struct {
	*testing.T
	*approvals.Service
	server *approvals.Server
	client *http.Client
}

func open(t *testing.T, watch approvals.Watch) harness {
	t.Helper()
	service := approvals.New(watch)
	server := serve(t, service, approvals.Options{})
	client := trusting(server.CA())
	t.Cleanup(client.CloseIdleConnections)
	return harness{T: t, Service: service, server: server, client: client}
}

// serve runs a server until the test ends.
func serve(t *testing.T, service *approvals.Service, options approvals.Options) *approvals.Server {
	t.Helper()
	server, err := approvals.Serve(service, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return server
}

// trusting returns a client that follows no redirect.
func trusting(ca []byte) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// response is an answer of the service.
type response struct {
	Status int
	Header http.Header
	Body   string
}

func (d harness) do(method, url, body string, header ...string) response {
	d.Helper()
	request, err := http.NewRequestWithContext(d.Context(), method, url, strings.NewReader(body))
	if err != nil {
		d.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer, err := d.client.Do(request)
	if err != nil {
		d.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		d.Fatal(err)
	}
	return response{Status: answer.StatusCode, Header: answer.Header, Body: string(text)}
}

// post sends a POST of the protocol to a path.
func (d harness) post(path, trace string, pods ...string) response {
	d.Helper()
	return d.do(http.MethodPost, d.server.URL(path), question(trace, pods...))
}

// poll reads the result of the task.
func (d harness) poll(key, id string) response {
	d.Helper()
	return d.do(http.MethodGet, d.server.URL("/result?"+url.Values{key: {id}}.Encode()), "")
}

// question returns a POST of the rule web/ok for pods, whose UID is their name after uid-,
// and which have their name as parameter name.
func question(trace string, pods ...string) string {
	resources := []map[string]any{}
	for _, pod := range pods {
		resources = append(resources, map[string]any{
			"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": "uid-" + pod, "parameters": map[string]string{"name": pod},
		})
	}
	text, err := json.Marshal(map[string]any{
		"traceId": trace, "stage": "PreCheck", "ruleName": "ok", "resources": resources,
		"namespace": "shop", "podTransitionRule": "web", "operationTypes": []string{"update"},
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// fields parses JSON, the required format of an answer.
func (d harness) fields(body string) map[string]any {
	d.Helper()
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		d.Fatalf("%v: %s", err, body)
	}
	return fields
}

func (d harness) same(what string, got, want any) {
	d.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		d.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// list returns a JSON array of names.
func list(names ...string) []any {
	all := []any{}
	for _, name := range names {
		all = append(all, name)
	}
	return all
}

// approvedNames returns the pods of Approvals, oldest first.
func (d harness) approvedNames() []string {
	names := []string{}
	for _, approval := range d.Approvals("shop") {
		if approval.Pod.UID != "uid-"+approval.Pod.Name || approval.Rule != "web/ok" || approval.Stage != "PreCheck" {
			d.Errorf("unexpected approval %+v", approval)
		}
		names = append(names, approval.Pod.Name)
	}
	return names
}

func TestPathsThatAnswerAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		path         string
		wantStatus   int
		wantAnswer   map[string]any // nil: the body is not JSON
		wantHeader   [2]string
		wantApproved []string
		wantDecision approvals.Decision
	}{
		"everything": {
			path: "/approve", wantStatus: 200, wantAnswer: map[string]any{"success": true, "finishedNames": list("a", "b", "c")},
			wantApproved: []string{"a", "b", "c"}, wantDecision: approvals.Approved,
		},
		"some": {
			path: "/approve-some?n=2", wantStatus: 200,
			wantAnswer:   map[string]any{"success": false, "finishedNames": list("a", "b"), "message": "2 of 3 pods may go"},
			wantApproved: []string{"a", "b"}, wantDecision: approvals.PartApproved,
		},
		"more pods than the request has": {
			path: "/approve-some?n=9", wantStatus: 200, wantAnswer: map[string]any{"success": true, "finishedNames": list("a", "b", "c")},
			wantApproved: []string{"a", "b", "c"}, wantDecision: approvals.Approved,
		},
		"pods with a parameter": {
			path: "/approve-some?parameter=name&value=c&message=only%20c", wantStatus: 200,
			wantAnswer:   map[string]any{"success": false, "finishedNames": list("c"), "message": "only c"},
			wantApproved: []string{"c"}, wantDecision: approvals.PartApproved,
		},
		"nothing": {
			path: "/reject?message=freeze", wantStatus: 200, wantAnswer: map[string]any{"success": false, "message": "freeze"},
			wantApproved: []string{}, wantDecision: approvals.Rejected,
		},
		"an error": {
			path: "/500?status=502", wantStatus: 502, wantAnswer: map[string]any{"success": false, "message": "Bad Gateway"},
			wantApproved: []string{}, wantDecision: approvals.Failed,
		},
		"no JSON": {path: "/garbage", wantStatus: 200, wantApproved: []string{}, wantDecision: approvals.Failed},
		"a redirect": {
			path: "/redirect", wantStatus: 302, wantAnswer: map[string]any{"success": false, "message": "Found"},
			wantHeader: [2]string{"Location", "http://169.254.169.254/"}, wantApproved: []string{}, wantDecision: approvals.Failed,
		},
		"later": {
			path: "/retry-after?seconds=7&times=0", wantStatus: 503, wantAnswer: map[string]any{"success": false, "message": "Service Unavailable"},
			wantHeader: [2]string{"Retry-After", "7"}, wantApproved: []string{}, wantDecision: approvals.Failed,
		},
		"a Retry-After that is a date": {
			path: "/retry-after?times=0&status=429&value=Fri,%2031%20Dec%209999%2023:59:59%20GMT", wantStatus: 429,
			wantAnswer: map[string]any{"success": false, "message": "Too Many Requests"},
			wantHeader: [2]string{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"}, wantApproved: []string{}, wantDecision: approvals.Failed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, nil)
			answer := d.post(tc.path, "t1", "c", "a", "b")
			d.same("status", answer.Status, tc.wantStatus)
			if tc.wantAnswer != nil {
				d.same("answer", d.fields(answer.Body), tc.wantAnswer)
			} else if json.Valid([]byte(answer.Body)) {
				d.Errorf("the answer is JSON: %s", answer.Body)
			}
			d.same("header", answer.Header.Get(tc.wantHeader[0]), tc.wantHeader[1])
			d.same("approvals", d.approvedNames(), tc.wantApproved)
			d.same("decision", d.Log("")[0].Decision, tc.wantDecision)
		})
	}
}

func TestRetryAfterApprovesAfterItsErrors(t *testing.T) {
	d := open(t, nil)
	for _, want := range []int{503, 503, 200} {
		d.same("status", d.post("/retry-after?times=2", "t1", "a").Status, want)
	}
	d.same("another call starts at zero", d.post("/retry-after?times=2", "t2", "a").Status, 503)
	d.same("POSTs of each traceId", d.Posts(""), map[string]int{"t1": 3, "t2": 1})
}

func TestHTTPSRequiresTheCA(t *testing.T) {
	d := open(t, nil)
	answer := d.do(http.MethodPost, d.server.SecureURL("/approve"), question("t1", "a"))
	d.same("status", answer.Status, 200)
	d.same("the log reports TLS", d.Log("")[0].TLS, true)
	d.same("the CA can be fetched", d.do(http.MethodGet, d.server.URL("/ca.pem"), "").Body, string(d.server.CA()))
	refused, err := trusting(open(t, nil).server.CA()).Post(d.server.SecureURL("/approve"), "application/json", strings.NewReader(question("t2", "a")))
	if err == nil {
		defer refused.Body.Close()
	}
	var untrusted *tls.CertificateVerificationError
	if !errors.As(err, &untrusted) {
		t.Errorf("a client that trusts another CA gets %v", err)
	}
}

func TestRejectsRequestsThatTheProtocolDoesNotAllow(t *testing.T) {
	valid := question("t1", "a")
	for name, tc := range map[string]struct {
		method, path, body string
		header             []string
		wantStatus         int
		wantText           string
	}{
		"no JSON":                  {body: "pods!", wantStatus: 400, wantText: "reading the body"},
		"an unknown field":         {body: strings.Replace(valid, "traceId", "traceID2", 1), wantStatus: 400, wantText: "traceID2"},
		"an unknown field of pods": {body: strings.Replace(valid, `"uid"`, `"UUID"`, 1), wantStatus: 400, wantText: "UUID"},
		"two objects":              {body: valid + valid, wantStatus: 400, wantText: "follows"},
		"no traceId":               {body: question("", "a"), wantStatus: 400, wantText: "traceId"},
		"an old stage":             {body: strings.Replace(valid, "PreCheck", "PreTrafficOff", 1), wantStatus: 400, wantText: "PreTrafficOff"},
		"an old apiVersion":        {body: strings.Replace(valid, `"v1"`, `"core/v1"`, 1), wantStatus: 400, wantText: "core/v1"},
		"no pods":                  {body: question("t1"), wantStatus: 400, wantText: "resources"},
		"a duplicate pod":          {body: question("t1", "a", "a"), wantStatus: 400, wantText: "each once"},
		"a body without end":       {body: strings.Repeat(" ", 1<<20) + valid, wantStatus: 400, wantText: "longer"},
		"an unknown path":          {path: "/aprove", body: valid, wantStatus: 404, wantText: "path"},
		"an unknown parameter":     {path: "/approve?m=1", body: valid, wantStatus: 400, wantText: `"m"`},
		"an invalid number":        {path: "/approve-some?n=-1", body: valid, wantStatus: 400, wantText: `"n"`},
		"an invalid status":        {path: "/500?status=0", body: valid, wantStatus: 400, wantText: `"status"`},
		"a GET":                    {method: http.MethodGet, wantStatus: 405, wantText: "POST"},
		"no token":                 {path: "/approve?bearer=abc", body: valid, wantStatus: 401, wantText: "token"},
		"another token":            {path: "/approve?bearer=abc", body: valid, header: []string{"Authorization", "Bearer ab"}, wantStatus: 401, wantText: "token"},
		"an unknown task":          {method: http.MethodGet, path: "/result?task-id=t1", wantStatus: 404, wantText: "no task"},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, nil)
			method, path := tc.method, tc.path
			if method == "" {
				method = http.MethodPost
			}
			if path == "" {
				path = "/approve"
			}
			answer := d.do(method, d.server.URL(path), tc.body, tc.header...)
			d.same("status", answer.Status, tc.wantStatus)
			if message := fmt.Sprint(d.fields(answer.Body)["message"]); !strings.Contains(message, tc.wantText) {
				t.Errorf("the answer %q does not contain %q", message, tc.wantText)
			}
			d.same("approvals", d.approvedNames(), []string{})
			d.same("decision", d.Log("")[0].Decision, approvals.Refused)
		})
	}
}

func TestAcceptsTheTokenOfTheURL(t *testing.T) {
	d := open(t, nil)
	answer := d.do(http.MethodPost, d.server.URL("/approve?bearer=abc"), question("t1", "a"), "Authorization", "Bearer abc")
	d.same("status", answer.Status, 200)
	d.same("the log reports credentials", d.Log("")[0].Credentials, true)
	text := d.do(http.MethodGet, d.server.URL("/log"), "").Body
	if strings.Contains(text, "Bearer") {
		t.Errorf("the log has the header: %s", text)
	}
}

func TestLogIsJSONLines(t *testing.T) {
	d := open(t, nil)
	d.post("/approve", "t1", "a")
	d.post("/poll", "t2", "b", "c")
	d.poll("task-id", d.Log("")[1].TaskID)
	var traces, approved []string
	decoder := json.NewDecoder(bytes.NewBufferString(d.do(http.MethodGet, d.server.URL("/log"), "").Body))
	for decoder.More() {
		var entry approvals.Entry
		if err := decoder.Decode(&entry); err != nil {
			t.Fatal(err)
		}
		traces = append(traces, fmt.Sprint(entry.Sequence, " ", entry.Method, " ", entry.Path, " ", entry.TraceID, " ", entry.Decision))
		for _, pod := range entry.Approved {
			approved = append(approved, pod.UID)
		}
	}
	d.same("requests", traces, []string{"1 POST /approve t1 approved", "2 POST /poll t2 accepted", "3 GET /result t2 processing"})
	d.same("approvals", approved, []string{"uid-a", "uid-b"})
	d.same("approvals of another namespace", d.Approvals("elsewhere"), []approvals.Approval(nil))
}
