// Package webhooktask keeps the state of webhook rules' calls: which pods a service was
// called for, its answers, and when it may be called again. It is pure: the time, the ids of calls
// and the answers are parameters, and the calls to make are results.
//
// The state is stored in status.ruleStates and nowhere else, so that a restarted manager, or
// another leader, continues with it. A call is a task:
//
//	Open --> Posting --+--> Polling --+--> Finished   approved pods pass, the others are rejected
//	                   |              |
//	                   +--------------+--> Failed     called for again, after a delay
//
// A round takes these steps, in this order:
//
//  1. FromStatus.
//  2. Posted, PostFailed, Polled and PollFailed with the results that arrived.
//  3. Interrupted, Expire, Forget.
//  4. Of for each waiting request; the rule decides by it.
//  5. Open for the requests that need a call, and Due.
//  6. Status is written with the resourceVersion that was read. The calls of Open may be sent only after
//     that succeeded: an id that is in status before it is sent is never used again, even if a manager
//     ends at any point. Results of step 2 are kept until then, too; recording a result twice has no effect.
//
// An approval is valid for a pod (by UID), one operation of it (by the value of its label) and one
// generation of the rule. Services answer with names of pods; they are looked up only among the
// pods of their own call.
package webhooktask
