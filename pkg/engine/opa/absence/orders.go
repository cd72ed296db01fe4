package absence

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// order is how a module compares values by order. An absent fact counts as a least value.
type order struct {
	// least are two of the least values: a module that withholds only the first one compares for equality.
	least []string

	// greatest is a value with which a pod passes that waits with the least ones.
	greatest string
}

// Points in time and numbers. most is more than a point in time, in nanoseconds.
const (
	leastText       = "!"
	least, most     = "0", "9000000000000000000"
	earliest, later = "1970-01-01T00:00:00Z", "2199-01-01T00:00:00Z"
)

// ordersIn returns the orders of a module with these strings.
func ordersIn(reads vet.Reads, source string, named []string) []order {
	var found []order
	if reads.OrdersTexts {
		found = append(found, order{[]string{leastText, "0"}, "~"})
	}
	if strings.Contains(source, "to_number(") || strings.Contains(source, "units.parse") {
		found = append(found, order{[]string{least, "0.001"}, most}, order{[]string{least, "1"}, most})
	}
	if strings.Contains(source, "semver.") {
		found = append(found, order{[]string{"0.0.1-alpha", "0.0.2"}, "999.0.0"})
	}
	if strings.Contains(source, "time.parse_rfc3339_ns(") {
		found = append(found, order{[]string{earliest, "1970-01-01T00:00:01Z"}, later})
	}
	if strings.Contains(source, "time.parse_duration_ns(") {
		found = append(found, order{[]string{"0s", "1s"}, "1000000h"})
	}
	for _, layout := range named {
		if strings.Contains(source, "time.parse_ns(") && strings.Contains(layout, "2006") {
			at := func(year int) string { return time.Date(year, time.January, 2, 0, 0, 0, 0, time.UTC).Format(layout) }
			found = append(found, order{[]string{at(1970), at(1971)}, at(2199)})
		}
	}
	return found
}

// inDocuments returns the orders for members in JSON documents, which may be numbers.
func inDocuments(orders []order, reads vet.Reads) []order {
	found := []order{{[]string{document(reads, json.Number(least)), document(reads, json.Number("1"))}, document(reads, json.Number(most))}}
	for _, one := range orders {
		found = append(found, one.with(func(value string) string { return document(reads, value) }))
	}
	return found
}

// with returns the order of other texts for the values.
func (o order) with(text func(string) string) order {
	made := order{greatest: text(o.greatest)}
	for _, value := range o.least {
		made.least = append(made.least, text(value))
	}
	return made
}
