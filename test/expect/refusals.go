package expect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/onsi/gomega/gcustom"
	"github.com/onsi/gomega/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BeRefused matches the error of a request that the API server rejected: its HTTP status,
// and texts that its message must contain.
func BeRefused(code int32, texts ...string) types.GomegaMatcher {
	return gcustom.MakeMatcher(func(err error) (bool, error) {
		status, ok := StatusOf(err)
		if !ok {
			return false, nil
		}
		for _, text := range texts {
			if !strings.Contains(status.Message, text) {
				return false, nil
			}
		}
		return status.Code == code, nil
	}).WithTemplate("Expected the answer\n{{format .Actual 1}}\n{{.To}} be an error with {{.Data}}", fmt.Sprintf("code %d and the texts %q", code, texts))
}

// StatusOf returns the status in an error of the API server; false for an error without a status.
func StatusOf(err error) (metav1.Status, bool) {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return metav1.Status{}, false
	}
	return answer.Status(), true
}
