package approvals_test

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/test/approvals"
)

// TestTheClientOfTheManagerAgrees checks both implementations of the protocol: the service
// accepts the requests of the manager, and the manager understands the answers.
func TestTheClientOfTheManagerAgrees(t *testing.T) {
	client := webhookclient.NewClient(webhookclient.Guard{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		webhookclient.Timeouts{Header: time.Second, Try: time.Second, Total: 3 * time.Second})
	defer client.CloseIdle()
	d := open(t, nil)
	pem := string(d.server.CA())
	flawed := func(flaw approvals.Flaw) webhookclient.Endpoint {
		server := serve(t, approvals.New(nil), approvals.Options{Flaw: flaw})
		return webhookclient.Endpoint{URL: server.SecureURL("/approve"), CABundle: string(server.CA())}
	}
	plain := func(path string) webhookclient.Endpoint { return webhookclient.Endpoint{URL: d.server.URL(path)} }
	secure := func(path, bundle string) webhookclient.Endpoint {
		return webhookclient.Endpoint{URL: d.server.SecureURL(path), CABundle: bundle, Token: "abc"}
	}
	for name, tc := range map[string]struct {
		endpoint webhookclient.Endpoint
		want     string // the answer to the POST, then those to the polls
	}{
		"approve":                   {plain("/approve"), "true [a b]"},
		"over HTTPS":                {secure("/approve", pem), "true [a b]"},
		"over HTTPS, base64":        {secure("/approve", base64.StdEncoding.EncodeToString([]byte(pem))), "true [a b]"},
		"over HTTPS, with a token":  {secure("/approve?bearer=abc", pem), "true [a b]"},
		"over HTTPS, another token": {secure("/approve?bearer=abcd", pem), "HTTPStatus"},
		"over HTTPS, untrusted":     {secure("/approve", ""), "TLSUntrusted"},
		"over HTTPS, expired":       {flawed(approvals.Expired), "TLSExpired"},
		"over HTTPS, another name":  {flawed(approvals.ForAnotherName), "TLSNameMismatch"},
		"some":                      {plain("/approve-some"), "false [a]"},
		"pods with a parameter":     {plain("/approve-some?parameter=tier&value=gold"), "false [b]"},
		"reject":                    {plain("/reject"), "false []"},
		"poll":                      {plain("/poll"), "true []; true false [a] false; true true [a b] false"},
		"poll, with an awkward id":  {plain("/poll?prefix=..%2Fx%3Fy%3Dz%26"), "true []; true false [a] false; true true [a b] false"},
		"async":                     {plain("/async"), "true []; true false [a] false; true true [a b] false"},
		"stop":                      {plain("/stop"), "true []; true false [] true; true false [] true"},
		"hang":                      {plain("/hang"), "Timeout"},
		"an error":                  {plain("/500"), "HTTPStatus"},
		"garbage":                   {plain("/garbage"), "BadResponse"},
		"a redirect":                {plain("/redirect"), "RedirectRefused"},
		"a retry after 1 s":         {plain("/retry-after?seconds=1"), "true [a b]"},
		"a retry after 60 s":        {plain("/retry-after?seconds=60"), "HTTPStatus"},
		"an unknown path":           {plain("/no-such-path"), "HTTPStatus"},
	} {
		t.Run(name, func(t *testing.T) {
			request := webhookclient.PostRequest{
				TraceID: name, Stage: "PreCheck", RuleName: "ok", Namespace: "shop", PodTransitionRule: "web", OperationTypes: []string{"update"},
				Resources: []webhookclient.Resource{
					webhookclient.PodResource("a", "uid-a", nil), webhookclient.PodResource("b", "uid-b", map[string]string{"tier": "gold"}),
				},
			}
			answer, err := client.Post(t.Context(), tc.endpoint, request)
			got := fmt.Sprint(answer.Success, " ", answer.FinishedNames)
			if err != nil {
				got = string(webhookclient.AsFailure(err).Class)
			}
			for range 2 {
				if !answer.Poll && !answer.Async {
					break
				}
				poll, err := client.Poll(t.Context(), plain("/result"), []string{"task-id"}, answer.TaskID)
				if err != nil {
					t.Fatal(err)
				}
				got += fmt.Sprint("; ", poll.Success, " ", poll.Finished, " ", poll.FinishedNames, " ", poll.Stop)
			}
			d.same("answers", got, tc.want)
		})
	}
}
