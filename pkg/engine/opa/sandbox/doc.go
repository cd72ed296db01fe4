// Package sandbox compiles and evaluates users' modules in processes of their own. A compiler cannot be
// interrupted, nor can some steps of an evaluation, and no check of a text finds every module that keeps a
// process busy or uses up its memory or stack; a process can be killed:
//
//	Check, ───start──> worker: this binary, no environment but TZ, limits on memory, stack and files
//	Evaluate ─stdin──> a module; or a batch: module, parameters, facts (coder, frame)
//	         <─stdout─ ready, and a result; or ready, an answer for each request, done
//	         ─kill───> at the limit of CPU time (watch)
//
// A worker that checks a module ends after it. Others are kept in a pool, except for the workers of namespaces whose modules
// have ended a worker. A failure of a worker is the fault of a module only if the module was compiled or evaluated
// and has used up a limit, or the worker crashed; any other failure is one of the machine.
//
// The binary must call Main first if IsChild returns true.
package sandbox
