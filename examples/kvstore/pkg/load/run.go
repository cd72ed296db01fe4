package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/client"
	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
	"github.com/podops-dev/podops/examples/kvstore/pkg/pause"
)

// Options describe a run.
type Options struct {
	// Name is part of keys and tokens: runs with different names share a store.
	Name string

	// Service resolves to the members that requests are sent to.
	Service  string
	Port     int
	Resolver hosts.Resolver

	Writers, Readers int
	// Keys is how many keys are written at a time. After writesPerKey writes of a worker,
	// it goes on to other keys.
	Keys int

	// Interval is the pause of a worker after an operation.
	Interval time.Duration

	// AttemptTimeout bounds one request, OperationTimeout an operation with its attempts.
	AttemptTimeout, OperationTimeout time.Duration

	// CheckTimeout bounds the check of linearizability.
	CheckTimeout time.Duration
}

const (
	// DefaultAttemptTimeout is longer than the attempts of a member with several leaders.
	DefaultAttemptTimeout = api.RequestTimeout + 2*time.Second

	// DefaultOperationTimeout is the timeout of a patient client.
	DefaultOperationTimeout = 30 * time.Second

	writesPerKey   = 100
	attemptPause   = 20 * time.Millisecond
	verifyTimeout  = 30 * time.Second
	maxWorkers     = 64
	maxKeysAtATime = 64
)

// Validate returns an error for options that exceed a bound.
func (o Options) Validate() error {
	if o.Writers < 1 || o.Readers < 0 || o.Writers+o.Readers > maxWorkers {
		return fmt.Errorf("a run has at least one writer, and at most %d workers", maxWorkers)
	}
	if o.Keys < 1 || o.Keys > maxKeysAtATime {
		return fmt.Errorf("a run has 1 to %d keys at a time", maxKeysAtATime)
	}
	if o.Service == "" || o.Name == "" || strings.Contains(o.Name, separator) {
		return errors.New("a run has a name and a service")
	}
	return nil
}

// run is the state that workers share.
type run struct {
	options Options
	client  *client.Client
	history *History
}

// Run writes and reads until ctx ends or the history is full, verifies the content of the
// store, and returns the report. The error is why the store could not be verified.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	r := &run{options: o, client: client.New(o.Resolver, o.Port), history: newHistory()}
	ctx, full := context.WithCancel(ctx)
	defer full()
	var workers sync.WaitGroup
	for n := range o.Writers + o.Readers {
		work := r.read
		if n < o.Writers {
			work = r.write
		}
		workers.Go(func() {
			w := &worker{run: r, number: n}
			for i := 0; ctx.Err() == nil; i++ {
				if !r.history.record(work(w, i)) {
					full()
				}
				pause.For(ctx, o.Interval)
			}
		})
	}
	workers.Wait()
	stored, err := r.stored()
	if err != nil {
		return Report{}, err
	}
	return r.history.report(stored, o.CheckTimeout), nil
}

// worker makes one operation at a time.
type worker struct {
	*run
	number  int
	session int
	seq     uint64
	address string // that answered last, empty: none
}

// key returns a key that is written by all workers at about the same time.
func (r *run) key(operation int) string {
	return fmt.Sprintf("%s-%d-%d", r.options.Name, operation/writesPerKey, rand.IntN(r.options.Keys))
}

// write appends a token. Its attempts repeat the same request.
func (r *run) write(w *worker, i int) Operation {
	w.seq++
	token := fmt.Sprintf("%s.%d.%d", r.options.Name, w.number, i)
	command := machine.Command{
		Op: machine.Append, Key: r.key(i), Value: []byte(token + separator),
		Client: fmt.Sprintf("%s-%d-%d", r.options.Name, w.number, w.session), Seq: w.seq,
	}
	o := Operation{Worker: w.number, Kind: Write, Key: command.Key, Token: token, Start: time.Now()}
	_, err := w.attempt(Write, client.WriteOf(command))
	o.End, o.Outcome = time.Now(), Succeeded
	if err != nil {
		// Its last attempt may still be applied, so its client makes no other request.
		o.Outcome = Open
		w.session, w.seq = w.session+1, 0
	}
	return o
}

// read reads a key that is written at the moment. A key that does not exist is empty.
func (r *run) read(w *worker, i int) Operation {
	key := r.key(i)
	o := Operation{Worker: w.number, Kind: Read, Key: key, Start: time.Now()}
	a, err := w.attempt(Read, client.Request{Method: http.MethodGet, Path: client.KeyPath(key)})
	o.End, o.Value, o.Outcome = time.Now(), string(a.Body), Succeeded
	if err != nil {
		o.Outcome = Rejected
	}
	return o
}

// attempt sends a request to one member after the other until one answers.
func (w *worker) attempt(kind Kind, request client.Request) (client.Answer, error) {
	ctx, stop := context.WithTimeout(context.Background(), w.options.OperationTimeout)
	defer stop()
	for {
		answer, err := w.once(ctx, request)
		if err == nil || client.CodeOf(err) == api.NotFound {
			w.history.succeed(success{term: answer.Term, leader: answer.Leader, at: time.Now()}, answer.Version)
			return answer, nil
		}
		w.history.fail(Failure{Kind: kind, Host: w.address, Reason: reasonOf(err), Detail: err.Error(), At: time.Now()})
		w.address = ""
		if !pause.For(ctx, attemptPause) {
			return client.Answer{}, err
		}
	}
}

// once sends a request to the member that answered last, or to any other.
func (w *worker) once(ctx context.Context, request client.Request) (client.Answer, error) {
	ctx, stop := context.WithTimeout(ctx, w.options.AttemptTimeout)
	defer stop()
	addresses, err := w.options.Resolver.Lookup(ctx, w.options.Service)
	if err != nil {
		return client.Answer{}, err
	}
	if !contains(addresses, w.address) {
		w.address = addresses[rand.IntN(len(addresses))]
	}
	return w.client.Do(ctx, w.address, request)
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

// reasonOf returns the reason of a failed attempt, without addresses.
func reasonOf(err error) string {
	var rejected *client.Error
	switch {
	case errors.As(err, &rejected):
		return strconv.Itoa(rejected.Status) + " " + string(rejected.Code)
	case errors.Is(err, hosts.ErrUnknown):
		return "no member in the service"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset"
	case errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	default:
		return "connection ended"
	}
}

// stored returns the value of each key of the history.
func (r *run) stored() (map[string]string, error) {
	w := &worker{run: &run{options: r.options, client: r.client, history: newHistory()}}
	w.options.OperationTimeout = verifyTimeout
	stored := map[string]string{}
	for _, o := range r.history.Operations() {
		if _, done := stored[o.Key]; done {
			continue
		}
		a, err := w.attempt(Read, client.Request{Method: http.MethodGet, Path: client.KeyPath(o.Key)})
		if err != nil {
			return nil, fmt.Errorf("reading key %s at the end: %w", o.Key, err)
		}
		stored[o.Key] = string(a.Body)
	}
	return stored, nil
}
