package alibabacloudslb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	slb "github.com/alibabacloud-go/slb-20140515/v4/client"
	util "github.com/alibabacloud-go/tea-utils/v2/service"
	"github.com/alibabacloud-go/tea/tea"
	"golang.org/x/time/rate"
)

// maxCallsAtOnce bounds the exchanges of a process, including abandoned exchanges.
const maxCallsAtOnce = 16

// API is the part of the load balancer's API that the adapter uses. Every error of its
// methods is, or wraps, an APIError. Methods are safe for concurrent use and to repeat.
type API interface {
	// LoadBalancer returns the backends of the default server group
	// (DescribeLoadBalancerAttribute).
	LoadBalancer(ctx context.Context, id string) ([]Backend, error)

	// Groups returns the vServer groups of a load balancer (DescribeVServerGroups), which
	// the API does not paginate.
	Groups(ctx context.Context, loadBalancerID string) ([]Group, error)

	// Group returns the backends of a vServer group (DescribeVServerGroupAttribute), all of
	// them: the API does not paginate them.
	Group(ctx context.Context, id string) ([]Backend, error)

	// Add, SetWeight and Remove change at most MaxBatch backends of a vServer group; the
	// API accepts or rejects them together.
	Add(ctx context.Context, groupID string, backends []Backend) error
	SetWeight(ctx context.Context, groupID string, backends []Backend) error
	Remove(ctx context.Context, groupID string, backends []Backend) error
}

// MaxBatch is the number of backends that the API accepts in one call.
const MaxBatch = 20

// Client implements API with Alibaba's SDK.
type Client struct {
	config  Config
	sdk     *slb.Client
	limiter *rate.Limiter
	slots   chan struct{}
	redact  func(string) string
}

