import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { call, readFrom } from '../../api/client.ts';
import { formatCount } from '../../components/format.ts';
import { Icon } from '../../components/icon.tsx';
import { Popover } from '../../components/popover.tsx';
import { QueryState } from '../../components/states.tsx';
import { Value } from '../../components/text.tsx';
import { type RunConditions, toStatsConditions } from './search.ts';
import type { Facet, RunStats } from './use-runs.ts';

const fixed = [
  { label: 'Errors', query: 'eq(status, "error")' },
  { label: 'Slow (over 5 s)', query: 'gt(latency, 5)' },
  { label: 'Not ended', query: 'eq(status, "pending")' },
];
const maxOptions = 50;

const buildTagFilter = (tag: string) => `has(tags, ${JSON.stringify(tag)})`;
const buildMetadataFilter = (key: string, value: string) =>
  `and(eq(metadata_key, ${JSON.stringify(key)}), eq(metadata_value, ${JSON.stringify(value)}))`;

/** Filters of one click: fixed ones, and the most frequent names, tags and metadata values of the runs that are shown. */
export function QuickFilters({
  active,
  facets,
  conditions,
  onChange,
}: {
  readonly active: readonly string[];
  readonly facets: readonly Facet[];
  readonly conditions: RunConditions;
  readonly onChange: (active: readonly string[] | undefined) => void;
}) {
  const toggle = (query: string) => {
    const next = active.includes(query) ? active.filter((each) => each !== query) : [...active, query];
    onChange(next.length === 0 ? undefined : next);
  };
  const names = facets.filter(({ key }) => key === 'name');
  const others = active.filter((query) => !fixed.some((each) => each.query === query));
  return (
    <div className="row wrap">
      {fixed.map(({ label, query }) => (
        <button
          key={query}
          type="button"
          className="chip"
          aria-pressed={active.includes(query)}
          onClick={() => toggle(query)}
        >
          {label}
        </button>
      ))}
      {names.length > 0 && (
        <FilterMenu label="Name" onPick={toggle}>
          {(pick) =>
            names.map(({ value, query, n }) => <Option key={query} text={value} count={n} onPick={() => pick(query)} />)
          }
        </FilterMenu>
      )}
      <FilterMenu label="Tag" onPick={toggle}>
        {(pick) => (
          <Groups
            groupBy={{ attribute: 'tag' }}
            conditions={conditions}
            empty="No run has tags."
            onPick={(tag) => pick(buildTagFilter(tag))}
          />
        )}
      </FilterMenu>
      <FilterMenu label="Metadata" onPick={toggle}>
        {(pick) => (
          <MetadataKeys conditions={conditions} onPick={(key, value) => pick(buildMetadataFilter(key, value))} />
        )}
      </FilterMenu>
      {others.map((query) => (
        <button
          key={query}
          type="button"
          className="chip mono"
          aria-pressed="true"
          title="Remove"
          onClick={() => toggle(query)}
        >
          <Value text={query} />
          <Icon name="close" />
        </button>
      ))}
    </div>
  );
}

/** A menu that closes when a filter is selected. Its filters are read when it opens. */
function FilterMenu({
  label,
  onPick,
  children,
}: {
  readonly label: string;
  readonly onPick: (query: string) => void;
  readonly children: (pick: (query: string) => void) => ReactNode;
}) {
  return (
    <Popover label={`${label} ▾`} className="chip">
      {(close) =>
        children((query) => {
          onPick(query);
          close();
        })
      }
    </Popover>
  );
}

function Option({
  text,
  count,
  onPick,
}: {
  readonly text: string;
  readonly count?: number | null | undefined;
  readonly onPick: () => void;
}) {
  return (
    <button type="button" className="option" onClick={onPick}>
      <Value text={text} />
      <span className="spacer" />
      {count !== undefined && <span className="muted">{formatCount(count)}</span>}
    </button>
  );
}

/** The most frequent tags, or values of a metadata key, of the runs that match. */
function Groups({
  groupBy,
  conditions,
  empty,
  onPick,
}: {
  readonly groupBy: { readonly attribute: 'tag' } | { readonly attribute: 'metadata'; readonly path: string };
  readonly conditions: RunConditions;
  readonly empty: string;
  readonly onPick: (value: string) => void;
}) {
  const groups = useQuery({
    queryKey: ['run-groups', conditions, groupBy],
    queryFn: async ({ signal }) => {
      const group_by = { ...groupBy, max_groups: maxOptions };
      const body = { ...toStatsConditions(conditions), group_by, select: ['run_count' as const] };
      const stats = (await call('post', '/api/v1/runs/stats', { body, signal })) as Record<string, RunStats>;
      return Object.entries(stats).sort(([, one], [, other]) => (other.run_count ?? 0) - (one.run_count ?? 0));
    },
  });
  return (
    <QueryState query={groups}>
      {(found) =>
        found.length === 0 ? (
          <p className="muted">{empty}</p>
        ) : (
          found.map(([value, { run_count }]) => (
            <Option key={value} text={value} count={run_count} onPick={() => onPick(value)} />
          ))
        )
      }
    </QueryState>
  );
}

/** The metadata keys of the project, then the values of the key that is picked. */
function MetadataKeys({
  conditions,
  onPick,
}: {
  readonly conditions: RunConditions;
  readonly onPick: (key: string, value: string) => void;
}) {
  const [picked, setPicked] = useState<string>();
  const projectId = conditions.project_ids[0] ?? '';
  const { min_start_time, is_root = false } = conditions;
  const metadata = useQuery({
    queryKey: ['project-metadata', projectId, min_start_time, is_root],
    ...readFrom('get', '/api/v1/sessions/{session_id}/metadata', {
      path: { session_id: projectId },
      query: { k: 1, start_time: min_start_time, root_runs_only: is_root },
    }),
  });
  if (picked !== undefined)
    return (
      <>
        <button type="button" className="option muted" onClick={() => setPicked(undefined)}>
          ‹ <Value text={picked} />
        </button>
        <Groups
          groupBy={{ attribute: 'metadata', path: picked }}
          conditions={conditions}
          empty="No run that matches has this key."
          onPick={(value) => onPick(picked, value)}
        />
      </>
    );
  return (
    <QueryState query={metadata}>
      {(found) => {
        const keys = Object.keys(found);
        return keys.length === 0 ? (
          <p className="muted">No run has metadata.</p>
        ) : (
          keys.map((key) => <Option key={key} text={key} onPick={() => setPicked(key)} />)
        );
      }}
    </QueryState>
  );
}
