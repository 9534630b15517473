import { Link } from '@tanstack/react-router';
import { formatCompact, formatCost, formatSeconds, secondsBetween } from '../../components/format.ts';
import { RunType, Status } from '../../components/run-marks.tsx';
import { Time, Value } from '../../components/text.tsx';
import { summarizePreview } from '../../components/values/messages.ts';
import type { TableColumn } from '../../components/virtual-table.tsx';
import type { RunRow } from './use-runs.ts';

/** Columns of the table of runs, in their order. */
export const runColumns: readonly TableColumn<RunRow>[] = [
  { id: 'status', label: 'Status', width: 62, render: ({ status }) => <Status status={status} /> },
  {
    id: 'name',
    label: 'Name',
    width: 150,
    grow: 1,
    render: ({ id = '', name = '' }) => (
      <Link to="/runs/$runId" params={{ runId: id }} tabIndex={-1} onClick={(event) => event.stopPropagation()}>
        <Value text={name || '(no name)'} />
      </Link>
    ),
  },
  { id: 'type', label: 'Type', width: 70, render: ({ run_type }) => <RunType type={run_type} /> },
  {
    id: 'inputs',
    label: 'Input',
    width: 150,
    grow: 2,
    render: ({ inputs_preview }) => <Preview text={inputs_preview} />,
  },
  {
    id: 'outputs',
    label: 'Output or error',
    width: 150,
    grow: 2,
    render: ({ error_preview, outputs_preview }) =>
      error_preview ? (
        <span className="error-text">
          <Value text={error_preview} />
        </span>
      ) : (
        <Preview text={outputs_preview} />
      ),
  },
  { id: 'start', label: 'Start', width: 106, render: ({ start_time }) => <Time at={start_time} /> },
  {
    id: 'latency',
    label: 'Latency',
    width: 72,
    isNumber: true,
    render: ({ latency_seconds }) => formatSeconds(latency_seconds),
  },
  {
    id: 'first-token',
    label: 'First token',
    width: 76,
    isNumber: true,
    render: ({ start_time = '', first_token_time }) => formatSeconds(secondsBetween(start_time, first_token_time)),
  },
  {
    id: 'tokens',
    label: 'Tokens',
    width: 64,
    isNumber: true,
    render: ({ total_tokens }) => formatCompact(total_tokens || null),
  },
  { id: 'cost', label: 'Cost', width: 76, isNumber: true, render: ({ total_cost }) => formatCost(total_cost) },
  {
    id: 'tags',
    label: 'Tags',
    width: 130,
    render: ({ tags }) => (
      <span className="row">
        {tags?.slice(0, 3).map((tag) => (
          <span key={tag} className="badge clip">
            <Value text={tag} />
          </span>
        ))}
      </span>
    ),
  },
  {
    id: 'feedback',
    label: 'Feedback',
    width: 130,
    render: ({ feedback_stats }) => <Value text={describeFeedback(feedback_stats)} />,
  },
  { id: 'thread', label: 'Thread', width: 120, render: ({ thread_id }) => <Value text={thread_id ?? ''} /> },
  { id: 'id', label: 'Id', width: 260, render: ({ id = '' }) => <code>{id}</code> },
];

const wide = ['status', 'name', 'inputs', 'outputs', 'start', 'latency', 'tokens', 'cost', 'tags'];
const narrow = ['status', 'name', 'start', 'latency'];
const storageKey = 'runlake.trace-columns';

/** Returns the columns that the viewer has chosen, or those that fit the width of the window. */
export function readColumnChoice(): readonly string[] {
  const stored = localStorage.getItem(storageKey)?.split(',');
  const known = stored?.filter((id) => runColumns.some((column) => column.id === id));
  if (known && known.length > 0) return known;
  return window.innerWidth < 700 ? narrow : wide;
}

export function storeColumnChoice(ids: readonly string[]): void {
  localStorage.setItem(storageKey, ids.join(','));
}

/** A preview of inputs or outputs: the last message or the only text, if there is one, with the whole preview as tooltip. */
export function Preview({ text }: { readonly text: string | null | undefined }) {
  return <Value text={summarizePreview(text ?? '')} title={text ?? ''} />;
}

/** Returns the average scores by feedback key, such as `correct 0.9, helpful 1`. */
export function describeFeedback(stats: unknown): string {
  return Object.entries((stats ?? {}) as Record<string, { avg?: number | null; n?: number }>)
    .map(([key, { avg, n }]) => `${key} ${avg === null || avg === undefined ? `× ${n ?? 0}` : Number(avg.toFixed(2))}`)
    .join(', ');
}
