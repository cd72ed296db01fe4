package remote

import (
	"net/url"
	"slices"
	"strings"
)

// The query parameters that carry a task.
const (
	queryTaskID  = "task-id"
	queryTraceID = "trace-id"
)

// QueryKeys are the parameters of a poll that carry the task: the rawQueryKey of the rule;
// without one "task-id", and after an answer with async "trace-id" as well.
func QueryKeys(rawQueryKey string, async bool) []string {
	switch {
	case rawQueryKey != "":
		return []string{rawQueryKey}
	case async:
		return []string{queryTaskID, queryTraceID}
	default:
		return []string{queryTaskID}
	}
}

// pollURL adds the keys to the query of a URL. What the query has already is kept as it is
// written, apart from a parameter of the same name: a service that reads the first of two
// must not read another task.
//
// A single key carries the task id, whatever its name. Of several keys, "trace-id" carries
// the trace id.
func pollURL(base *url.URL, keys []string, taskID, traceID string) *url.URL {
	var parts []string
	for part := range strings.SplitSeq(base.RawQuery, "&") {
		name, _, _ := strings.Cut(part, "=")
		if unescaped, err := url.QueryUnescape(name); err == nil {
			name = unescaped
		}
		if part != "" && !slices.Contains(keys, name) {
			parts = append(parts, part)
		}
	}
	for _, key := range keys {
		value := taskID
		if len(keys) > 1 && key == queryTraceID && traceID != "" {
			value = traceID
		}
		parts = append(parts, url.Values{key: {value}}.Encode())
	}
	made := *base
	made.RawQuery = strings.Join(parts, "&")
	return &made
}
