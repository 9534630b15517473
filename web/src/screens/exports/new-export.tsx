import { useMutation, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import type { FormEvent } from 'react';
import { call } from '../../api/client.ts';
import { SubmitButton } from '../../components/button.tsx';
import { Crumb } from '../../components/crumb.tsx';
import { maxLocalTime } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { listOptions, Select } from '../../components/select.tsx';
import { EmptyState, Problem, QueryState } from '../../components/states.tsx';
import { useAddressValue } from '../../components/use-address-value.ts';
import { toExpression } from '../traces/filter-language.ts';
import { ExportPreview } from './export-preview.tsx';
import type { Destination } from './paths.ts';
import { ProjectInput } from './project-input.tsx';
import type { NewExportSearch } from './search.ts';
import { useDestinations } from './use-exports.ts';
import './exports.css';

const route = getRouteApi('/shell/exports/new');
const dayMs = 86_400_000;
const defaultDays = 7;
const defaultEveryHours = 24;
const repetitions = { once: 'Once', schedule: 'On a schedule' } as const;
const versions = { v2_beta: 'v2_beta: native times and lists', v1: 'v1' } as const;
const compressions = ['zstandard', 'gzip', 'snappy', 'none'] as const;

/** The form of an export or a schedule, with a preview of the files. */
export function NewExport() {
  const destinations = useDestinations();
  return (
    <>
      <header className="page-head">
        <Crumb to="/exports" label="Exports" />
        <Heading text="New export" />
      </header>
      <div className="page-body">
        <QueryState query={destinations}>
          {(found) =>
            found.length === 0 ? (
              <EmptyState title="No destinations">
                <Link to="/exports" search={{ tab: 'Destinations' }}>
                  Create a destination first.
                </Link>
              </EmptyState>
            ) : (
              <ExportForm destinations={found} />
            )
          }
        </QueryState>
      </div>
    </>
  );
}

/** Returns the range of the form: the last seven whole days by default. */
function readRange({ from, until }: NewExportSearch): { from: string; until: string } {
  const today = Math.floor(Date.now() / dayMs) * dayMs;
  const toText = (time: number) => new Date(time).toISOString().slice(0, 16);
  return { from: from ?? toText(today - defaultDays * dayMs), until: until ?? toText(today) };
}

/** Shows the default, which the preview has, in a field that was cleared. */
function restoreIfEmpty(input: HTMLInputElement, text: string): void {
  if (input.value === '') input.value = text;
}

function ExportForm({ destinations }: { readonly destinations: readonly Destination[] }) {
  const search = route.useSearch();
  const navigate = useNavigate({ from: '/exports/new' });
  const client = useQueryClient();
  const change = (changes: NewExportSearch) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  const range = readRange(search);
  const from = useAddressValue(range.from);
  const until = useAddressValue(range.until);
  const every = useAddressValue(search.every);
  const destination = destinations.find(({ id }) => id === search.destination) ?? (destinations[0] as Destination);
  const filter = toExpression(search.filter ?? '');
  const request = {
    bulk_export_destination_id: destination.id,
    session_id: search.project ?? '',
    start_time: `${range.from}Z`,
    end_time: search.every === undefined ? `${range.until}Z` : null,
    interval_hours: search.every ?? null,
    format_version: search.version ?? ('v2_beta' as const),
    compression: search.compression ?? ('zstandard' as const),
    export_fields: readColumns(search.columns),
    filter: filter === '' ? null : filter,
  };
  const create = useMutation({
    mutationFn: () => call('post', '/api/v1/bulk-exports', { body: request }),
    onSuccess: ({ id }) => {
      void client.invalidateQueries({ queryKey: ['exports'] });
      void navigate({ to: '/exports/$exportId', params: { exportId: id } });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate();
  };
  return (
    <form className="stack" aria-label="New export" onSubmit={submit}>
      <div className="export-form">
        <ProjectInput projectId={search.project} onChange={(project) => change({ project })} />
        <label className="field">
          Destination
          <Select
            value={destination.id}
            onChange={(id) => change({ destination: id })}
            options={destinations.map(({ id, display_name }) => [id, display_name])}
          />
        </label>
        <label className="field">
          Repeat
          <Select
            value={search.every === undefined ? 'once' : 'schedule'}
            onChange={(chosen) => change({ every: chosen === 'once' ? undefined : defaultEveryHours })}
            options={listOptions(repetitions)}
          />
        </label>
        <label className="field">
          From, UTC
          <input
            className="input"
            type="datetime-local"
            max={maxLocalTime}
            required
            {...from}
            onChange={({ target }) => change({ from: target.value || undefined })}
            onBlur={({ target }) => restoreIfEmpty(target, range.from)}
          />
        </label>
        {search.every === undefined ? (
          <label className="field">
            Until, UTC, exclusive
            <input
              className="input"
              type="datetime-local"
              max={maxLocalTime}
              required
              {...until}
              onChange={({ target }) => change({ until: target.value || undefined })}
              onBlur={({ target }) => restoreIfEmpty(target, range.until)}
            />
          </label>
        ) : (
          <label className="field">
            Interval in hours
            <input
              className="input"
              type="number"
              required
              min={1}
              max={168}
              {...every}
              onChange={({ target }) => change({ every: target.valueAsNumber || 1 })}
            />
          </label>
        )}
        <FormatFields search={search} onChange={change} />
      </div>
      {search.project !== undefined && (
        <ExportPreview
          destination={destination}
          projectId={search.project}
          formatVersion={request.format_version}
          from={request.start_time}
          until={request.end_time ?? undefined}
          everyHours={search.every}
          filter={request.filter}
        />
      )}
      <Problem message={create.error?.message} />
      <div className="row">
        <SubmitButton disabled={create.isPending || search.project === undefined}>
          {search.every === undefined ? 'Create the export' : 'Create the schedule'}
        </SubmitButton>
      </div>
    </form>
  );
}

function FormatFields({
  search,
  onChange,
}: {
  readonly search: NewExportSearch;
  readonly onChange: (changes: NewExportSearch) => void;
}) {
  const filter = useAddressValue(search.filter);
  const columns = useAddressValue(search.columns);
  return (
    <>
      <label className="field">
        Format
        <Select
          value={search.version ?? 'v2_beta'}
          onChange={(version) => onChange({ version: version === 'v1' ? version : undefined })}
          options={listOptions(versions)}
        />
      </label>
      <label className="field">
        Compression
        <Select
          value={search.compression ?? 'zstandard'}
          onChange={(compression) => onChange({ compression: compression === 'zstandard' ? undefined : compression })}
          options={compressions.map((name) => [name, name])}
        />
      </label>
      <label className="field wide">
        Only runs that match
        <input
          className="input mono"
          {...filter}
          placeholder="All runs. Text to search, or an expression such as gt(latency, 2)"
          onChange={({ target }) => onChange({ filter: target.value || undefined })}
        />
      </label>
      <label className="field wide">
        Columns
        <input
          className="input mono"
          {...columns}
          placeholder="All columns, or names such as id, name, total_tokens"
          onChange={({ target }) => onChange({ columns: target.value || undefined })}
        />
      </label>
    </>
  );
}

function readColumns(text = ''): string[] | null {
  const names = text.split(/[\s,]+/).filter((name) => name !== '');
  return names.length === 0 ? null : names;
}
