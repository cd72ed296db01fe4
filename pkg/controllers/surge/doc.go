// Package surge has Deployments start another pod before one goes that an availablePolicy withholds: the decisions of package
// core/surge, carried out.
package surge
