// Package approvals is an approval service for webhook rules, for tests, the demo and authors
// of rules. It shares no code with the manager, so that the protocol is implemented twice,
// independently.
//
// The path of the URL selects the answer, so one service serves any number of rules.
//
//	POST /approve        everything, at once
//	POST /approve-some   ?n=1: the first n pods of the request, by name; or
//	                     ?parameter=tier&value=gold: the pods with this parameter
//	POST /reject         nothing
//	POST /poll           a task that approves ?each=1 pods with every poll
//	POST /poll-slow      a task that approves every pod with poll number ?polls=5
//	POST /async          as /poll, with the older field names: async, and found by trace-id too
//	POST /stop           a task that gives up with poll number ?polls=1
//	POST /never          a task that does not end
//	POST /manual         a task whose pods wait for a decision on the page, or by Decide
//	GET  /result         the poll of all of them
//	POST /hang           no answer
//	POST /500            ?status=500: an error
//	POST /garbage        something that is not JSON
//	POST /redirect       ?to=: a redirect; by default to where clouds keep credentials
//	POST /retry-after    ?seconds=1&times=1: 503 with Retry-After that many times, then
//	                     everything; times=0: always 503. ?value= is the value of the header
//	                     in place of seconds, and ?status=429 another status
//
// Every path accepts ?message=, the message of the answer, ?after=500ms, its delay, ?bearer=,
// a token without which it is 401, and ?prefix=, the prefix of the ids of tasks.
//
// For browsers and scripts:
//
//	GET  /          a page with the pods that wait, and buttons
//	GET  /waiting   the same as JSON
//	POST /decide    ?pod=web-0&ok=true, or ?all=true&ok=true; &namespace= when several have it
//	GET  /log       every request of a rule and every decision, a line of JSON each
//	GET  /ca.pem    the certificate that signs the HTTPS side
//
// The state is bounded; the oldest entries are dropped first.
package approvals
