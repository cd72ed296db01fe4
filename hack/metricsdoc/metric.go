package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metric is one metric as it is described.
type metric struct {
	name   string
	kind   string // counter, gauge or histogram
	labels []string
	help   string
}

// recorder is a prometheus.Registerer that describes the metrics instead of serving them.
type recorder struct {
	metrics []metric
}

var _ prometheus.Registerer = &recorder{}

// Register implements prometheus.Registerer.
func (r *recorder) Register(collector prometheus.Collector) error {
	found, err := described(collector)
	if err != nil {
		return err
	}
	for _, m := range found {
		m.kind = kindOf(collector)
		r.metrics = append(r.metrics, m)
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *recorder) MustRegister(collectors ...prometheus.Collector) {
	for _, collector := range collectors {
		if err := r.Register(collector); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r *recorder) Unregister(prometheus.Collector) bool { return false }

// described returns the metrics of a collector, without their kinds.
func described(collector prometheus.Collector) ([]metric, error) {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		collector.Describe(descs)
	}()
	var found []metric
	var errs []error
	for desc := range descs {
		m, err := parse(desc.String())
		found, errs = append(found, m), append(errs, err)
	}
	return found, errors.Join(errs...)
}

// parse reads the text of a description: no method of it returns its parts.
func parse(text string) (metric, error) {
	name, rest, nameErr := quoted(text, "fqName: ")
	help, rest, helpErr := quoted(rest, "help: ")
	_, labels, found := strings.Cut(rest, "constLabels: {")
	constant, variable, separated := strings.Cut(labels, "}, variableLabels: {")
	variable, _, closed := strings.Cut(variable, "}")
	if err := errors.Join(nameErr, helpErr); err != nil || !found || !separated || !closed {
		return metric{}, fmt.Errorf("reading the description of a metric, %s: %w", text, err)
	}
	m := metric{name: name, help: help}
	for constant != "" {
		label, value, _ := strings.Cut(constant, "=")
		literal, err := strconv.QuotedPrefix(value)
		if err != nil {
			return metric{}, fmt.Errorf("reading the labels of metric %s: %w", name, err)
		}
		m.labels, constant = append(m.labels, label), strings.TrimPrefix(value[len(literal):], ",")
	}
	if variable != "" {
		m.labels = append(m.labels, strings.Split(variable, ",")...)
	}
	return m, nil
}

// quoted returns the quoted text after a key, and the rest of the text.
func quoted(text, key string) (value, rest string, err error) {
	_, after, found := strings.Cut(text, key)
	if !found {
		return "", "", fmt.Errorf("%q is missing", key)
	}
	literal, err := strconv.QuotedPrefix(after)
	if err != nil {
		return "", "", fmt.Errorf("reading %q: %w", key, err)
	}
	value, err = strconv.Unquote(literal)
	return value, after[len(literal):], err
}

// kindOf returns the kind of a metric of a collector: the kind of its type or of its only series. The collectors of
// this repository that have no series yet collect gauges.
func kindOf(collector prometheus.Collector) string {
	switch collector.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	series := make(chan prometheus.Metric)
	go func() {
		defer close(series)
		collector.Collect(series)
	}()
	kind := "gauge"
	for one := range series {
		var value dto.Metric
		if err := one.Write(&value); err == nil && value.GetCounter() != nil {
			kind = "counter"
		}
	}
	return kind
}
