import { randomUUID } from 'node:crypto';
import type { ClickHouse } from '../../../../infra/clickhouse/clickhouse.ts';
import { formatDottedOrderSegment } from '../../../../pipelines/ingest/run-event/dotted-order.ts';
import type { RunEvent, RunType } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { Random } from '../../../histories/random.ts';
import { insertEvents, noonMicros, runEvent } from '../run-events.ts';
import type { ModelRun } from './expected-runs.ts';
import type { Pools } from './random-filter.ts';

/** Texts that break careless quoting, escaping or matching, and ordinary texts. */
const texts = [
  'alpha',
  'Alpha beta',
  'image classification',
  '',
  ' ',
  "it's",
  'say "hi"',
  'back\\slash',
  'a\\',
  '\\"',
  'nul\u0000byte',
  'half \ud800 pair',
  '\udc00',
  '\u{1f600}',
  'Élan é',
  '100%',
  '100\\%',
  '_',
  'tab\tline\nend\r',
  '\u2028/\u0001',
  "'; DROP TABLE runs; --",
  "') OR 1=1 /*",
  '{tenant:UUID}',
  '{filter_0:String}',
  '$1 ? ?? @x #c',
  "x' UNION ALL SELECT * FROM system.users FORMAT Null",
  '[1,"two"]',
  '{"a":1}',
  'null',
  'true',
  '1',
  '2.5',
  'NULL',
  'and(eq(name, "x"))',
  '(?i).*[a-z]+',
];
const keys = [
  'a',
  'b',
  'user_id',
  'a.b',
  'messages.content',
  'messages',
  'thread_id',
  '',
  "k'",
  'k"\\',
  'k\u0000',
  '\ud800',
  'k%_',
];

export interface FilterTenant {
  readonly runs: readonly ModelRun[];
  readonly pools: Pools;
}

/** Tenant and projects under which runs are stored. */
interface TenantProjects {
  readonly tenantId: string;
  readonly projectIds: readonly string[];
}

/** Stores `count` random runs in traces of up to eight, with feedback; some are stored as post and patch, some deleted. */
export async function storeFilterTenant(
  clickhouse: ClickHouse,
  home: TenantProjects,
  seed: number,
  count: number,
): Promise<FilterTenant> {
  const random = new Random(seed);
  const events: RunEvent[] = [];
  const runs: ModelRun[] = [];
  while (runs.length < count) {
    const trace = drawTrace(random, home, random.between(1, 8));
    events.push(...trace.events);
    runs.push(...trace.runs);
  }
  for (const part of [events.slice(0, events.length / 2), events.slice(events.length / 2)])
    await insertEvents(clickhouse, part);
  await insertFeedback(clickhouse, home, runs);
  const times = runs.slice(0, 40).map((run) => new Date(Number(run.fields.start_time) / 1e3).toISOString());
  const ids = [
    ...runs.slice(0, 30).flatMap(({ id, traceId, parentId }) => [id, traceId, parentId ?? id]),
    ...home.projectIds,
  ];
  return { runs, pools: { texts, keys, times, ids: [...ids, randomUUID()] } };
}

interface Drawn {
  readonly event: RunEvent;
  readonly run: ModelRun;
}

function drawTrace(random: Random, home: TenantProjects, size: number): { events: RunEvent[]; runs: ModelRun[] } {
  const projectId = random.pick(home.projectIds);
  const drawn: Drawn[] = [];
  for (let at = 0; at < size; at++) {
    const parent = at === 0 ? undefined : random.pick(drawn);
    drawn.push(drawRun(random, { ...home, projectId }, drawn[0]?.event, parent?.event));
  }
  const isDeleted = random.chance(0.03);
  const events = drawn.flatMap(({ event }) => {
    const { values } = event;
    if (isDeleted) return [event, { ...event, kind: 'patch' as const, deletedAtMicros: noonMicros, values: {} }];
    if (random.chance(0.5)) return [event];
    const { outputs, endedAtMicros, error, ...posted } = values;
    const patched = { ...(outputs && { outputs }), ...(endedAtMicros && { endedAtMicros }), ...(error && { error }) };
    return random.shuffled([
      { ...event, values: posted },
      { ...event, kind: 'patch' as const, values: patched },
    ]);
  });
  const all = drawn.map(({ run }) => run);
  return {
    events,
    runs: isDeleted ? [] : all.map((run) => ({ ...run, fields: { ...run.fields, ...sumUsage(run, all) } })),
  };
}

