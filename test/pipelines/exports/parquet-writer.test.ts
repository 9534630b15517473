import { beforeAll, describe, expect, it } from 'vitest';
import { exportFields } from '../../../schemas/parquet/run-columns.ts';
import { forSuite } from '../../for-suite.ts';
import { deriveUuid, insertEvents, json, noonMicros, runEvent } from '../runs/run-events.ts';
import {
  everything,
  exportAllChunks,
  metadataOf,
  openExporting,
  queryExpectedRows,
  rowsOf,
  wholeDay,
} from './exporting.ts';

const exporting = forSuite(() => openExporting());

describe('unusual values', () => {
  const text = (value: string) => Buffer.from(value);
  const backslash = '\\';
  const values = [
    {},
    { name: 'NUL \u0000 in it', error: text(`"a${backslash}u0000b"`) },
    { error: text(`"${backslash}ud800"`) },
    { error: text(`"${backslash}udc00${backslash}ud83d${backslash}ude00 ${backslash}ud83d!"`) },
    { error: text(`"${backslash}${backslash}ud800 ${backslash}${backslash}${backslash}ud800${backslash}n"`) },
    { error: text(`"${backslash}uD83D${backslash}uDE00"`) },
    { error: text('""') },
    { error: text('"😀 é 語 \u2028"') },
    { inputs: text('{"n":123456789012345678901234567890,"e":1E400,"f":0.10}') },
    { inputs: text('{ "a" : [ ] ,\n"b":{}}'), outputs: text('[]'), extra: text('"text"'), events: text('[]') },
    { inputs: text(`{"s":"${backslash}ud800","a":1,"a":2,"__proto__":3}`) },
    { tags: text('[]') },
    { tags: text('["a", "b c","é", "", "\\"quoted\\"", "comma,"]') },
    {
      tags: text(
        `["${backslash}ud800x", "a${backslash}u0000b", null, 1, 1.5, true, {"a":[1]}, 12345678901234567890123]`,
      ),
    },
    { runType: 'llm' as const, promptTokens: 5, totalTokens: Number.MAX_SAFE_INTEGER, totalCost: '0.10' },
    { promptTokens: 7, totalCost: '1' },
    { runType: 'llm' as const, promptCost: `${'9'.repeat(20)}.${'1'.repeat(20)}`, completionCost: '-0.000001' },
    {
      startedAtMicros: noonMicros + 1,
      endedAtMicros: 9_180_000_000_000_000,
      firstTokenTimeMicros: 1,
      runType: 'llm' as const,
    },
    { endedAtMicros: 0, referenceExampleId: deriveUuid('example') },
  ];
  beforeAll(async () => {
    const events = values.map((value, index) =>
      runEvent({ runId: deriveUuid('odd', index), startTimeMicros: noonMicros + index * 1_000, values: value }),
    );
    const parent = deriveUuid('odd', 0);
    const child = (name: string, more: object) =>
      runEvent({ runId: deriveUuid(name), traceId: parent, startTimeMicros: noonMicros + 100_000, ...more });
    await insertEvents(exporting.reading.stores.clickhouse, [
      ...events,
      child('child', { values: { parentRunId: parent } }),
      child('child without place', { dottedOrder: undefined, values: { parentRunId: deriveUuid('child') } }),
      child('of nobody', { dottedOrder: undefined, values: { parentRunId: deriveUuid('not there') } }),
      child('without parent', { dottedOrder: undefined }),
      runEvent({
        runId: deriveUuid('root without place'),
        dottedOrder: undefined,
        startTimeMicros: noonMicros + 200_000,
      }),
      runEvent({ kind: 'patch', values: { outputs: json({ a: 1 }) } }),
    ]);
  });

  it.each([{ version: 'v1' }, { version: 'v2_beta' }] as const)(
    '$version matches the run query',
    async ({ version }) => {
      const [part] = await exportAllChunks(exporting, wholeDay, { ...everything, version });
      const expected = await queryExpectedRows(exporting, wholeDay, version);
      expect(expected).toHaveLength(values.length + 6);
      const rows = await rowsOf(part!.path);
      expect(rows.map((row) => row.id)).toEqual(expected.map((row) => row.id));
      for (const [index, row] of rows.entries()) expect(row, `row ${index}`).toEqual(expected[index]);
    },
  );

  it.each(exportFields)('field %s alone', async (field) => {
    const [part] = await exportAllChunks(exporting, wholeDay, { ...everything, fields: [field] });
    const expected = await queryExpectedRows(exporting, wholeDay, 'v2_beta');
    expect((await metadataOf(part!.path)).names).toEqual([field]);
    expect(await rowsOf(part!.path)).toEqual(expected.map((row) => ({ [field]: row[field] })));
  });
});
