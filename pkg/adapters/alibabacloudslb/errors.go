package alibabacloudslb

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/alibabacloud-go/tea/tea"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// maxMessageBytes bounds the part of an answer in logs, events and status.
const maxMessageBytes = 300

// APIError is the error of a call that the API rejected, or that did not reach it.
type APIError struct {
	// Action is the name of the operation, such as DescribeVServerGroupAttribute.
	Action string
	// Code is Alibaba's error code, such as Throttling.User. It is empty without a readable
	// answer.
	Code string
	// RequestID is the id for Alibaba's support. It is empty without an answer.
	RequestID string
	// Status is the HTTP status, 0 when there was no answer.
	Status int
	// Message is human-readable and bounded. It holds no credentials.
	Message string

	cause error
}

// Error names action, code and request id.
func (e *APIError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%s: no readable answer: %s", e.Action, e.Message)
	}
	return fmt.Sprintf("%s: %s (status %d, request %s): %s", e.Action, e.Code, e.Status, e.RequestID, e.Message)
}

// Unwrap returns the error of the context that ended the call. Other causes stay hidden:
// their text may contain credentials.
func (e *APIError) Unwrap() error { return e.cause }

// transient reports whether a retry may succeed.
func (e *APIError) transient() bool {
	if e.Code == "" {
		return true
	}
	return e.Status >= http.StatusInternalServerError || e.isThrottled() || isBusyCode(e.Code)
}

// isThrottled reports whether the API gets too many calls. Throttling has many codes, such as Throttling.User and Throttling.Api.
func (e *APIError) isThrottled() bool {
	return e.Status == http.StatusTooManyRequests || e.Code == "Throttling" || strings.HasPrefix(e.Code, "Throttling.")
}

// isBusyCode reports whether the API returns the code when a retry may succeed.
func isBusyCode(code string) bool {
	return slices.Contains([]string{
		"BackendServer.configuring",
		"InternalError",
		"OperationBusy",
		"Operation.Conflict",
		"OperationConflict",
		"OperationFailed.TokenIsProcessing",
		"ServiceIsConfiguring",
		"ServiceIsStopping",
		"ServiceUnavailable",
		"SystemBusy",
	}, code)
}

// isAccountCode reports whether the code applies to every call of this account.
func isAccountCode(code string) bool {
	for _, prefix := range []string{"InvalidAccessKeyId", "SignatureDoesNotMatch", "IncompleteSignature", "Forbidden", "NoPermission", "AccountHasArrearage"} {
		if strings.HasPrefix(code, prefix) {
			return true
		}
	}
	return false
}

// aboutOneServer reports whether a batch without some of its servers may succeed.
func aboutOneServer(err error) bool {
	var api *APIError
	return errors.As(err, &api) && !api.transient() && !isAccountCode(api.Code) && !isGroupMissing(err)
}

func isLoadBalancerMissing(err error) bool {
	return hasCode(err, "InvalidLoadBalancerId.NotFound")
}

// isGroupMissing reports whether a vServer group does not exist, by the text: the code is
// InvalidParameter, as for every invalid parameter.
func isGroupMissing(err error) bool {
	var api *APIError
	return errors.As(err, &api) && strings.Contains(api.Code+" "+api.Message, "VServerGroupId does not exist")
}

// meansPresent and meansAbsent report whether the error is that a server exists already, or
// no longer exists. They confirm nothing: that requires a read.
func meansPresent(err error) bool {
	code := errorCode(err)
	return strings.Contains(code, "Duplicate") || strings.HasSuffix(code, "Exist") && !strings.HasSuffix(code, "NotExist")
}

func meansAbsent(err error) bool {
	code := errorCode(err)
	return strings.HasSuffix(code, "NotFound") || strings.HasSuffix(code, "NotExist")
}

func errorCode(err error) string {
	var api *APIError
	if !errors.As(err, &api) {
		return ""
	}
	return api.Code
}

func hasCode(err error, codes ...string) bool {
	return slices.Contains(codes, errorCode(err))
}

// newAPIError turns an error of the SDK into an APIError. redact removes secrets from a
// text: the API repeats the access key when a signature is wrong.
func newAPIError(action string, err error, redact func(string) string) *APIError {
	var known *APIError
	if errors.As(err, &known) {
		return known
	}
	var refused *tea.SDKError
	if !errors.As(err, &refused) {
		return &APIError{Action: action, Message: bounded(redact(err.Error()))}
	}
	answer := struct {
		RequestID string `json:"RequestId"`
		Message   string
	}{}
	if data := tea.StringValue(refused.Data); data != "" {
		// An answer without these fields leaves them empty.
		_ = json.Unmarshal([]byte(data), &answer)
	}
	if answer.Message == "" {
		answer.Message = tea.StringValue(refused.Message)
	}
	return &APIError{
		Action:    action,
		Code:      bounded(redact(tea.StringValue(refused.Code))),
		RequestID: bounded(redact(answer.RequestID)),
		Status:    tea.IntValue(refused.StatusCode),
		Message:   bounded(redact(answer.Message)),
	}
}

func bounded(message string) string { return text.Cut(message, maxMessageBytes) }
