package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Bounds of the state. They are part of the replicated behaviour.
const (
	MaxKeyBytes    = 512
	MaxValueBytes  = 64 << 10
	MaxClientBytes = 128

	// MaxKeys and MaxBytes bound the database; MaxBytes counts keys and values.
	MaxKeys  = 100_000
	MaxBytes = 1 << 30

	// MaxClients is how many clients have their last request remembered. The client whose
	// last request is the oldest is forgotten first.
	MaxClients = 10_000
)

// Op is the kind of a command.
type Op string

// The commands.
const (
	Put    Op = "put"
	Append Op = "append"
	Delete Op = "delete"
)

// Command is a write.
type Command struct {
	Op    Op     `json:"op"`
	Key   string `json:"key"`
	Value []byte `json:"value,omitempty"`

	// If is the revision that the key must have, 0: the key must not exist. nil: any.
	If *uint64 `json:"if,omitempty"`

	// Client and Seq identify the request: a command with the Seq of the client's last
	// command is not applied again, and has the same Result. A client has one request at
	// a time, and numbers them upwards from 1. An empty Client has no such guarantee.
	Client string `json:"client,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
}

// ErrInvalid means that a command exceeds a bound or has no meaning.
var ErrInvalid = errors.New("invalid command")

// Validate returns ErrInvalid for a command that is not replicated.
func (c Command) Validate() error {
	switch {
	case c.Op != Put && c.Op != Append && c.Op != Delete:
		return fmt.Errorf("%w: operation %q", ErrInvalid, c.Op)
	case ValidateKey(c.Key) != nil:
		return ValidateKey(c.Key)
	case len(c.Value) > MaxValueBytes:
		return fmt.Errorf("%w: a value has at most %d bytes", ErrInvalid, MaxValueBytes)
	case len(c.Client) > MaxClientBytes:
		return fmt.Errorf("%w: the name of a client has at most %d bytes", ErrInvalid, MaxClientBytes)
	case (c.Client == "") != (c.Seq == 0):
		return fmt.Errorf("%w: a request has both a client and a number from 1, or neither", ErrInvalid)
	}
	return nil
}

// ValidateKey returns ErrInvalid for a key that cannot be stored.
func ValidateKey(key string) error {
	if key == "" || len(key) > MaxKeyBytes || !utf8.ValidString(key) {
		return fmt.Errorf("%w: a key has 1 to %d bytes of UTF-8", ErrInvalid, MaxKeyBytes)
	}
	return nil
}

// Encode returns the command as it is replicated.
func (c Command) Encode() ([]byte, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encoding a command: %w", err)
	}
	return data, nil
}

// Outcome is the effect of a command.
type Outcome string

// The outcomes. Only Applied changes a key.
const (
	Applied  Outcome = "Applied"
	Conflict Outcome = "Conflict" // the key has another revision than If
	TooLarge Outcome = "TooLarge" // an append beyond MaxValueBytes
	Full     Outcome = "Full"     // MaxKeys or MaxBytes
	Expired  Outcome = "Expired"  // the client is unknown and this is not its first request, or it has sent a later request
)

// Result is the result of a command.
type Result struct {
	Outcome Outcome `json:"outcome"`
	// Revision is the revision of the key afterwards, 0: the key does not exist.
	Revision uint64 `json:"revision"`
}

// Entry is a key's value. The zero Entry is a key that does not exist.
type Entry struct {
	Revision uint64 // log index of the last change
	Value    []byte
}

// Usage is the size of the database.
type Usage struct {
	Keys  uint64 `json:"keys"`
	Bytes uint64 `json:"bytes"`
}

// after returns the usage once the key changed from one entry to the other.
func (u Usage) after(key string, from, to Entry) Usage {
	if from.Revision != 0 {
		u.Keys--
		u.Bytes -= uint64(len(key) + len(from.Value))
	}
	if to.Revision != 0 {
		u.Keys++
		u.Bytes += uint64(len(key) + len(to.Value))
	}
	return u
}

// transition returns the entry of the command's key once the command is applied at a log
// index, with the result and the usage. It changes none of its arguments.
func (c Command) transition(index uint64, current Entry, usage Usage) (Entry, Usage, Result) {
	rejected := func(o Outcome) (Entry, Usage, Result) {
		return current, usage, Result{Outcome: o, Revision: current.Revision}
	}
	if c.If != nil && *c.If != current.Revision {
		return rejected(Conflict)
	}
	next := Entry{Revision: index, Value: c.Value}
	switch c.Op {
	case Delete:
		next = Entry{}
	case Append:
		if len(current.Value)+len(c.Value) > MaxValueBytes {
			return rejected(TooLarge)
		}
		next.Value = append(append([]byte(nil), current.Value...), c.Value...)
	case Put:
	}
	used := usage.after(c.Key, current, next)
	if grows := used.Keys > usage.Keys || used.Bytes > usage.Bytes; grows && (used.Keys > MaxKeys || used.Bytes > MaxBytes) {
		return rejected(Full)
	}
	return next, used, Result{Outcome: Applied, Revision: next.Revision}
}
