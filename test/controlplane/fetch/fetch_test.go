package fetch

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	kubeFolder = "/dl.k8s.io/release/v1.37.1/bin/linux/amd64/"
	etcdFolder = "/github.com/etcd-io/etcd/releases/download/v3.7.0/"
)

var names = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}

// contentOf is the content of a program of the mirror.
func contentOf(name string) []byte {
	return bytes.Repeat([]byte("program "+name+"\n"), 10_000)
}

// mirror is a file server with all programs and checksums, in which tests break something.
type mirror struct {
	*httptest.Server
	files    map[string][]byte
	handlers map[string]http.HandlerFunc // in place of the files
	requests chan string
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{files: map[string][]byte{}, handlers: map[string]http.HandlerFunc{}, requests: make(chan string, 100)}
	for _, name := range names[1:] {
		m.files[kubeFolder+name] = contentOf(name)
		m.files[kubeFolder+name+".sha256"] = []byte(sumOf(contentOf(name))) // without a line feed, as the site has it
	}
	archive := archiveOf(t, map[string][]byte{
		"etcd-v3.7.0-linux-amd64/README.md": []byte("words"), "etcd-v3.7.0-linux-amd64/etcd": contentOf("etcd"),
	})
	m.files[etcdFolder+"etcd-v3.7.0-linux-amd64.tar.gz"] = archive
	m.files[etcdFolder+"SHA256SUMS"] = fmt.Appendf(nil, "%064d  etcd-v3.7.0-darwin-amd64.zip\n%s  etcd-v3.7.0-linux-amd64.tar.gz\n", 0, sumOf(archive))
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.requests <- r.Method + " " + r.URL.Path
		if handler := m.handlers[r.URL.Path]; handler != nil {
			handler(w, r)
			return
		}
		content, ok := m.files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content)
	}))
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

func sumOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

func archiveOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	writer := tar.NewWriter(zipped)
	for name, content := range files {
		if err := writer.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(writer.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func (m *mirror) programs(t *testing.T) []Program {
	t.Helper()
	sites, err := Mirror(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	return sites.Programs("v1.37.1", "v3.7.0", "amd64", names...)
}

// fetcher returns a fetcher without proxies, and with short limits.
func (m *mirror) fetcher() *fetcher {
	return &fetcher{client: m.Client(), limits: Limits{Answer: 10 * time.Second, Total: time.Minute}, stall: 10 * time.Second}
}

func TestFetchesEveryProgram(t *testing.T) {
	m, folder := newMirror(t), t.TempDir()
	// Left by a build, which links its programs to one file.
	if err := os.Symlink("kube", filepath.Join(folder, "kube-apiserver")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := m.fetcher().run(t.Context(), folder, m.programs(t), &out); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || !bytes.Equal(got, contentOf(name)) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if info, err := os.Lstat(filepath.Join(folder, name)); err != nil || info.Mode() != 0o755 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	expectFiles(t, folder, names...)
	if !strings.HasPrefix(out.String(), "fetched ") {
		t.Errorf("output: %q", out.String())
	}
}

// TestAFailureLeavesTheFolderAsItWas breaks one of the files, and shows that no program is replaced and the error
// has the reason.
func TestAFailureLeavesTheFolderAsItWas(t *testing.T) {
	const scheduler = kubeFolder + "kube-scheduler"
	const archive = etcdFolder + "etcd-v3.7.0-linux-amd64.tar.gz"
	tests := map[string]struct {
		arrange func(*mirror, *fetcher)
		want    string
	}{
		"a program is missing":   {func(m *mirror, _ *fetcher) { delete(m.files, scheduler) }, "kube-scheduler answers 404"},
		"a checksum is missing":  {func(m *mirror, _ *fetcher) { delete(m.files, scheduler+".sha256") }, "kube-scheduler.sha256 answers 404"},
		"a page for a checksum":  {func(m *mirror, _ *fetcher) { m.files[scheduler+".sha256"] = []byte("<html>log in</html>") }, "no SHA-256 of"},
		"the checksum of others": {func(m *mirror, _ *fetcher) { m.files[etcdFolder+"SHA256SUMS"] = []byte(sumOf(nil) + "  x.zip") }, "no SHA-256 of"},
		"a changed program":      {func(m *mirror, _ *fetcher) { m.files[scheduler] = []byte("evil") }, "has the SHA-256 " + sumOf([]byte("evil"))},
		"a changed archive":      {func(m *mirror, _ *fetcher) { m.files[archive] = []byte("evil") }, "was changed on its way"},
		"a program that is not the pinned one": {func(_ *mirror, f *fetcher) {
			f.pinned = sumOf([]byte("good")) + "  v1.37.1/bin/linux/amd64/kube-scheduler\n"
		}, sumOf([]byte("good")) + " is expected"},
		"an archive without the program": {func(m *mirror, _ *fetcher) {
			content := archiveOf(t, map[string][]byte{"etcd": contentOf("etcd")})
			m.files[archive], m.files[etcdFolder+"SHA256SUMS"] = content, []byte(sumOf(content)+"  etcd-v3.7.0-linux-amd64.tar.gz")
		}, "it is not in the archive"},
		"a program that is cut off": {func(m *mirror, _ *fetcher) {
			m.handlers[scheduler] = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000000")
				_, _ = w.Write(contentOf("kube-scheduler"))
			}
		}, "unexpected EOF"},
		"a program that stalls": {func(m *mirror, f *fetcher) {
			f.stall = 100 * time.Millisecond
			m.handlers[scheduler] = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "1000000")
				_, _ = w.Write(contentOf("kube-scheduler"))
				<-r.Context().Done()
			}
		}, "nothing arrived for 100ms"},
		"a program that takes too long": {func(m *mirror, f *fetcher) {
			f.limits.Total = 200 * time.Millisecond
			m.handlers[scheduler] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		}, ErrTooSlow.Error()},
		"a site that does not answer": {func(m *mirror, f *fetcher) {
			f.limits.Answer = 100 * time.Millisecond
			m.handlers[scheduler+".sha256"] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		}, "no answer within 100ms"},
		"no site": {func(m *mirror, _ *fetcher) { m.Close() }, "reaching http://127.0.0.1:"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, folder := newMirror(t), t.TempDir()
			f := m.fetcher()
			programs := m.programs(t)
			tc.arrange(m, f)
			if err := os.WriteFile(filepath.Join(folder, "kubectl"), []byte("old"), 0o755); err != nil {
				t.Fatal(err)
			}
			err := f.run(t.Context(), folder, programs, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("want an error with %q, got %v", tc.want, err)
			}
			expectFiles(t, folder, "kubectl")
			if got, err := os.ReadFile(filepath.Join(folder, "kubectl")); err != nil || string(got) != "old" {
				t.Errorf("kubectl is now %q, %v", got, err)
			}
		})
	}
}

