package alibabacloudslb

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Environment variables that ConfigFromEnv reads.
const (
	EnvAccessKeyID     = "ALIYUN_SLB_AK_KEY"
	EnvAccessKeySecret = "ALIYUN_SLB_AK_SECRET"
	EnvEndpoint        = "ALIYUN_SLB_ENDPOINT"
	EnvRegion          = "ALIYUN_SLB_REGION"
)

// DefaultEndpoint is the central endpoint of the API.
const DefaultEndpoint = "slb.aliyuncs.com"

// Config holds the access to the API. It never prints its credentials.
type Config struct {
	AccessKeyID     string
	AccessKeySecret string

	// Endpoint is a host, or a URL whose scheme is https or http. Empty: DefaultEndpoint.
	// The default scheme is https.
	Endpoint string

	// RegionID is sent in every request when it is set. Endpoints of one region do not need
	// it.
	RegionID string

	// CallTimeout bounds one HTTP exchange. Zero: 10 s.
	CallTimeout time.Duration

	// CallsPerSecond bounds the calls of this process, retries included, so that one
	// cluster does not use up the quota of the account. Zero: 10.
	CallsPerSecond float64

	// Attempts is how often in all a call is attempted that is throttled or fails in
	// transit. Zero: 4.
	Attempts int

	// FirstBackoff is the wait before the second attempt; it doubles up to 5 s. Zero:
	// 250 ms.
	FirstBackoff time.Duration
}

// ConfigFromEnv reads a Config with getenv, which is os.Getenv except in tests. It fails
// when the access key is incomplete, and names the missing variable.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	config := Config{
		AccessKeyID:     getenv(EnvAccessKeyID),
		AccessKeySecret: getenv(EnvAccessKeySecret),
		Endpoint:        getenv(EnvEndpoint),
		RegionID:        getenv(EnvRegion),
	}
	for _, required := range []struct{ name, value string }{
		{EnvAccessKeyID, config.AccessKeyID},
		{EnvAccessKeySecret, config.AccessKeySecret},
	} {
		if required.value == "" {
			return Config{}, fmt.Errorf("the SLB adapter needs an access key: set %s, from a Secret", required.name)
		}
	}
	if _, _, err := splitEndpoint(config.Endpoint); err != nil {
		return Config{}, fmt.Errorf("%s: %w", EnvEndpoint, err)
	}
	return config, nil
}

// String omits the credentials, for logs.
func (c Config) String() string {
	return fmt.Sprintf("endpoint %q, region %q", c.Endpoint, c.RegionID)
}

// GoString is String, for %#v.
func (c Config) GoString() string { return c.String() }

func (c Config) withDefaults() Config {
	if c.Endpoint == "" {
		c.Endpoint = DefaultEndpoint
	}
	if c.CallTimeout <= 0 {
		c.CallTimeout = 10 * time.Second
	}
	if c.CallsPerSecond <= 0 {
		c.CallsPerSecond = 10
	}
	if c.Attempts <= 0 {
		c.Attempts = 4
	}
	if c.FirstBackoff <= 0 {
		c.FirstBackoff = 250 * time.Millisecond
	}
	return c
}

// splitEndpoint returns the protocol as the SDK names it, and the host.
func splitEndpoint(endpoint string) (protocol, host string, err error) {
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	parsed, err := url.Parse(endpoint)
	if err != nil {
		// The error of url.Parse repeats its input, which may contain a password.
		return "", "", errors.New("is not a host or a URL")
	}
	switch {
	case parsed.Scheme != "https" && parsed.Scheme != "http":
		return "", "", fmt.Errorf("scheme %q: use https, or http for a test server", parsed.Scheme)
	case parsed.Host == "":
		return "", "", errors.New("has no host")
	case parsed.User != nil || strings.Trim(parsed.Path, "/") != "" || parsed.RawQuery != "":
		return "", "", errors.New("must be a host, with a port at most")
	}
	return strings.ToUpper(parsed.Scheme), parsed.Host, nil
}
