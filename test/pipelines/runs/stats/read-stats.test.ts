import { beforeAll, describe, expect, it } from 'vitest';
import { formatDottedOrderSegment } from '../../../../pipelines/ingest/run-event/dotted-order.ts';
import type { RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { parseRunFilters } from '../../../../pipelines/runs/filter/run-filter.ts';
import { buildGrouping, projectGrouping } from '../../../../pipelines/runs/stats/grouping.ts';
import { readRunStats, wholeSetGroup } from '../../../../pipelines/runs/stats/read-stats.ts';
import { statNames } from '../../../../pipelines/runs/stats/stat-names.ts';
import { forSuite } from '../../../for-suite.ts';
import { Random } from '../../../histories/random.ts';
import { seed } from '../../../house/seed.ts';
import { openReading } from '../reading.ts';
import {
  deriveUuid,
  insertEvents,
  json,
  noonMicros,
  otherProjectId,
  projectId,
  runEvent,
  tenantId,
} from '../run-events.ts';

/**
 * Seed of random traces, whose statistics are compared with those of an evaluator in memory that shares no code with
 * the product.
 */
const generator = new Random(seed);
const random = (below: number) => generator.int(below);

interface Run {
  readonly event: RunEvent;
  readonly path: readonly Run[];
}

const reading = forSuite(() => openReading());
const runs: Run[] = [];

function addTrace(index: number): void {
  const project = index % 3 === 0 ? otherProjectId : projectId;
  const size = 1 + random(8);
  const members: Run[] = [];
  for (let at = 0; at < size; at++) {
    const parent = at === 0 ? undefined : members[random(members.length)];
    const path = parent === undefined ? [] : [...parent.path, parent];
    const runId = deriveUuid('stats', seed, index, at);
    const startTimeMicros = noonMicros + index * 1_000_000 + at * 1_000;
    const segments = [...path.map(({ event }) => event), { startTimeMicros, runId }];
    const isCall = random(2) === 0;
    const stated = <T>(value: T) => (random(3) > 0 ? value : undefined);
    const tags = ['red', 'blue', 'red/"\\'].filter(() => random(2) === 0);
    const values = {
      name: ['agent', 'call', "o'tool"][random(3)] ?? '',
      runType: isCall ? ('llm' as const) : ('chain' as const),
      parentRunId: parent?.event.runId,
      tags: json(tags),
      extra: json({ metadata: random(3) === 0 ? {} : { model: { name: `m${random(3)}` }, n: random(2) } }),
      promptTokens: stated(random(100)),
      completionTokens: stated(random(100)),
      totalTokens: stated(random(200)),
      totalCost: stated(`0.${random(1_000)}`),
      usageDetails: stated(json({ prompt_token_details: { cache_read: random(50) } })),
      endedAtMicros: stated(startTimeMicros + random(5_000_000)),
      firstTokenTimeMicros: stated(startTimeMicros + random(500_000)),
      error: random(4) === 0 ? Buffer.from('"boom"') : undefined,
    };
    const event = runEvent({
      projectId: project,
      runId,
      traceId: members[0]?.event.runId ?? runId,
      startTimeMicros,
      traceTimeMicros: noonMicros + index * 1_000_000,
      dottedOrder: segments.map((each) => formatDottedOrderSegment(each.startTimeMicros, each.runId)).join('.'),
      values: Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)),
    });
    const run = { event, path };
    members.push(run);
    runs.push(run);
  }
}

beforeAll(async () => {
  for (let index = 0; index < 150; index++) addTrace(index);
  await insertEvents(
    reading.deps.clickhouse,
    runs.map(({ event }) => event),
  );
  const foreign = runEvent({
    tenantId: deriveUuid('foreign tenant'),
    values: { name: 'agent', runType: 'llm', totalTokens: 1e6 },
  });
  await insertEvents(reading.deps.clickhouse, [foreign]);
  const rated = runs.filter((_run, index) => index % 5 === 0);
  await reading.deps.clickhouse.command({
    name: 'test',
    sql: `INSERT INTO feedback (version, tenant_id, run_id, id, received_at, key, score, source_type, user_id, created_at, modified_at)
      SELECT 1, {tenant:UUID}, run, run, now(), 'good', '0.5', 'api', run, now(), now()
      FROM (SELECT arrayJoin({runs:Array(UUID)}) AS run)`,
    params: { tenant: tenantId, runs: rated.map(({ event }) => event.runId) },
  });
});

