import type { Operation } from '../server/operation.ts';
import { createApiKey } from './api-keys/create-api-key.ts';
import { createServiceKey } from './api-keys/create-service-key.ts';
import { listApiKeys } from './api-keys/list-api-keys.ts';
import { listServiceKeys } from './api-keys/list-service-keys.ts';
import { revokeApiKey } from './api-keys/revoke-api-key.ts';
import { revokeServiceKey } from './api-keys/revoke-service-key.ts';
import { getAttachment } from './attachments/get-attachment.ts';
import { exportGranularUsage } from './billing/export-granular-usage.ts';
import { getGranularUsage } from './billing/granular-usage.ts';
import { getOrganizationUsage } from './billing/organization-usage.ts';
import { cancelBulkExport } from './bulk-exports/cancel-bulk-export.ts';
import { createBulkExport } from './bulk-exports/create-bulk-export.ts';
import { createDestination } from './bulk-exports/destinations/create-destination.ts';
import { deleteDestination } from './bulk-exports/destinations/delete-destination.ts';
import { getDestination } from './bulk-exports/destinations/get-destination.ts';
import { listDestinations } from './bulk-exports/destinations/list-destinations.ts';
import { updateDestination } from './bulk-exports/destinations/update-destination.ts';
import { getBulkExport } from './bulk-exports/get-bulk-export.ts';
import { getBulkExportRun } from './bulk-exports/get-export-run.ts';
import { listBulkExports } from './bulk-exports/list-bulk-exports.ts';
import { listBulkExportRuns } from './bulk-exports/list-export-runs.ts';
import { listBulkExportRunFiles } from './bulk-exports/list-run-files.ts';
import { listScheduledExportRuns } from './bulk-exports/list-scheduled-runs.ts';
import { createFeedback } from './feedback/create-feedback.ts';
import { deleteFeedback } from './feedback/delete-feedback.ts';
import { getFeedback } from './feedback/get-feedback.ts';
import { leaveFeedback, leaveFeedbackByLink } from './feedback/leave-feedback.ts';
import { listFeedback } from './feedback/list-feedback.ts';
import { updateFeedback } from './feedback/update-feedback.ts';
import { getMetrics } from './health/get-metrics.ts';
import { getOk } from './health/get-ok.ts';
import { getReady } from './health/get-ready.ts';
import { getInfo } from './info/get-info.ts';
import { getInfoHealth } from './info/get-info-health.ts';
import { getSettings } from './info/get-settings.ts';
import { createBatch } from './ingest/create-batch.ts';
import { createMultipart } from './ingest/create-multipart.ts';
import { createOtlp } from './ingest/create-otlp.ts';
import { createRun } from './ingest/create-run.ts';
import { updateRun } from './ingest/update-run.ts';
import { createMember } from './members/create-member.ts';
import { deleteMember } from './members/delete-member.ts';
import { listMembers } from './members/list-members.ts';
import { createOrganization } from './organization/create-organization.ts';
import { deleteOrganization } from './organization/delete-organization.ts';
import { getCurrentOrganization } from './organization/get-current-organization.ts';
import { getOrganizationInfo } from './organization/get-organization-info.ts';
import { listOrganizations } from './organization/list-organizations.ts';
import { listPermissions } from './organization/list-permissions.ts';
import { getRun } from './runs/get-run.ts';
import { queryRuns } from './runs/query-runs.ts';
import { createSession } from './sessions/create-session.ts';
import { deleteSession } from './sessions/delete-session.ts';
import { deleteSessions } from './sessions/delete-sessions.ts';
import { getSession } from './sessions/get-session.ts';
import { listSessions } from './sessions/list-sessions.ts';
import { updateSession } from './sessions/update-session.ts';
import { createWorkspace } from './workspaces/create-workspace.ts';
import { deleteWorkspace } from './workspaces/delete-workspace.ts';
import { getWorkspace } from './workspaces/get-workspace.ts';
import { listWorkspaces } from './workspaces/list-workspaces.ts';
import { updateWorkspace } from './workspaces/update-workspace.ts';

/** All operations of the main API. A new operation must be added here and to the table of `test/api/tenancy.test.ts`. */
export const operations: readonly Operation[] = [
  // health and info
  getOk,
  getReady,
  getMetrics,
  getInfo,
  getInfoHealth,
  getSettings,
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
  createSession,
  deleteSessions,
  getSession,
  updateSession,
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
  getAttachment,
  // feedback
  createFeedback,
  listFeedback,
  getFeedback,
  updateFeedback,
  deleteFeedback,
  leaveFeedback,
  leaveFeedbackByLink,
  // billing
  getGranularUsage,
  exportGranularUsage,
  getOrganizationUsage,
  // bulk exports
  createDestination,
  listDestinations,
  getDestination,
  updateDestination,
  deleteDestination,
  createBulkExport,
  listBulkExports,
  listScheduledExportRuns,
  getBulkExport,
  cancelBulkExport,
  listBulkExportRuns,
  getBulkExportRun,
  listBulkExportRunFiles,
];
