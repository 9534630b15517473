import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { call, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { ConfirmButton } from '../../components/confirm-button.tsx';
import { CodeBlock } from '../../components/copy-button.tsx';
import { CrumbSeparator } from '../../components/crumb.tsx';
import { FigureList } from '../../components/figure-list.tsx';
import { formatBytes, formatCompact, formatCount, formatSeconds } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { NoData, PartProblem, Problem } from '../../components/states.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { showInvisible, Time } from '../../components/text.tsx';
import { ExportDays } from './export-days.tsx';
import { describeRange, ExportList } from './export-list.tsx';
import { ExportStatus, ProgressBar } from './export-marks.tsx';
import { type BulkExport, buildExportFolder, describeLocation } from './paths.ts';
import { buildSnippet, readers } from './snippets.ts';
import { isFinished, livePollMs, useDestinations, useProjectNames } from './use-exports.ts';
import './exports.css';

const route = getRouteApi('/shell/exports/$exportId');

/** An export with its progress, days and files; or a schedule with its exports. */
export function ExportDetail() {
  const { exportId } = route.useParams();
  const client = useQueryClient();
  const canManage = usePermission('bulk-exports:manage');
  const found = useQuery({
    queryKey: ['export', exportId],
    ...readFrom('get', '/api/v1/bulk-exports/{bulk_export_id}', { path: { bulk_export_id: exportId } }),
    refetchInterval: ({ state }) => (state.data && !isFinished(state.data) ? livePollMs : false),
  });
  const cancel = useMutation({
    mutationFn: () =>
      call('patch', '/api/v1/bulk-exports/{bulk_export_id}', {
        path: { bulk_export_id: exportId },
        body: { status: 'Cancelled' },
      }),
    onSettled: () =>
      client.invalidateQueries({ predicate: ({ queryKey: [name] }) => String(name).startsWith('export') }),
  });
  const destinations = useDestinations();
  const projects = useProjectNames(found.data ? [found.data.session_id] : []);
  if (found.data === undefined) return <NoData query={found} isPage label="Loading the export" />;
  const { data: each } = found;
  const isSchedule = each.interval_hours !== null;
  return (
    <>
      <header className="page-head">
        <Link to="/exports" search={isSchedule ? { tab: 'Schedules' } : {}} className="crumb">
          {isSchedule ? 'Schedules' : 'Exports'}
        </Link>
        <CrumbSeparator />
        <Heading text={projects.nameOf(each.session_id)} />
        <span role="status">
          <ExportStatus status={each.status} />
        </span>
        {found.error && <span className="error-text">Not up to date: {found.error.message}</span>}
        <span className="spacer" />
        {canManage && !isFinished(each) && (
          <ConfirmButton
            label={isSchedule ? 'Cancel the schedule' : 'Cancel the export'}
            name={isSchedule ? 'Cancel the schedule' : 'Cancel the export'}
            question={
              isSchedule
                ? 'Cancel this schedule? Exports that it has created continue.'
                : 'Cancel this export? Finished files stay in the destination.'
            }
            dismiss="Back"
            onConfirm={() => cancel.mutate()}
          />
        )}
      </header>
      <div className="page-body export-detail">
        <Problem message={cancel.error?.message} />
        <PartProblem what="The name of the project" query={projects.query} />
        <PartProblem what="The destination" query={destinations} />
        {!isSchedule && <Progress each={each} />}
        <Facts each={each} destinations={destinations} />
        {isSchedule ? (
          <section className="stack" aria-labelledby="exports-of">
            <h2 id="exports-of">Exports of this schedule</h2>
            <ExportList filter={{ source_bulk_export_id: each.id }} />
          </section>
        ) : (
          <>
            <ExportDays each={each} />
            <Readers each={each} destinations={destinations} />
          </>
        )}
      </div>
    </>
  );
}

function Progress({ each: { progress, status } }: { readonly each: BulkExport }) {
  const { rows_per_second: rate, rows_expected: expected } = progress;
  return (
    <section className="stack" aria-label="Progress">
      <ProgressBar share={progress.share_done} />
      <FigureList
        figures={{
          Rows: `${formatCount(progress.rows_written)}${expected === null ? '' : ` of ${formatCount(expected)}`}`,
          Rate: rate === null ? '–' : `${formatCompact(Math.round(rate))} rows/s`,
          'Time left': status === 'RUNNING' ? formatSeconds(progress.seconds_left) : '–',
          Days: `${formatCount(progress.runs_completed)} of ${formatCount(progress.runs_total)}`,
          Files: formatCount(progress.files),
          Size: formatBytes(progress.bytes_written),
          'Late runs': formatCount(progress.late_runs),
          Retries: formatCount(progress.retries),
        }}
      />
    </section>
  );
}

interface Written {
  readonly each: BulkExport;
  readonly destinations: ReturnType<typeof useDestinations>;
}

function findDestination({ each, destinations }: Written) {
  return destinations.data?.find(({ id }) => id === each.bulk_export_destination_id);
}

function Facts({ each, destinations }: Written) {
  const destination = findDestination({ each, destinations });
  return (
    <dl className="export-facts">
      {each.status_reason && (
        <>
          <dt>State</dt>
          <dd>{showInvisible(each.status_reason)}</dd>
        </>
      )}
      <dt>{each.interval_hours === null ? 'Range, UTC' : 'Interval'}</dt>
      <dd>{describeRange(each)}</dd>
      {each.interval_hours !== null && (
        <>
          <dt>Next interval</dt>
          <dd>
            <Time at={each.next_start_time} />
          </dd>
        </>
      )}
      <dt>Destination</dt>
      <dd>
        {destination
          ? showInvisible(`${destination.display_name}, ${describeLocation(destination)}`)
          : destinations.data
            ? 'Deleted'
            : '…'}
      </dd>
      <dt>Runs</dt>
      <dd>{each.filter === null ? 'All' : <code>{showInvisible(each.filter)}</code>}</dd>
      <dt>Columns</dt>
      <dd>{each.export_fields === null ? 'All' : each.export_fields.join(', ')}</dd>
      <dt>Format</dt>
      <dd>
        {each.format} {each.format_version}, {each.compression}
      </dd>
      <dt>Created</dt>
      <dd>
        <Time at={each.created_at} />
      </dd>
      {each.finished_at && (
        <>
          <dt>Finished</dt>
          <dd>
            <Time at={each.finished_at} />
          </dd>
        </>
      )}
      {each.source_bulk_export_id && (
        <>
          <dt>Schedule</dt>
          <dd>
            <Link to="/exports/$exportId" params={{ exportId: each.source_bulk_export_id }}>
              {each.source_bulk_export_id}
            </Link>
          </dd>
        </>
      )}
    </dl>
  );
}

/** Programs that read the files, with the real paths. */
function Readers({ each, destinations }: Written) {
  const search = route.useSearch();
  const navigate = useNavigate({ from: '/exports/$exportId' });
  const destination = findDestination({ each, destinations });
  if (!destination) return null;
  const reader = readers.find((name) => name === search.reader) ?? 'DuckDB';
  return (
    <section className="stack" aria-labelledby="readers">
      <h2 id="readers">Read the files</h2>
      {destination.destination_type === 'local' && (
        <p className="muted">
          The paths are relative to the folder that <code>RUNLAKE_LOCAL_EXPORT_ROOT</code> names. Run the lines there
          {reader === 'ClickHouse' && (
            <>
              , with <code>clickhouse local</code>
            </>
          )}
          .
        </p>
      )}
      <Tabs
        label="Program"
        tabs={readers}
        selected={reader}
        onSelect={(next) => void navigate({ search: (before) => ({ ...before, reader: next }), replace: true })}
      >
        <CodeBlock
          label={`${reader} lines`}
          code={buildSnippet(reader, destination, buildExportFolder(destination, each))}
        />
      </Tabs>
    </section>
  );
}
