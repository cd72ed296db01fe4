// Package dist writes the files of a release: archives, the index with their checksums, the manifest for krew,
// and the section of the changelog.
package dist

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Entry is a file in an archive.
type Entry struct {
	Name       string
	Content    []byte
	Executable bool
}

func (e Entry) mode() int64 {
	if e.Executable {
		return 0o755
	}
	return 0o644
}

// Pack returns an archive of the type that the end of its name has: .tar.gz, .tgz or .zip. All entries have the same time,
// and belong to root.
func Pack(name string, entries []Entry, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	var err error
	switch {
	case strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"):
		err = packTar(&out, entries, modified)
	case strings.HasSuffix(name, ".zip"):
		err = packZip(&out, entries, modified)
	default:
		err = errors.New("the type of the archive is unknown")
	}
	if err != nil {
		return nil, fmt.Errorf("packing %s: %w", name, err)
	}
	return out.Bytes(), nil
}

func packTar(out *bytes.Buffer, entries []Entry, modified time.Time) error {
	compressed := gzip.NewWriter(out)
	archive := tar.NewWriter(compressed)
	for _, entry := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: entry.Name, Mode: entry.mode(), Size: int64(len(entry.Content)), ModTime: modified}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(entry.Content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func packZip(out *bytes.Buffer, entries []Entry, modified time.Time) error {
	archive := zip.NewWriter(out)
	for _, entry := range entries {
		header := &zip.FileHeader{Name: entry.Name, Method: zip.Deflate, Modified: modified.UTC()}
		header.SetMode(0o644)
		if entry.Executable {
			header.SetMode(0o755)
		}
		file, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := file.Write(entry.Content); err != nil {
			return err
		}
	}
	return archive.Close()
}
