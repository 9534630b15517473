import { beforeAll, describe, expect, it } from 'vitest';
import type { RunEvent, RunValues } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { parseRunFilters, type RunFilterParameters } from '../../../../pipelines/runs/filter/run-filter.ts';
import { forSuite } from '../../../for-suite.ts';
import { foreignProjectId, foreignTenantId, openReading } from '../reading.ts';
import { deriveUuid, insertEvents, json, noonMicros, runEvent, tenantId } from '../run-events.ts';

const reading = forSuite(() => openReading());
/** Ids of runs by name. A run of another workspace has the same name as each of them. */
const ids = new Map<string, string>();
beforeAll(async () => {
  await storeRuns();
});

const second = 1_000_000;
const metadata = (value: object) => json({ metadata: value });

/** Runs to store; a run without a parent is a root. Each run starts one second after the previous one. */
const stored: [name: string, values: RunValues, parent?: string][] = [
  ['extractor', { runType: 'chain', endedAtMicros: noonMicros + second, tags: json(['production', 'beta']) }],
  ['ExpandQuery', { runType: 'llm', totalTokens: 4_000, endedAtMicros: noonMicros + 2 * second }, 'extractor'],
  [
    'ChatOpenAI',
    { runType: 'llm', totalTokens: 2_000, inputs: json({ messages: [{ content: 'about messages.content' }] }) },
    'extractor',
  ],
  ['slow', { runType: 'chain', endedAtMicros: noonMicros + 30 * second, tags: json(['experimental']) }],
  [
    'failed',
    { runType: 'tool', error: Buffer.from('"Image Classification failed"'), endedAtMicros: noonMicros + 5 * second },
  ],
  ['user 1', { runType: 'chain', extra: metadata({ user_id: 'u1', conversation_id: 'x', test_run: 't1' }) }],
  [
    'user 2',
    { runType: 'chain', extra: metadata({ user_id: 'u2', conversation_id: 'y', tenant_id: 'z', n: { deep: 5 } }) },
  ],
  ['thread', { runType: 'chain', extra: metadata({ thread_id: 't1', foo: 'bar' }) }],
  [
    'escaped',
    { runType: 'chain', inputs: Buffer.from(String.raw`{"t":"line\nxylo\u0070hone and\/or \"quoted\" caf\u00e9 Öl"}`) },
  ],
  ['guild 88', { runType: 'chain', extra: Buffer.from('{"metadata":{"guild":1234567890123456788}}') }],
  ['guild 89', { runType: 'chain', extra: Buffer.from('{"metadata":{"guild":1234567890123456789}}') }],
];

async function storeRuns(): Promise<void> {
  const events = new Map<string, RunEvent>();
  const foreign: RunEvent[] = [];
  for (const [at, [name, values, parentName]] of stored.entries()) {
    const parent = parentName === undefined ? undefined : events.get(parentName);
    const runId = deriveUuid('filter', name);
    ids.set(name, runId);
    const startTimeMicros = noonMicros + at * second;
    const inTrace = parent && { traceId: parent.runId, traceTimeMicros: parent.startTimeMicros };
    const event = runEvent({
      runId,
      startTimeMicros,
      ...inTrace,
      values: { name, startedAtMicros: startTimeMicros, ...values, ...(parent && { parentRunId: parent.runId }) },
    });
    events.set(name, event);
    foreign.push({
      ...event,
      tenantId: foreignTenantId,
      projectId: foreignProjectId,
      runId: deriveUuid('foreign', name),
    });
  }
  await insertEvents(reading.stores.clickhouse, [...events.values(), ...foreign]);
  const feedback = (name: string, key: string, score: string | null, value?: string) => ({ name, key, score, value });
  await insertFeedback([
    feedback('extractor', 'user_score', '1'),
    feedback('slow', 'user_score', '0.0'),
    feedback('slow', 'star_rating', '5'),
    feedback('failed', 'Correctness', 'false'),
    feedback('failed', 'prompt_intent', null, '"question"'),
  ]);
}

async function insertFeedback(
  list: readonly { name: string; key: string; score: string | null; value?: string | undefined }[],
) {
  const at = '2026-03-05 12:00:00.000000';
  const rows = list.map(({ name, key, score, value }) => ({
    version: 1,
    tenant_id: tenantId,
    run_id: ids.get(name),
    id: deriveUuid(name, key),
    received_at: at,
    key,
    score,
    value: value ?? null,
    source_type: 'api',
    user_id: deriveUuid('user'),
    created_at: at,
    modified_at: at,
  }));
  await reading.stores.clickhouse.insertBody({
    name: 'test',
    table: 'feedback',
    columns: Object.keys(rows[0] ?? {}),
    format: 'JSONEachRow',
    body: Buffer.from(rows.map((row) => JSON.stringify(row)).join('\n')),
  });
}

