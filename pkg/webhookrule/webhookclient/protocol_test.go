package webhookclient

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/core/rule"
)

func TestPostFollowsTheProtocolByteForByte(t *testing.T) {
	for golden, request := range map[string]PostRequest{
		"post.json": {
			TraceID: "trace-1", Stage: "PreCheck", RuleName: "webhookCheck", Namespace: "shop", PodTransitionRule: "web",
			OperationTypes: []string{"delete", "update"},
			Resources: []Resource{
				PodResource("pod-a", "uid-a", map[string]string{"podIP": "1.0.0.1"}),
				PodResource("pod-b", "uid-b", map[string]string{"podIP": "1.0.0.2", "a<b": "1&2"}),
				{
					APIVersion: "v1", Kind: "Pod", Name: "pod-c", UID: "uid-c", Parameters: map[string]string{},
					Owner: &ResourceOwner{Kind: "Deployment", Name: "web"}, Revision: "6d4c", Labels: map[string]string{"app": "web"}, Cause: "Rollout",
				},
			},
		},
		"post-bare.json": {
			TraceID: "trace-2", Stage: "PostCheck", RuleName: "bare", Namespace: "shop", PodTransitionRule: "web",
			Resources: []Resource{PodResource("pod-a", "uid-a", nil)},
		},
	} {
		t.Run(golden, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("testdata", golden))
			if err != nil {
				t.Fatal(err)
			}
			got, err := request.encode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("POST differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodingDoesNotChangeTheRequest(t *testing.T) {
	request := PostRequest{Resources: []Resource{PodResource("pod-a", "uid-a", nil)}}
	if _, err := request.encode(); err != nil {
		t.Fatal(err)
	}
	if request.Resources[0].Parameters != nil || request.OperationTypes != nil {
		t.Errorf("encoding changed the request: %+v", request)
	}
}

func TestPostThatIsTooLongIsNotSent(t *testing.T) {
	request := PostRequest{Resources: []Resource{PodResource("pod-a", "uid-a", map[string]string{"k": strings.Repeat("x", MaxRequestBytes)})}}
	_, err := request.encode()
	wantClass(t, err, ClassConfiguration)
}

func TestPollURL(t *testing.T) {
	for name, tc := range map[string]struct {
		url  string
		keys []string
		task string
		want string
	}{
		"one key":                        {url: "http://h/fetch", task: "7", want: "http://h/fetch?task-id=7"},
		"two keys carry the same id":     {url: "http://h/fetch", keys: []string{"task-id", "trace-id"}, task: "7", want: "http://h/fetch?task-id=7&trace-id=7"},
		"a query stays as it is written": {url: "http://h/f?z=1&a=%7e&;&b", task: "7", want: "http://h/f?z=1&a=%7e&;&b&task-id=7"},
		"a parameter of the same name is replaced, however it is written": {url: "http://h/f?task%2Did=evil&a=1&task-id=e", task: "7",
			want: "http://h/f?a=1&task-id=7"},
		"row 29: taskId ../../x?y=z& stays one value": {url: "http://h/fetch", task: "../../x?y=z&", want: "http://h/fetch?task-id=..%2F..%2Fx%3Fy%3Dz%26"},
		"a key is escaped as well":                    {url: "http://h/fetch", keys: []string{"a&b=c"}, task: "#", want: "http://h/fetch?a%26b%3Dc=%23"},
	} {
		t.Run(name, func(t *testing.T) {
			base, err := url.Parse(tc.url)
			if err != nil {
				t.Fatal(err)
			}
			keys := tc.keys
			if keys == nil {
				keys = []string{"task-id"}
			}
			got := pollURL(base, keys, tc.task).String()
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if base.String() != tc.url {
				t.Errorf("the URL of the rule was changed to %s", base)
			}
		})
	}
}

// wantClass fails unless err is a failure of the class.
func wantClass(t *testing.T, err error, class Class) {
	t.Helper()
	_ = wantFailure(t, err, class)
}

// wantFailure returns the failure in err, which is of the class and has a message of bounded
// length.
func wantFailure(t *testing.T, err error, class Class) *Failure {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want class %s", class)
	}
	failure := AsFailure(err)
	if failure.Class != class {
		t.Fatalf("class %s (%s), want %s", failure.Class, failure.Message, class)
	}
	if failure.Message == "" || len(failure.Message) > rule.MaxMessageBytes {
		t.Fatalf("message of %d bytes: %q", len(failure.Message), failure.Message)
	}
	return failure
}
