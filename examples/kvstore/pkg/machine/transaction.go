package machine

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// The buckets:
//
//	keys      key -> revision (8 bytes), value
//	clients   client -> request
//	requests  log index (8 bytes) -> client: clients by the age of their last request
//	meta      usage, applied
func buckets() [][]byte { return [][]byte{bucketKeys, bucketClients, bucketRequests, bucketMeta} }

//nolint:gochecknoglobals // names of buckets and keys, as bytes
var (
	bucketKeys     = []byte("keys")
	bucketClients  = []byte("clients")
	bucketRequests = []byte("requests")
	bucketMeta     = []byte("meta")

	metaUsage   = []byte("usage")
	metaApplied = []byte("applied")
)

// request is the last request of a client.
type request struct {
	Seq    uint64 `json:"seq"`
	Index  uint64 `json:"index"`
	Result Result `json:"result"`
}

// transaction reads and writes the buckets.
type transaction struct{ tx *bolt.Tx }

// apply applies a command at a log index that is higher than all before it.
func (t transaction) apply(index uint64, c Command) (Result, error) {
	if err := t.tx.Bucket(bucketMeta).Put(metaApplied, number(index)); err != nil {
		return Result{}, err
	}
	if c.Client == "" {
		return t.change(index, c)
	}
	last, err := t.lastRequest(c.Client)
	if err != nil {
		return Result{}, err
	}
	switch {
	case c.Seq == last.Seq:
		return last.Result, nil
	case c.Seq < last.Seq || last.Seq == 0 && c.Seq != 1:
		return Result{Outcome: Expired}, nil
	}
	result, err := t.change(index, c)
	if err != nil {
		return Result{}, err
	}
	return result, t.remember(c.Client, last, request{Seq: c.Seq, Index: index, Result: result})
}

// change applies the command to its key.
func (t transaction) change(index uint64, c Command) (Result, error) {
	next, usage, result := c.transition(index, t.entry(c.Key), t.usage())
	if result.Outcome != Applied {
		return result, nil
	}
	keys := t.tx.Bucket(bucketKeys)
	if next.Revision == 0 {
		if err := keys.Delete([]byte(c.Key)); err != nil {
			return Result{}, err
		}
	} else if err := keys.Put([]byte(c.Key), append(number(next.Revision), next.Value...)); err != nil {
		return Result{}, err
	}
	data, err := json.Marshal(usage)
	if err != nil {
		return Result{}, err
	}
	return result, t.tx.Bucket(bucketMeta).Put(metaUsage, data)
}

func (t transaction) entry(key string) Entry {
	data := t.tx.Bucket(bucketKeys).Get([]byte(key))
	if data == nil {
		return Entry{}
	}
	// The bytes of bbolt are valid during the transaction only.
	return Entry{Revision: binary.BigEndian.Uint64(data), Value: append([]byte{}, data[8:]...)}
}

func (t transaction) usage() Usage {
	var usage Usage
	if data := t.tx.Bucket(bucketMeta).Get(metaUsage); data != nil {
		_ = json.Unmarshal(data, &usage) // written by change
	}
	return usage
}

func (t transaction) applied() uint64 {
	if data := t.tx.Bucket(bucketMeta).Get(metaApplied); data != nil {
		return binary.BigEndian.Uint64(data)
	}
	return 0
}

// lastRequest returns the last request of a client; the zero request for an unknown client.
func (t transaction) lastRequest(client string) (request, error) {
	var last request
	data := t.tx.Bucket(bucketClients).Get([]byte(client))
	if data == nil {
		return last, nil
	}
	if err := json.Unmarshal(data, &last); err != nil {
		return last, fmt.Errorf("decoding the last request of client %q: %w", client, err)
	}
	return last, nil
}

// remember replaces the last request of a client, and forgets the oldest client when there
// are more than MaxClients. Each client has one record by age, so their number is known
// from a counter: the sequence of the bucket.
func (t transaction) remember(client string, last, next request) error {
	clients, byAge := t.tx.Bucket(bucketClients), t.tx.Bucket(bucketRequests)
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	count := clients.Sequence()
	if last.Seq == 0 {
		count++
	} else if err := byAge.Delete(number(last.Index)); err != nil {
		return err
	}
	if err := clients.Put([]byte(client), data); err != nil {
		return err
	}
	if err := byAge.Put(number(next.Index), []byte(client)); err != nil {
		return err
	}
	if count > MaxClients {
		index, oldest := byAge.Cursor().First()
		if err := clients.Delete(oldest); err != nil {
			return err
		}
		if err := byAge.Delete(index); err != nil {
			return err
		}
		count--
	}
	return clients.SetSequence(count)
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
