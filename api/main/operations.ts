import { controlPlaneOperations } from '../control-plane/operations.ts';
import { listByTag, type Operation } from '../server/operation.ts';
import { annotationQueueOperations } from './annotation-queues.ts';
import { apiKeyOperations } from './api-keys.ts';
import { getAttachment } from './attachments.ts';
import { listAuditLogs } from './audit-logs.ts';
import { billingOperations } from './billing.ts';
import { bulkExportOperations } from './bulk-exports.ts';
import { commitTagOperations } from './commit-tags.ts';
import { commitOperations } from './commits.ts';
import { comparisonOperations } from './comparisons.ts';
import { datasetFileOperations } from './dataset-files.ts';
import { cloneDataset, datasetShareOperations } from './dataset-shares.ts';
import { datasetVersionOperations } from './dataset-versions.ts';
import { datasetOperations } from './datasets.ts';
import { directoryOperations } from './directories.ts';
import { evaluatorOperations } from './evaluators.ts';
import { examplePartOperations } from './example-parts.ts';
import { exampleOperations } from './examples.ts';
import { experimentOperations } from './experiments.ts';
import { exportDestinationOperations } from './export-destinations.ts';
import { exportRunOperations } from './export-runs.ts';
import { feedbackOperations } from './feedback.ts';
import { feedbackConfigOperations } from './feedback-configs.ts';
import { feedbackTokenOperations } from './feedback-tokens.ts';
import { healthOperations } from './health.ts';
import { infoOperations } from './info.ts';
import { ingestOperations } from './ingest.ts';
import { memberOperations } from './members.ts';
import { modelPriceOperations } from './model-prices.ts';
import { oidcOperations } from './oidc.ts';
import { organizationOperations } from './organizations.ts';
import { queueExportOperations } from './queue-exports.ts';
import { queueItemOperations } from './queue-items.ts';
import { queueReviewerOperations } from './queue-reviewers.ts';
import { queueRunOperations } from './queue-runs.ts';
import { repoOperations } from './repos.ts';
import { runShareOperations } from './run-shares.ts';
import { getRunStats } from './run-stats.ts';
import { runOperations } from './runs.ts';
import { secretOperations } from './secrets.ts';
import { sessionChangeOperations } from './session-changes.ts';
import { sessionOperations } from './sessions.ts';
import { sharedComparisonOperations } from './shared-comparisons.ts';
import { sharedEntityOperations } from './shared-entities.ts';
import { sharedExperimentOperations } from './shared-experiments.ts';
import { sharedRunOperations } from './shared-runs.ts';
import { signInOperations } from './sign-in.ts';
import { systemOperations } from './system.ts';
import { taggingOperations } from './taggings.ts';
import { tagOperations } from './tags.ts';
import { runGroupOperations, threadGroupOperations } from './thread-groups.ts';
import { threadOperations } from './threads.ts';
import { traceOperations } from './traces.ts';
import { usageLimitOperations } from './usage-limits.ts';
import { v2RunOperations } from './v2-runs.ts';
import { v2SessionOperations } from './v2-sessions.ts';
import { v2TraceOperations } from './v2-traces.ts';
import { workspaceOperations } from './workspaces.ts';

/**
 * All operations of the main API. To add an operation, add it to the list of its file and to the table in
 * `test/api/tenancy.test.ts`.
 */
export const operations: readonly Operation[] = [
  ...listByTag({
    health: healthOperations,
    info: infoOperations,
    session: [...signInOperations, ...oidcOperations],
    'audit log': [listAuditLogs],
    system: systemOperations,
    organization: [...organizationOperations, ...memberOperations],
    workspaces: [...workspaceOperations, ...secretOperations],
    usage: usageLimitOperations,
    tags: [...tagOperations, ...taggingOperations],
    sharing: [
      ...sharedEntityOperations,
      ...runShareOperations,
      ...sharedRunOperations,
      ...datasetShareOperations,
      ...sharedExperimentOperations,
      ...sharedComparisonOperations,
    ],
    'api keys': apiKeyOperations,
    projects: [...sessionOperations, ...v2SessionOperations, ...sessionChangeOperations],
    ingest: ingestOperations,
    runs: [
      ...runOperations,
      getRunStats,
      ...runGroupOperations,
      ...v2RunOperations,
      ...v2TraceOperations,
      ...traceOperations,
      getAttachment,
    ],
    threads: [...threadOperations, ...threadGroupOperations],
    feedback: [...feedbackOperations, ...feedbackTokenOperations, ...feedbackConfigOperations],
    datasets: [
      ...datasetOperations,
      ...datasetVersionOperations,
      ...datasetFileOperations,
      cloneDataset,
      ...experimentOperations,
      ...comparisonOperations,
      ...examplePartOperations,
      ...exampleOperations,
    ],
    prompts: [...repoOperations, ...commitOperations, ...commitTagOperations, ...directoryOperations],
    'annotation queues': [
      ...annotationQueueOperations,
      ...queueRunOperations,
      ...queueItemOperations,
      ...queueReviewerOperations,
      ...queueExportOperations,
    ],
    evaluators: evaluatorOperations,
    'model prices': modelPriceOperations,
    billing: billingOperations,
    'bulk exports': [...exportDestinationOperations, ...bulkExportOperations, ...exportRunOperations],
  }),
  ...controlPlaneOperations,
];
