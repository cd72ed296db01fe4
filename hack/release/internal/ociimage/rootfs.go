package ociimage

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The files that Go programs read from a system besides their own.
const (
	certificatesPath = "etc/ssl/certs/ca-certificates.crt"
	zonesPath        = "usr/share/zoneinfo"
)

// file is a file of a layer. Its path is relative to the root.
type file struct {
	path    string
	mode    int64
	content []byte
}

// systemFiles returns the files that all images share. goroot is the folder of the Go toolchain, from which time
// zones come; certificates come from the Go module x509roots. Neither depends on the machine.
func systemFiles(goroot string) ([]file, error) {
	zones, err := timeZones(filepath.Join(goroot, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, fmt.Errorf("reading the time zones: %w", err)
	}
	authorities := certificates()
	if len(authorities) == 0 {
		return nil, errors.New("the module x509roots has no certificates")
	}
	return append(zones,
		file{path: certificatesPath, mode: 0o444, content: authorities},
		file{path: "etc/passwd", mode: 0o444, content: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		file{path: "etc/group", mode: 0o444, content: []byte("root:x:0:\nnonroot:x:65532:\n")},
	), nil
}

// certificates returns Mozilla's certificate authorities as PEM. Authorities that Mozilla trusts with a
// constraint only, such as certificates up to a date, are left out: a file cannot express it.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer returns no errors
		}
	}
	return out.Bytes()
}

// timeZones returns the files of the archive of time zones that is part of a Go toolchain.
func timeZones(archive string) ([]file, error) {
	zones, err := zip.OpenReader(archive)
	if err != nil {
		return nil, err
	}
	defer func() { _ = zones.Close() }() // the archive was only read
	var files []file
	for _, zone := range zones.File {
		if strings.HasSuffix(zone.Name, "/") {
			continue
		}
		content, err := contentOf(zone)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", zone.Name, err)
		}
		files = append(files, file{path: path.Join(zonesPath, zone.Name), mode: 0o444, content: content})
	}
	return files, nil
}

func contentOf(compressed *zip.File) ([]byte, error) {
	opened, err := compressed.Open()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(opened)
	return content, errors.Join(err, opened.Close())
}

// pack returns an archive of files and of the folders that contain them, sorted by path. All belong to root, and
// have the time 0, so that a layer is equal in all releases in which its files are.
func pack(files []file) ([]byte, error) {
	byPath := map[string]file{}
	for _, f := range files {
		byPath[f.path] = f
		for dir := path.Dir(f.path); dir != "."; dir = path.Dir(dir) {
			byPath[dir+"/"] = file{path: dir + "/", mode: 0o555}
		}
	}
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(byPath)) { // folders come before their files
		f := byPath[name]
		header := tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0)}
		if strings.HasSuffix(f.path, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(&header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.path, err)
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("ending an archive: %w", err)
	}
	return out.Bytes(), nil
}
