// Package approvals is an approval service: what a webhook rule calls. Tests, the demo and
// people who write rules point their rules at it. It shares nothing with the code of the
// manager, so that both sides of the protocol are read from the manual twice.
//
// How it answers, the path of the URL says; one service does for any number of rules.
//
//	POST /approve        everything, at once
//	POST /approve-some   ?n=1: the first n pods of the request, by name; or
//	                     ?parameter=tier&value=gold: the pods with this parameter
//	POST /reject         nothing
//	POST /poll           a task that frees ?each=1 pods with every poll
//	POST /poll-slow      a task that frees everything with poll number ?polls=5
//	POST /async          as /poll, in the older words: async, and found by trace-id too
//	POST /stop           a task that gives up with poll number ?polls=1
//	POST /never          a task that does not end
//	POST /manual         a task whose pods wait for a person, or for a call of Decide
//	GET  /result         the poll of all of them
//	POST /hang           no answer
//	POST /500            ?status=500: an error
//	POST /garbage        something that is not JSON
//	POST /redirect       ?to=: a redirect; by default to where clouds keep credentials
//	POST /retry-after    ?seconds=1&times=1: first so many times 503 with Retry-After, then
//	                     everything; times=0: never anything else. ?value= is what the header
//	                     says in place of seconds, and ?status=429 another status
//
// With every one of them, ?message= is what the answer says, ?after=500ms how long it
// takes, ?bearer= a token without which it is 401, and ?prefix= what the ids of tasks
// begin with.
//
// For people, and for scripts:
//
//	GET  /          a page with the pods that wait, and buttons
//	GET  /waiting   the same as JSON
//	POST /decide    ?pod=web-0&ok=true, or ?all=true&ok=true; &namespace= when two have it
//	GET  /log       every request but those of people who look, a line of JSON each
//	GET  /ca.pem    the certificate that the HTTPS side is signed with
//
// Everything it remembers is bounded; the oldest goes first.
package approvals
