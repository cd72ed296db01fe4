package alibabacloudslb_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	slb "github.com/podops-dev/podops/pkg/adapters/alibabacloudslb"
	"github.com/podops-dev/podops/pkg/adapters/alibabacloudslb/internal/slbtest"
)

func config(server *slbtest.Server) slb.Config {
	return slb.Config{
		AccessKeyID: slbtest.AccessKeyID, AccessKeySecret: slbtest.AccessKeySecret, Endpoint: server.URL,
		CallTimeout: 5 * time.Second, CallsPerSecond: 10_000, FirstBackoff: time.Millisecond,
	}
}

func newClient(t *testing.T, server *slbtest.Server) *slb.Client {
	t.Helper()
	client, err := slb.NewClient(config(server))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func eni(n, port, weight int) slb.Backend {
	return slb.Backend{
		ServerID: fmt.Sprintf("eni-%d", n), ServerIP: fmt.Sprintf("10.0.0.%d", n), Type: slb.ServerENI,
		Port: int32(port), Weight: int32(weight), Description: "d",
	}
}

// refusal holds the fields of an APIError that tests compare.
type refusal struct {
	Action, Code, RequestID string
	Status                  int
}

func refusalOf(t *testing.T, err error) refusal {
	t.Helper()
	var api *slb.APIError
	if !errors.As(err, &api) {
		t.Fatalf("error %v (%T) is not an APIError", err, err)
	}
	return refusal{Action: api.Action, Code: api.Code, RequestID: api.RequestID, Status: api.Status}
}

func TestTheClientReadsItsWrites(t *testing.T) {
	ctx := t.Context()
	server := slbtest.New(t)
	server.AddLoadBalancer("lb-1", slbtest.Backend{ServerID: "i-1", Type: "ecs", Weight: 100})
	server.AddGroup("lb-1", "rsp-1", "k8s/80/web/prod/c1")
	client := newClient(t, server)

	backends, err := client.LoadBalancer(ctx, "lb-1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]slb.Backend{{ServerID: "i-1", Type: slb.ServerECS, Weight: 100}}, backends); diff != "" {
		t.Errorf("backends of the load balancer (-want +got):\n%s", diff)
	}
	groups, err := client.Groups(ctx, "lb-1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]slb.Group{{ID: "rsp-1", Name: "k8s/80/web/prod/c1"}}, groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}

	steps := []struct {
		sentence string
		do       func() error
		want     []slb.Backend
	}{
		{"empty", func() error { return nil }, nil},
		{"added", func() error { return client.Add(ctx, "rsp-1", []slb.Backend{eni(1, 80, 100), eni(2, 80, 50)}) }, []slb.Backend{eni(1, 80, 100), eni(2, 80, 50)}},
		{"weight set", func() error { return client.SetWeight(ctx, "rsp-1", []slb.Backend{eni(1, 80, 0)}) }, []slb.Backend{eni(1, 80, 0), eni(2, 80, 50)}},
		{"removed", func() error { return client.Remove(ctx, "rsp-1", []slb.Backend{eni(1, 80, 0)}) }, []slb.Backend{eni(2, 80, 50)}},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.sentence, err)
		}
		got, err := client.Group(ctx, "rsp-1")
		if err != nil {
			t.Fatalf("%s: %v", step.sentence, err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: backends (-want +got):\n%s", step.sentence, diff)
		}
	}
}

func TestTheClientRetriesTransientErrors(t *testing.T) {
	for sentence, fault := range map[string]slbtest.Refusal{
		"throttled":              slbtest.Throttled(),
		"throttled for the API":  {Status: 400, Code: "Throttling.Api", Message: "slow down"},
		"still configuring":      slbtest.Busy(),
		"unavailable":            {Status: 503, Code: "ServiceUnavailable", Message: "later"},
		"an error of the server": {Status: 500, Code: "UnknownError", Message: "oops"},
		"a gateway without JSON": slbtest.Broken(),
		"an empty answer":        {Status: 200, Body: " "},
	} {
		t.Run(sentence, func(t *testing.T) {
			server := slbtest.New(t)
			server.AddGroup("", "rsp-1", "g", slbtest.Backend{ServerID: "eni-1", ServerIP: "10.0.0.1", Type: "eni", Port: 80, Weight: 100, Description: "d"})
			server.Inject(slbtest.Fault{Action: "DescribeVServerGroupAttribute", Times: 3, Refusal: fault})
			got, err := newClient(t, server).Group(t.Context(), "rsp-1")
			if err != nil {
				t.Fatalf("the fourth of four attempts: %v", err)
			}
			if diff := cmp.Diff([]slb.Backend{eni(1, 80, 100)}, got); diff != "" {
				t.Errorf("backends (-want +got):\n%s", diff)
			}
			if got := server.Requests(); got != 4 {
				t.Errorf("requests = %d, want 4", got)
			}
		})
	}
}

func TestTheClientStopsRetrying(t *testing.T) {
	for sentence, tc := range map[string]struct {
		fault    slbtest.Refusal
		requests int
		want     refusal
	}{
		"at once on a permanent error": {
			slbtest.Refusal{Status: 400, Code: "InvalidParameter", Message: "no"}, 1,
			refusal{Action: "DescribeVServerGroupAttribute", Code: "InvalidParameter", RequestID: "REQUEST-1", Status: 400},
		},
		"at once when the account lacks the right": {
			slbtest.Refusal{Status: 403, Code: "Forbidden.RAM", Message: "no"}, 1,
			refusal{Action: "DescribeVServerGroupAttribute", Code: "Forbidden.RAM", RequestID: "REQUEST-1", Status: 403},
		},
		"after four attempts on throttling": {
			slbtest.Throttled(), 4,
			refusal{Action: "DescribeVServerGroupAttribute", Code: "Throttling.User", RequestID: "REQUEST-4", Status: 400},
		},
		"after four attempts on a gateway without JSON": {
			slbtest.Broken(), 4, refusal{Action: "DescribeVServerGroupAttribute"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			server := slbtest.New(t)
			server.Inject(slbtest.Fault{Refusal: tc.fault})
			_, err := newClient(t, server).Group(t.Context(), "rsp-1")
			if diff := cmp.Diff(tc.want, refusalOf(t, err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if got := server.Requests(); got != tc.requests {
				t.Errorf("requests = %d, want %d", got, tc.requests)
			}
			for _, part := range []string{"rsp-1", tc.want.Action, tc.want.Code, tc.want.RequestID} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not name %q", err, part)
				}
			}
		})
	}
}

func TestAnAnswerForAnotherObjectIsAnError(t *testing.T) {
	server := slbtest.New(t)
	server.Inject(slbtest.Fault{Refusal: slbtest.Refusal{Status: http.StatusOK, Body: `{}`}})
	client := newClient(t, server)
	for sentence, call := range map[string]func() error{
		"load balancer": func() error { _, err := client.LoadBalancer(t.Context(), "lb-1"); return err },
		"groups":        func() error { _, err := client.Groups(t.Context(), "lb-1"); return err },
		"group":         func() error { _, err := client.Group(t.Context(), "rsp-1"); return err },
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := refusalOf(t, call()).Code; got != "UnexpectedAnswer" {
				t.Errorf("code = %q: an empty answer must not mean that no pod has traffic", got)
			}
		})
	}
}

