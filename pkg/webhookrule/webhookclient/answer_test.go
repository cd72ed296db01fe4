package webhookclient

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

func TestAnswersToAPost(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want webhooktask.PostAnswer
	}{
		"all approved":                             {`{"success":true,"message":"msg"}`, webhooktask.PostAnswer{Success: true, Message: "msg"}},
		"some approved":                            {`{"success":false,"message":"msg","finishedNames":["pod-a","pod-b"]}`, webhooktask.PostAnswer{Message: "msg", FinishedNames: []string{"pod-a", "pod-b"}}},
		"to be polled":                             {`{"success":true,"poll":true,"taskId":"7","message":"msg"}`, webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "7", Message: "msg"}},
		"to be polled async":                       {`{"success":true,"async":true,"traceId":"t"}`, webhooktask.PostAnswer{Success: true, Async: true, TaskID: "t", TraceID: "t"}},
		"nothing at all is no approval":            {`{}`, webhooktask.PostAnswer{}},
		"other fields, and other cases of letters": {`{"Success":true,"SUCCESS":true,"x":[{"y":null}]}`, webhooktask.PostAnswer{}},
		"null lists, as Go services send them":     {`{"success":true,"finishedNames":null,"message":null,"taskId":null}`, webhooktask.PostAnswer{Success: true}},
		"a taskId that is a number is taken as it is written": {`{"success":true,"poll":true,"taskId":12345678901234567890123.10}`,
			webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "12345678901234567890123.10"}},
		"a rejection needs no task": {`{"success":false,"poll":true}`, webhooktask.PostAnswer{Poll: true}},
		"white space around it":     {" \r\n\t{\"success\" : true }\n", webhooktask.PostAnswer{Success: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodePost([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnswersToAPoll(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want webhooktask.PollAnswer
	}{
		"finished":      {`{"success":true,"message":"msg","finished":true}`, webhooktask.PollAnswer{Success: true, Message: "msg", Finished: true}},
		"some finished": {`{"success":true,"finished":false,"finishedNames":["pod-a"]}`, webhooktask.PollAnswer{Success: true, FinishedNames: []string{"pod-a"}}},
		"stop":          {`{"success":true,"stop":true,"message":"no"}`, webhooktask.PollAnswer{Success: true, Stop: true, Message: "no"}},
		"an error":      {`{"success":false}`, webhooktask.PollAnswer{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodePoll([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadAnswersAreRejectedWithTheirPosition(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		message string
		at      int
	}{
		"JSON array":               {`[{"success":true}]`, "must be a JSON object, is a list", 0},
		"null":                     {`null`, "must be a JSON object, is null", 0},
		"a string":                 {`  "yes"`, "must be a JSON object, is a string", 2},
		"NaN":                      {`{"success":NaN}`, "not JSON", 11},
		"duplicate keys":           {`{"success":false,"success":true}`, `field "success" twice`, 17},
		"escaped duplicate":        {`{"success":false,"s\u0075ccess":true}`, `field "success" twice`, 17},
		"duplicate keys inside":    {`{"x":{"a":1,"a":2}}`, `field "a" twice`, 12},
		`success:"true"`:           {`{"message":"m", "success": "true"}`, "success must be true or false, is a string", 27},
		"success:1":                {`{"success":1}`, "success must be true or false, is a number", 11},
		"success:null":             {`{"success":null}`, "success must be true or false, is null", 11},
		"deep nesting":             {`{"x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`, "nested deeper than 32", 5 + 31},
		"very deep nesting":        {`{"x":` + strings.Repeat("[", 500_000), "not JSON", 5 + 10_000 - 1},
		"invalid UTF-8":            {"{\"message\":\"a\xff\"}", "not valid UTF-8", 13},
		"empty":                    {"", "is empty", 0},
		"only white space":         {" \n ", "is empty", 0},
		"cut off":                  {`{"success":true`, "not JSON", 14},
		"two values":               {`{"success":true} {"success":true}`, "not JSON", 17},
		"names as a string":        {`{"finishedNames":"pod-a"}`, "finishedNames must be a list of strings, is a string", 17},
		"a name that is none":      {`{"finishedNames":["pod-a",{}]}`, "finishedNames must be a list of strings, has an object", 26},
		"a name of 254 bytes":      {`{"finishedNames":["` + strings.Repeat("a", 254) + `"]}`, "name of 254 bytes", 18},
		"1,001 names":              {`{"finishedNames":[` + strings.Repeat(`"a",`, 1000) + `"a"]}`, "has 1001 names", 17},
		"a message in a list":      {`{"message":["m"]}`, "message must be a string, is a list", 11},
		"poll:true without taskId": {`{"success":true,"poll":true}`, "neither taskId nor traceId", 23},
		"async:true without ids":   {`{"success":true,"async":true}`, "neither taskId nor traceId", 24},
		"poll:true, empty taskId":  {`{"success":true,"poll":true,"taskId":""}`, "neither taskId nor traceId", 23},
		"taskId is an object":      {`{"success":true,"poll":true,"taskId":{"id":1}}`, "taskId must be a string or a number, is an object", 37},
		"taskId is a boolean":      {`{"success":true,"poll":true,"taskId":true}`, "taskId must be a string or a number, is a boolean", 37},
		"taskId of 257 bytes":      {`{"taskId":"` + strings.Repeat("a", 257) + `"}`, "taskId is 257 bytes long", 10},
		"taskId with a line break": {`{"taskId":"a\nb"}`, "cannot be printed", 10},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodePost([]byte(tc.body))
			failure := wantFailure(t, err, ClassBadResponse)
			if !strings.Contains(failure.Message, tc.message) {
				t.Errorf("message %q, want it to contain %q", failure.Message, tc.message)
			}
			if position := fmt.Sprintf("byte %d)", tc.at); !strings.HasSuffix(failure.Message, position) {
				t.Errorf("message %q, want it to end with %q", failure.Message, position)
			}
		})
	}
}

func TestPositionsCountLinesAndCharacters(t *testing.T) {
	_, err := decodePoll([]byte("{\n  \"message\": \"é\", \"finished\": 1}"))
	if failure := wantFailure(t, err, ClassBadResponse); !strings.HasSuffix(failure.Message, "(line 2, column 31, byte 33)") {
		t.Errorf("message %q", failure.Message)
	}
}

func TestMessagesAreOneLineOfBoundedLength(t *testing.T) {
	long := Endpoint{}.shown(strings.Repeat("é", 1000))
	if len(long) > rule.MaxMessageBytes || !strings.HasSuffix(long, "é...") {
		t.Errorf("message of %d bytes ends with %q", len(long), long[len(long)-8:])
	}
	if got := (Endpoint{}).shown("a\nb\x1b[31mc\xff"); got != "a b\\x1b[31mc\uFFFD" {
		t.Errorf("message %q", got)
	}
	// A token is redacted before the message is cut: no part of it remains.
	if got := (Endpoint{Token: "s3cr3t\n"}).shown(strings.Repeat("x", rule.MaxMessageBytes-3) + "s3cr3t"); strings.Contains(got, "s3") {
		t.Errorf("message ends with %q", got[len(got)-8:])
	}
}

func TestAnswersAreReadUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.StringMatching(`[a-z0-9é"\\]{0,20}`), 1, 5).Draw(t, "names")
		success, finished := rapid.Bool().Draw(t, "success"), rapid.Bool().Draw(t, "finished")
		body, err := json.Marshal(map[string]any{"success": success, "finished": finished, "finishedNames": names,
			"extra": rapid.SliceOf(rapid.Int()).Draw(t, "extra")})
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodePoll(body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(webhooktask.PollAnswer{Success: success, Finished: finished, FinishedNames: names}, got); diff != "" {
			t.Errorf("answer differs (-want +got):\n%s", diff)
		}
	})
}

func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{`{"success":true}`, `{"x":[[{}]],"taskId":1e9}`, `[`, `{"a":1,"a":2}`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		answer, err := decodePost(body)
		if err != nil {
			wantClass(t, err, ClassBadResponse)
			return
		}
		// A less strict parser must not return another result.
		var loose map[string]any
		if err := json.Unmarshal(body, &loose); err != nil {
			t.Fatalf("accepted what is not a JSON object: %v", err)
		}
		if success, _ := loose["success"].(bool); success != answer.Success {
			t.Errorf("success %v, a lenient parser reads %v", answer.Success, success)
		}
	})
}
