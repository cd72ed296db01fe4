# tries: a key, to sign with
# outcome: compile rego_type_error
package rule

allow if crypto.hmac.sha256("x", "y") != ""
