// Package webhooktask keeps the state of the calls that webhook rules make: which pods an external
// service was asked about, what it said of them, and when it may be asked again. It is pure: the
// time, the ids of calls and the answers are handed in, and what is to be sent is handed out.
//
// The state lives in status.ruleStates and nowhere else, so a restart, or another leader, goes on
// where the last one was. A call is a task:
//
//	Open --> Posting --+--> Polling --+--> Finished   approved pods pass, the others are rejected
//	                   |              |
//	                   +--------------+--> Failed     asked about again, after a delay
//
// A round takes these steps, in this order:
//
//  1. FromStatus.
//  2. Posted, PostFailed, Polled and PollFailed with the results that came in.
//  3. Interrupted, Expire, Forget.
//  4. Of for each request that waits; the rule decides what that means.
//  5. Open for those that need a call, and Due.
//  6. Status is written under the resourceVersion that it was read at. Only when that succeeded may
//     the calls of Open be sent: an id that is in status before it is on the wire is never used
//     again, whoever dies when. Results of step 2 are kept until it succeeded, too; to take one in
//     twice does no harm.
//
// An approval counts for a pod (by UID), one waiting of it (by the value of its label) and one
// generation of the rule. Names are what services answer with; they are looked up among the pods
// of the call that is answered, never elsewhere.
package webhooktask