func TestClientReturnsWhenTheContextEnds(t *testing.T) {
	for sentence, fault := range map[string]slbtest.Fault{
		"while the server hangs":  {Hang: true},
		"before the next attempt": {Refusal: slbtest.Throttled()},
	} {
		t.Run(sentence, func(t *testing.T) {
			server := slbtest.New(t)
			server.Inject(fault)
			slow := config(server)
			slow.FirstBackoff = time.Hour
			client, err := slb.NewClient(slow)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			started := time.Now()
			if _, err := client.Group(ctx, "rsp-1"); err == nil {
				t.Error("no error")
			} else if fault.Hang && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v does not report the deadline", err)
			}
			if took := time.Since(started); took > 4*time.Second {
				t.Errorf("took %v beyond a deadline of 50ms", took)
			}
		})
	}
}

func TestCallsOfAProcessAreLimited(t *testing.T) {
	server := slbtest.New(t)
	server.AddGroup("", "rsp-1", "g")
	limited := config(server)
	limited.CallsPerSecond = 0.001
	client, err := slb.NewClient(limited)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Group(t.Context(), "rsp-1"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := client.Group(ctx, "rsp-1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second call in a thousand seconds: %v, want a deadline", err)
	}
	if got := server.Requests(); got != 1 {
		t.Errorf("requests = %d, want 1", got)
	}
}

