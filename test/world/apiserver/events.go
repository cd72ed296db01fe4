package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// forgo answers a request that writes an Event as if it was stored: with the Event, or with its name and what a patch sets.
func forgo(r *http.Request, info *request.RequestInfo) (*http.Response, error) {
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read an event: %w", err)
	}
	code, header := http.StatusOK, http.Header{"Content-Type": r.Header["Content-Type"]}
	switch info.Verb {
	case "create":
		code = http.StatusCreated
	case "patch":
		if body, err = patched(body, info); err != nil {
			return nil, err
		}
		header.Set("Content-Type", "application/json")
	}
	return newResponse(r, code, header, io.NopCloser(bytes.NewReader(body)), int64(len(body))), nil
}

// patched returns the Event that a patch is for, with the fields of the patch.
func patched(patch []byte, info *request.RequestInfo) ([]byte, error) {
	event := map[string]any{}
	if err := json.Unmarshal(patch, &event); err != nil {
		return nil, fmt.Errorf("decode the patch of event %s: %w", info.Name, err)
	}
	event["kind"], event["apiVersion"] = "Event", info.APIGroup+"/"+info.APIVersion
	if info.APIGroup == "" {
		event["apiVersion"] = info.APIVersion
	}
	event["metadata"] = map[string]any{"name": info.Name, "namespace": info.Namespace}
	return json.Marshal(event)
}
