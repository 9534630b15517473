/** Statuses of revisions, threads and graph runs: a sign and a word. */

/** Statuses at which a revision ends. */
export const finalStatuses: ReadonlySet<string> = new Set([
  'DEPLOYED',
  'CREATE_FAILED',
  'BUILD_FAILED',
  'DEPLOY_FAILED',
  'SKIPPED',
  'INTERRUPTED',
]);

export function RevisionStatus({ status }: { readonly status: string }) {
  const kind = status === 'DEPLOYED' ? 'success' : status.endsWith('_FAILED') ? 'error' : 'pending';
  const sign = { success: '✓', error: '✕', pending: finalStatuses.has(status) ? '–' : '…' }[kind];
  return (
    <span className={`agents-status ${kind}`}>
      <span aria-hidden="true">{sign}</span> {status.toLowerCase().replaceAll('_', ' ')}
    </span>
  );
}

const signs: Readonly<Record<string, string>> = { idle: '✓', busy: '…', interrupted: '?', error: '✕' };

export function ThreadStatus({ status }: { readonly status: string }) {
  const kind = { idle: 'success', error: 'error' }[status] ?? 'pending';
  return (
    <span className={`agents-status ${kind}`}>
      <span aria-hidden="true">{signs[status] ?? ''}</span> {status}
    </span>
  );
}
