package load

import (
	"hash/fnv"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// separator ends each token.
const separator = ";"

// CheckTimeout bounds the check of a history.
const CheckTimeout = time.Minute

// input is an operation in the model.
type input struct {
	kind  Kind
	key   string
	token string

	// order has the tokens of the longest value that was read of the key. At that read the state is this list,
	// so that the writes before it have taken effect in its order. Without it the check of many writes at
	// a time would try each of their orders.
	order []string
}

// digest identifies a list of tokens: the state of the model, instead of the list, which
// would be copied with each write.
type digest struct {
	tokens int
	hash   uint64
}

func (d digest) append(token string) digest {
	h := fnv.New64a()
	var last [8]byte
	for i := range last {
		last[i] = byte(d.hash >> (8 * i))
	}
	_, _ = h.Write(last[:])       // never fails
	_, _ = h.Write([]byte(token)) // never fails
	return digest{tokens: d.tokens + 1, hash: h.Sum64()}
}

func digestOf(value string) digest {
	var d digest
	for _, token := range tokens(value) {
		d = d.append(token)
	}
	return d
}

// tokens returns the tokens of a value.
func tokens(value string) []string {
	all := strings.Split(value, separator)
	return all[:len(all)-1] // after the last separator
}

// model is a store of lists.
func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, o := range history {
				key := o.Input.(input).key
				byKey[key] = append(byKey[key], o)
			}
			var parts [][]porcupine.Operation
			for _, part := range byKey {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return digest{} },
		Step: func(state, in, out any) (bool, any) {
			i, d := in.(input), state.(digest)
			if i.kind == Write {
				return d.tokens >= len(i.order) || i.order[d.tokens] == i.token, d.append(i.token)
			}
			return out.(digest) == d, d
		},
	}
}

// Check reports whether operations are linearizable: each takes effect at one moment between
// its start and its end. It is porcupine.Unknown when the check takes longer than timeout.
func Check(operations []Operation, timeout time.Duration) porcupine.CheckResult {
	orders := ordersOf(operations)
	var history []porcupine.Operation
	for _, o := range operations {
		if o.Outcome == Rejected || o.Kind == Read && o.Outcome != Succeeded {
			continue // without effect and without a result
		}
		end := o.End.UnixNano()
		if o.Outcome == Open {
			end = math.MaxInt64 // it may take effect at any time, or never
		}
		history = append(history, porcupine.Operation{
			ClientId: o.Worker, Input: input{o.Kind, o.Key, o.Token, orders[o.Key]}, Output: digestOf(o.Value), Call: o.Start.UnixNano(), Return: end,
		})
	}
	return porcupine.CheckOperationsTimeout(model(), history, timeout)
}

// ordersOf returns the tokens of the longest value that was read of each key.
func ordersOf(operations []Operation) map[string][]string {
	orders := map[string][]string{}
	for _, o := range operations {
		if o.Kind != Read || o.Outcome != Succeeded {
			continue
		}
		if read := tokens(o.Value); len(read) > len(orders[o.Key]) {
			orders[o.Key] = read
		}
	}
	return orders
}
