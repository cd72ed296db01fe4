package approvals

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
)

const (
	// maxBodyBytes and maxPods bound one request.
	maxBodyBytes      = 1 << 20
	maxPods           = 1000
	maxOperationTypes = 64

	// maxTextBytes bounds every text of a request that is kept.
	maxTextBytes = 1024
)

// question is the body of a POST, as the protocol specifies it, with the fields that were
// added later.
type question struct {
	TraceID   string     `json:"traceId"`
	Stage     string     `json:"stage"`
	RuleName  string     `json:"ruleName"`
	Resources []resource `json:"resources"`

	Namespace         string   `json:"namespace"`
	PodTransitionRule string   `json:"podTransitionRule"`
	OperationTypes    []string `json:"operationTypes"`
}

type resource struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Name       string            `json:"name"`
	UID        string            `json:"uid"`
	Parameters map[string]string `json:"parameters"`

	Owner         *owner            `json:"owner"`
	Revision      string            `json:"revision"`
	RevisionState string            `json:"revisionState"`
	Labels        map[string]string `json:"labels"`
	Cause         string            `json:"cause"`
}

type owner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// postAnswer is the answer to a POST.
type postAnswer struct {
	Success       bool     `json:"success"`
	Message       string   `json:"message,omitempty"`
	FinishedNames []string `json:"finishedNames,omitempty"`
	Poll          bool     `json:"poll,omitempty"`
	Async         bool     `json:"async,omitempty"`
	TaskID        string   `json:"taskId,omitempty"`
	TraceID       string   `json:"traceId,omitempty"`
}

// pollAnswer is the answer to a GET. FinishedNames holds all pods that are approved at
// the time of the answer, so a lost answer does no harm.
type pollAnswer struct {
	Success       bool     `json:"success"`
	Finished      bool     `json:"finished"`
	FinishedNames []string `json:"finishedNames,omitempty"`
	Message       string   `json:"message,omitempty"`
	Stop          bool     `json:"stop,omitempty"`
}

// readQuestion parses strictly: an unknown field is an error. The fields that could be read
// are returned with the error.
func readQuestion(r *http.Request) (question, error) {
	var q question
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
	if err != nil {
		return q, fmt.Errorf("reading the body: %w", err)
	}
	if len(body) > maxBodyBytes {
		return q, fmt.Errorf("the body is longer than %d bytes", maxBodyBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		return q, fmt.Errorf("reading the body: %w", err)
	}
	if decoder.More() {
		return q, errors.New("something follows the JSON object of the body")
	}
	return q, nil
}

// check returns an error that names all fields that are invalid or missing.
func (q question) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for field, text := range map[string]string{
		"traceId": q.TraceID, "ruleName": q.RuleName, "namespace": q.Namespace, "podTransitionRule": q.PodTransitionRule,
	} {
		if tooLong(text) {
			wrong("%s is longer than %d bytes", field, maxTextBytes)
		}
	}
	if q.TraceID == "" || q.RuleName == "" {
		wrong("traceId and ruleName must not be empty")
	}
	if q.Stage != "PreCheck" && q.Stage != "PostCheck" {
		wrong("stage is %.100q, want PreCheck or PostCheck", q.Stage)
	}
	if len(q.OperationTypes) > maxOperationTypes || slices.ContainsFunc(q.OperationTypes, tooLong) {
		wrong("operationTypes are more than %d, or longer than %d bytes", maxOperationTypes, maxTextBytes)
	}
	return errors.Join(append(errs, checkPods(q.Resources))...)
}

func checkPods(pods []resource) error {
	if len(pods) == 0 || len(pods) > maxPods {
		return fmt.Errorf("got %d resources, want 1 to %d", len(pods), maxPods)
	}
	var errs []error
	seen := map[string]bool{}
	for i, pod := range pods {
		if pod.APIVersion != "v1" || pod.Kind != "Pod" {
			errs = append(errs, fmt.Errorf("resources[%d] is of %.100q %.100q, want \"v1\" \"Pod\"", i, pod.APIVersion, pod.Kind))
		}
		if pod.Name == "" || tooLong(pod.Name) || tooLong(pod.UID) || seen[pod.Name] {
			errs = append(errs, fmt.Errorf("resources[%d].name is %.100q, want names of pods, each once", i, pod.Name))
		}
		if !slices.Contains([]string{"", "Rollout", "ScaleIn"}, pod.Cause) {
			errs = append(errs, fmt.Errorf("resources[%d].cause is %.100q, want \"Rollout\", \"ScaleIn\" or nothing", i, pod.Cause))
		}
		seen[pod.Name] = true
	}
	return errors.Join(errs...)
}

func tooLong(text string) bool { return len(text) > maxTextBytes }

// pods returns the pods of the question, sorted by name.
func (q question) pods() []Pod {
	pods := make([]Pod, len(q.Resources))
	for i, r := range q.Resources {
		pods[i] = Pod{Name: r.Name, UID: r.UID, Parameters: r.Parameters, Cause: r.Cause}
	}
	slices.SortFunc(pods, byName)
	return pods
}

// rule returns the calling rule, as "<PodTransitionRule>/<rule>".
func (q question) rule() string { return q.PodTransitionRule + "/" + q.RuleName }