func TestNoCredentialsInErrorsAndText(t *testing.T) {
	server := slbtest.New(t)
	client := newClient(t, server)
	texts := map[string]string{
		"client":    fmt.Sprintf("%v %+v %#v", client, client, client),
		"config":    fmt.Sprintf("%v %+v %#v", config(server), config(server), config(server)),
		"no server": "",
	}
	server.Inject(slbtest.Fault{Refusal: slbtest.Refusal{
		Status: 400, Code: "SignatureDoesNotMatch",
		Message: "server string to sign is: AccessKeyId=" + slbtest.AccessKeyID + "&" + slbtest.AccessKeySecret + strings.Repeat("x", 10_000),
	}})
	_, err := client.Group(t.Context(), "rsp-1")
	texts["refused"] = err.Error()
	if len(err.Error()) > 1000 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	gone := config(server)
	gone.Endpoint, gone.Attempts = "http://127.0.0.1:1", 1
	unreachable, err := slb.NewClient(gone)
	if err != nil {
		t.Fatal(err)
	}
	_, err = unreachable.Group(t.Context(), "rsp-1")
	if err == nil {
		t.Fatal("port 1 is in use")
	}
	texts["no server"] = err.Error()
	for sentence, text := range texts {
		for _, secret := range []string{slbtest.AccessKeyID, slbtest.AccessKeySecret} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %q has the credential %q", sentence, text, secret)
			}
		}
	}
}

func TestConfigFromEnv(t *testing.T) {
	full := map[string]string{"ALIYUN_SLB_AK_KEY": "key", "ALIYUN_SLB_AK_SECRET": "secret", "ALIYUN_SLB_ENDPOINT": "slb.cn-hangzhou.aliyuncs.com"}
	without := func(name string) map[string]string {
		env := map[string]string{}
		for key, value := range full {
			env[key] = value
		}
		delete(env, name)
		return env
	}
	with := func(name, value string) map[string]string {
		env := without(name)
		env[name] = value
		return env
	}
	for sentence, tc := range map[string]struct {
		env  map[string]string
		want string // part of the error
	}{
		"complete":                   {env: full},
		"the central endpoint":       {env: without("ALIYUN_SLB_ENDPOINT")},
		"a test server":              {env: with("ALIYUN_SLB_ENDPOINT", "http://127.0.0.1:8080")},
		"no key":                     {env: without("ALIYUN_SLB_AK_KEY"), want: "set ALIYUN_SLB_AK_KEY"},
		"no secret":                  {env: without("ALIYUN_SLB_AK_SECRET"), want: "set ALIYUN_SLB_AK_SECRET"},
		"another scheme":             {env: with("ALIYUN_SLB_ENDPOINT", "ftp://x"), want: "ALIYUN_SLB_ENDPOINT: scheme"},
		"a path":                     {env: with("ALIYUN_SLB_ENDPOINT", "https://x/y"), want: "must be a host"},
		"a password in the endpoint": {env: with("ALIYUN_SLB_ENDPOINT", "https://u:hidden@x"), want: "must be a host"},
		"no host":                    {env: with("ALIYUN_SLB_ENDPOINT", "https://"), want: "has no host"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := slb.ConfigFromEnv(func(name string) string { return tc.env[name] })
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("error %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want one with %q", err, tc.want)
			case err != nil && strings.Contains(err.Error(), "hidden"):
				t.Errorf("error %v has the password", err)
			}
		})
	}
}
