package front

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// Flaky is a relay between a client and a Runtime API that fails a share of the calls: it
// closes the connection without an answer, every other time after the call was executed. A
// client cannot distinguish the two.
type Flaky struct {
	to       string
	carried  func(at time.Time, line string)
	listener net.Listener
	stop     context.CancelFunc
	talking  sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	rate   float64
	calls  int
	failed int
}

// StartFlaky listens at one socket and forwards calls to another. rate is the share of
// calls that fail, 0 to 1; the same seed fails the same calls. carried is called for each
// call that the provider has answered, whether or not the client gets the answer; it may be
// nil.
func StartFlaky(socket, to string, rate float64, seed uint64, carried func(at time.Time, line string)) (*Flaky, error) {
	if fits := rate >= 0 && rate <= 1; !fits {
		return nil, fmt.Errorf("rate %g of failing calls: give 0 to 1", rate)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening for operators: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("closing the socket to others: %w", err), listener.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &Flaky{to: to, carried: carried, listener: listener, stop: stop, random: rand.New(rand.NewPCG(seed, seed)), rate: rate}
	f.talking.Go(func() { f.accept(ctx) })
	return f, nil
}

// Calls returns how many calls were made, and how many of them failed.
func (f *Flaky) Calls() (all, failed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.failed
}

// Close closes every connection.
func (f *Flaky) Close() error {
	f.stop()
	err := f.listener.Close()
	f.talking.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("ending the relay: %w", err)
	}
	return nil
}

func (f *Flaky) accept(ctx context.Context) {
	turns := make(chan struct{}, maxOperators)
	for {
		turns <- struct{}{}
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.talking.Go(func() {
			defer func() { <-turns }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			f.pass(ctx, conn)
		})
	}
}

// fate is the outcome of a call.
type fate int

const (
	passes fate = iota
	lost
	answerLost
)

func (f *Flaky) draw() fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.random.Float64() >= f.rate {
		return passes
	}
	f.failed++
	if f.failed%2 == 0 {
		return answerLost
	}
	return lost
}

// pass relays one call. Any error in it appears to the client as a failing provider, as
// intended.
func (f *Flaky) pass(ctx context.Context, conn net.Conn) {
	if err := conn.SetDeadline(time.Now().Add(operatorTimeout)); err != nil {
		return
	}
	line, err := bufio.NewReader(io.LimitReader(conn, maxLine)).ReadString('\n')
	if err != nil {
		return
	}
	meant := f.draw()
	if meant == lost {
		return
	}
	provider, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "unix", f.to)
	if err != nil {
		return
	}
	defer provider.Close()
	defer context.AfterFunc(ctx, func() { _ = provider.Close() })()
	if _, err := io.WriteString(provider, line); err != nil {
		return
	}
	answer, err := io.ReadAll(provider)
	if err != nil {
		return
	}
	if f.carried != nil {
		f.carried(time.Now(), line)
	}
	if meant == answerLost {
		return
	}
	_, _ = conn.Write(answer)
}
