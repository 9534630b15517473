import { useEffect, useRef } from 'react';
import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { formatCompact } from '../../components/format.ts';
import { usageMetrics } from './search.ts';
import { limitGroups, metricFormats, type UsageSeries } from './series.ts';

const maxGroups = 8;
const height = 240;

/**
 * Bars of a metric by bucket, stacked by group. The groups after the eighth are combined. The table below has the
 * numbers.
 */
export function StackedChart({ series }: { readonly series: UsageSeries }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const draw = () => createChart(element, series);
    let chart = draw();
    const resize = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height }));
    resize.observe(element);
    const redraw = () => {
      chart.destroy();
      chart = draw();
    };
    const theme = new MutationObserver(redraw);
    theme.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
    const scheme = window.matchMedia('(prefers-color-scheme: dark)');
    scheme.addEventListener('change', redraw);
    return () => {
      scheme.removeEventListener('change', redraw);
      theme.disconnect();
      resize.disconnect();
      chart.destroy();
    };
  }, [series]);
  const { buckets, sums, metric } = series;
  return (
    <div
      className="stacked-chart"
      ref={box}
      role="img"
      aria-label={`Chart of ${usageMetrics[metric].toLowerCase()}, ${metricFormats[metric](sums[metric])} in ${buckets.length} buckets; the table below has the numbers`}
    />
  );
}

function createChart(element: HTMLElement, series: UsageSeries): UPlot {
  const { formatBucket, buckets, metric } = series;
  const isCost = metric === 'cost';
  const format = metricFormats[metric];
  const groups = limitGroups(series, maxGroups);
  // The upper edge of each group; drawn from the top group down, so that a lower one covers what is below its edge.
  const edges: number[][] = [];
  for (const { counts } of groups) edges.push(counts.map((count, index) => count + (edges.at(-1)?.[index] ?? 0)));
  const positions = buckets.map((_, index) => index);
  const line = readColor(element, '--line');
  const text = readColor(element, '--muted');
  const axis: UPlot.Axis = {
    stroke: text,
    grid: { stroke: line, width: 1 },
    ticks: { show: false },
    font: '11px system-ui',
  };
  const bars = UPlot.paths.bars?.({ size: [0.7, 60], gap: 1 });
  const options: UPlot.Options = {
    width: element.clientWidth,
    height,
    padding: [10, 8, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    legend: { show: true, live: true },
    scales: {
      x: { time: false, range: [-0.6, buckets.length - 0.4] },
      y: { range: (_, _min, max) => [0, Math.max(isCost ? 0.000_001 : 1, max * 1.05)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        values: (_, ticks) => ticks.map((tick) => labelAt(tick)),
        space: 60,
        incrs: [1, 2, 5, 10, 20, 50],
      },
      {
        ...axis,
        size: 54,
        values: (_, ticks) =>
          ticks.map((tick) => (isCost ? format(tick) : Number.isInteger(tick) ? formatCompact(tick) : '')),
      },
    ],
    series: [
      { label: 'Start', value: (_, value: number | null) => labelAt(value) },
      ...groups
        .map(
          (group): UPlot.Series => ({
            label: group.name.slice(0, 40),
            fill: group.color,
            stroke: group.color,
            width: 0,
            ...(bars ? { paths: bars } : {}),
            points: { show: false },
            value: (_, _edge, _series, index) => (index === null ? '' : format(group.counts[index] ?? 0)),
          }),
        )
        .reverse(),
    ],
  };
  function labelAt(position: number | null): string {
    const bucket = position === null ? undefined : buckets[position];
    return bucket === undefined ? '' : formatBucket(bucket);
  }
  const chart = new UPlot(options, [positions, ...edges.reverse()], element);
  // The legend has the groups in the order in which they are drawn, the last group first.
  const [, ...groupRows] = chart.root.querySelectorAll<HTMLElement>('.u-legend .u-series');
  for (const [index, row] of groupRows.entries()) row.style.order = String(groupRows.length - index);
  return chart;
}

/** Returns the value of a colour token for the theme that applies; a canvas does not resolve tokens. */
function readColor(element: HTMLElement, token: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${token})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