async function names(filters: RunFilterParameters): Promise<unknown[]> {
  const { runs } = await reading.page({ order: 'asc', filter: { conditions: parseRunFilters(filters) } });
  return runs.map((run) => run.name);
}

const all = stored.map(([name]) => name);
const namesExcept = (...out: string[]) => all.filter((name) => !out.includes(name));
const inFirstTrace = ['extractor', 'ExpandQuery', 'ChatOpenAI'];
const threads = '["session_id","conversation_id","thread_id"]';

describe('filter: every expression of the reference', () => {
  it.each<[string, string[]]>([
    ['eq(name, "extractor")', ['extractor']],
    [`eq(name, 'slow')`, ['slow']],
    ['eq(run_type, "llm")', ['ExpandQuery', 'ChatOpenAI']],
    [`eq(id, "${deriveUuid('filter', 'slow')}")`, ['slow']],
    ['eq(status, "error")', ['failed']],
    ['neq(status, "error")', namesExcept('failed')],
    ['eq(is_root, true)', namesExcept('ExpandQuery', 'ChatOpenAI')],
    ['and(eq(is_root, true), and(eq(feedback_key, "user_score"), eq(feedback_score, 1)))', ['extractor']],
    ['and(eq(is_root, true), eq(feedback_key, "prompt_intent"))', ['failed']],
    ['gt(latency, "5s")', ['slow']],
    ['gt(latency, 10)', ['slow']],
    ['gt(latency, 5)', ['slow']],
    ['gt(total_tokens, 5000)', ['extractor']],
    ['neq(error, null)', ['failed']],
    ['eq(error, null)', namesExcept('failed')],
    ['gt(start_time, "2026-03-05T12:00:06Z")', ['thread', 'escaped', 'guild 88', 'guild 89']],
    ['and(gt(start_time, "2026-03-05T12:00:02"), lt(start_time, "2026-03-05T12:00:05Z"))', ['slow', 'failed']],
    ['search("image classification")', ['failed']],
    ['search("MESSAGES.CONTENT")', ['ChatOpenAI']],
    ['has(tags, "production")', ['extractor']],
    ['and(or(has(tags, "experimental"), has(tags, "beta")), gt(latency, 2))', ['slow']],
    ['and(eq(run_type, "chain"), gte(latency, 1), gt(total_tokens, 5000))', ['extractor']],
    [
      'and(gt(start_time, "2026-03-05T12:00:00Z"), or(neq(error, null), and(eq(feedback_key, "Correctness"), eq(feedback_score, 0.0))))',
      ['failed'],
    ],
    ['and(eq(feedback_key, "star_rating"), gt(feedback_score, 4))', ['slow']],
    ['and(eq(feedback_key, "user_score"), gt(feedback_score, 4))', []],
    [`eq(metadata_key, 'user_id')`, ['user 1', 'user 2']],
    [`and(eq(metadata_key, 'user_id'), eq(metadata_value, 'u1'))`, ['user 1']],
    [`and(eq(metadata_key, 'user_id'), eq(metadata_value, 'x'))`, []],
    [`and(eq(metadata_key,'test_run'),eq(metadata_value,'t1'))`, ['user 1']],
    [`and(in(metadata_key, ${threads}), eq(metadata_value, "t1"))`, ['thread']],
    ['in(metadata_key, ["thread_id"])', ['thread']],
    ['eq(thread_id, "t1")', ['thread']],
    ['and(eq(thread_id, "t1"), eq(run_type, "llm"))', []],
    [`and(neq(metadata_key, 'conversation_id'))`, namesExcept('user 1', 'user 2')],
    [`and(eq(metadata_key, 'conversation_id'), neq(metadata_value, 'x'))`, ['user 2']],
    [`and(neq(metadata_key,'user_id'), neq(metadata_value,'bar'))`, namesExcept('user 1', 'user 2', 'thread')],
    [`and(neq(metadata_key,'user_id'), eq(metadata_value,'bar'))`, ['thread']],
    [`and(neq(metadata_key,'foo'), eq(metadata_value,'bar'))`, []],
    [`and(eq(name,'user 1'), eq(metadata_key,'user_id'), eq(metadata_value,'u1'))`, ['user 1']],
    [
      'and(eq(run_type, "llm"), eq(name, "ChatOpenAI"), eq(input_key, "messages.content"), like(input_value, "%messages.content%"))',
      ['ChatOpenAI'],
    ],
    [`has("metadata", '{"foo": "bar"}')`, ['thread']],
    ['exists(metadata, "tenant_id")', ['user 2']],
    [`and(not(has(metadata, '{"foo": "bar"}')), exists(metadata, "tenant_id"))`, ['user 2']],
    // Expressions that are not in the reference.
    ['neq(tags, "beta")', namesExcept('extractor')],
    ['and(eq(metadata_key, "n.deep"), eq(metadata_value, 5))', ['user 2']],
    ['and(eq(metadata_key, "guild"), eq(metadata_value, 1234567890123456789))', ['guild 89']],
    ['and(eq(metadata_key, "guild"), eq(metadata_value, "1234567890123456789"))', ['guild 89']],
    ['and(eq(metadata_key, "guild"), neq(metadata_value, 1234567890123456789))', ['guild 88']],
    ['and(eq(metadata_key, "guild"), gt(metadata_value, 1234567890123456788))', ['guild 89']],
    [
      'and(eq(metadata_key, "guild"), in(metadata_value, [1234567890123456787, 1234567890123456789, 0.12345678901234567, 5, "x"]))',
      ['guild 89'],
    ],
    ['and(eq(metadata_key, "n.deep"), lt(metadata_value, 1234567890123456789))', ['user 2']],
    ['and(eq(feedback_key, "prompt_intent"), eq(feedback_value, "question"))', ['failed']],
    ['eq(execution_order, 1)', namesExcept('ExpandQuery', 'ChatOpenAI')],
    ['search(name, "QUERY")', ['ExpandQuery']],
    [`eq(trace_id, "${deriveUuid('filter', 'extractor')}")`, inFirstTrace],
    [`eq(parent_run_id, "${deriveUuid('filter', 'extractor')}")`, ['ExpandQuery', 'ChatOpenAI']],
    [`eq(id, "${deriveUuid('foreign', 'slow')}")`, []],
  ])('%s', async (filter, expected) => {
    expect(await names({ filter })).toEqual(expected);
  });
});

