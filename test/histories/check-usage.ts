import { expect } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import type { RunlakeProcess } from '../runlake-process.ts';
import { days } from './histories.ts';
import type { Model } from './model.ts';
import type { Projects } from './projects.ts';
import type { Tenants } from './server-of-histories.ts';
import { forEachConcurrently } from './side-by-side.ts';

const daySeconds = 86_400;
const groupings = ['workspace', 'project', 'user', 'api_key'] as const;
type Grouping = (typeof groupings)[number];
type Row = {
  readonly time_bucket: string;
  readonly dimensions: Record<string, string | null>;
  readonly traces: number;
};

/** Columns of a CSV row, with the names of each dimension. */
const csvColumns: Readonly<Record<string, string>> = {
  'Workspace ID': 'workspace_id',
  'Workspace Name': 'workspace_name',
  'Project ID': 'project_id',
  'Project Name': 'project_name',
  'User ID': 'user_id',
  'User Email': 'user_email',
  'API Key Short Key': 'api_key_short_key',
};

/**
 * Compares every figure with the model: all years, as a total and in steps of 30 days; the months with traces by day;
 * the days with traces by hour; each grouping; JSON and CSV.
 */
export async function checkUsage(
  runlake: RunlakeProcess,
  tenants: Tenants,
  model: Model,
  projects: Projects,
): Promise<number> {
  const facts = buildExpectedTraces(tenants, model, projects);
  const firstDay = Math.floor((days[0] as number) / 1e6) - 31 * daySeconds;
  const lastDay = Math.floor((days.at(-1) as number) / 1e6) + 62 * daySeconds;
  const listRangeStarts = (days: number) => {
    const starts = facts.map(({ seconds }) => seconds - ((seconds - firstDay) % (days * daySeconds)));
    return [...new Set(starts)];
  };
  const ranges: CheckedRange[] = [];
  const add = (days: number, strideSeconds: number, starts: Iterable<number>) => {
    for (const from of starts) {
      for (const groupBy of groupings)
        ranges.push({ groupBy, from, to: from + days * daySeconds, stride: strideSeconds });
    }
  };
  const years = Math.ceil((lastDay - firstDay) / (366 * daySeconds));
  add(years * 366, 365 * daySeconds, [firstDay]);
  add(
    366,
    30 * daySeconds,
    Array.from({ length: years }, (_, index) => firstDay + index * 366 * daySeconds),
  );
  add(31, daySeconds, listRangeStarts(31));
  add(1, 3_600, listRangeStarts(1));
  let figures = 0;
  await forEachConcurrently(ranges, async (range) => {
    const count = await checkRange(runlake, tenants, facts, range);
    figures += count;
  });
  return figures;
}

interface ExpectedTrace {
  readonly seconds: number;
  readonly dimensions: Readonly<Record<Grouping, Record<string, string>>>;
}

function buildExpectedTraces({ workspaces, senders }: Tenants, model: Model, projects: Projects): ExpectedTrace[] {
  return [...model.traces.values()].flatMap((trace) => {
    if (trace.project === undefined) return [];
    const project = projects.list[trace.project];
    const sender = senders[trace.sender];
    const workspace = workspaces[trace.workspace];
    const dimensions = {
      workspace: { workspace_id: workspace?.id ?? '', workspace_name: workspace?.name ?? '' },
      project: { project_id: project?.id ?? '', project_name: project?.name ?? '' },
      user: { user_id: sender?.userId ?? '', user_email: sender?.email ?? '' },
      api_key: { api_key_short_key: sender?.shortKey ?? '' },
    };
    return [{ seconds: Math.floor(trace.micros / 1e6), dimensions }];
  });
}

interface CheckedRange {
  readonly groupBy: Grouping;
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
  readonly stride: number;
}

const iso = (seconds: number) => `${new Date(seconds * 1_000).toISOString().slice(0, 19)}Z`;

async function checkRange(
  runlake: RunlakeProcess,
  tenants: Tenants,
  facts: readonly ExpectedTrace[],
  range: CheckedRange,
): Promise<number> {
  const { groupBy, from, to, stride } = range;
  const expected = new Map<string, number>();
  for (const { seconds, dimensions } of facts) {
    if (seconds < from || seconds >= to) continue;
    const figure = formatFigureKey(iso(from + Math.floor((seconds - from) / stride) * stride), dimensions[groupBy]);
    expected.set(figure, (expected.get(figure) ?? 0) + 1);
  }
  const ids = tenants.workspaces.map(({ id }) => id).join(',');
  const query = `?start_time=${iso(from)}&end_time=${iso(to - 1)}&workspace_ids=${ids}&group_by=${groupBy}`;
  const path = '/api/v1/orgs/current/billing/granular-usage';
  const { usage } = await askRunlake<{ usage: Row[] }>(runlake, `${path}${query}`);
  const json = new Map(usage.map((row) => [formatFigureKey(row.time_bucket, row.dimensions), row.traces]));
  expect(json, `${groupBy} from ${iso(from)}`).toEqual(expected);
  expect(usage, 'rows of the same bucket').toHaveLength(json.size);

  const answer = await fetch(`${runlake.url}${path}/export${query}`, { headers: { 'x-api-key': runlake.apiKey } });
  const [header = [], ...lines] = parseCsv(await answer.text());
  const csv = new Map(
    lines.map((cells) => {
      const dimensions = header.flatMap((name, at) =>
        csvColumns[name] && cells[at] ? [[csvColumns[name], cells[at]]] : [],
      );
      return [formatFigureKey(cells[0] ?? '', Object.fromEntries(dimensions)), Number(cells.at(-1))];
    }),
  );
  expect(csv, `${groupBy} from ${iso(from)}, CSV`).toEqual(expected);
  expect(lines, 'lines of the same bucket').toHaveLength(csv.size);
  return expected.size;
}

function formatFigureKey(bucket: string, dimensions: Readonly<Record<string, string | null>>): string {
  return `${bucket} ${JSON.stringify(Object.entries(dimensions).sort())}`;
}

/** Parses CSV according to RFC 4180. */
function parseCsv(text: string): string[][] {
  const rows: string[][] = [];
  for (const line of text.split('\r\n').filter((each) => each !== '')) {
    const cells = [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)];
    rows.push(cells.map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain ?? ''));
  }
  return rows;
}
