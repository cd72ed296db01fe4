// Package vet decides whether a user's module may be compiled and used. Everything in it depends on
// the text of the module alone, and is bounded:
//
//	CheckSize  bytes and nesting of the text, before the parser sees it
//	Read       the contract: package, imports, references, entry point
//	Compiler   nesting and estimated cost, as stages of the compiler that run before types are checked
//	Check      references and types of the compiled module
//	NeedsOf    the parts of the environment that it reads
//
// The compiler takes minutes for some modules of a few hundred bytes, and cannot be interrupted. The
// estimate of the cost rejects them; the package sandbox compiles the others in a child process first.
package vet
