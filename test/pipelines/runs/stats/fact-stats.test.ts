/**
 * Statistics that are read from the facts of runs equal those that are read from the runs, after each step of a generated
 * history, for any hours that are dirty meanwhile. `read-stats.test.ts` compares the latter with an evaluator.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import type { ClickHouse } from '../../../../infra/clickhouse/clickhouse.ts';
import { formatDottedOrderSegment } from '../../../../pipelines/ingest/run-event/dotted-order.ts';
import type { RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { runFactRollUp } from '../../../../pipelines/runs/stats/count-facts.ts';
import { readDirtyHours } from '../../../../pipelines/runs/stats/fact-rows.ts';
import { buildGrouping, projectGrouping } from '../../../../pipelines/runs/stats/grouping.ts';
import { readRunStats, type StatsRequest } from '../../../../pipelines/runs/stats/read-stats.ts';
import { type RunStats, statNames } from '../../../../pipelines/runs/stats/stat-names.ts';
import { runRollUp } from '../../../../pipelines/usage/rollup.ts';
import { forSuite } from '../../../for-suite.ts';
import { Random } from '../../../histories/random.ts';
import { seed } from '../../../house/seed.ts';
import { openSink } from '../../ingest/sink/sink-under-test.ts';
import { deriveUuid, json, noonMicros, otherProjectId, projectId, runEvent, tenantId } from '../run-events.ts';

const generator = new Random(seed);
const random = (below: number) => generator.int(below);
const maybe = <T>(value: T) => (random(3) > 0 ? value : undefined);
const minuteMicros = 60_000_000;
const hours = 5;

interface Run {
  readonly event: RunEvent;
  readonly path: readonly Run[];
}

const under = forSuite(() => openSink());
/** Text of the statements that read statistics. */
const statements: string[] = [];
let clickhouse: ClickHouse;
const runs: Run[] = [];