type Figure = 'promptTokens' | 'completionTokens' | 'totalTokens' | 'totalCost';
const isCall = ({ event }: Run) => event.values.runType === 'llm';
const figureOf = (run: Run, figure: Figure) => (isCall(run) ? event(run)[figure] : undefined);
const event = (run: Run) => run.event.values as Record<string, string | number | undefined>;

function percentile(values: readonly number[], fraction: number): number | null {
  const sorted = [...values].sort((a, b) => a - b);
  const position = (sorted.length - 1) * fraction;
  const [low, high] = [sorted[Math.floor(position)], sorted[Math.ceil(position)]];
  return low === undefined || high === undefined ? null : low + (high - low) * (position - Math.floor(position));
}

/** Returns the figure of the topmost matching runs above the calls that count. */
function sumByTop(matching: ReadonlySet<Run>, figure: Figure): number[] {
  const sums = new Map<Run, number>();
  for (const call of runs) {
    const value = figureOf(call, figure);
    if (value === undefined) continue;
    const isOuter = runs.some((other) => other.path.includes(call) && figureOf(other, figure) !== undefined);
    const top = [...call.path, call].find((each) => matching.has(each));
    if (!isOuter && top) sums.set(top, (sums.get(top) ?? 0) + Number(value));
  }
  return [...sums.values()];
}

const close = (value: number | null) => (value === null ? null : expect.closeTo(value, 6));
const rounded = (value: number | null) => (value === null ? null : Math.round(value));

function evaluate(set: readonly Run[]) {
  const matching = new Set(set);
  const sums = (figure: Figure) => sumByTop(matching, figure);
  const total = (figure: Figure) => sums(figure).reduce((sum, value) => sum + value, 0);
  const latencies = set.flatMap(({ event: { startTimeMicros, values } }) =>
    values.endedAtMicros === undefined ? [] : [(values.endedAtMicros - startTimeMicros) / 1e6],
  );
  const costs = sums('totalCost');
  return {
    run_count: set.length,
    latency_p50: close(percentile(latencies, 0.5)),
    latency_p99: close(percentile(latencies, 0.99)),
    error_rate: close(set.filter(({ event: { values } }) => values.error !== undefined).length / set.length),
    total_tokens: total('totalTokens'),
    prompt_tokens: total('promptTokens'),
    completion_tokens: total('completionTokens'),
    median_tokens: rounded(percentile(sums('totalTokens'), 0.5)),
    tokens_p99: rounded(percentile(sums('totalTokens'), 0.99)),
    prompt_tokens_p50: rounded(percentile(sums('promptTokens'), 0.5)),
    total_cost: close(costs.length === 0 ? null : total('totalCost')),
    cost_p50: close(percentile(costs, 0.5)),
    feedback_stats: set.some((run) => runs.indexOf(run) % 5 === 0)
      ? { good: expect.objectContaining({ n: set.filter((run) => runs.indexOf(run) % 5 === 0).length, avg: 0.5 }) }
      : {},
  };
}

const scope = { tenantId, projectIds: [projectId, otherProjectId] };
const selected = new Set(statNames);
const values = ({ event: { values } }: Run) => values;
const isRoot = ({ path }: Run) => path.length === 0;
const tagsOf = (run: Run) => JSON.parse(String(values(run).tags)) as string[];
const metadataOf = (run: Run) =>
  (JSON.parse(String(values(run).extra)) as { metadata: { model?: { name: string }; n?: number } }).metadata;

