package removal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// requestTimeout bounds a request, which may wait in admission for 13 s; readTimeout bounds a read.
	requestTimeout, readTimeout = 40 * time.Second, 10 * time.Second

	// maxReasonBytes bounds the reason of an answer.
	maxReasonBytes = 500
)

// Method is how a Client removes pods.
type Method struct {
	// Evict makes it request evictions, which count for PodDisruptionBudgets, instead of deletes.
	Evict bool

	// GracePeriodSeconds replaces the pod's own grace period; nil leaves it.
	GracePeriodSeconds *int64
}

// Client sends requests for pods to the API server, with the rights of the user.
type Client struct {
	kubernetes kubernetes.Interface
	method     Method
}

// NewClient returns a Client.
func NewClient(c kubernetes.Interface, method Method) *Client {
	return &Client{kubernetes: c, method: method}
}

// Request requests the removal of a pod, and of no other pod with its name. It is one request: that client-go repeats
// a request with Retry-After would hide the reason.
func (c *Client) Request(ctx context.Context, pod Pod) Answer {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID)), GracePeriodSeconds: c.method.GracePeriodSeconds}
	core := c.kubernetes.CoreV1().RESTClient()
	request := core.Delete().Body(&options)
	if c.method.Evict {
		request = core.Post().SubResource("eviction").Body(&policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &options,
		})
	}
	err := request.Namespace(pod.Namespace).Resource("pods").Name(pod.Name).MaxRetries(0).Do(bounded).Error()
	if apierrors.IsConflict(err) {
		return c.conflict(ctx, pod, err)
	}
	return newAnswer(ctx, err)
}

// conflict returns the answer to a request that has met another pod of the name, or another change of a
// PodDisruptionBudget.
func (c *Client) conflict(ctx context.Context, pod Pod, conflict error) Answer {
	live, err := c.Get(ctx, pod)
	switch {
	case err != nil:
		return newAnswer(ctx, err)
	case live == nil:
		return Answer{Kind: Absent}
	default:
		return Answer{Kind: Unavailable, Reason: errorReason(conflict)}
	}
}

// Get returns the pod, nil if it does not exist any more.
func (c *Client) Get(ctx context.Context, pod Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	live, err := c.kubernetes.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the pod: %w", err)
	case live.UID != pod.UID:
		return nil, nil
	default:
		return live, nil
	}
}

// Undo ends the lifecycle that a request has begun, if the pod is still of this version.
func (c *Client) Undo(ctx context.Context, live *corev1.Pod) error {
	operationType := live.Labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": live.UID, "resourceVersion": live.ResourceVersion,
		"labels": map[string]string{appsv1alpha1.UndoOperationTypeLabelPrefix + "/" + appsv1alpha1.PodDeleteID: operationType},
	}})
	if err != nil {
		return fmt.Errorf("encoding the change: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if _, err := c.kubernetes.CoreV1().Pods(live.Namespace).Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("undoing the lifecycle: %w", err)
	}
	return nil
}

// User returns the name that the API server knows the user by.
func (c *Client) User(ctx context.Context) (string, error) {
	review, err := c.kubernetes.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("reading your name: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// newAnswer returns the answer that an error of the API server is.
func newAnswer(ctx context.Context, err error) Answer {
	if err == nil {
		return Answer{Kind: Admitted}
	}
	answer := Answer{Kind: Refused, Reason: errorReason(err)}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	var status apierrors.APIStatus
	switch {
	case ctx.Err() != nil:
		answer.Kind = Interrupted
	case apierrors.IsNotFound(err):
		answer.Kind = Absent
	case apierrors.IsTooManyRequests(err):
		answer.Kind, answer.After = TooMany, time.Duration(seconds)*time.Second
	case !errors.As(err, &status), status.Status().Code >= 500, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		answer.Kind = Unavailable
	}
	return answer
}

// errorReason returns the causes that an error names, or else its message without the name of the webhook.
func errorReason(err error) string {
	reason := err.Error()
	if _, denied, ok := strings.Cut(reason, " denied the request: "); ok {
		reason = denied
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && apierrors.IsTooManyRequests(err) && status.Status().Details != nil {
		var causes []string
		for _, cause := range status.Status().Details.Causes {
			if cause.Message != "" {
				causes = append(causes, cause.Message)
			}
		}
		if len(causes) > 0 {
			reason = strings.Join(causes, "; ")
		}
	}
	return text.Line(reason, maxReasonBytes)
}
