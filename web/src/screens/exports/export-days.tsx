import { useInfiniteQuery } from '@tanstack/react-query';
import { getRouteApi, useNavigate } from '@tanstack/react-router';
import { type Answer, readByOffset } from '../../api/client.ts';
import { Button } from '../../components/button.tsx';
import { formatBytes, formatCount, formatUtcDay } from '../../components/format.ts';
import { PlainTable } from '../../components/plain-table.tsx';
import { MoreButton, NoData, PagesState } from '../../components/states.tsx';
import { showInvisible } from '../../components/text.tsx';
import { ExportStatus } from './export-marks.tsx';
import type { BulkExport } from './paths.ts';
import { isFinished, livePollMs } from './use-exports.ts';

type ExportRun = Answer<'get', '/api/v1/bulk-exports/{bulk_export_id}/runs'>[number];

const route = getRouteApi('/shell/exports/$exportId');
const pageSize = 100;

/** The days of an export with their errors, and the files of the selected day. */
export function ExportDays({ each }: { readonly each: BulkExport }) {
  const { day } = route.useSearch();
  const navigate = useNavigate({ from: '/exports/$exportId' });
  const days = useInfiniteQuery({
    // With the status in the key, the days are read once more when the export has finished.
    queryKey: ['export-days', each.id, each.status],
    ...readByOffset('/api/v1/bulk-exports/{bulk_export_id}/runs', pageSize, { path: { bulk_export_id: each.id } }),
    placeholderData: (before) => before,
    refetchInterval: isFinished(each) ? false : livePollMs,
  });
  const rows = days.data?.pages.flat() ?? [];
  return (
    <section className="stack" aria-labelledby="days">
      <h2 id="days">Days</h2>
      <PagesState
        pages={days}
        rows={rows}
        label="Loading the days"
        empty={<p className="muted">The days are listed when the export starts.</p>}
      >
        <PlainTable
          label="Exports of the days"
          columns={[
            'From, UTC',
            'Status',
            { number: 'Rows' },
            { number: 'Size' },
            { number: 'Late runs' },
            { number: 'Retries' },
            'Files',
            'Errors',
          ]}
          footer={<MoreButton pages={days} label="Show later days" />}
        >
          {rows.map((run) => (
            <DayRow
              key={run.id}
              run={run}
              isSelected={run.id === day}
              onToggle={() =>
                void navigate({
                  search: (before) => ({ ...before, day: run.id === day ? undefined : run.id }),
                  replace: true,
                })
              }
            />
          ))}
        </PlainTable>
      </PagesState>
      {day !== undefined && <Files exportId={each.id} runId={day} isLive={!isFinished(each)} />}
    </section>
  );
}

function DayRow({
  run,
  isSelected,
  onToggle,
}: {
  readonly run: ExportRun;
  readonly isSelected: boolean;
  readonly onToggle: () => void;
}) {
  const count = run.metadata.result?.file_count ?? 0;
  return (
    <tr>
      <td>{formatUtcDay(run.start_time)}</td>
      <td>
        <ExportStatus status={run.status} />
      </td>
      <td className="number">
        {formatCount(run.rows_written)}
        {run.rows_expected === null ? '' : ` of ${formatCount(run.rows_expected)}`}
      </td>
      <td className="number">{formatBytes(run.bytes_written)}</td>
      <td className="number">{formatCount(run.late_runs)}</td>
      <td className="number">{formatCount(run.retry_number)}</td>
      <td>
        {count === 0 ? (
          <span className="muted">0</span>
        ) : (
          <Button kind="quiet" aria-expanded={isSelected} onClick={onToggle}>
            {formatCount(count)}
            <span className="visually-hidden"> files of {formatUtcDay(run.start_time)}</span>
            <span aria-hidden="true">{isSelected ? '▾' : '▸'}</span>
          </Button>
        )}
      </td>
      <td className="export-errors">
        {Object.entries(run.errors ?? {}).map(([attempt, error]) => (
          <p key={attempt} className="error-text">
            {attempt}: {showInvisible(error)}
          </p>
        ))}
      </td>
    </tr>
  );
}

function Files({
  exportId,
  runId,
  isLive,
}: {
  readonly exportId: string;
  readonly runId: string;
  readonly isLive: boolean;
}) {
  const files = useInfiniteQuery({
    queryKey: ['export-files', exportId, runId],
    ...readByOffset('/api/v1/bulk-exports/{bulk_export_id}/runs/{run_id}/files', pageSize, {
      path: { bulk_export_id: exportId, run_id: runId },
    }),
    refetchInterval: isLive ? livePollMs : false,
  });
  const rows = files.data?.pages.flat() ?? [];
  if (rows.length === 0 && (files.error || files.isPending)) return <NoData query={files} label="Loading the files" />;
  return (
    <PlainTable
      label="Files"
      columns={[{ number: 'Part' }, 'Path', { number: 'Rows' }, { number: 'Size' }, 'SHA-256']}
      footer={<MoreButton pages={files} label="Show more files" />}
    >
      {rows.map(({ part, path, rows: count, bytes, sha256 }) => (
        <tr key={part}>
          <td className="number">{part}</td>
          <td className="mono">{showInvisible(path)}</td>
          <td className="number">{formatCount(count)}</td>
          <td className="number">{formatBytes(bytes)}</td>
          <td className="mono">{sha256}</td>
        </tr>
      ))}
    </PlainTable>
  );
}
