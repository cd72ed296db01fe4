package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
)

const (
	// lockTimeout bounds the wait for a predecessor that still has the database open.
	lockTimeout = 10 * time.Second

	// mapBytes is how much of the file bbolt maps into memory, as address space. A write
	// that needs more waits until all readers end, and a backup reads for minutes: the map
	// has room for MaxBytes with pages that are half empty, and their copies.
	mapBytes = 4 * MaxBytes
)

// Machine is a database that commands are applied to. It implements raft.BatchingFSM, and
// is safe for concurrent use.
type Machine struct {
	path string

	mu sync.RWMutex // guards db against its replacement by Restore
	db *bolt.DB
}

// Open opens or creates the database at path.
func Open(path string) (*Machine, error) {
	m := &Machine{path: path}
	if err := m.open(); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Machine) open() error {
	db, err := bolt.Open(m.path, 0o600, &bolt.Options{Timeout: lockTimeout, InitialMmapSize: mapBytes})
	if err != nil {
		return fmt.Errorf("opening %s: %w", m.path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range buckets() {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("preparing %s: %w", m.path, err), db.Close())
	}
	m.db = db
	return nil
}

// Close closes the database.
func (m *Machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.db.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", m.path, err)
	}
	return nil
}

// Get returns the entry of a key.
func (m *Machine) Get(key string) (Entry, error) {
	var entry Entry
	err := m.view(func(t transaction) error {
		entry = t.entry(key)
		return nil
	})
	return entry, err
}

// State returns the size of the database and the log index of its last command.
func (m *Machine) State() (usage Usage, applied uint64, err error) {
	err = m.view(func(t transaction) error {
		usage, applied = t.usage(), t.applied()
		return nil
	})
	return usage, applied, err
}

func (m *Machine) view(read func(transaction) error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	err := m.db.View(func(tx *bolt.Tx) error { return read(transaction{tx}) })
	if err != nil {
		return fmt.Errorf("reading %s: %w", m.path, err)
	}
	return nil
}

// Apply applies one command.
func (m *Machine) Apply(log *raft.Log) any { return m.ApplyBatch([]*raft.Log{log})[0] }

// ApplyBatch applies the commands of the log in one transaction, and returns a Result for
// each. Commands that the database already has, after a restart, are not applied again. It
// panics when the database cannot be written: a member that skips a command diverges.
func (m *Machine) ApplyBatch(logs []*raft.Log) []any {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var results []any
	err := m.db.Update(func(tx *bolt.Tx) error {
		t := transaction{tx}
		results = make([]any, 0, len(logs))
		for _, log := range logs {
			if log.Type != raft.LogCommand || log.Index <= t.applied() {
				results = append(results, Result{})
				continue
			}
			var command Command
			if err := json.Unmarshal(log.Data, &command); err != nil {
				return fmt.Errorf("decoding the command at index %d: %w", log.Index, err)
			}
			result, err := t.apply(log.Index, command)
			if err != nil {
				return fmt.Errorf("applying the command at index %d: %w", log.Index, err)
			}
			results = append(results, result)
		}
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("kvstore: %v", err))
	}
	return results
}

// Snapshot returns the state at this moment. Commands are applied while it is written.
func (m *Machine) Snapshot() (raft.FSMSnapshot, error) { return m.View() }

// View returns the state at this moment. The caller calls Release.
func (m *Machine) View() (*View, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	tx, err := m.db.Begin(false)
	if err != nil {
		return nil, fmt.Errorf("beginning a snapshot: %w", err)
	}
	return &View{tx: tx}, nil
}

// Restore replaces the state by a snapshot. The old state stays when it returns an error.
func (m *Machine) Restore(snapshot io.ReadCloser) error {
	defer snapshot.Close()
	incoming := m.path + ".incoming"
	if err := writeFile(incoming, snapshot); err != nil {
		return err
	}
	size, err := verify(incoming)
	if err != nil {
		return err
	}
	if err := os.Truncate(incoming, size); err != nil {
		return fmt.Errorf("removing the sum of the snapshot: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.db.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", m.path, err)
	}
	if err := os.Rename(incoming, m.path); err != nil {
		return errors.Join(fmt.Errorf("replacing %s: %w", m.path, err), m.open())
	}
	if err := syncFolder(filepath.Dir(m.path)); err != nil {
		return err
	}
	return m.open()
}

func writeFile(path string, content io.Reader) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	_, err = io.Copy(file, content)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	return nil
}
