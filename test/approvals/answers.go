package approvals

import (
	"fmt"
	"net/http"
	"strconv"
)

// visit is a POST to a path that answers at once.
type visit struct {
	settings
	pods  []Pod
	times int // how many POSTs had this traceId
}

// answers returns the paths that answer at once.
func answers() map[string]func(visit) reply {
	return map[string]func(visit) reply{
		"/approve":      approve,
		"/approve-some": approveSome,
		"/reject":       func(v visit) reply { return v.approve(nil) },
		"/hang":         func(visit) reply { return reply{decision: Silent, silent: true, status: http.StatusServiceUnavailable} },
		"/500":          func(v visit) reply { return v.fail(v.statusOr(http.StatusInternalServerError), nil) },
		"/garbage": func(visit) reply {
			return reply{decision: Failed, status: http.StatusOK, body: []byte("<html>It works!</html>\n")}
		},
		"/redirect":    func(v visit) reply { return v.fail(http.StatusFound, map[string]string{"Location": v.to}) },
		"/retry-after": retryAfter,
	}
}

func approve(v visit) reply { return v.approve(v.pods) }

func approveSome(v visit) reply {
	if v.parameter == "" {
		return v.approve(v.pods[:min(v.n, len(v.pods))])
	}
	var some []Pod
	for _, pod := range v.pods {
		if value, ok := pod.Parameters[v.parameter]; ok && value == v.value {
			some = append(some, pod)
		}
	}
	return v.approve(some)
}

func retryAfter(v visit) reply {
	if v.settings.times == 0 || v.times <= v.settings.times {
		value := v.value
		if value == "" {
			value = strconv.Itoa(v.seconds)
		}
		return v.fail(v.statusOr(http.StatusServiceUnavailable), map[string]string{"Retry-After": value})
	}
	return approve(v)
}

// approve approves some of the pods and rejects the others.
func (v visit) approve(some []Pod) reply {
	r := reply{decision: PartApproved, approved: some, status: http.StatusOK}
	switch len(some) {
	case len(v.pods):
		r.decision, r.message = Approved, v.message
	case 0:
		r.decision, r.message = Rejected, v.messageOr("not today")
	default:
		r.message = v.messageOr(fmt.Sprintf("%d of %d pods may go", len(some), len(v.pods)))
	}
	r.body = postAnswer{Success: r.decision == Approved, Message: r.message, FinishedNames: names(some)}
	return r
}

// fail answers with an error status.
func (v visit) fail(status int, header map[string]string) reply {
	r := reply{decision: Failed, status: status, header: header, message: v.messageOr(http.StatusText(status))}
	r.body = postAnswer{Message: r.message}
	return r
}

func names(pods []Pod) []string {
	all := make([]string, len(pods))
	for i, pod := range pods {
		all[i] = pod.Name
	}
	return all
}