const sets: readonly [string, object, (run: Run) => boolean][] = [
  ['all runs', {}, () => true],
  ['roots', { isRoot: true }, isRoot],
  ['children', { isRoot: false }, (run) => !isRoot(run)],
  ['model calls', { runType: 'llm' }, isCall],
  ['failed runs', { hasError: true }, (run) => values(run).error !== undefined],
  ['a name', { conditions: parseRunFilters({ filter: `eq(name, "o'tool")` }) }, (run) => values(run).name === "o'tool"],
  [
    'roots with a condition',
    { isRoot: true, conditions: parseRunFilters({ filter: 'has(tags, "red")' }) },
    (run) => isRoot(run) && tagsOf(run).includes('red'),
  ],
  [
    'a tree filter',
    { conditions: parseRunFilters({ tree_filter: 'and(eq(run_type, "llm"), neq(error, null))' }) },
    (run) => runs.some((other) => isCall(other) && values(other).error && other.event.traceId === run.event.traceId),
  ],
  [
    'a time range that divides traces',
    { startedFromMicros: noonMicros + 40_002_000, startedBeforeMicros: noonMicros + 90_003_000 },
    ({ event: { startTimeMicros: start } }) => start >= noonMicros + 40_002_000 && start < noonMicros + 90_003_000,
  ],
  [
    'roots after a time',
    { isRoot: true, startedFromMicros: noonMicros + 70_001_000 },
    (run) => isRoot(run) && run.event.startTimeMicros >= noonMicros + 70_001_000,
  ],
];

