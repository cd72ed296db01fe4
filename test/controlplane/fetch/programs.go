// Package fetch downloads the official programs of Kubernetes and etcd. A program is used only when it is whole
// and has the checksum that is pinned for it or, without one, that its release site publishes beside it.
package fetch

import (
	_ "embed" // the pinned checksums
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

//go:embed pinned.sha256
var pinned string

// Sites are the release sites of the programs.
type Sites struct {
	Kubernetes *url.URL // has v1.37.1/bin/linux/amd64/kube-apiserver and so on
	Etcd       *url.URL // has v3.7.0/etcd-v3.7.0-linux-amd64.tar.gz and so on
}

const (
	kubernetesSite = "dl.k8s.io/release"
	etcdSite       = "github.com/etcd-io/etcd/releases/download"
)

// Official returns the release sites of Kubernetes and etcd.
func Official() Sites {
	site := func(path string) *url.URL {
		host, path, _ := strings.Cut(path, "/")
		return &url.URL{Scheme: "https", Host: host, Path: "/" + path}
	}
	return Sites{Kubernetes: site(kubernetesSite), Etcd: site(etcdSite)}
}

// Mirror returns the sites of a mirror, which has each official site in a folder of the host name of the site.
func Mirror(base string) (Sites, error) {
	parsed, err := url.Parse(base)
	if err != nil {
		return Sites{}, fmt.Errorf("reading the address of the mirror: %w", err)
	}
	if (parsed.Scheme != "https" && parsed.Scheme != "http") || parsed.Host == "" {
		return Sites{}, fmt.Errorf("%q is no address of a mirror: it needs a scheme and a host, as in https://mirror.example/files", base)
	}
	return Sites{Kubernetes: parsed.JoinPath(kubernetesSite), Etcd: parsed.JoinPath(etcdSite)}, nil
}

// Program is a program at a release site.
type Program struct {
	name   string // in the folder that Run writes
	file   string // URL of the program or, with member, of a .tar.gz with it
	member string // path in the archive
	sums   string // URL of the file with the checksum of file
}

// Programs returns the named programs of a version of Kubernetes, v1.37.1 for example, for Linux on an
// architecture. etcd, if it is among them, has a version of its own.
func (s Sites) Programs(kubernetes, etcd, architecture string, names ...string) []Program {
	programs := make([]Program, 0, len(names))
	for _, name := range names {
		if name == "etcd" {
			folder := fmt.Sprintf("etcd-%s-linux-%s", etcd, architecture)
			programs = append(programs, Program{
				name: name, file: s.Etcd.JoinPath(etcd, folder+".tar.gz").String(), member: path.Join(folder, name),
				sums: s.Etcd.JoinPath(etcd, "SHA256SUMS").String(),
			})
			continue
		}
		file := s.Kubernetes.JoinPath(kubernetes, "bin", "linux", architecture, name).String()
		programs = append(programs, Program{name: name, file: file, sums: file + ".sha256"})
	}
	return programs
}

// checksumIn returns the SHA-256 of file, a URL, in a list. A line is a checksum and the path that the URL ends
// with, or a checksum alone, as in a list for one file.
func checksumIn(list, file string) (string, bool) {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(fields[0], "#") || !isChecksum(fields[0]):
		case len(fields) == 1, strings.HasSuffix(file, "/"+strings.TrimPrefix(fields[1], "*")):
			return strings.ToLower(fields[0]), true
		}
	}
	return "", false
}

func isChecksum(text string) bool {
	return len(text) == 64 && !slices.ContainsFunc([]rune(text), func(r rune) bool {
		return !strings.ContainsRune("0123456789abcdefABCDEF", r)
	})
}
