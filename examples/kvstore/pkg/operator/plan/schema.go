package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

// migrates reports whether the schema is to be migrated now: once the store has been created, and before an upgrade begins. A version
// whose upgrade has failed migrates nothing.
func (p *planner) migrates() bool {
	failed := p.status.Upgrade != nil && p.status.Upgrade.ToVersion == p.Cluster.Spec.Version
	return p.Cluster.Spec.SchemaVersion > p.status.SchemaVersion && p.status.CurrentVersion != "" && !failed
}

// migrate runs a migration, records its result, and reports whether an upgrade may begin.
func (p *planner) migrate() bool {
	name := fmt.Sprintf("%s-migrate-%d", p.Cluster.Name, p.Cluster.Generation)
	p.endMigrations(name)
	if !p.migrates() {
		return true
	}
	to := p.Cluster.Spec.SchemaVersion
	job, exists := p.Jobs[name]
	result, message := readJobResult(job)
	p.progress = progress{kvstorev1.ReasonMigratingSchema, fmt.Sprintf("Job %s migrates the schema to version %d", name, to)}
	switch {
	case exists && result == jobComplete:
		p.status.SchemaVersion, p.progress = to, progress{}
		return true
	case exists && result == jobFailed:
		p.progress = progress{kvstorev1.ReasonMigrationFailing, fmt.Sprintf("the migration of the schema to version %d has failed: Job %s: %s", to, name, message)}
		p.retry(job)
	case !exists && !p.hasHealthyMember():
		p.progress.message = "the migration of the schema waits for a member of the store that is healthy"
	case !exists && len(p.decision.DeleteJobs) == 0: // one migration at a time
		p.decision.CreateJob = p.migrationJob(name, to)
	}
	p.migration = p.progress
	return false
}

// endMigrations deletes the Jobs of migrations that run, and that the spec does not request any more. name is the present one.
func (p *planner) endMigrations(name string) {
	for _, other := range slices.Sorted(maps.Keys(p.Jobs)) {
		job := p.Jobs[other]
		isWanted := other == name && p.migrates()
		result, _ := readJobResult(job)
		if job.Labels[kvstorev1.ComponentLabelKey] == kvstorev1.ComponentMigration && !isWanted && result == jobRunning && job.DeletionTimestamp == nil {
			p.decision.DeleteJobs = append(p.decision.DeleteJobs, job)
		}
	}
}

func (p *planner) migrationJob(name string, to int32) *batchv1.Job {
	args := append([]string{"migrate", "--to", strconv.Itoa(int(to))}, p.fromHealthyMember("--url")...)
	job := p.job(name, kvstorev1.ComponentMigration, p.container(p.Cluster.Spec.Version, args...))
	job.Spec.BackoffLimit, job.Spec.ActiveDeadlineSeconds = ptr.To(int32(0)), ptr.To(int64(migrationSeconds))
	job.Spec.TTLSecondsAfterFinished = ptr.To(int32(checkTTLSeconds))
	return job
}

// reportSchema reports the condition SchemaMigrated.
func (p *planner) reportSchema() {
	has, want := p.status.SchemaVersion, p.Cluster.Spec.SchemaVersion
	switch {
	case has == 0 && want == 0:
	case has >= want:
		p.condition(kvstorev1.ConditionSchemaMigrated, metav1.ConditionTrue, kvstorev1.ReasonAsSpecified, fmt.Sprintf("the schema has version %d", has))
	default:
		p.condition(kvstorev1.ConditionSchemaMigrated, metav1.ConditionFalse, progressReason(p.migration, kvstorev1.ReasonMigratingSchema),
			cmp.Or(p.migration.message, fmt.Sprintf("the schema has version %d, and its migration to %d has not begun", has, want)))
	}
}