describe(`statistics (seed ${seed})`, () => {
  it.each(sets)('of %s', async (_name, filter, matches) => {
    const stats = await readRunStats(reading.deps.clickhouse, { scope, filter, selected });
    expect(stats.get(wholeSetGroup)).toMatchObject(evaluate(runs.filter(matches)));
  });

  const groupings: readonly [string, Parameters<typeof buildGrouping>, (run: Run) => readonly string[]][] = [
    ['name', ['name', ''], (run) => [String(values(run).name)]],
    ['run type', ['run_type', ''], (run) => [String(values(run).runType)]],
    ['tag', ['tag', ''], tagsOf],
    ['nested metadata', ['metadata', 'model.name'], (run) => [metadataOf(run).model?.name ?? []].flat()],
    ['numeric metadata', ['metadata', 'n'], (run) => [metadataOf(run).n ?? []].flat().map(String)],
  ];
  it.each(groupings)('by %s', async (_name, grouping, listGroups) => {
    const groupBy = buildGrouping(...grouping);
    const names = [...new Set(runs.flatMap(listGroups))];
    for (const [filter, matches] of [
      [{}, () => true],
      [{ isRoot: true }, isRoot],
    ] as const) {
      const expected = names.map(
        (name) => [name, runs.filter((run) => matches(run) && listGroups(run).includes(name))] as const,
      );
      const stats = await readRunStats(reading.deps.clickhouse, { scope, filter, selected, groupBy });
      expect([...stats.keys()].sort()).toEqual(
        expected
          .filter(([, set]) => set.length > 0)
          .map(([name]) => name)
          .sort(),
      );
      for (const [name, set] of expected)
        if (set.length > 0) expect(stats.get(name), name).toMatchObject(evaluate(set));
      const [largest] = [...expected].sort(([x, a], [y, b]) => b.length - a.length || (x < y ? -1 : 1));
      const one = await readRunStats(reading.deps.clickhouse, { scope, filter, selected, groupBy, maxGroups: 1 });
      expect([...one.values()]).toMatchObject([evaluate(largest?.[1] ?? [])]);
      const [omitted, ...groups] = names;
      const given = await readRunStats(reading.deps.clickhouse, { scope, filter, selected, groupBy, groups });
      expect(given).toEqual(new Map([...stats].filter(([name]) => name !== omitted)));
    }
  });

  it('of runs after a time, in which a trace that began before counts as one for percentiles', async () => {
    const startedFromMicros = noonMicros + 70_003_000;
    const stats = await readRunStats(reading.deps.clickhouse, { scope, filter: { startedFromMicros }, selected });
    const expected = evaluate(runs.filter((run) => run.event.startTimeMicros >= startedFromMicros));
    const { median_tokens: _m, tokens_p99: _t, prompt_tokens_p50: _p, cost_p50: _c, ...exact } = expected;
    expect(stats.get(wholeSetGroup)).toMatchObject(exact);
  });

  it('by project', async () => {
    const filter = { isRoot: true };
    const stats = await readRunStats(reading.deps.clickhouse, { scope, filter, selected, groupBy: projectGrouping });
    for (const id of scope.projectIds)
      expect(stats.get(id)).toMatchObject(evaluate(runs.filter((run) => isRoot(run) && run.event.projectId === id)));
  });

  it('of roots, to which model calls of traces without a root do not count', async () => {
    const projectIds = [deriveUuid('orphans')];
    const traceId = deriveUuid('no root', seed);
    const call = { name: 'call', runType: 'llm' as const, totalTokens: 7 };
    const at = { projectId: deriveUuid('orphans'), traceTimeMicros: noonMicros };
    const startTimeMicros = noonMicros + 1;
    await insertEvents(reading.deps.clickhouse, [
      runEvent({ ...at, values: call }),
      runEvent({ ...at, traceId, startTimeMicros, values: { ...call, parentRunId: traceId } }),
    ]);
    const read = async (filter: object) =>
      [
        ...(
          await readRunStats(reading.deps.clickhouse, {
            scope: { tenantId, projectIds },
            filter,
            selected,
            groupBy: projectGrouping,
          })
        ).values(),
      ][0];
    for (const startedFromMicros of [undefined, noonMicros])
      expect(await read({ isRoot: true, startedFromMicros })).toMatchObject({ run_count: 1, total_tokens: 7 });
    expect(await read({})).toMatchObject({ run_count: 2, total_tokens: 14 });
  });

  it('are tested with groups of more runs than the first query lists', async () => {
    const groupBy = buildGrouping('run_type', '');
    const sizes = [...(await readRunStats(reading.deps.clickhouse, { scope, filter: {}, selected, groupBy })).values()];
    expect(Math.max(...sizes.map(({ run_count: count }) => Number(count)))).toBeGreaterThan(200);
  });

  it('of some runs, of which only the model calls have details', async () => {
    const calls = runs.filter((run) => isCall(run) && values(run).usageDetails !== undefined).slice(0, 3);
    const among = calls.map(({ event: { projectId, startTimeMicros, traceId, runId } }) => ({
      projectId,
      startTimeMicros,
      traceId,
      runId,
    }));
    const stats = await readRunStats(reading.deps.clickhouse, { scope, filter: {}, among, selected });
    expect(stats.get(wholeSetGroup)).toMatchObject(evaluate(calls));
    const isCovered = (call: Run) =>
      runs.some((other) => other.path.includes(call) && isCall(other) && values(other).usageDetails !== undefined);
    const coveringCalls = runs.filter(
      (run) =>
        isCall(run) &&
        !isCovered(run) &&
        values(run).usageDetails &&
        [run, ...run.path].some((each) => calls.includes(each)),
    );
    const read = (run: Run) => JSON.parse(String(values(run).usageDetails)).prompt_token_details.cache_read as number;
    expect(stats.get(wholeSetGroup)?.prompt_token_details).toEqual({
      cache_read: coveringCalls.reduce((sum, run) => sum + read(run), 0),
    });
  });

  it('of nothing are absent', async () => {
    for (const more of [
      { filter: { runType: 'tool' as const } },
      { filter: {}, among: [] },
      { filter: {}, scope: { tenantId, projectIds: [] } },
    ])
      expect((await readRunStats(reading.deps.clickhouse, { scope, selected, ...more })).size).toBe(0);
  });
});
