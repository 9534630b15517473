import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { getRouteApi, useNavigate } from '@tanstack/react-router';
import { useMemo } from 'react';
import { call, fillPath } from '../../api/client.ts';
import { useWorkspaces } from '../../api/session.ts';
import { formatCount, formatUtc } from '../../components/format.ts';
import { EmptyState, Permitted, QueryState } from '../../components/states.tsx';
import { Value } from '../../components/text.tsx';
import { type UsageGroup, type UsageRange, usageGroups, usageRanges } from './search.ts';
import { buildSeries, type UsageSeries } from './series.ts';
import { StackedChart } from './stacked-chart.tsx';
import './usage.css';

const route = getRouteApi('/shell/usage');
const hourMs = 3_600_000;
/** Maximum of the API. */
const maxWorkspaces = 200;
const defaultUsageRange: UsageRange = '31d';
const defaultUsageGroup: UsageGroup = 'project';

export function Usage() {
  return (
    <Permitted permission="organization:read">
      <UsageReport />
    </Permitted>
  );
}

function UsageReport() {
  const { range = defaultUsageRange, group = defaultUsageGroup } = route.useSearch();
  const navigate = useNavigate({ from: '/usage' });
  const { workspaces } = useWorkspaces();
  const ids = workspaces.slice(0, maxWorkspaces).map(({ id }) => id);
  const query = useMemo(() => {
    const end = Math.ceil(Date.now() / hourMs) * hourMs;
    const start = end - usageRanges[range].hours * hourMs;
    return { start_time: new Date(start).toISOString(), end_time: new Date(end).toISOString(), group_by: group };
  }, [range, group]);
  const usage = useQuery({
    queryKey: ['usage', query, ids.join()],
    enabled: ids.length > 0,
    queryFn: async ({ signal }) => {
      const full = { ...query, workspace_ids: ids };
      const report = await call('get', '/api/v1/orgs/current/billing/granular-usage', { query: full, signal });
      const csv = fillPath('/api/v1/orgs/current/billing/granular-usage/export', {}, full);
      return { series: buildSeries(report, group), csv };
    },
    placeholderData: keepPreviousData,
  });
  return (
    <>
      <header className="page-head">
        <h1>Usage</h1>
        <span className="muted">Traces, counted once, in the hour of their start</span>
        <span className="spacer" />
        <label className="row">
          <span className="muted">Range</span>
          <select
            className="input"
            value={range}
            onChange={({ target }) =>
              void navigate({ search: (before) => ({ ...before, range: target.value as UsageRange }), replace: true })
            }
          >
            {Object.entries(usageRanges).map(([name, { label }]) => (
              <option key={name} value={name}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label className="row">
          <span className="muted">Group by</span>
          <select
            className="input"
            value={group}
            onChange={({ target }) =>
              void navigate({ search: (before) => ({ ...before, group: target.value as UsageGroup }), replace: true })
            }
          >
            {Object.entries(usageGroups).map(([name, label]) => (
              <option key={name} value={name}>
                {label}
              </option>
            ))}
          </select>
        </label>
        {usage.data && (
          <a className="button" href={usage.data.csv} download>
            CSV
          </a>
        )}
      </header>
      <QueryState query={usage}>
        {({ series }) =>
          series.total === 0 ? (
            <EmptyState title="No traces in this range">Choose a longer range, or send a trace.</EmptyState>
          ) : (
            <div className="page-body stack">
              <StackedChart series={series} />
              <UsageTable series={series} label={usageGroups[group]} />
            </div>
          )
        }
      </QueryState>
    </>
  );
}

function UsageTable({ series, label }: { readonly series: UsageSeries; readonly label: string }) {
  const { groups, total, buckets } = series;
  return (
    <section className="usage-table" aria-label="Usage by group" tabIndex={0}>
      <table className="plain-table">
        <thead>
          <tr>
            <th>{label}</th>
            <th className="number">Traces</th>
            <th className="number">Share</th>
            {buckets.map((bucket) => (
              <th key={bucket} className="number" title={formatUtc(new Date(bucket))}>
                {series.labelOf(bucket)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {groups.map(({ key, name, counts, sum, color }) => (
            <tr key={key}>
              <th scope="row" className="usage-name">
                <span className="swatch" style={{ background: color }} aria-hidden="true" />
                <Value text={name} />
              </th>
              <td className="number">{formatCount(sum)}</td>
              <td className="number">{((sum / total) * 100).toFixed(1)} %</td>
              {counts.map((count, index) => (
                <td key={buckets[index]} className={count === 0 ? 'number muted' : 'number'}>
                  {count === 0 ? '·' : formatCount(count)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">Total</th>
            <td className="number">{formatCount(total)}</td>
            <td className="number">100 %</td>
            {series.totals.map((count, index) => (
              <td key={buckets[index]} className="number">
                {formatCount(count)}
              </td>
            ))}
          </tr>
        </tfoot>
      </table>
    </section>
  );
}
