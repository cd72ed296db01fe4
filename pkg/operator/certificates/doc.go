// Package certificates makes and rotates the serving certificate of the webhooks, or of
// another server: Options name the Secret, the Service, and the Publisher of the CAs.
//
// All data is in one Secret that all replicas share: the CA that signs now, the
// CA that will sign next, the CAs that signed before, and the serving certificate. A
// rotation of the CA has two phases, so that no API server ever receives a certificate
// that it does not trust:
//
//	          make            published everywhere        end of its life
//	          the next        for the grace time          |
//	          |               |                           |
//	CA 1  ────┼───────────────┼───────────────────────────┤
//	CA 2      ├───────────────┼───────────────────────────────── ...
//	bundle  1 │ 1 + 2         │ 2 + 1                     │ 2
//	serving   signed by 1     │ signed by 2
//
// A pure function of the Secret's contents and the time decides (Lifetimes.Decide);
// issue.go makes keys; Reconciler reads, decides and writes.
package certificates
