package approvals

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

const (
	// maxAfter bounds the delay of an answer.
	maxAfter = 10 * time.Minute

	// maxNumber bounds every number.
	maxNumber = 1_000_000_000
)

// settings holds the query parameters of the URL of a rule.
type settings struct {
	n, each, polls, status int // 0: the path has a default
	seconds, times         int
	message, bearer        string
	prefix, to             string
	parameter, value       string
	after                  time.Duration
}

// readSettings returns an error that names the invalid parameter. Only polls may have other
// parameters: the parameters that name the task.
func readSettings(query url.Values, poll bool) (settings, error) {
	s := settings{n: 1, each: 1, seconds: 1, times: 1, to: "http://169.254.169.254/"}
	numbers := map[string]*int{
		"n": &s.n, "each": &s.each, "polls": &s.polls, "status": &s.status, "seconds": &s.seconds, "times": &s.times,
	}
	texts := map[string]*string{
		"message": &s.message, "bearer": &s.bearer, "prefix": &s.prefix, "to": &s.to, "parameter": &s.parameter, "value": &s.value,
	}
	var errs []error
	for key := range query {
		text := query.Get(key)
		var err error
		switch {
		case numbers[key] != nil:
			*numbers[key], err = strconv.Atoi(text)
			if err == nil && (*numbers[key] < 0 || *numbers[key] > maxNumber) {
				err = fmt.Errorf("want from 0 to %d", maxNumber)
			}
		case texts[key] != nil:
			*texts[key] = cut(text)
		case key == "after":
			s.after, err = time.ParseDuration(text)
			if err == nil && (s.after < 0 || s.after > maxAfter) {
				err = fmt.Errorf("want from 0 to %s", maxAfter)
			}
		case !poll:
			err = errors.New("is unknown")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the parameter %.100q of the URL: %w", key, err))
		}
	}
	if query.Has("status") {
		errs = append(errs, checkStatus(s.status))
	}
	return s, errors.Join(errs...)
}

func checkStatus(status int) error {
	if status < 200 || status > 599 {
		return fmt.Errorf("the parameter \"status\" of the URL is %d, want from 200 to 599", status)
	}
	return nil
}

// statusOr returns the status of the URL, or the given status.
func (s settings) statusOr(status int) int {
	if s.status != 0 {
		return s.status
	}
	return status
}

// messageOr returns the message of the URL, or the given message.
func (s settings) messageOr(message string) string {
	if s.message != "" {
		return s.message
	}
	return message
}
