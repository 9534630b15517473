import { Link } from '@tanstack/react-router';
import { formatBytes, formatCount, formatSeconds, formatUtcDay } from '../../components/format.ts';
import { PlainTable } from '../../components/plain-table.tsx';
import { EmptyState, MoreButton, PagesState, PartProblem } from '../../components/states.tsx';
import { TextCell, TimeCell, Value } from '../../components/text.tsx';
import { ExportStatus, ProgressBar } from './export-marks.tsx';
import type { BulkExport } from './paths.ts';
import { useDestinations, useExports, useProjectNames } from './use-exports.ts';

/** A table of exports, or of schedules. */
export function ExportList({ filter }: { readonly filter: Parameters<typeof useExports>[0] }) {
  const exports = useExports(filter);
  const rows = exports.data?.pages.flat() ?? [];
  const projects = useProjectNames(rows.map(({ session_id }) => session_id));
  const destinations = useDestinations();
  const findDestinationName = (id: string) =>
    destinations.data ? (destinations.data.find((each) => each.id === id)?.display_name ?? 'Deleted') : '…';
  const isSchedules = filter.scheduled === true;
  const isOfSchedule = filter.source_bulk_export_id !== undefined;
  const empty = (
    <EmptyState title={isSchedules ? 'No schedules' : isOfSchedule ? 'No exports yet' : 'No exports'}>
      {isOfSchedule
        ? 'The first one starts ten minutes after its interval has ended.'
        : isSchedules
          ? 'A schedule exports each interval after it has ended. Choose a schedule in the form of a new export.'
          : 'An export writes the runs of a project to a destination. Start with a new export.'}
    </EmptyState>
  );
  return (
    <PagesState pages={exports} rows={rows} label="Loading exports" empty={empty}>
      <PlainTable
        label={isSchedules ? 'Schedules' : 'Exports'}
        columns={[
          'Project',
          'Destination',
          isSchedules ? 'Interval' : 'Range, UTC',
          'Status',
          ...(isSchedules ? ['Next interval'] : progressColumns),
          'Created',
        ]}
        notices={
          <>
            <PartProblem what="The exports" query={exports} />
            <PartProblem what="The names of the projects" query={projects.query} />
            <PartProblem what="The destinations" query={destinations} />
          </>
        }
        footer={<MoreButton pages={exports} label="Show older" />}
      >
        {rows.map((each) => (
          <tr key={each.id}>
            <td className="text-cell">
              <Link to="/exports/$exportId" params={{ exportId: each.id }}>
                <Value text={projects.nameOf(each.session_id)} />
              </Link>
            </td>
            <TextCell text={findDestinationName(each.bulk_export_destination_id)} />
            <td>{describeRange(each)}</td>
            <td>
              <ExportStatus status={each.status} />
            </td>
            {isSchedules ? <TimeCell at={each.next_start_time} /> : <ProgressCells progress={each.progress} />}
            <TimeCell at={each.created_at} />
          </tr>
        ))}
      </PlainTable>
    </PagesState>
  );
}

const progressColumns = [
  'Progress',
  { number: 'Rows' },
  { number: 'Files' },
  { number: 'Size' },
  { number: 'Time left' },
];

function ProgressCells({ progress }: { readonly progress: BulkExport['progress'] }) {
  return (
    <>
      <td>
        <ProgressBar share={progress.share_done} />
      </td>
      <td className="number">{formatCount(progress.rows_written)}</td>
      <td className="number">{formatCount(progress.files)}</td>
      <td className="number">{formatBytes(progress.bytes_written)}</td>
      <td className="number">{formatSeconds(progress.seconds_left)}</td>
    </>
  );
}

export function describeRange({ start_time, end_time, interval_hours }: BulkExport): string {
  if (interval_hours !== null) return `Every ${interval_hours} h from ${formatUtcDay(start_time)}`;
  return `${formatUtcDay(start_time)} – ${end_time === null ? '…' : formatUtcDay(end_time)}`;
}
