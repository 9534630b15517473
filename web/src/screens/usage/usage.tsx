import { useQuery } from '@tanstack/react-query';
import { getRouteApi, useNavigate } from '@tanstack/react-router';
import { useMemo } from 'react';
import { usePermission, useWorkspaces } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { formatCost, formatCount, formatPercent, formatUtc } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { listOptions, Select } from '../../components/select.tsx';
import { EmptyState, PartProblem, QueryState } from '../../components/states.tsx';
import { Value } from '../../components/text.tsx';
import { readUsage } from './report.ts';
import {
  type UsageGroup,
  type UsageRange,
  type UsageSearch,
  usageGroups,
  usageMetrics,
  usageRangeNotes,
  usageRanges,
} from './search.ts';
import { buildSeries, limitGroups, metricFormats, type UsageSeries } from './series.ts';
import { StackedChart } from './stacked-chart.tsx';
import { formatUsageCsv, saveFile } from './usage-csv.ts';
import './usage.css';

const route = getRouteApi('/shell/usage');
const defaultUsageRange: UsageRange = '31d';
const defaultUsageGroup: UsageGroup = 'project';
/** Maximum number of groups in the table. Browsers take very long to show thousands of rows; the CSV has all of them. */
const maxRows = 200;

export function Usage() {
  const { range = defaultUsageRange, group = defaultUsageGroup, show = 'traces' } = route.useSearch();
  const navigate = useNavigate({ from: '/usage' });
  const change = (changes: UsageSearch) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  const { workspaces } = useWorkspaces();
  const ids = workspaces.map(({ id }) => id);
  // Traces are counted already and arrive at once; tokens and costs are summed on request.
  const canReadRuns = usePermission('runs:read');
  const readReport = (kind: 'traces' | 'tokens', enabled: boolean) => ({
    queryKey: ['usage', kind, group, range, ids.join()],
    enabled: enabled && ids.length > 0,
    queryFn: ({ signal }: { readonly signal: AbortSignal }) => readUsage(kind, group, range, ids, signal),
  });
  const traces = useQuery(readReport('traces', true));
  const tokens = useQuery(readReport('tokens', canReadRuns));
  const report = tokens.data ?? traces.data;
  const series = useMemo(
    () => report && buildSeries(report, range, group, tokens.data ? show : 'traces'),
    [report, range, group, tokens.data, show],
  );
  const save = () => {
    if (!report) return;
    const { buckets } = report;
    const days = [buckets[0]?.startMs, buckets.at(-1)?.endMs].map((ms) => new Date(ms ?? 0).toISOString().slice(0, 10));
    const name = `usage-by-${group}-${days.join('-to-')}.csv`;
    saveFile(name, 'text/csv;charset=utf-8', formatUsageCsv(report, tokens.data !== undefined));
  };
  return (
    <>
      <header className="page-head">
        <Heading text="Usage" />
        <span className="muted">Traces by start, {usageRangeNotes[range]}</span>
        <span className="spacer" />
        <Choice label="Range" options={usageRanges} value={range} onChange={(next) => change({ range: next })} />
        <Choice label="Group by" options={usageGroups} value={group} onChange={(next) => change({ group: next })} />
        {canReadRuns && (
          <Choice label="Show" options={usageMetrics} value={show} onChange={(next) => change({ show: next })} />
        )}
        {series && <Button onClick={save}>CSV</Button>}
      </header>
      <QueryState query={{ data: series, error: traces.error, refetch: traces.refetch }}>
        {(series) =>
          series.sums.traces === 0 ? (
            <EmptyState title="No traces in this range">
              {range === '12m' ? 'Send a trace' : 'Choose a longer range, or send a trace'}; it counts within seconds.
            </EmptyState>
          ) : (
            <div className="page-body stack">
              <StackedChart series={series} />
              <PartProblem what="Tokens and costs" query={tokens} />
              <UsageTable
                series={series}
                label={usageGroups[group]}
                tokens={canReadRuns ? tokens.data !== undefined : undefined}
              />
            </div>
          )
        }
      </QueryState>
    </>
  );
}

function Choice<Name extends string>({
  label,
  options,
  value,
  onChange,
}: {
  readonly label: string;
  readonly options: Readonly<Record<Name, string>>;
  readonly value: Name;
  readonly onChange: (value: Name) => void;
}) {
  return (
    <label className="row">
      <span className="muted">{label}</span>
      <Select value={value} onChange={onChange} options={listOptions(options)} />
    </label>
  );
}

function UsageTable({
  series,
  label,
  tokens,
}: {
  readonly series: UsageSeries;
  readonly label: string;
  /** Whether tokens and costs are loaded; undefined without permission to read them. */
  readonly tokens: boolean | undefined;
}) {
  const { sums: total, buckets, metric } = series;
  const format = metricFormats[metric];
  // The newest bucket is first, beside the sums.
  const order = buckets.map((_, index) => index).reverse();
  const cells = ({ traces, tokens: sum, cost }: typeof total) => (
    <>
      <td className="number">{formatCount(traces)}</td>
      {tokens !== undefined && (
        <>
          <td className="number">{tokens ? formatCount(sum) : '…'}</td>
          <td className="number">{tokens ? formatCost(cost) : '…'}</td>
        </>
      )}
    </>
  );
  return (
    <section className="usage-table" aria-label="Usage by group" tabIndex={0}>
      <table className="plain-table">
        <thead>
          <tr>
            <th>{label}</th>
            <th className="number">Traces</th>
            {tokens !== undefined && (
              <>
                <th className="number">Tokens</th>
                <th className="number">Cost</th>
              </>
            )}
            <th className="number">Share of {usageMetrics[metric].toLowerCase()}</th>
            {order.map((index) => {
              const bucket = buckets[index] ?? 0;
              return (
                <th key={bucket} className="number" title={formatUtc(new Date(bucket))}>
                  {series.formatBucket(bucket)}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {limitGroups(series, maxRows).map(({ key, name, counts, sums, color }) => (
            <tr key={key}>
              <th scope="row" className="usage-name">
                <span className="swatch" style={{ background: color }} aria-hidden="true" />
                <Value text={name} />
              </th>
              {cells(sums)}
              <td className="number">{formatPercent(total[metric] === 0 ? 0 : sums[metric] / total[metric])}</td>
              {order.map((index) => (
                <td key={buckets[index]} className={counts[index] ? 'number' : 'number muted'}>
                  {counts[index] ? format(counts[index]) : '·'}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">Total</th>
            {cells(total)}
            <td className="number">100 %</td>
            {order.map((index) => (
              <td key={buckets[index]} className="number">
                {format(series.totals[index] ?? 0)}
              </td>
            ))}
          </tr>
        </tfoot>
      </table>
    </section>
  );
}
