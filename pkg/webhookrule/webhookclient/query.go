package webhookclient

import (
	"net/url"
	"slices"
	"strings"
)

// pollURL adds the id of a task to the query of a URL, under each of the keys. Other parameters of
// the query are kept as they are written; a parameter with the name of a key is removed: a service
// that reads the first of two must not read another task.
func pollURL(base *url.URL, keys []string, taskID string) *url.URL {
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
		parts = append(parts, url.Values{key: {taskID}}.Encode())
	}
	made := *base
	made.RawQuery = strings.Join(parts, "&")
	return &made
}
