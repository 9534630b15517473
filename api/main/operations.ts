import { controlPlaneOperations } from '../control-plane/operations.ts';
import type { Operation } from '../server/operation.ts';
import { createQueue, deleteQueue, getQueue, listQueues, listRunQueues, updateQueue } from './annotation-queues.ts';
import {
  createApiKey,
  createServiceKey,
  listApiKeys,
  listServiceKeys,
  revokeApiKey,
  revokeServiceKey,
} from './api-keys.ts';
import { getAttachment } from './attachments.ts';
import { listAuditLogs } from './audit-logs.ts';
import { exportGranularUsage, getGranularUsage, getOrganizationUsage } from './billing.ts';
import { cancelBulkExport, createBulkExport, getBulkExport, listBulkExports } from './bulk-exports.ts';
import { createCommitTag, deleteCommitTag, getCommitTag, listCommitTags, updateCommitTag } from './commit-tags.ts';
import { createCommit, getCommit, listCommits } from './commits.ts';
import { createComparison, deleteComparison, listComparisons } from './comparisons.ts';
import {
  downloadCsv,
  downloadJsonLines,
  downloadOpenAiEvals,
  downloadOpenAiFineTuning,
  uploadDataset,
} from './dataset-files.ts';
import {
  cloneDataset,
  countSharedExamples,
  getDatasetShare,
  getSharedDataset,
  listSharedExamples,
  listSharedExperiments,
  shareDataset,
  unshareDataset,
} from './dataset-shares.ts';
import {
  diffDatasetVersions,
  getDatasetVersion,
  listDatasetSplits,
  listDatasetVersions,
  tagDatasetVersion,
  updateDatasetSplit,
} from './dataset-versions.ts';
import { createDataset, deleteDataset, getDataset, listDatasets, listV2Datasets, updateDataset } from './datasets.ts';
import { createDirectoryCommit, deleteDirectory, getDirectory } from './directories.ts';
import {
  createEvaluator,
  deleteEvaluator,
  deleteEvaluators,
  getEvaluator,
  listEvaluators,
  updateEvaluator,
} from './evaluators.ts';
import {
  createExampleParts,
  deleteDatasetExample,
  deleteExampleList,
  updateExampleMetadata,
  updateExampleParts,
  upsertExampleParts,
} from './example-parts.ts';
import {
  countExamples,
  createExample,
  createExamples,
  deleteExample,
  deleteExamples,
  getExample,
  listExamples,
  updateExample,
  updateExamples,
} from './examples.ts';
import { listExperimentRuns, queryExperimentRuns } from './experiments.ts';
import {
  checkDestination,
  createDestination,
  deleteDestination,
  getDestination,
  listDestinations,
  updateDestination,
} from './export-destinations.ts';
import {
  getBulkExportRun,
  listBulkExportRunFiles,
  listBulkExportRuns,
  listScheduledExportRuns,
} from './export-runs.ts';
import {
  createFeedback,
  deleteFeedback,
  getFeedback,
  leaveFeedback,
  leaveFeedbackByLink,
  listFeedback,
  updateFeedback,
} from './feedback.ts';
import { createConfig, deleteConfig, listConfigs, updateConfig } from './feedback-configs.ts';
import { feedbackTokenOperations } from './feedback-tokens.ts';
import { getMetrics, getOk, getReady } from './health.ts';
import { getInfo, getInfoHealth, getSettings, setHandle } from './info.ts';
import { createBatch, createMultipart, createOtlp, createRun, updateRun } from './ingest.ts';
import { createMember, deleteMember, listMembers } from './members.ts';
import { createModelPrice, deleteModelPrice, listModelPrices, updateModelPrice } from './model-prices.ts';
import { oidcOperations } from './oidc.ts';
import {
  createOrganization,
  deleteOrganization,
  getCurrentOrganization,
  getOrganizationInfo,
  listOrganizations,
  listPermissions,
} from './organizations.ts';
import { queueExportOperations } from './queue-exports.ts';
import { queueItemOperations } from './queue-items.ts';
import { queueReviewerOperations } from './queue-reviewers.ts';
import {
  addQueueRuns,
  addQueueRunsByKey,
  deleteQueueRun,
  deleteQueueRuns,
  getQueueRun,
  getQueueSize,
  getQueueTotalArchived,
  getQueueTotalSize,
  listQueueRuns,
  setReviewStatus,
  updateQueueRun,
} from './queue-runs.ts';
import { createRepo, deleteRepo, getRepo, likeRepo, listRepos, updateRepo } from './repos.ts';
import { runShareOperations } from './run-shares.ts';
import { getRunStats } from './run-stats.ts';
import { getRun, queryRuns, validateRunsQuery } from './runs.ts';
import { secretOperations } from './secrets.ts';
import { createSession, createV2Session, updateSession, updateV2Session } from './session-changes.ts';
import {
  deleteSession,
  deleteSessions,
  getSession,
  getSessionMetadata,
  listSessions,
  resolveSession,
} from './sessions.ts';
import { sharedComparisonOperations } from './shared-comparisons.ts';
import { sharedEntityOperations } from './shared-entities.ts';
import { sharedExperimentOperations } from './shared-experiments.ts';
import { sharedRunOperations } from './shared-runs.ts';
import { signInOperations } from './sign-in.ts';
import { systemOperations } from './system.ts';
import { taggingOperations } from './taggings.ts';
import { tagOperations } from './tags.ts';
import { getRunGroupStats, getThreadPreview, getThreadsStats, groupRuns } from './thread-groups.ts';
import { getThreadStats, listThreadTraces, queryThreads } from './threads.ts';
import { deleteRuns, deleteTraces, keepTraces } from './traces.ts';
import { usageLimitOperations } from './usage-limits.ts';
import { getV2Run, getV2RunUrl, queryV2Runs } from './v2-runs.ts';
import { getV2Session, listV2Sessions } from './v2-sessions.ts';
import { listTraceRuns, queryTraces } from './v2-traces.ts';
import {
  createWorkspace,
  deleteWorkspace,
  getWorkspace,
  getWorkspaceStats,
  listWorkspaces,
  updateWorkspace,
} from './workspaces.ts';

