// Package limits bounds the builtins that users' modules call. OPA cannot interrupt a builtin, and
// some take seconds or gigabytes for arguments of a few bytes. A compiler stage replaces each of them
// by a variant that checks its arguments first:
//
//	WithStage  sprintf -> podops.bounded.sprintf, in the modules of users
//	Builtins   the variants, as options of a query
//
// The bytes that all variants make in one evaluation are bounded, too.
package limits
