import { getRouteApi, useNavigate } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import { Button } from '../../components/button.tsx';
import { Choices } from '../../components/choices.tsx';
import { formatCompact, formatCost, formatCount, formatPercent, formatSeconds } from '../../components/format.ts';
import { Icon } from '../../components/icon.tsx';
import { Popover } from '../../components/popover.tsx';
import { useShortcuts } from '../../components/shortcuts.tsx';
import { EmptyState, ErrorState, NewerRuns, PagesState } from '../../components/states.tsx';
import { showInvisible } from '../../components/text.tsx';
import { VirtualTable } from '../../components/virtual-table.tsx';
import { readColumnChoice, runColumns, storeColumnChoice } from './columns.tsx';
import { FilterBar } from './filter-bar.tsx';
import { Figures, ProjectHead, useProject } from './project-head.tsx';
import { QuickFilters } from './quick-filters.tsx';
import { RangeMenu } from './range-menu.tsx';
import type { TracesSearch } from './search.ts';
import { type RunRow, useRuns } from './use-runs.ts';
import './traces.css';

const route = getRouteApi('/shell/projects/$projectId');
const getKey = (run: RunRow) => run.id ?? '';

export function Traces() {
  const { projectId } = route.useParams();
  const search = route.useSearch();
  const navigate = useNavigate({ from: '/projects/$projectId' });
  const change = (changes: Partial<TracesSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  const project = useProject(projectId);
  const { pages, rows, stats: statsQuery, conditions, liveError, catchUp, restart } = useRuns(projectId, search);
  const { data: stats } = statsQuery;
  const [columns, setColumns] = useState(readColumnChoice);
  const toggleLive = () => {
    if (!search.live) restart();
    change({ live: search.live ? undefined : true });
  };
  useShortcuts({
    r: { label: 'Refresh', run: restart },
    l: { label: 'Live tail on or off', run: toggleLive },
    'j / k': { label: 'Next or previous run' },
    Enter: { label: 'Open the run' },
  });
  const visibility = useMemo(
    () => Object.fromEntries(runColumns.map(({ id }) => [id, columns.includes(id)])),
    [columns],
  );
  if (project.error && !project.data)
    return (
      <ErrorState
        isPage
        error={project.error}
        onRetry={() => {
          void project.refetch();
          restart();
        }}
      />
    );
  return (
    <div className="traces">
      <ProjectHead projectId={projectId} name={project.data?.name} search={search}>
        <Choices label="Runs to show" choices={runChoices} chosen={search.runs} onChoose={(runs) => change({ runs })} />
        <RangeMenu search={search} onChange={change} />
        <ColumnMenu
          columns={columns}
          onChange={(next) => {
            setColumns(next);
            storeColumnChoice(next);
          }}
        />
        <Button kind="icon" aria-label="Refresh" title="Refresh (r)" onClick={restart}>
          <Icon name="refresh" />
        </Button>
        <Button aria-pressed={search.live === true} title="Live tail (l)" onClick={toggleLive}>
          <span className={search.live ? 'live-dot on' : 'live-dot'} aria-hidden="true" />
          Live
        </Button>
      </ProjectHead>
      <div className="traces-filter">
        <FilterBar filter={search.filter} facets={stats?.run_facets ?? []} onChange={(filter) => change({ filter })} />
        <QuickFilters
          active={search.quick ?? []}
          facets={stats?.run_facets ?? []}
          conditions={conditions}
          onChange={(quick) => change({ quick })}
        />
      </div>
      <Figures
        query={statsQuery}
        figures={{
          Runs: formatCount(stats?.run_count),
          Errors: formatPercent(stats?.error_rate),
          'Latency p50': formatSeconds(stats?.latency_p50),
          'Latency p99': formatSeconds(stats?.latency_p99),
          Tokens: formatCompact(stats?.total_tokens),
          Cost: formatCost(stats?.total_cost),
        }}
      />
      {liveError && (
        <p className="notice error-text" role="alert">
          Live tail is interrupted: {liveError.message}
        </p>
      )}
      <NewerRuns onShow={catchUp} />
      <PagesState
        pages={pages}
        rows={rows}
        label="Loading runs"
        empty={<NoRuns name={project.data?.name} search={search} />}
      >
        <VirtualTable
          label="Runs"
          columns={runColumns}
          visibility={visibility}
          rows={rows}
          getKey={getKey}
          onOpen={({ id = '' }) => void navigate({ to: '/runs/$runId', params: { runId: id } })}
          pages={pages}
          rowName="run"
        />
      </PagesState>
    </div>
  );
}

function NoRuns({ name, search }: { readonly name: string | undefined; readonly search: TracesSearch }) {
  const { range, from, until, filter, quick = [], runs } = search;
  const isWhole = range === 'all' && from === undefined && until === undefined;
  if (isWhole && filter === undefined && quick.length === 0 && runs === undefined)
    return (
      <EmptyState title="This project has no traces">
        Programs send theirs here with <code>LANGSMITH_PROJECT={showInvisible(name ?? '')}</code>.
      </EmptyState>
    );
  const advice = [
    ...(isWhole ? [] : ['widen the time range']),
    ...(filter === undefined && quick.length === 0 ? [] : ['remove a filter']),
    ...(runs === 'llm' ? ['show all runs'] : []),
  ].join(' or ');
  return <EmptyState title="No runs match">{advice.charAt(0).toUpperCase() + advice.slice(1)}.</EmptyState>;
}

const runChoices = [
  { value: undefined, label: 'Traces' },
  { value: 'llm', label: 'Model calls' },
  { value: 'all', label: 'All runs' },
] as const;

function ColumnMenu({
  columns,
  onChange,
}: {
  readonly columns: readonly string[];
  readonly onChange: (columns: readonly string[]) => void;
}) {
  return (
    <Popover label={<Icon name="columns" />} name="Columns" className="button icon" end>
      {() => (
        <fieldset className="checks">
          <legend className="muted">Columns</legend>
          {runColumns.map(({ id, label }) => (
            <label key={id} className="option">
              <input
                type="checkbox"
                checked={columns.includes(id)}
                disabled={id === 'name'}
                onChange={({ target }) =>
                  onChange(target.checked ? [...columns, id] : columns.filter((each) => each !== id))
                }
              />
              {label}
            </label>
          ))}
        </fieldset>
      )}
    </Popover>
  );
}
