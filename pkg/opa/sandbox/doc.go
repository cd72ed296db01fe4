// Package sandbox compiles users' modules in a process of their own before the engine of this
// process does. A compiler cannot be interrupted, and no check of a text finds every module that
// keeps the compiler busy; a process can be killed:
//
//	Check ──start──> child: this binary, no environment, limits on CPU, memory and files
//	      ──stdin──> module and schema
//	      <─stdout── problems, or none
//	      ──kill───> at the timeout
//
// The binary must call Child first if IsChild returns true.
package sandbox
