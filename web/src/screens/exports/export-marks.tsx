import type { ComponentProps } from 'react';
import { formatPercent } from '../../components/format.ts';
import { StatusMark } from '../../components/run-marks.tsx';
import type { BulkExport } from './paths.ts';

const states: Readonly<Record<BulkExport['status'], ComponentProps<typeof StatusMark>>> = {
  CREATED: { sign: '…', label: 'waiting', kind: 'pending' },
  RUNNING: { sign: '…', label: 'running', kind: 'pending' },
  COMPLETED: { sign: '✓', label: 'completed', kind: 'success' },
  FAILED: { sign: '✕', label: 'failed', kind: 'error' },
  CANCELLED: { sign: '–', label: 'cancelled', kind: '' },
  TIMEDOUT: { sign: '✕', label: 'timed out', kind: 'error' },
};

/** Status of an export, a schedule or the export of a day, as a sign and a word. */
export function ExportStatus({ status }: { readonly status: BulkExport['status'] }) {
  return <StatusMark {...states[status]} />;
}

export function ProgressBar({ share }: { readonly share: number }) {
  const text = formatPercent(share);
  return (
    <span className="row">
      <progress value={share} max={1} aria-label={`Progress: ${text}`} />
      <span className="muted">{text}</span>
    </span>
  );
}
