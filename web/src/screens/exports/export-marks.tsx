import { formatPercent } from '../../components/format.ts';
import type { BulkExport } from './paths.ts';
import '../../components/run-marks.css';

const states: Readonly<Record<BulkExport['status'], readonly [sign: string, label: string, className: string]>> = {
  CREATED: ['…', 'waiting', 'pending'],
  RUNNING: ['…', 'running', 'pending'],
  COMPLETED: ['✓', 'completed', 'success'],
  FAILED: ['✕', 'failed', 'error'],
  CANCELLED: ['–', 'cancelled', ''],
  TIMEDOUT: ['✕', 'timed out', 'error'],
};

/** Status of an export, a schedule or the export of a day, as a sign and a word. */
export function ExportStatus({ status }: { readonly status: BulkExport['status'] }) {
  const [sign, label, className] = states[status];
  return (
    <span className={`status ${className}`}>
      <span aria-hidden="true">{sign}</span>
      <span>{label}</span>
    </span>
  );
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