// NewClient returns a client. It does not connect. It fails when the access key or the
// endpoint is invalid.
func NewClient(config Config) (*Client, error) {
	config = config.withDefaults()
	if config.AccessKeyID == "" || config.AccessKeySecret == "" {
		return nil, errors.New("the SLB client needs an access key: AccessKeyID and AccessKeySecret")
	}
	protocol, host, err := splitEndpoint(config.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint of the SLB client: %w", err)
	}
	timeoutMillis := max(1, int(config.CallTimeout.Milliseconds()))
	// The default signature of the SDK is in a header. The older signature is in the URL, and so in
	// proxy logs and errors of net/http.
	sdk, err := slb.NewClient(&openapi.Config{
		AccessKeyId:     tea.String(config.AccessKeyID),
		AccessKeySecret: tea.String(config.AccessKeySecret),
		Endpoint:        tea.String(host),
		Protocol:        tea.String(protocol),
		ReadTimeout:     tea.Int(timeoutMillis),
		ConnectTimeout:  tea.Int(timeoutMillis),
		UserAgent:       tea.String("podops"),
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the SDK of SLB: %s", redactor(config)(err.Error()))
	}
	return &Client{
		config:  config,
		sdk:     sdk,
		limiter: rate.NewLimiter(rate.Limit(config.CallsPerSecond), max(1, int(config.CallsPerSecond))),
		slots:   make(chan struct{}, maxCallsAtOnce),
		redact:  redactor(config),
	}, nil
}

// String omits the credentials, for logs.
func (c *Client) String() string { return c.config.String() }

// GoString is String, for %#v.
func (c *Client) GoString() string { return c.String() }

func redactor(config Config) func(string) string {
	replacer := strings.NewReplacer(config.AccessKeySecret, "[secret]", config.AccessKeyID, "[key]")
	return replacer.Replace
}

// describe reads an object and returns the body of the answer. what is the name of the object in
// errors. An answer without a body does not mean that there are no items.
func describe[Body any](ctx context.Context, c *Client, action, what string, read func() (*Body, error)) (*Body, error) {
	body, err := call(ctx, c, action, func() (*Body, error) {
		body, err := read()
		if err == nil && body == nil {
			return nil, errors.New("the answer has no body")
		}
		return body, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return body, nil
}

// LoadBalancer implements API.
func (c *Client) LoadBalancer(ctx context.Context, id string) ([]Backend, error) {
	const action = "DescribeLoadBalancerAttribute"
	request := &slb.DescribeLoadBalancerAttributeRequest{LoadBalancerId: tea.String(id), RegionId: c.region()}
	answer, err := describe(ctx, c, action, "load balancer "+id, func() (*slb.DescribeLoadBalancerAttributeResponseBody, error) {
		response, err := c.sdk.DescribeLoadBalancerAttributeWithOptions(request, noRetries())
		if err != nil {
			return nil, err
		}
		return response.Body, nil
	})
	if err != nil {
		return nil, err
	}
	if tea.StringValue(answer.LoadBalancerId) != id {
		return nil, fmt.Errorf("load balancer %s: %w", id, aboutAnother(action, answer.RequestId))
	}
	if answer.BackendServers == nil {
		return nil, nil
	}
	var backends []Backend
	for _, b := range answer.BackendServers.BackendServer {
		backends = append(backends, Backend{
			ServerID:    tea.StringValue(b.ServerId),
			ServerIP:    tea.StringValue(b.ServerIp),
			Type:        ServerType(tea.StringValue(b.Type)),
			Weight:      tea.Int32Value(b.Weight),
			Description: tea.StringValue(b.Description),
		})
	}
	return backends, nil
}

// Groups implements API.
func (c *Client) Groups(ctx context.Context, loadBalancerID string) ([]Group, error) {
	const action = "DescribeVServerGroups"
	request := &slb.DescribeVServerGroupsRequest{LoadBalancerId: tea.String(loadBalancerID), RegionId: c.region()}
	answer, err := describe(ctx, c, action, "vServer groups of load balancer "+loadBalancerID, func() (*slb.DescribeVServerGroupsResponseBody, error) {
		response, err := c.sdk.DescribeVServerGroupsWithOptions(request, noRetries())
		if err != nil {
			return nil, err
		}
		return response.Body, nil
	})
	if err != nil {
		return nil, err
	}
	if tea.StringValue(answer.RequestId) == "" {
		return nil, fmt.Errorf("vServer groups of load balancer %s: %w", loadBalancerID, aboutAnother(action, nil))
	}
	if answer.VServerGroups == nil {
		return nil, nil
	}
	var groups []Group
	for _, g := range answer.VServerGroups.VServerGroup {
		groups = append(groups, Group{ID: tea.StringValue(g.VServerGroupId), Name: tea.StringValue(g.VServerGroupName)})
	}
	return groups, nil
}

// Group implements API.
func (c *Client) Group(ctx context.Context, id string) ([]Backend, error) {
	const action = "DescribeVServerGroupAttribute"
	request := &slb.DescribeVServerGroupAttributeRequest{VServerGroupId: tea.String(id), RegionId: c.region()}
	answer, err := describe(ctx, c, action, "vServer group "+id, func() (*slb.DescribeVServerGroupAttributeResponseBody, error) {
		response, err := c.sdk.DescribeVServerGroupAttributeWithOptions(request, noRetries())
		if err != nil {
			return nil, err
		}
		return response.Body, nil
	})
	if err != nil {
		return nil, err
	}
	if tea.StringValue(answer.VServerGroupId) != id {
		return nil, fmt.Errorf("vServer group %s: %w", id, aboutAnother(action, answer.RequestId))
	}
	if answer.BackendServers == nil {
		return nil, nil
	}
	var backends []Backend
	for _, b := range answer.BackendServers.BackendServer {
		backends = append(backends, Backend{
			ServerID:    tea.StringValue(b.ServerId),
			ServerIP:    tea.StringValue(b.ServerIp),
			Type:        ServerType(tea.StringValue(b.Type)),
			Port:        tea.Int32Value(b.Port),
			Weight:      tea.Int32Value(b.Weight),
			Description: tea.StringValue(b.Description),
		})
	}
	return backends, nil
}

// Add implements API.
func (c *Client) Add(ctx context.Context, groupID string, backends []Backend) error {
	return c.change(ctx, "AddVServerGroupBackendServers", groupID, backends, func(encoded string) error {
		_, err := c.sdk.AddVServerGroupBackendServersWithOptions(&slb.AddVServerGroupBackendServersRequest{
			VServerGroupId: tea.String(groupID), BackendServers: tea.String(encoded), RegionId: c.region(),
		}, noRetries())
		return err
	})
}

// SetWeight implements API.
func (c *Client) SetWeight(ctx context.Context, groupID string, backends []Backend) error {
	return c.change(ctx, "SetVServerGroupAttribute", groupID, backends, func(encoded string) error {
		_, err := c.sdk.SetVServerGroupAttributeWithOptions(&slb.SetVServerGroupAttributeRequest{
			VServerGroupId: tea.String(groupID), BackendServers: tea.String(encoded), RegionId: c.region(),
		}, noRetries())
		return err
	})
}

// Remove implements API.
func (c *Client) Remove(ctx context.Context, groupID string, backends []Backend) error {
	return c.change(ctx, "RemoveVServerGroupBackendServers", groupID, backends, func(encoded string) error {
		_, err := c.sdk.RemoveVServerGroupBackendServersWithOptions(&slb.RemoveVServerGroupBackendServersRequest{
			VServerGroupId: tea.String(groupID), BackendServers: tea.String(encoded), RegionId: c.region(),
		}, noRetries())
		return err
	})
}

func (c *Client) change(ctx context.Context, action, groupID string, backends []Backend, exchange func(encoded string) error) error {
	encoded, err := encodeBackends(backends)
	if err != nil {
		return &APIError{Action: action, Code: "NotSent", Message: err.Error()}
	}
	_, err = call(ctx, c, action, func() (struct{}, error) { return struct{}{}, exchange(encoded) })
	if err != nil {
		return fmt.Errorf("vServer group %s: %w", groupID, err)
	}
	return nil
}

func (c *Client) region() *string {
	if c.config.RegionID == "" {
		return nil
	}
	return tea.String(c.config.RegionID)
}

// noRetries disables the retries of the SDK, which do not wait.
func noRetries() *util.RuntimeOptions {
	return &util.RuntimeOptions{Autoretry: tea.Bool(false), MaxAttempts: tea.Int(1)}
}

// aboutAnother returns the error of an answer that does not name the requested object. An
// empty answer would otherwise mean that no pod has traffic.
func aboutAnother(action string, requestID *string) *APIError {
	return &APIError{
		Action: action, Code: "UnexpectedAnswer", Status: http.StatusOK, RequestID: bounded(tea.StringValue(requestID)),
		Message: "the answer does not name the requested object",
	}
}
