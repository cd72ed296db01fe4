// Package prune removes parts of encoded objects before they are decoded. To skip a part costs a
// fraction of the time that it takes to decode it, and no memory: most of a pod are its
// containers, its volumes and managedFields, which few components read.
//
// It checks a removed value only as far as is necessary to find its end. The remaining values
// are checked by the decoder.
package prune
