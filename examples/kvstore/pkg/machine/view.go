package machine

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
)

// View is the state at a moment. It implements raft.FSMSnapshot. Its bytes, which are also
// the format of a backup, are a bbolt database and the SHA-256 of it: bbolt maps a file that
// is cut off into memory, and crashes.
type View struct {
	tx   *bolt.Tx
	once sync.Once
}

// Size returns the number of bytes that WriteTo writes.
func (v *View) Size() int64 { return v.tx.Size() + sha256.Size }

// Applied returns the log index of the last command.
func (v *View) Applied() uint64 { return transaction{v.tx}.applied() }

// WriteTo writes the state.
func (v *View) WriteTo(w io.Writer) (int64, error) {
	sum := sha256.New()
	n, err := v.tx.WriteTo(io.MultiWriter(w, sum))
	if err != nil {
		return n, fmt.Errorf("writing a snapshot: %w", err)
	}
	trailer, err := w.Write(sum.Sum(nil))
	if err != nil {
		err = fmt.Errorf("writing the sum of a snapshot: %w", err)
	}
	return n + int64(trailer), err
}

// Persist writes the state to a sink of raft.
func (v *View) Persist(sink raft.SnapshotSink) error {
	if _, err := v.WriteTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("closing a snapshot: %w", err)
	}
	return nil
}

// Release ends the view. It may be called more than once.
func (v *View) Release() {
	v.once.Do(func() {
		_ = v.tx.Rollback() // the only error is that it has ended
	})
}

// Contents describes a backup.
type Contents struct {
	Usage   Usage  `json:"usage"`
	Applied uint64 `json:"applied"`
}

// ErrDamaged means that a snapshot is cut off or changed, or that a file is no snapshot.
var ErrDamaged = errors.New("the snapshot is damaged")

// Inspect verifies the snapshot in the file at path, and returns its contents. It returns
// ErrDamaged for a file with other bytes than View has written.
func Inspect(path string) (Contents, error) {
	var contents Contents
	err := readSnapshot(path, func(t transaction) error {
		contents = Contents{Usage: t.usage(), Applied: t.applied()}
		return nil
	})
	return contents, err
}

// Keys returns the keys of the snapshot in the file at path, sorted. It returns ErrDamaged as Inspect does.
func Keys(path string) ([]string, error) {
	var keys []string
	err := readSnapshot(path, func(t transaction) error {
		return t.tx.Bucket(bucketKeys).ForEach(func(key, _ []byte) error {
			keys = append(keys, string(key))
			return nil
		})
	})
	return keys, err
}

// readSnapshot verifies a snapshot, and reads it.
func readSnapshot(path string, read func(transaction) error) error {
	if _, err := verify(path); err != nil {
		return err
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("%w: opening %s: %w", ErrDamaged, path, err)
	}
	err = db.View(func(tx *bolt.Tx) error {
		for _, name := range buckets() {
			if tx.Bucket(name) == nil {
				return fmt.Errorf("%w: no bucket %s", ErrDamaged, name)
			}
		}
		return read(transaction{tx})
	})
	return errors.Join(err, db.Close())
}

// verify compares the sum at the end of a file with its other bytes, and returns their number.
func verify(path string) (size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("opening the snapshot: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading the size of the snapshot: %w", err)
	}
	size = info.Size() - sha256.Size
	if size <= 0 {
		return 0, fmt.Errorf("%w: %s has %d bytes", ErrDamaged, path, info.Size())
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, file, size); err != nil {
		return 0, fmt.Errorf("reading the snapshot: %w", err)
	}
	trailer, err := io.ReadAll(file)
	if err != nil {
		return 0, fmt.Errorf("reading the sum of the snapshot: %w", err)
	}
	if !bytes.Equal(trailer, sum.Sum(nil)) {
		return 0, fmt.Errorf("%w: %s has another sum than its bytes", ErrDamaged, path)
	}
	return size, nil
}