const costFields = ['total_cost', 'prompt_cost', 'completion_cost'] as const;
const usageFields = ['total_tokens', 'prompt_tokens', 'completion_tokens', ...costFields] as const;

/** Returns the usage of a run: the sum over its lowest descendants that report usage, otherwise its own usage. */
function sumUsage(run: ModelRun, all: readonly ModelRun[]) {
  const leaves = (of: ModelRun, field: string): number[] => {
    const below = all.filter(({ parentId }) => parentId === of.id).flatMap((child) => leaves(child, field));
    const own = of.fields[field];
    return below.length > 0 || own === null ? below : [Number(own)];
  };
  return Object.fromEntries(
    usageFields.map((field) => {
      const stated = leaves(run, field);
      const sum = stated.reduce((total, value) => total + value, 0);
      const isCost = (costFields as readonly string[]).includes(field);
      return [field, stated.length === 0 && isCost ? null : sum];
    }),
  );
}

function drawRun(
  random: Random,
  { tenantId, projectId }: TenantProjects & { projectId: string },
  root?: RunEvent,
  parent?: RunEvent,
): Drawn {
  const runId = randomUUID();
  const runType = random.pick<RunType>(['chain', 'llm', 'tool']);
  const startTimeMicros =
    (parent?.startTimeMicros ?? noonMicros - random.int(86_400_000) * 1_000) + random.int(2_000) * 1_000;
  const latency = random.pick([undefined, 0, 250_000, 1_500_000, 5_000_000, 120_000_000, random.int(9_000_000)]);
  const name = random.pick(texts);
  const thread = random.chance(0.3) ? random.pick<unknown>([...texts, 2.5, null]) : undefined;
  const error = random.chance(0.3) ? random.pick(texts) : undefined;
  const tags = random.chance(0.5) ? Array.from({ length: random.int(4) }, () => random.pick(texts)) : undefined;
  const { thread_id: _, ...metadata } = { ...drawObject(random, 2) };
  if (thread !== undefined) metadata.thread_id = thread;
  const inputs = random.chance(0.9) ? encode(random, drawObject(random, 3)) : undefined;
  const outputs = random.chance(0.6) ? encode(random, drawObject(random, 3)) : undefined;
  const isStated = runType === 'llm' && random.chance(0.7);
  const [prompt, completion] = [random.int(6), random.int(6)];
  const [promptCost, completionCost] = [random.int(12) / 4, random.int(12) / 4];
  const firstToken = runType === 'llm' && random.chance(0.3) ? startTimeMicros + 1_000_000 : undefined;
  const endedAtMicros = latency === undefined ? undefined : startTimeMicros + latency;
  const encodedError = error === undefined ? undefined : encode(random, error);
  const encodedMetadata = encode(random, metadata);
  const values = {
    name,
    runType,
    startedAtMicros: startTimeMicros,
    ...(endedAtMicros !== undefined && { endedAtMicros }),
    ...(parent && { parentRunId: parent.runId }),
    ...(tags && { tags: Buffer.from(encode(random, tags)) }),
    ...(inputs && { inputs: Buffer.from(inputs) }),
    ...(outputs && { outputs: Buffer.from(outputs) }),
    ...(encodedError && { error: Buffer.from(encodedError) }),
    extra: Buffer.from(`{"runtime":{"a":"not metadata"}, "metadata": ${encodedMetadata}}`),
    ...(isStated && {
      promptTokens: prompt,
      completionTokens: completion,
      totalTokens: prompt + completion,
      promptCost: String(promptCost),
      completionCost: String(completionCost),
      totalCost: String(promptCost + completionCost),
    }),
    ...(firstToken !== undefined && { firstTokenTimeMicros: firstToken }),
  };
  const own = formatDottedOrderSegment(startTimeMicros, runId);
  const base = { tenantId, projectId, runId, startTimeMicros, values };
  const event = runEvent(
    root === undefined || parent === undefined
      ? base
      : {
          ...base,
          traceId: root.traceId,
          traceTimeMicros: root.startTimeMicros,
          dottedOrder: `${parent.dottedOrder}.${own}`,
        },
  );
  const usage = (value: number) => (isStated ? value : null);
  const run: ModelRun = {
    id: runId,
    traceId: event.traceId,
    parentId: parent?.runId ?? null,
    isRoot: parent === undefined,
    tags: (tags ?? []).map((tag) => tag.toWellFormed()),
    documents: {
      metadata: encodedMetadata,
      inputs: inputs ?? null,
      outputs: outputs ?? null,
      error: encodedError ?? null,
      name,
    },
    feedback: drawFeedback(random),
    fields: {
      id: runId,
      trace_id: event.traceId,
      parent_run_id: parent?.runId ?? null,
      reference_example_id: null,
      session_id: projectId,
      name: name.toWellFormed(),
      run_type: runType,
      status: error !== undefined ? 'error' : endedAtMicros === undefined ? 'pending' : 'success',
      start_time: startTimeMicros,
      end_time: endedAtMicros ?? null,
      first_token_time: firstToken ?? null,
      latency: latency ?? null,
      error: error?.toWellFormed() ?? null,
      thread_id: threadOf(metadata),
      total_tokens: usage(prompt + completion),
      prompt_tokens: usage(prompt),
      completion_tokens: usage(completion),
      prompt_cost: usage(promptCost),
      completion_cost: usage(completionCost),
      total_cost: usage(promptCost + completionCost),
    },
  };
  return { event, run };
}

