import { describe, expect, it } from 'vitest';
import type { Query } from '../../../infra/clickhouse/clickhouse.ts';
import type { RunEvent } from '../../../pipelines/ingest/run-event/run-event.ts';
import { queryRuns, v1Envelope } from '../../../pipelines/runs/query-runs.ts';
import { forSuite } from '../../for-suite.ts';
import { openReading, wholeQuery } from './reading.ts';
import { deriveUuid, insertEvents, json, noonMicros, runEvent } from './run-events.ts';

const reading = forSuite(() => openReading());

const store = (events: RunEvent[]) => insertEvents(reading.stores.clickhouse, events);

describe('values', () => {
  const values: [string, string][] = [
    ['integers beyond doubles', '{"n":123456789012345678901234567890,"f":1.00000000000000000001,"e":1E400}'],
    ['lone surrogates', '{"a":"\\ud800","\\udfff":"\\uD83D\\uDE00"}'],
    ['NUL', '{"a":"x\\u0000y"}'],
    ['__proto__ and repeated keys', '{"__proto__":{"x":1},"a":1,"a":2,"constructor":null}'],
    ['white space inside', '{ "a" :\t[ 1 ,\n 2 ]\r\n}'],
    ['escapes unchanged', '{"a":"\\/\\u0041\\u000a é 😀"}'],
    ['quotes and backslashes', '{"a":"\\"\\\\\'` $1 {tenant:UUID} ; DROP TABLE runs --"}'],
    ['deep nesting', `{"a":${'['.repeat(4_000)}${']'.repeat(4_000)}}`],
    ['a value that is not an object', '[1,"two",null]'],
    ['empty values', '{}'],
  ];
  it.each(values)('%s: the same bytes', async (name, text) => {
    const runId = deriveUuid('bytes', name);
    const bytes = Buffer.from(text);
    const fields = { inputs: bytes, outputs: bytes, extra: bytes, events: bytes, serialized: bytes };
    await store([runEvent({ runId, values: fields })]);
    const answer = await queryRuns(reading.deps, wholeQuery({ runIds: [runId] }), v1Envelope);
    for (const field of Object.keys(fields)) expect(answer.includes(`"${field}":${text},"`)).toBe(true);
  });

  it('strings of 10 MB', async () => {
    const runId = deriveUuid('large');
    const inputs = json({ text: 'é'.repeat(5 * 1024 * 1024) });
    await store([runEvent({ runId, values: { inputs } })]);
    const answer = await queryRuns(reading.deps, wholeQuery({ runIds: [runId] }), v1Envelope);
    expect(answer.includes(Buffer.concat([Buffer.from('"inputs":'), inputs]))).toBe(true);
  });

  it('previews are the beginning of the text', async () => {
    const runId = deriveUuid('preview');
    await store([runEvent({ runId, values: { inputs: json({ text: '😀'.repeat(400) }), outputs: json({ a: 1 }) } })]);
    const { runs } = await reading.page({ runIds: [runId], select: ['inputs_preview', 'outputs_preview'] });
    expect(runs[0]?.inputs_preview).toBe(`{"text":"${'😀'.repeat(241)}…`);
    expect(runs[0]?.outputs_preview).toBe('{"a":1}');
    expect(runs[0]).not.toHaveProperty('inputs');
  });
});

describe('columns of model calls', () => {
  const usage = { promptTokens: 5, totalTokens: 7, totalCost: '0.5', firstTokenTimeMicros: noonMicros + 9 };
  const types = ['llm', 'chain', undefined, 'embedding'] as const;

  it.each<[string, number[]]>([
    ['of a page with other runs are read with the other columns', [0, 1, 2, 3]],
    ['of a page of model calls are read with the other columns', [0, 3]],
    ['of a page without model calls are not read', [1, 2]],
  ])('%s', async (name, chosen) => {
    const runs = types.map((runType, at) =>
      runEvent({
        runId: deriveUuid(name, at),
        startTimeMicros: noonMicros - at,
        values: { name: `run ${at}`, ...(runType && { runType }), ...usage },
      }),
    );
    await store(runs);
    const texts: string[] = [];
    const { clickhouse } = reading.deps;
    const queryText = (query: Query & { format: string }) => {
      if (query.name === 'read-runs') texts.push(query.sql);
      return clickhouse.queryText(query);
    };
    const page = await reading.page(
      {
        runIds: chosen.map((at) => deriveUuid(name, at)),
        select: ['name', 'prompt_tokens', 'total_cost', 'first_token_time'],
      },
      { clickhouse: { ...clickhouse, queryText } },
    );
    const expected = chosen.map((at) =>
      at === 0 || at === 3
        ? { name: `run ${at}`, prompt_tokens: 5, total_cost: '0.5', first_token_time: '2026-03-05T12:00:00.000009' }
        : { name: `run ${at}`, prompt_tokens: 0, total_cost: null, first_token_time: null },
    );
    expect(page.runs).toMatchObject(expected);
    expect(texts).toHaveLength(1);
    expect(texts.some((sql) => sql.includes('first_token_time'))).toBe(chosen.includes(0));
  });
});
