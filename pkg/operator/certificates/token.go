package certificates

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	// tokenPrefix begins the last part of a path that ends with a token; no other path of a
	// webhook has it.
	tokenPrefix = "/token-"

	// tokenBytes is how many bytes of the digest are the token.
	tokenBytes = 20

	// TokenPaths begin the paths of the webhooks whose reviews PodOps acts on later: their paths
	// in the webhook configuration end with a token.
	TokenPaths = "/hold-"
)

// token returns the token of the webhook configuration: a review that comes to a path with it was
// sent by a client that can read the configuration, such as the API server. Every replica derives it
// from the key of the CA, so it needs no storage of its own, and changes with the CA. It is empty
// without a key.
func (p Pair) token() string {
	if !p.whole() {
		return ""
	}
	key, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		return ""
	}
	digest := hmac.New(sha256.New, key)
	digest.Write([]byte("path of the webhooks of PodOps"))
	return hex.EncodeToString(digest.Sum(nil)[:tokenBytes])
}

// withToken returns the path of a webhook with a token, which replaces the token in the path, if
// any.
func withToken(path, token string) string {
	path = withoutToken(path)
	if last := path[max(0, strings.LastIndex(path, "/")):]; token == "" || !strings.HasPrefix(last, TokenPaths) {
		return path
	}
	return path + tokenPrefix + token
}

// withoutToken returns a path without its token.
func withoutToken(path string) string {
	path, _, _ = strings.Cut(path, tokenPrefix)
	return path
}

// seal adds the token to the path of a webhook that has a path.
func seal(config *admissionregistrationv1.WebhookClientConfig, token string) {
	switch {
	case config.Service != nil && config.Service.Path != nil:
		path := withToken(*config.Service.Path, token)
		config.Service.Path = &path
	case config.URL != nil:
		target := withToken(*config.URL, token)
		config.URL = &target
	}
}

// Known reports whether the path of a request ends with a token that API servers may have.
func (s *Serving) Known(path string) bool {
	_, token, ok := strings.Cut(path, tokenPrefix)
	if !ok {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, expected := range s.tokens {
		if expected != "" && subtle.ConstantTimeCompare([]byte(expected), []byte(token)) == 1 {
			return true
		}
	}
	return false
}