describe('conditions on the trace', () => {
  it.each<[RunFilterParameters, string[]]>([
    [{ trace_filter: 'and(eq(feedback_key, "user_score"), eq(feedback_score, 1))' }, inFirstTrace],
    [{ trace_filter: 'eq(name, "ExpandQuery")' }, []],
    [{ tree_filter: 'eq(name, "ExpandQuery")' }, inFirstTrace],
    [{ tree_filter: 'eq(name, "ExpandQuery")', filter: 'eq(is_root, true)' }, ['extractor']],
    [{ tree_filter: 'and(eq(name, "ExpandQuery"), eq(name, "ChatOpenAI"))' }, []],
    [
      { tree_filter: 'gt(total_tokens, 5000)', trace_filter: 'has(tags, "beta")', filter: 'eq(run_type, "llm")' },
      ['ExpandQuery', 'ChatOpenAI'],
    ],
    [{ search_filter: 'eq(run_type, "llm")', filter: 'gt(total_tokens, 3000)' }, ['ExpandQuery']],
    [{ query: 'image class' }, ['failed']],
    [{ query: 'xylophone' }, ['escaped']],
    [{ query: 'xylophone and/or "QUOTED" CAFÉ öl' }, ['escaped']],
    [{ query: 'line\nxylo' }, ['escaped']],
    [{ query: 'CAFÉ ö' }, ['escaped']],
    [{ query: 'nxylo' }, []],
    [{ query: 'u0070' }, []],
    [{ query: '', filter: null, trace_filter: '' }, all],
  ])('%j', async (filters, expected) => {
    expect(await names(filters)).toEqual(expected);
  });
});

it('an expression at every limit is answered', async () => {
  const terms = ['metadata', 'input', 'output', 'feedback'].map(
    (family) => `and(eq(${family}_key, "k"), like(${family}_value, "%v_"))`,
  );
  const filter = `or(eq(name, "slow"), ${Array(12).fill(terms.join()).join()})`;
  expect(await names({ filter, trace_filter: filter, tree_filter: filter })).toEqual(['slow']);
  const deep = `${'not('.repeat(30)}eq(name, "slow")${')'.repeat(30)}`;
  expect(await names({ filter: deep })).toEqual(['slow']);
  const list = Array.from({ length: 1_000 }, (_, at) => `"${at}"`).join();
  expect(await names({ filter: `in(name, [${list},"slow"])`.replace('"0",', '') })).toEqual(['slow']);
});

it('pages of a filter follow each other without gaps', async () => {
  const conditions = parseRunFilters({ filter: 'eq(is_root, true)' });
  const { ids: found } = await reading.all({ filter: { conditions }, limitRows: 2, order: 'asc' });
  expect(found).toEqual(namesExcept('ExpandQuery', 'ChatOpenAI').map((name) => ids.get(name)));
});