function threadOf({ thread_id: thread }: Record<string, unknown>): string | null {
  return thread === undefined || thread === null ? null : String(thread).toWellFormed() || null;
}

function drawObject(random: Random, depth: number): Record<string, unknown> {
  return Object.fromEntries(Array.from({ length: random.int(4) }, () => [random.pick(keys), drawValue(random, depth)]));
}

function drawValue(random: Random, depth: number): unknown {
  if (depth > 0 && random.chance(0.3))
    return random.chance(0.5)
      ? drawObject(random, depth - 1)
      : Array.from({ length: random.int(3) }, () => drawValue(random, depth - 1));
  return random.pick<unknown>([...texts, ...texts, 0, 1, 2.5, -1, 100, true, false, null]);
}

/** Encodes a value as JSON with some unnecessary escapes and with spaces between some tokens. */
function encode(random: Random, value: unknown): string {
  const json = JSON.stringify(value, undefined, random.chance(0.1) ? 1 : undefined);
  if (!random.chance(0.2)) return json;
  return json.replace(/[a-zA-Z\u0080-\ud7ff\ue000-\uffff](?=[^"\\]*")/g, (character, at: number) =>
    json[at - 1] !== '\\' && isInString(json, at) && random.chance(0.2)
      ? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
      : character,
  );
}

function isInString(json: string, at: number): boolean {
  const before = json.slice(0, at).replace(/\\./g, '');
  const isEscape = /\\u[0-9a-f]{0,3}$/.test(json.slice(0, at));
  return !isEscape && (before.match(/"/g)?.length ?? 0) % 2 === 1;
}

function drawFeedback(random: Random): ModelRun['feedback'] {
  if (!random.chance(0.3)) return [];
  return Array.from({ length: random.between(1, 3) }, () => ({
    key: random.pick(keys).toWellFormed(),
    score: random.pick([null, 0, 1, 2.5, -1, 100]),
    value: random.pick<unknown>([null, ...texts, 1, true]),
    source: random.pick(['api', 'app', 'model']),
  }));
}

async function insertFeedback(
  clickhouse: ClickHouse,
  { tenantId }: TenantProjects,
  runs: readonly ModelRun[],
): Promise<void> {
  const time = '2026-03-05 12:00:00.000000';
  const rows = runs.flatMap((run) =>
    run.feedback.map((feedback) => ({
      version: 1,
      tenant_id: tenantId,
      run_id: run.id,
      id: randomUUID(),
      received_at: time,
      key: feedback.key,
      score: feedback.score === null ? null : feedback.score === 1 ? 'true' : String(feedback.score),
      value: feedback.value === null ? null : JSON.stringify(feedback.value),
      source_type: feedback.source,
      user_id: randomUUID(),
      created_at: time,
      modified_at: time,
    })),
  );
  await clickhouse.insertBody({
    name: 'test',
    table: 'feedback',
    columns: Object.keys(rows[0] ?? {}),
    format: 'JSONEachRow',
    body: Buffer.from(rows.map((row) => JSON.stringify(row)).join('\n')),
  });
}
