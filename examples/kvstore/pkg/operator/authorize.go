package operator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// HookSecret is the name of the Secret with the token of the calls for a namespace, in that namespace.
	HookSecret = "leadership-hook"

	// hookTokenKey is the key of the token: that of secretRef in webhook rules.
	hookTokenKey = "token"

	// minTokenBytes is the length of the shortest token that counts: no placeholder, and not to be guessed.
	minTokenBytes = 32
)

// errUnauthorized is the answer to a call without the token of its namespace.
var errUnauthorized = errors.New("the call has not the token of its namespace")

// Authorize returns an error unless a token is that of a namespace.
type Authorize func(ctx context.Context, token, namespace string) error

// NewAuthorize returns an Authorize that reads the Secret HookSecret of the namespace for each call, so that it can be
// rotated. The reader has no cache: the operator may get this one Secret only, where its owner grants it.
func NewAuthorize(reader client.Reader) Authorize {
	return func(ctx context.Context, token, namespace string) error {
		if token == "" {
			return errUnauthorized
		}
		secret := &corev1.Secret{}
		err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: HookSecret}, secret)
		switch expected := bytes.TrimSpace(secret.Data[hookTokenKey]); {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			return fmt.Errorf("%w: %w", errUnauthorized, err)
		case err != nil:
			return fmt.Errorf("reading the token of namespace %s: %w", namespace, err)
		case len(expected) < minTokenBytes:
			return fmt.Errorf("%w: that of Secret %s/%s has %d bytes, and needs %d", errUnauthorized, namespace, HookSecret, len(expected), minTokenBytes)
		case !same(expected, []byte(token)):
			return errUnauthorized
		default:
			return nil
		}
	}
}

// same compares tokens in a time that does not depend on them.
func same(a, b []byte) bool {
	hashA, hashB := sha256.Sum256(a), sha256.Sum256(b)
	return subtle.ConstantTimeCompare(hashA[:], hashB[:]) == 1
}