// TestAPinnedChecksumWins shows that the published checksum of a pinned program is not even read.
func TestAPinnedChecksumWins(t *testing.T) {
	m, folder := newMirror(t), t.TempDir()
	f := m.fetcher()
	f.pinned = "# a comment\n" + sumOf(contentOf("kubectl")) + "  v1.37.1/bin/linux/amd64/kubectl\n"
	m.files[kubeFolder+"kubectl.sha256"] = []byte(sumOf([]byte("evil")))
	if err := f.run(t.Context(), folder, m.programs(t), io.Discard); err != nil {
		t.Fatal(err)
	}
	close(m.requests)
	for request := range m.requests {
		if strings.HasSuffix(request, "/kubectl.sha256") {
			t.Errorf("unexpected: %s", request)
		}
	}
}

func TestAKilledFetchLeavesNothingInTheNext(t *testing.T) {
	m, folder := newMirror(t), t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, ".fetch", "kubectl.file"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.fetcher().run(t.Context(), folder, m.programs(t), io.Discard); err != nil {
		t.Fatal(err)
	}
	expectFiles(t, folder, names...)
}

func TestFastEnough(t *testing.T) {
	for name, tc := range map[string]struct {
		elapsed              time.Duration
		done, total, unsized int64
		slow                 bool
	}{
		"too early":          {5 * time.Second, 1, 1000, 0, false},
		"sizes are missing":  {20 * time.Second, 1, 1000, 1, false},
		"nothing came":       {20 * time.Second, 0, 1000, 0, false},
		"in half the limit":  {20 * time.Second, 400, 1000, 0, false},
		"beyond the limit":   {20 * time.Second, 100, 1000, 0, true},
		"nearly at the end":  {90 * time.Second, 990, 1000, 0, false},
		"late, and too slow": {90 * time.Second, 700, 1000, 0, true},
	} {
		f := &fetcher{limits: Limits{Total: 100 * time.Second}}
		f.done.Store(tc.done)
		f.total.Store(tc.total)
		f.unsized.Store(tc.unsized)
		if err := f.fastEnough(tc.elapsed); errors.Is(err, ErrTooSlow) != tc.slow {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRespectsTheProxyOfTheEnvironment runs in a process of its own: net/http reads the environment once.
func TestRespectsTheProxyOfTheEnvironment(t *testing.T) {
	if folder := os.Getenv("FETCH_TEST_FOLDER"); folder != "" {
		sites, err := Mirror("http://mirror.example")
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(t.Context(), folder, sites.Programs("v1.37.1", "v3.7.0", "amd64", names...),
			Limits{Answer: 10 * time.Second, Total: time.Minute}, io.Discard); err != nil {
			t.Fatal(err)
		}
		return
	}
	m, folder := newMirror(t), t.TempDir() // answers requests for any host
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), "FETCH_TEST_FOLDER="+folder, "HTTP_PROXY="+m.URL, "NO_PROXY=", "no_proxy=")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	expectFiles(t, folder, names...)
}

func TestAnEndedContextIsReported(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	m := newMirror(t)
	if err := m.fetcher().run(ctx, t.TempDir(), m.programs(t), io.Discard); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("want the cause, got %v", err)
	}
}

func TestAddresses(t *testing.T) {
	var got []string
	for _, p := range Official().Programs("v1.37.1", "v3.7.0", "arm64", "kubectl", "etcd") {
		got = append(got, p.file, p.sums)
	}
	want := []string{
		"https://dl.k8s.io/release/v1.37.1/bin/linux/arm64/kubectl",
		"https://dl.k8s.io/release/v1.37.1/bin/linux/arm64/kubectl.sha256",
		"https://github.com/etcd-io/etcd/releases/download/v3.7.0/etcd-v3.7.0-linux-arm64.tar.gz",
		"https://github.com/etcd-io/etcd/releases/download/v3.7.0/SHA256SUMS",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, base := range []string{"", "mirror.example/files", "ftp://mirror.example", "https://", "https://a b/"} {
		if _, err := Mirror(base); err == nil {
			t.Errorf("%q: want an error", base)
		}
	}
}

func expectFiles(t *testing.T, folder string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
