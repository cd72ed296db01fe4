// Package vet decides whether a user's module may be used. Everything in it depends on the text of the module alone:
//
//	CheckSize  bytes of the text
//	Read       the contract: package, imports, references, entry point
//	Check      references and types of the compiled module
//	NeedsOf    the parts of the environment that it reads
//
// The parser and the compiler take minutes for some modules of a few hundred bytes, and cannot be interrupted: package sandbox
// runs them in a process of its own.
package vet
