import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useDeferredValue } from 'react';
import { type Answer, call, readByOffset } from '../api/client.ts';
import { usePermission, useWorkspaces } from '../api/session.ts';
import {
  formatCompact,
  formatCost,
  formatCount,
  formatPercent,
  formatQuantity,
  formatSeconds,
} from '../components/format.ts';
import { Heading } from '../components/heading.tsx';
import { PlainTable } from '../components/plain-table.tsx';
import { SearchField } from '../components/search-field.tsx';
import { EmptyState, LoadingState, MoreButton, PagesState, PartProblem } from '../components/states.tsx';
import { TimeCell, Value } from '../components/text.tsx';
import { FirstStart } from './first-start.tsx';

const route = getRouteApi('/shell/projects');
const pageSize = 100;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const statsDays = 7;
const sparklineDays = 14;

const figures = [
  'run_count',
  'latency_p50',
  'latency_p99',
  'error_rate',
  'total_tokens',
  'total_cost',
  'last_run_start_time',
] as const;

type Project = Answer<'get', '/api/v1/sessions'>[number];

export function Projects() {
  const { name = '' } = route.useSearch();
  const navigate = useNavigate({ from: '/projects' });
  // To the hour, so that each visit shows what the last one has read while it reads anew.
  const since = new Date(Math.floor(Date.now() / hourMs) * hourMs - statsDays * dayMs).toISOString();
  const wanted = useDeferredValue(name);
  const canReadRuns = usePermission('runs:read');
  const projects = useInfiniteQuery({
    queryKey: ['projects', wanted, since],
    ...readByOffset('/api/v1/sessions', pageSize, {
      query: {
        reference_free: true,
        ...(canReadRuns
          ? {
              include_stats: true,
              stats_start_time: since,
              stats_select: [...figures],
              sort_by: 'last_run_start_time' as const,
            }
          : {}),
        name_contains: wanted || undefined,
      },
    }),
    placeholderData: keepPreviousData,
    staleTime: ({ state }) => (state.data?.pages[0]?.length === 0 ? 0 : 10_000),
  });
  const rows = projects.data?.pages.flat() ?? [];
  const counts = useTracesByDay(rows.length > 0 && rows.length < pageSize);
  if (projects.isSuccess && !projects.isPlaceholderData && rows.length === 0 && name === '' && wanted === '')
    // A list that was read before the first trace arrived would lead back to that trace.
    return projects.isFetchedAfterMount ? <FirstStart /> : <LoadingState isPage label="Loading projects" />;
  return (
    <>
      <header className="page-head">
        <Heading text="Projects" />
        <span className="muted">Figures of the last {statsDays} days</span>
        <span className="spacer" />
        <SearchField
          label="Find a project"
          value={name}
          onChange={(text) => void navigate({ search: { name: text || undefined }, replace: true })}
        />
      </header>
      <PagesState
        pages={projects}
        rows={rows}
        label="Loading projects"
        empty={<EmptyState title="No project has this name">Change or clear the search.</EmptyState>}
      >
        <PlainTable
          label="Projects"
          columns={[
            'Name',
            `Traces, ${sparklineDays} days`,
            { number: 'Traces' },
            { number: 'Errors' },
            { number: 'Latency p50' },
            { number: 'p99' },
            { number: 'Tokens' },
            { number: 'Cost' },
            'Last trace',
          ]}
          notices={<PartProblem what="The traces by day" query={counts} />}
          footer={<MoreButton pages={projects} label="Show more projects" />}
        >
          {rows.map((project) => (
            <ProjectRow key={project.id} project={project} counts={counts.data?.get(project.id)} />
          ))}
        </PlainTable>
      </PagesState>
    </>
  );
}

function ProjectRow({
  project,
  counts,
}: {
  readonly project: Project;
  readonly counts: readonly number[] | undefined;
}) {
  const { id, name, run_count, error_rate, latency_p50, latency_p99, total_tokens, total_cost, last_run_start_time } =
    project;
  return (
    <tr>
      <td className="text-cell">
        <Link to="/projects/$projectId" params={{ projectId: id }} search={{ range: '7d' }}>
          <Value text={name} />
        </Link>
      </td>
      <td>
        {counts && (
          <Sparkline values={counts} label={`${formatQuantity(sum(counts), 'trace')} in ${sparklineDays} days`} />
        )}
      </td>
      <td className="number">{formatCount(run_count)}</td>
      <td className={error_rate ? 'number error-text' : 'number'}>{formatPercent(error_rate)}</td>
      <td className="number">{formatSeconds(latency_p50)}</td>
      <td className="number">{formatSeconds(latency_p99)}</td>
      <td className="number">{formatCompact(total_tokens)}</td>
      <td className="number">{formatCost(total_cost)}</td>
      <TimeCell at={last_run_start_time} />
    </tr>
  );
}

/** Reads the traces of each project by day. Only for one page of projects: the response has every project of the workspace. */
function useTracesByDay(isEnabled: boolean) {
  const { current } = useWorkspaces();
  const canRead = usePermission('organization:read');
  const usage = useQuery({
    queryKey: ['project-days'],
    queryFn: async ({ signal }) => {
      const today = Math.floor(Date.now() / dayMs) * dayMs;
      const start = today - (sparklineDays - 1) * dayMs;
      const { usage: rows } = await call('get', '/api/v1/orgs/current/billing/granular-usage', {
        query: {
          start_time: new Date(start).toISOString(),
          end_time: new Date(today + dayMs).toISOString(),
          workspace_ids: [current?.id ?? ''],
          group_by: 'project',
        },
        signal,
      });
      const byProject = new Map<string, number[]>();
      for (const { time_bucket, dimensions, traces } of rows) {
        const id = dimensions.project_id;
        if (!id) continue;
        const days = byProject.get(id) ?? new Array<number>(sparklineDays).fill(0);
        const day = Math.round((Date.parse(time_bucket) - start) / dayMs);
        if (day in days) days[day] = (days[day] ?? 0) + (traces ?? 0);
        byProject.set(id, days);
      }
      return byProject;
    },
    enabled: isEnabled && canRead && current !== undefined,
    staleTime: 60_000,
  });
  return usage;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Small bars, oldest first, with a text for screen readers. */
function Sparkline({ values, label }: { readonly values: readonly number[]; readonly label: string }) {
  const max = Math.max(1, ...values);
  const step = 6;
  const height = 18;
  return (
    <svg className="sparkline" width={values.length * step} height={height} role="img" aria-label={label}>
      <title>{label}</title>
      {values.map((value, index) => {
        const length = value === 0 ? 1 : Math.max(2, (value / max) * height);
        return (
          <rect
            key={index}
            x={index * step}
            y={height - length}
            width={step - 2}
            height={length}
            fill={value === 0 ? 'var(--line-strong)' : 'var(--accent)'}
          />
        );
      })}
    </svg>
  );
}
