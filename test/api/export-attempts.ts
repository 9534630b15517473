import type { ExportUnderTest } from './add-export.ts';
import { type Attempt, own } from './attempt.ts';

/** Attempts to use the bulk exports of another workspace, by operation. */
export const exportAttempts: Readonly<
  Record<string, (victim: ExportUnderTest & { readonly projectId: string }) => Attempt>
> = {
  createBulkExport: ({ destinationId, projectId }) => ({
    url: '/bulk-exports',
    payload: {
      bulk_export_destination_id: destinationId,
      session_id: projectId,
      start_time: '2026-03-05T00:00:00Z',
      end_time: '2026-03-06T00:00:00Z',
    },
  }),
  listBulkExports: ({ destinationId, projectId }) => ({
    url: `/bulk-exports?session_id=${projectId}&bulk_export_destination_id=${destinationId}`,
    answers: own,
  }),
  listScheduledExportRuns: ({ exportId }) => ({ url: `/bulk-exports/runs?source_bulk_export_id=${exportId}` }),
  getBulkExport: ({ exportId }) => ({ url: `/bulk-exports/${exportId}` }),
  cancelBulkExport: ({ exportId }) => ({ url: `/bulk-exports/${exportId}`, payload: { status: 'Cancelled' } }),
  listBulkExportRuns: ({ exportId }) => ({ url: `/bulk-exports/${exportId}/runs` }),
  getBulkExportRun: ({ exportId, exportRunId }) => ({ url: `/bulk-exports/${exportId}/runs/${exportRunId}` }),
  listBulkExportRunFiles: ({ exportId, exportRunId }) => ({
    url: `/bulk-exports/${exportId}/runs/${exportRunId}/files`,
  }),
  createBulkExportDestination: () => ({
    url: '/bulk-exports/destinations',
    // No request leaves this process: the address is rejected.
    payload: {
      display_name: 'stolen',
      config: { bucket_name: 'stolen', endpoint_url: 'http://127.0.0.1:1' },
      credentials: { access_key_id: 'key', secret_access_key: 'secret' },
    },
    answers: [400],
  }),
  listBulkExportDestinations: () => ({ url: '/bulk-exports/destinations', answers: own }),
  getBulkExportDestination: ({ destinationId }) => ({ url: `/bulk-exports/destinations/${destinationId}` }),
  updateBulkExportDestination: ({ destinationId }) => ({
    url: `/bulk-exports/destinations/${destinationId}`,
    payload: { display_name: 'stolen' },
  }),
  checkBulkExportDestination: ({ destinationId }) => ({ url: `/bulk-exports/destinations/${destinationId}/check` }),
  deleteBulkExportDestination: ({ destinationId }) => ({ url: `/bulk-exports/destinations/${destinationId}` }),
};