function createValues(startTimeMicros: number): RunEvent['values'] {
  const values = {
    name: maybe(['agent', 'call', "o'tool"][random(3)] ?? ''),
    runType: maybe((['llm', 'chain', 'embedding'] as const)[random(3)]),
    promptTokens: maybe(random(100)),
    completionTokens: maybe(random(100)),
    totalTokens: maybe(random(200)),
    promptCost: maybe(`0.00${random(1_000)}`),
    totalCost: maybe(random(9) === 0 ? 'free' : `0.${random(1_000)}`),
    usageDetails: maybe(
      json({ prompt_token_details: { cache_read: random(50) }, total: 1, prompt_cost_details: { a: '0.5' } }),
    ),
    startedAtMicros: maybe(startTimeMicros + random(3) * 900_000 - 900_000),
    endedAtMicros: maybe(startTimeMicros + random(5_000_000)),
    firstTokenTimeMicros: maybe(startTimeMicros + random(500_000)),
    error: random(6) === 0 ? Buffer.from('"boom"') : undefined,
  };
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

/** Creates a run of a new or of an earlier trace. Runs of one in three traces start up to two hours after it. */
function createRun(index: number): RunEvent {
  const parent = runs.length > 0 && random(3) > 0 ? runs[random(runs.length)] : undefined;
  const path = parent === undefined ? [] : [...parent.path, parent];
  const root = path[0]?.event;
  const runId = deriveUuid('facts', seed, index);
  const traceTimeMicros = root?.startTimeMicros ?? noonMicros + random(hours * 60 * 4) * (minuteMicros / 4);
  const delayMicros =
    Number(`0x${(root?.runId ?? '0').slice(0, 8)}`) % 3 === 0 ? random(120) * minuteMicros : random(60) * 100_000;
  const startTimeMicros = root === undefined ? traceTimeMicros : traceTimeMicros + delayMicros;
  const segments = [...path.map(({ event }) => event), { startTimeMicros, runId }];
  const event = runEvent({
    projectId: root?.projectId ?? (random(3) === 0 ? otherProjectId : projectId),
    runId,
    traceId: root?.runId ?? runId,
    startTimeMicros,
    traceTimeMicros,
    dottedOrder: segments.map((each) => formatDottedOrderSegment(each.startTimeMicros, each.runId)).join('.'),
    values: { ...createValues(startTimeMicros), ...(parent && { parentRunId: parent.event.runId }) },
  });
  runs.push({ event, path });
  return event;
}

function createPatch(): RunEvent {
  const { event } = runs[random(runs.length)] as Run;
  return { ...event, kind: 'patch', values: createValues(event.startTimeMicros) };
}

beforeAll(async () => {
  const { query } = under.stores.clickhouse;
  clickhouse = {
    ...under.stores.clickhouse,
    query: (each) => {
      statements.push(each.sql);
      return query(each);
    },
  };
});

const scope = { tenantId, projectIds: [projectId, otherProjectId] };
const selected = new Set(statNames);
const cheap = new Set(['run_count', 'latency_p50', 'feedback_stats', 'run_facets', 'error_rate'] as const);

/** Sets that are read from facts. */
function buildSets(): StatsRequest[] {
  const startedFromMicros =
    noonMicros + random(hours) * 60 * minuteMicros + [0, 1, -1, 500_000, 7 * minuteMicros + 3][random(5)]!;
  return [
    { scope, filter: {}, selected },
    { scope, filter: { startedFromMicros }, selected },
    { scope, filter: { isRoot: true, startedFromMicros }, selected },
    { scope, filter: { isRoot: true }, selected, groupBy: projectGrouping },
    { scope, filter: { isRoot: true }, selected, groupBy: buildGrouping('name', '') },
    { scope, filter: { startedFromMicros }, selected, groupBy: projectGrouping, maxGroups: 1 },
    { scope, filter: { isRoot: false }, selected: cheap },
    { scope, filter: {}, selected: cheap, groupBy: buildGrouping('name', '') },
    { scope, filter: { startedFromMicros }, selected: cheap, groupBy: buildGrouping('run_type', ''), maxGroups: 2 },
  ];
}

/** Rounds what depends on the order in which ClickHouse adds numbers. */
function normalise(stats: Map<string, RunStats>) {
  return [...stats].map(([group, { latency_avg: average, ...rest }]) => ({
    ...{ group, ...rest, average: average?.toFixed(6) },
  }));
}

async function compare(requests: readonly StatsRequest[]): Promise<void> {
  for (const request of requests) {
    const [direct, fromFacts] = [
      await readRunStats(clickhouse, request),
      await readRunStats(clickhouse, request, under.stores.database),
    ];
    expect(normalise(fromFacts), JSON.stringify(request)).toEqual(normalise(direct));
  }
}

const rollUpUsage = () => runRollUp(under.stores);
const rollUpFacts = (maxHours = 1_000) => runFactRollUp(under.stores, { minAgeSeconds: 0, hours: maxHours });

describe(`statistics from facts (seed ${seed})`, { timeout: 300_000 }, () => {
  it('equal those from runs after each step of a history', async () => {
    for (let step = 0, index = 0; step < 6; step++) {
      const events = Array.from({ length: 30 }, () =>
        index > 5 && random(4) === 0 ? createPatch() : createRun(index++),
      );
      await under.publish(...events);
      if (step === 3) await rate(runs.filter((_run, at) => at % 3 === 0));
      if (random(4) > 0) await rollUpUsage();
      if (random(4) > 0) await rollUpFacts(1 + random(4));
      await compare(buildSets().filter((_set, at) => at % 3 === step % 3));
    }
    await rollUpUsage();
    await rollUpFacts();
    expect(await readDirtyHours(under.stores.database, tenantId)).toEqual([]);
    await compare(buildSets());
  });

  it('need no read of runs if no hour is dirty and the set has no edge in time', async () => {
    for (const request of buildSets().filter(({ filter }) => filter.startedFromMicros === undefined)) {
      statements.length = 0;
      const stats = await readRunStats(clickhouse, request, under.stores.database);
      expect(stats.size).toBeGreaterThan(0);
      expect(statements.filter((sql) => /FROM runs\b/.test(sql))).toEqual([]);
    }
  });

  /** Calls `around` instead of the next statement that lists runs; `around` may execute it. */
  const listAround = (around: (list: () => Promise<void>) => Promise<void>) => {
    const wrap = (server: ClickHouse): ClickHouse => ({
      ...server,
      servers: server.servers.map((each) => (each === server ? each : wrap(each))),
      command: (each) => (each.name === 'list-run-facts' ? around(() => server.command(each)) : server.command(each)),
    });
    return runFactRollUp({ ...under.stores, clickhouse: wrap(under.stores.clickhouse) }, { minAgeSeconds: 0 });
  };
  const publishMore = async () => {
    await under.publish(...Array.from({ length: 3 }, createPatch), createRun(runs.length + 1_000));
    await rollUpUsage();
  };

  it.each(['before', 'after'])('a roll-up run that dies %s it lists facts leaves their hours dirty', async (moment) => {
    await publishMore();
    const died = new Error('died');
    const dying = listAround(async (list) => {
      if (moment === 'after') await list();
      throw died;
    });
    await expect(dying).rejects.toBe(died);
    expect((await readDirtyHours(under.stores.database, tenantId))?.length).toBeGreaterThan(0);
    await compare(buildSets().slice(0, 3));
    expect(await rollUpFacts()).toMatchObject({ outcome: 'counted' });
    expect(await readDirtyHours(under.stores.database, tenantId)).toEqual([]);
    await compare(buildSets().slice(0, 3));
  });

  it.each(['before', 'after'])('hours that are marked while their facts are listed stay dirty (%s)', async (moment) => {
    await publishMore();
    const event = (runs.at(-1) as Run).event;
    const change = async () => {
      await under.publish({ ...event, kind: 'patch', values: { endedAtMicros: event.startTimeMicros + random(1e6) } });
      await rollUpUsage();
    };
    await listAround(async (list) => {
      if (moment === 'after') await list();
      await change();
      if (moment === 'before') await list();
    });
    expect((await readDirtyHours(under.stores.database, tenantId))?.length).toBe(
      new Set([event.startTimeMicros, event.traceTimeMicros].map((micros) => Math.floor(micros / (60 * minuteMicros))))
        .size,
    );
    await compare(buildSets().slice(0, 3));
    await rollUpFacts();
    await compare(buildSets().slice(0, 3));
  });

  it('lists an hour at most once in a while', async () => {
    await publishMore();
    expect(await runFactRollUp(under.stores)).toMatchObject({ outcome: 'idle' });
    await under.stores.database.execute(`UPDATE fact_dirty_hours SET marked_at = now() - interval '6 minutes'`);
    expect(await runFactRollUp(under.stores)).toMatchObject({ outcome: 'counted' });
    expect(await readDirtyHours(under.stores.database, tenantId)).toEqual([]);
  });

  it('are read from runs while the hours of stored runs are not marked yet', async () => {
    const { database } = under.stores;
    await database.execute(
      `INSERT INTO fact_dirty_hours (tenant_id, hour) VALUES ('00000000-0000-0000-0000-000000000000', 'epoch')`,
    );
    await clickhouse.command({ name: 'test', sql: 'TRUNCATE TABLE run_facts' });
    await compare(buildSets());
    await rollUpFacts(1);
    const left = await readDirtyHours(database, tenantId);
    expect(left?.length).toBeGreaterThan(1);
    await compare(buildSets());
    while ((await rollUpFacts()).more);
    expect(await readDirtyHours(database, tenantId)).toEqual([]);
    await compare(buildSets());
  });
});

async function rate(rated: readonly Run[]): Promise<void> {
  await clickhouse.command({
    name: 'test',
    sql: `INSERT INTO feedback (version, tenant_id, run_id, id, received_at, key, score, source_type, user_id, created_at, modified_at)
      SELECT 1, {tenant:UUID}, run, run, now(), 'good', '0.5', 'api', run, now(), now()
      FROM (SELECT arrayJoin({runs:Array(UUID)}) AS run)`,
    params: { tenant: tenantId, runs: rated.map(({ event }) => event.runId) },
  });
}
