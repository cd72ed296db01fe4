package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// readyPatience bounds how long a Prometheus may take to start, and to end.
const readyPatience = 30 * time.Second

// Server is a process of Prometheus.
type Server struct {
	address string
	command *exec.Cmd
	ended   chan struct{}
}

// ErrQuery is the error of a query that Prometheus rejects.
var ErrQuery = errors.New("rejected by Prometheus")

// Start runs a program with a configuration, which is written into the folder with its data, and
// waits until it is ready. The kernel kills it when the calling program ends.
func Start(ctx context.Context, program, dir, address, configuration string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of Prometheus: %w", err)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		return nil, fmt.Errorf("writing the configuration of Prometheus: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		return nil, fmt.Errorf("opening the log of Prometheus: %w", err)
	}
	defer log.Close()
	s := &Server{address: address, ended: make(chan struct{}), command: exec.Command(program,
		"--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address)}
	s.command.Stdout, s.command.Stderr = log, log
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		return nil, fmt.Errorf("starting Prometheus: %w", err)
	}
	go func() {
		_ = s.command.Wait() // Its log has the reason.
		close(s.ended)
	}()
	if err := s.awaitReady(ctx); err != nil {
		s.End()
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	return s, nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, readyPatience)
	defer stop()
	for {
		response, err := http.Get("http://" + s.address + "/-/ready")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.ended:
			return errors.New("prometheus has ended")
		case <-ctx.Done():
			return fmt.Errorf("prometheus is not ready: %w", context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// End ends the process.
func (s *Server) End() {
	_ = s.command.Process.Signal(syscall.SIGTERM) // It may have ended already.
	select {
	case <-s.ended:
	case <-time.After(readyPatience):
		_ = s.command.Process.Kill()
		<-s.ended
	}
}

// Series are the values of an expression with one set of labels.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Point is a value at a time.
type Point struct {
	Time  time.Time
	Value float64
}

// Range evaluates an expression at each step of a time.
func (s *Server) Range(ctx context.Context, expression string, from, to time.Time, step time.Duration) ([]Series, error) {
	var data struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Values []sample          `json:"values"`
		} `json:"result"`
	}
	err := s.get(ctx, "/api/v1/query_range", url.Values{
		"query": {expression}, "start": {unix(from)}, "end": {unix(to)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	}, &data)
	if err != nil {
		return nil, fmt.Errorf("evaluating %s: %w", expression, err)
	}
	var series []Series
	for _, result := range data.Result {
		one := Series{Labels: result.Metric}
		for _, value := range result.Values {
			// A quotient of two counters that have not changed has no value.
			if !math.IsNaN(value.value) && !math.IsInf(value.value, 0) {
				one.Points = append(one.Points, Point{Time: value.at, Value: value.value})
			}
		}
		if len(one.Points) > 0 {
			series = append(series, one)
		}
	}
	return series, nil
}

// Rule is an alert as Prometheus has loaded it.
type Rule struct {
	Name      string `json:"name"`
	Health    string `json:"health"`
	LastError string `json:"lastError"`
	State     string `json:"state"`
	Alerts    []struct {
		Annotations map[string]string `json:"annotations"`
		State       string            `json:"state"`
	} `json:"alerts"`
}

// Rules returns the alerts that are loaded.
func (s *Server) Rules(ctx context.Context) ([]Rule, error) {
	var data struct {
		Groups []struct {
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	if err := s.get(ctx, "/api/v1/rules", nil, &data); err != nil {
		return nil, fmt.Errorf("reading the rules: %w", err)
	}
	var rules []Rule
	for _, group := range data.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules, nil
}

// Names returns the names of all metrics that were scraped.
func (s *Server) Names(ctx context.Context) ([]string, error) {
	var names []string
	if err := s.get(ctx, "/api/v1/label/__name__/values", nil, &names); err != nil {
		return nil, fmt.Errorf("reading the names of the metrics: %w", err)
	}
	return names, nil
}

// get reads the data of an answer of the API.
func (s *Server) get(ctx context.Context, path string, query url.Values, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Status string          `json:"status"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("reading the answer, %s: %w", response.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%w: %s", ErrQuery, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// sample is a value in an answer: a pair of a time and a text.
type sample struct {
	at    time.Time
	value float64
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *sample) UnmarshalJSON(text []byte) error {
	var seconds float64
	var value string
	if err := json.Unmarshal(text, &[]any{&seconds, &value}); err != nil {
		return err
	}
	s.at = time.UnixMilli(int64(seconds * 1000))
	var err error
	s.value, err = strconv.ParseFloat(value, 64)
	return err
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