/** All operations of the main API. To add an operation, add it here and to the table in `test/api/tenancy.test.ts`. */
export const operations: readonly Operation[] = [
  // health and info
  getOk,
  getReady,
  getMetrics,
  getInfo,
  getInfoHealth,
  getSettings,
  setHandle,
  ...signInOperations,
  ...oidcOperations,
  listAuditLogs,
  ...systemOperations,
  // organization
  listOrganizations,
  createOrganization,
  deleteOrganization,
  getCurrentOrganization,
  getOrganizationInfo,
  listPermissions,
  listMembers,
  deleteMember,
  createMember,
  // workspaces
  listWorkspaces,
  createWorkspace,
  getWorkspace,
  getWorkspaceStats,
  ...usageLimitOperations,
  ...secretOperations,
  ...tagOperations,
  ...taggingOperations,
  ...sharedEntityOperations,
  updateWorkspace,
  deleteWorkspace,
  // API keys
  listApiKeys,
  createApiKey,
  revokeApiKey,
  listServiceKeys,
  createServiceKey,
  revokeServiceKey,
  // projects
  listSessions,
  listV2Sessions,
  createSession,
  createV2Session,
  deleteSessions,
  resolveSession,
  getSession,
  getV2Session,
  getSessionMetadata,
  updateSession,
  updateV2Session,
  deleteSession,
  // ingest
  createRun,
  updateRun,
  createBatch,
  createMultipart,
  createOtlp,
  // runs
  getRun,
  queryRuns,
  validateRunsQuery,
  getRunStats,
  groupRuns,
  getRunGroupStats,
  queryV2Runs,
  getV2Run,
  getV2RunUrl,
  queryTraces,
  listTraceRuns,
  queryThreads,
  listThreadTraces,
  getThreadStats,
  getThreadsStats,
  getThreadPreview,
  ...runShareOperations,
  ...sharedRunOperations,
  deleteRuns,
  deleteTraces,
  keepTraces,
  getAttachment,
  // feedback
  createFeedback,
  listFeedback,
  getFeedback,
  updateFeedback,
  deleteFeedback,
  leaveFeedback,
  leaveFeedbackByLink,
  ...feedbackTokenOperations,
  listConfigs,
  createConfig,
  updateConfig,
  deleteConfig,
  // datasets
  listDatasets,
  listV2Datasets,
  createDataset,
  getDataset,
  updateDataset,
  deleteDataset,
  listDatasetVersions,
  getDatasetVersion,
  tagDatasetVersion,
  diffDatasetVersions,
  listDatasetSplits,
  updateDatasetSplit,
  uploadDataset,
  downloadCsv,
  downloadJsonLines,
  downloadOpenAiEvals,
  downloadOpenAiFineTuning,
  cloneDataset,
  getDatasetShare,
  shareDataset,
  unshareDataset,
  getSharedDataset,
  listSharedExamples,
  countSharedExamples,
  listSharedExperiments,
  ...sharedExperimentOperations,
  ...sharedComparisonOperations,
  listExperimentRuns,
  queryExperimentRuns,
  createComparison,
  listComparisons,
  deleteComparison,
  // examples
  createExampleParts,
  updateExampleParts,
  upsertExampleParts,
  updateExampleMetadata,
  deleteExampleList,
  deleteDatasetExample,
  listExamples,
  countExamples,
  createExamples,
  updateExamples,
  createExample,
  deleteExamples,
  getExample,
  updateExample,
  deleteExample,
  // prompts, agents and skills
  listRepos,
  createRepo,
  getRepo,
  updateRepo,
  deleteRepo,
  likeRepo,
  listCommits,
  createCommit,
  getCommit,
  listCommitTags,
  createCommitTag,
  getCommitTag,
  updateCommitTag,
  deleteCommitTag,
  getDirectory,
  createDirectoryCommit,
  deleteDirectory,
  // annotation queues
  listQueues,
  createQueue,
  getQueue,
  updateQueue,
  deleteQueue,
  listRunQueues,
  listQueueRuns,
  addQueueRuns,
  addQueueRunsByKey,
  getQueueRun,
  getQueueSize,
  getQueueTotalSize,
  getQueueTotalArchived,
  updateQueueRun,
  deleteQueueRun,
  deleteQueueRuns,
  setReviewStatus,
  ...queueItemOperations,
  ...queueReviewerOperations,
  ...queueExportOperations,
  // evaluators
  listEvaluators,
  createEvaluator,
  getEvaluator,
  updateEvaluator,
  deleteEvaluator,
  deleteEvaluators,
  // model prices
  listModelPrices,
  createModelPrice,
  updateModelPrice,
  deleteModelPrice,
  // billing
  getGranularUsage,
  exportGranularUsage,
  getOrganizationUsage,
  // bulk exports
  createDestination,
  listDestinations,
  getDestination,
  updateDestination,
  checkDestination,
  deleteDestination,
  createBulkExport,
  listBulkExports,
  listScheduledExportRuns,
  getBulkExport,
  cancelBulkExport,
  listBulkExportRuns,
  getBulkExportRun,
  listBulkExportRunFiles,
  ...controlPlaneOperations,
];
