// Package trafficadapter reads TrafficAdapters, the registrations of adapters that run in programs
// of their own: which Services they have, and which finalizers a new pod must therefore expect.
//
//	Parse              a TrafficAdapter as a Registration
//	Registration       matches Services as the adapter does
//	Admission          the expected finalizers of a new pod, from caches
//	IndexServices      the index by which Admission finds the Services of a pod
package trafficadapter
