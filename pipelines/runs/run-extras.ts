/**
 * Data of runs that other modules store. Both functions take the runs of a page, at most 100, and are only called if
 * the response needs them. The values of the maps are JSON objects as text.
 */
export interface RunExtras {
  /** Feedback key → statistics (`n`, `avg`, `values`, …), by run. Runs without feedback are left out. */
  feedbackStats(tenantId: string, runIds: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** `attachment.<name>` → `{presigned_url, mime_type}`, by run. Runs without attachments are left out. */
  attachmentUrls(tenantId: string, runIds: readonly string[]): Promise<ReadonlyMap<string, string>>;
}
