package fetch

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podops-dev/podops/test/controlplane/progress"
)

const (
	// stallLimit is how long a transfer may bring nothing.
	stallLimit = 30 * time.Second
	// maxSumsBytes bounds a file of checksums, maxProgramBytes a program: kube-apiserver has 100 MB.
	maxSumsBytes    = 1 << 20
	maxProgramBytes = 1 << 30
	// rateSample is how long a transfer runs before its rate counts.
	rateSample = 15 * time.Second
)

// ErrTooSlow means that the programs would have taken longer than the limit.
var ErrTooSlow = errors.New("the transfer is too slow")

// Limits are the times after which a fetch is given up.
type Limits struct {
	Answer time.Duration // until the sites have answered with the checksums
	Total  time.Duration // until all programs are there; also compared with the time that the rate predicts
}

// fetcher fetches a list of programs at once.
type fetcher struct {
	client *http.Client
	pinned string
	limits Limits
	stall  time.Duration
	began  time.Time

	done, total atomic.Int64 // bytes
	unsized     atomic.Int64 // files whose size is not known yet
}

// Run fetches programs into folder, all or none, and reports progress on out. Proxies of the environment are
// respected. No program in folder is replaced before all have been verified.
func Run(ctx context.Context, folder string, programs []Program, limits Limits, out io.Writer) error {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: stallLimit, MaxIdleConnsPerHost: len(programs),
		// The sizes of the answers are those of the files.
		DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	f := &fetcher{client: &http.Client{Transport: transport}, pinned: pinned, limits: limits, stall: stallLimit}
	return f.run(ctx, folder, programs, out)
}

func (f *fetcher) run(ctx context.Context, folder string, programs []Program, out io.Writer) error {
	// The last run may have been killed.
	incomplete := filepath.Join(folder, ".fetch")
	if err := os.RemoveAll(incomplete); err != nil {
		return fmt.Errorf("removing an incomplete fetch: %w", err)
	}
	if err := os.MkdirAll(incomplete, 0o755); err != nil {
		return fmt.Errorf("making a folder for the programs: %w", err)
	}
	defer os.RemoveAll(incomplete)

	sums, err := f.checksums(ctx, programs)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.limits.Total, fmt.Errorf("%w: more than %s", ErrTooSlow, f.limits.Total))
	defer cancel()
	f.began = time.Now()
	f.unsized.Store(int64(len(programs)))
	stop := progress.Show(out, f.line)
	err = each(ctx, programs, func(ctx context.Context, i int) error {
		return f.program(ctx, programs[i], sums[i], incomplete)
	})
	stop()
	if err != nil {
		return err
	}
	for _, p := range programs {
		if err := os.Rename(filepath.Join(incomplete, p.name), filepath.Join(folder, p.name)); err != nil {
			return fmt.Errorf("moving %s into place: %w", p.name, err)
		}
	}
	fmt.Fprintf(out, "fetched %s in %s\n", megabytes(f.done.Load()), time.Since(f.began).Round(time.Second))
	return nil
}

// each calls do for every program at once, and returns the first error, which ends the other calls.
func each(ctx context.Context, programs []Program, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var calls sync.WaitGroup
	var once sync.Once
	var first error
	for i := range programs {
		calls.Go(func() {
			if err := do(ctx, i); err != nil {
				once.Do(func() { first = err })
				cancel()
			}
		})
	}
	calls.Wait()
	return first
}

// checksums returns the checksum of the file of each program. A site that does not answer in time cannot be
// reached.
func (f *fetcher) checksums(ctx context.Context, programs []Program) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.limits.Answer, fmt.Errorf("no answer within %s", f.limits.Answer))
	defer cancel()
	sums := make([]string, len(programs))
	err := each(ctx, programs, func(ctx context.Context, i int) error {
		p := programs[i]
		if sum, ok := checksumIn(f.pinned, p.file); ok {
			sums[i] = sum
			// Whether the site can be reached is known as early as without a pinned checksum.
			return f.reach(ctx, p.file)
		}
		body, err := f.get(ctx, p.sums)
		if err != nil {
			return err
		}
		defer body.Close()
		list, err := io.ReadAll(io.LimitReader(body, maxSumsBytes))
		if err != nil {
			return fmt.Errorf("reading %s: %w", p.sums, causeOf(ctx, err))
		}
		sum, ok := checksumIn(string(list), p.file)
		if !ok {
			return fmt.Errorf("%s has no SHA-256 of %s", p.sums, p.file)
		}
		sums[i] = sum
		return nil
	})
	return sums, err
}

func (f *fetcher) reach(ctx context.Context, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, file, nil)
	if err != nil {
		return fmt.Errorf("requesting %s: %w", file, err)
	}
	response, err := f.do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (f *fetcher) get(ctx context.Context, file string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, file, nil)
	if err != nil {
		return nil, fmt.Errorf("requesting %s: %w", file, err)
	}
	response, err := f.do(request)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// do returns a response of status 200.
