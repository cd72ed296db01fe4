// Package evaluation evaluates the rules of a namespace for the requests that wait, and allocates permits. It has no
// client, recorder or metric: a Snapshot, the State of the namespace and Calls go in; an Evaluation and an
// Allocation, which are not modified after they were returned, come out, with Effects for the caller to count and report.
//
//	Prepare -> EvaluateModules -> Evaluate -> OpenCalls -> Allocate -> Count
//
// Prepare compiles rules and EvaluateModules evaluates users' modules, which takes time of other processes. The
// steps after them decide, and take no lock; only Allocate evaluates users' modules again, in the order of permits.
//
// A Turn bounds the resources of a round: time, memory, and a lane among other namespaces. A round that has used it up
// withholds the requests that it has not reached. What a rule remembers of its last round is its Recollection.
//
// Files use only files further up in this list:
//
//	turn, program                    the bounds of a round, and compiled rules
//	counters, quarantine, recollection, rules, state, missing    a rule, its state, and the state of a namespace
//	evaluator, prepare, modules      rules are compiled, and users' modules evaluated
//	result, reasons, findings        the results of rules
//	exceptions, disruptions          who passes all the same; the slots of PodDisruptionBudgets
//	evaluation, verdicts, calls, budgets, retired, evaluate      an evaluation
//	allocate, outcome                permits, and what is reported
package evaluation
