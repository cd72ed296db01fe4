package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
	"github.com/podops-dev/podops/examples/kvstore/pkg/node"
)

// answer is an answer in whole.
type answer struct {
	status      int
	revision    uint64 // 0: none
	contentType string
	leader      string // empty: not known
	term        string
	body        []byte
}

func (a answer) writeTo(w http.ResponseWriter) {
	header := w.Header()
	for name, value := range map[string]string{"Content-Type": a.contentType, api.HeaderLeader: a.leader, api.HeaderTerm: a.term} {
		if value != "" {
			header.Set(name, value)
		}
	}
	if a.revision != 0 {
		header.Set(api.HeaderRevision, strconv.FormatUint(a.revision, 10))
	}
	header.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may have disconnected
}

// jsonAnswer returns a success.
func jsonAnswer(revision uint64, body any) answer {
	data, err := json.Marshal(body)
	if err != nil {
		return failure(http.StatusInternalServerError, api.Unavailable, err.Error())
	}
	return answer{status: http.StatusOK, revision: revision, contentType: "application/json", body: append(data, '\n')}
}

func failure(status int, code api.Code, message string) answer {
	data, err := json.Marshal(api.Error{Code: code, Message: message})
	if err != nil {
		data = []byte(code)
	}
	return answer{status: status, contentType: "application/json", body: append(data, '\n')}
}

func writeError(w http.ResponseWriter, status int, code api.Code, message string) {
	failure(status, code, message).writeTo(w)
}

// classify returns how an error of a member is answered.
func classify(err error) (int, api.Code) {
	switch {
	case errors.Is(err, machine.ErrInvalid):
		return http.StatusBadRequest, api.Invalid
	case errors.Is(err, node.ErrNotLeader):
		return http.StatusServiceUnavailable, api.NotLeader
	case errors.Is(err, node.ErrUnavailable):
		return http.StatusServiceUnavailable, api.Unavailable
	default:
		return http.StatusServiceUnavailable, api.Unknown
	}
}