func (f *fetcher) do(request *http.Request) (*http.Response, error) {
	response, err := f.client.Do(request)
	if err != nil {
		var named *url.Error // has the address, which the error has anyway
		if errors.As(err, &named) {
			err = named.Err
		}
		return nil, fmt.Errorf("reaching %s: %w", request.URL, causeOf(request.Context(), err))
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	return response, nil
}

// program fetches one program into folder.
func (f *fetcher) program(ctx context.Context, p Program, sum, folder string) error {
	file := filepath.Join(folder, p.name+".file")
	got, err := f.download(ctx, p.file, file)
	if err != nil {
		return err
	}
	if got != sum {
		return fmt.Errorf("%s has the SHA-256 %s, and %s is expected: the file was changed on its way, "+
			"by a proxy or a mirror for example, and is not used", p.file, got, sum)
	}
	target := filepath.Join(folder, p.name)
	if p.member == "" {
		if err := os.Rename(file, target); err != nil {
			return fmt.Errorf("keeping %s: %w", p.name, err)
		}
	} else if err := extract(file, p.member, target); err != nil {
		return fmt.Errorf("taking %s out of %s: %w", p.member, p.file, err)
	}
	if err := os.Chmod(target, 0o755); err != nil {
		return fmt.Errorf("making %s executable: %w", p.name, err)
	}
	return nil
}

// download writes a file and returns its SHA-256.
func (f *fetcher) download(ctx context.Context, from, to string) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(f.stall, func() { cancel(fmt.Errorf("nothing arrived for %s", f.stall)) })
	defer watchdog.Stop()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return "", fmt.Errorf("requesting %s: %w", from, err)
	}
	response, err := f.do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.ContentLength > 0 {
		f.total.Add(response.ContentLength)
		f.unsized.Add(-1)
	}
	file, err := os.Create(to)
	if err != nil {
		return "", fmt.Errorf("writing a program: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	writer := io.MultiWriter(file, hash, arrival(func(bytes int) error {
		watchdog.Reset(f.stall)
		f.done.Add(int64(bytes))
		return f.fastEnough(time.Since(f.began))
	}))
	written, err := io.Copy(writer, io.LimitReader(response.Body, maxProgramBytes+1))
	if err != nil {
		return "", fmt.Errorf("fetching %s, which ended after %s: %w", from, megabytes(written), causeOf(ctx, err))
	}
	if written > maxProgramBytes {
		return "", fmt.Errorf("%s has more than %s", from, megabytes(maxProgramBytes))
	}
	if err := file.Close(); err != nil {
		return "", fmt.Errorf("writing a program: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// fastEnough returns an error if, at the rate so far, the programs take longer than the limit.
func (f *fetcher) fastEnough(elapsed time.Duration) error {
	done, total := f.done.Load(), f.total.Load()
	if elapsed < rateSample || f.unsized.Load() > 0 || done == 0 {
		return nil
	}
	if whole := time.Duration(float64(elapsed) * float64(total) / float64(done)); whole > f.limits.Total {
		return fmt.Errorf("%w: %s would take about %d minutes", ErrTooSlow, megabytes(total), int(whole.Minutes()))
	}
	return nil
}

func (f *fetcher) line() string {
	elapsed, done, total := time.Since(f.began), f.done.Load(), f.total.Load()
	text := fmt.Sprintf("  %s: fetched %s", elapsed.Round(time.Second), megabytes(done))
	if f.unsized.Load() > 0 {
		return text
	}
	text += " of " + megabytes(total)
	if left, known := progress.Left(elapsed, float64(done), float64(total)); known {
		text += ", " + progress.Text(left)
	}
	return text
}

// arrival is an io.Writer that receives the numbers of bytes that arrive.
type arrival func(bytes int) error

func (a arrival) Write(data []byte) (int, error) {
	if err := a(len(data)); err != nil {
		return 0, err
	}
	return len(data), nil
}

// extract writes a file of a .tar.gz.
func extract(archive, member, to string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("it is not in the archive")
		case err != nil:
			return err
		case filepath.Clean(header.Name) != member || header.Typeflag != tar.TypeReg:
			continue
		case header.Size > maxProgramBytes:
			return fmt.Errorf("it has more than %s", megabytes(maxProgramBytes))
		}
		target, err := os.Create(to)
		if err != nil {
			return err
		}
		defer target.Close()
		if _, err := io.CopyN(target, files, header.Size); err != nil {
			return err
		}
		return target.Close()
	}
}

// causeOf returns the cause of the end of ctx, if it has ended, in place of an error that only states it.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func megabytes(bytes int64) string {
	return fmt.Sprintf("%d MB", (bytes+1<<19)>>20)
}
