// Package sandbox compiles the modules of users in a process of their own, before the engine of
// this process does. A compiler cannot be interrupted, and no check of a text finds every one that
// keeps it busy for ever; a process can be killed:
//
//	Check ──start──> child: this binary, no environment, limits on CPU, memory and files
//	      ──stdin──> module and schema
//	      <─stdout── problems, or none
//	      ──kill───> when it is not done in time
//
// The binary must hand over to Child first thing when IsChild says so.
package sandbox
