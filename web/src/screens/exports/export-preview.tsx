import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { readFrom } from '../../api/client.ts';
import { usePermission, useWorkspaces } from '../../api/session.ts';
import { formatCount, formatQuantity } from '../../components/format.ts';
import { PartProblem } from '../../components/states.tsx';
import { showInvisible } from '../../components/text.tsx';
import { type BulkExport, buildDayFolder, buildExportFolder, type Destination, listDays } from './paths.ts';

const hourMs = 3_600_000;
/** Folders that are shown; further ones are only counted. */
const maxShownFolders = 5;
/** The API exports an interval this long after its end. */
const scheduleDelayMs = 600_000;

interface PreviewProps {
  readonly destination: Destination;
  readonly projectId: string;
  readonly formatVersion: BulkExport['format_version'];
  readonly from: string;
  /** Unset for a schedule. */
  readonly until: string | undefined;
  readonly everyHours: number | undefined;
  readonly filter: string | null;
}

/** What an export would write: the number of runs so far, and the folders of their files. */
export function ExportPreview({
  destination,
  projectId,
  formatVersion,
  from,
  until,
  everyHours,
  filter,
}: PreviewProps) {
  const { current } = useWorkspaces();
  const start = Date.parse(from);
  // The preview of a schedule is its first interval.
  const end = until === undefined ? start + (everyHours ?? 1) * hourMs : Date.parse(until);
  const isRange = end > start;
  const folder = buildExportFolder(destination, {
    id: '<export id>',
    tenant_id: current?.id ?? '',
    session_id: projectId,
  });
  const days = isRange ? listDays(start, end) : [];
  return (
    <section className="export-preview stack" aria-label="Preview">
      <h2>Preview{everyHours === undefined ? '' : ' of the first interval'}</h2>
      {isRange ? (
        <>
          <RunCount projectId={projectId} start={start} end={end} filter={filter} />
          {everyHours !== undefined && <p>{describeSchedule(start, everyHours)}</p>}
          <p className="muted">A folder for each UTC day that has runs, at most {formatCount(days.length)}:</p>
          <ul className="export-paths mono">
            {days.slice(0, maxShownFolders).map((day) => (
              <li key={day}>{showInvisible(`${buildDayFolder(folder, formatVersion, day)}/`)}</li>
            ))}
            {days.length > maxShownFolders && <li>… {formatCount(days.length - maxShownFolders)} more</li>}
            <li>{showInvisible(`${folder}/_manifest.json`)}</li>
          </ul>
        </>
      ) : (
        <p className="error-text">The end must be later than the start.</p>
      )}
    </section>
  );
}

function RunCount({
  projectId,
  start,
  end,
  filter,
}: {
  readonly projectId: string;
  readonly start: number;
  readonly end: number;
  readonly filter: string | null;
}) {
  const canRead = usePermission('runs:read');
  const startTime = new Date(start).toISOString();
  const endTime = new Date(end).toISOString();
  const stats = useQuery({
    queryKey: ['export-preview', projectId, startTime, endTime, filter],
    ...readFrom('post', '/api/v1/runs/stats', {
      body: {
        session: [projectId],
        start_time: startTime,
        // A separate parameter, because errors of this expression contain positions in the text of the form.
        filter,
        search_filter: `lt(start_time, "${endTime}")`,
        select: ['run_count'],
      },
    }),
    enabled: canRead,
    placeholderData: keepPreviousData,
  });
  if (!canRead) return <p className="muted">The number of runs needs the permission runs:read.</p>;
  if (stats.error) return <PartProblem what="The number of runs" query={{ ...stats, data: undefined }} />;
  const { run_count: count } = (stats.data ?? {}) as { readonly run_count?: number | null };
  return <p role="status">{count === undefined ? 'Counting the runs …' : `${formatQuantity(count, 'run')} so far`}</p>;
}

function describeSchedule(start: number, everyHours: number): string {
  const past = Math.max(0, Math.floor((Date.now() - scheduleDelayMs - start) / (everyHours * hourMs)));
  const rest = 'then one ten minutes after each interval has ended.';
  return past === 0
    ? `No interval has ended yet; ${rest}`
    : `${formatCount(past)} exports of past intervals now, ${rest}`;
}
