// Package permit decides which waiting requests get a permit next, so that no
// availablePolicy and no PodDisruptionBudget is exceeded, and no rule that depends on other
// pods is bypassed by evaluating it for two pods at once. It is pure.
//
// A permit is two-phase. First the pods of a batch are reserved: their UIDs and
// resourceVersions are written to the record of every budget that selects them:
// to the status (status.permits) of a PodTransitionRule, or to an annotation of a
// PodDisruptionBudget, under the resourceVersion of that object. (An unavailable pod takes no
// slot, and is recorded only where a rule depends on other pods.) Then each pod is stamped:
// the permit is written to it, on condition that it is still at the resourceVersion that the
// decision was made on. Three rules make this hold with stale caches, several leaders, and a
// stop at any instruction:
//
//   - A reservation is live while its pod is still at the recorded resourceVersion.
//     Until then the writer of the record may still stamp the pod, so it counts as
//     unavailable. Once the pod has a newer resourceVersion, no stamp of that batch can
//     succeed any more, and the pod itself shows the outcome of its stamp.
//   - A record contains the resourceVersion (viewResourceVersion) up to which its writer
//     had seen the pods that the record no longer lists. The next batch is only computed
//     from a view that reaches that resourceVersion and the resourceVersions of all listed
//     pods: the view contains every outcome, and shows each reserved pod as of its
//     reservation or later.
//   - Records are written in one order, by all writers, and a pod is stamped only
//     after all of them. Two writers therefore meet at the first record they share,
//     where one of them gets a conflict and starts again.
//
// An abandoned reservation is not a permit: the next round counts the pods again, and
// stamps the pod only while enough pods are available without it.
//
// A live reservation whose pod is withheld, by another rule or because pods failed, occupies
// a slot in vain. It cannot be deleted from the record, because its writer may be about to
// stamp the pod. Plan.Invalidate lists the pod instead: a write to the pod makes the
// reservation dead.
//
// "One pod of a shard" and "five permits an hour" hold for the same reasons. A recheck
// sees each pod that may be stamped before the candidate: stamped already, in the view;
// reserved, in the record; or granted earlier in the round (Committed). Because no two
// writers extend one record from the same version of it, no permit is granted in between.
// The committed pods that a recheck sees may still get no permit, because a stamp can fail.
// So a rule must not let one pod pass because another pod is committed (docs/permits.md).
package permit
