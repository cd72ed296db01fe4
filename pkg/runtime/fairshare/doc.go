// Package fairshare divides resources that all owners share: the bytes of a cache (Cache) and slots
// for work (Slots). An owner is usually a namespace.
//
// Shares are max-min fair: an owner may use everything that the others leave, and when there is not
// enough, the owner with the most gives way. So an owner that stays below an equal share never loses
// anything because of another owner, and nothing is reserved for idle owners.
package fairshare
