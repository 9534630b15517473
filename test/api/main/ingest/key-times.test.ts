import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { accepted, buildPostParts, multipart, rootRun, shareWire } from './wire.ts';

const { api, wire } = shareWire();

const read = async (id: string) => JSON.parse((await wire.send('GET', `/runs/${id}`)).text) as Record<string, unknown>;

describe('the filter by start_time agrees with the start_time of a run', () => {
  const shift = (time: unknown, seconds: number) =>
    new Date(Date.parse(time as string) + seconds * 1_000).toISOString();
  const found = async (trace: string, start_time: string) => {
    const { text } = await wire.json('POST', '/runs/query', { trace, start_time });
    return (JSON.parse(text) as { runs: { start_time: string }[] }).runs.map((run) => run.start_time);
  };
  test.each<[string, number, number | undefined, number]>([
    ['that a patch changes', 0, 3_600, 0],
    ['that a patch changes by a rounding', 0, -0.4, -0.4],
    ['that is not the one of dotted_order, and a patch without one', -7_200, undefined, -7_200],
    ['that is not the one of dotted_order, and a patch with the same', -7_200, -7_200, -7_200],
  ])('%s', async (_what, posted, patched, shown) => {
    const run = rootRun();
    const at = (seconds: number) => shift(run.start_time, seconds);
    const { id, trace_id, dotted_order } = run;
    const patch = { id, trace_id, dotted_order, ...(patched !== undefined && { start_time: at(patched) }) };
    await accepted(wire.json('POST', '/runs', { ...run, start_time: at(posted) }));
    await accepted(wire.json('POST', '/runs/batch', { patch: [patch] }));
    expect(Math.abs(Date.parse(`${(await read(id)).start_time as string}Z`) - Date.parse(at(shown)))).toBeLessThan(2);
    expect(await found(id, at(shown - 0.01))).toHaveLength(1);
    expect(await found(id, at(shown + 0.01))).toEqual([]);
  });
});

describe('a dotted_order older than the age limit', () => {
  const oldOrder = (id: string) => `19790102T030405000000Z${id}`;
  const usageHours = async (traceId: string) => {
    const rows = await api.services.clickhouse.query<{ hour: string }>({
      name: 'test',
      sql: `SELECT DISTINCT hour FROM traces WHERE trace_id = '${traceId}'`,
    });
    return rows.map(({ hour }) => Date.parse(hour));
  };
  const floorToHour = (time: unknown) => Math.floor(Date.parse(time as string) / 3_600_000) * 3_600_000;
  const readLocation = async (id: string) => {
    const { text } = await wire.json('POST', '/runs/query', {
      trace: id,
      start_time: new Date(Date.now() - 3_600_000),
    });
    return (JSON.parse(text) as { runs: Record<string, unknown>[] }).runs;
  };

  test('does not decide the usage hour of its trace, nor the time under which runs are found', async () => {
    const id = randomUUID();
    const run = rootRun({ id, dotted_order: oldOrder(id) });
    const child = rootRun({ trace_id: id });
    child.dotted_order = `${oldOrder(id)}.${child.dotted_order as string}`;
    await accepted(wire.json('POST', '/runs/batch', { post: [child, run] }));
    await accepted(wire.json('PATCH', `/runs/${id}`, { trace_id: id, dotted_order: oldOrder(id), outputs: { a: 1 } }));
    expect(await readLocation(id)).toHaveLength(2);
    expect(await readLocation(id)).toContainEqual(expect.objectContaining({ id, outputs: { a: 1 } }));
    expect(await usageHours(id)).toEqual([floorToHour(child.start_time)]);
  });

  test('of a patch counts when it is accepted, if no other event of its trace is stored', async () => {
    const [id, before] = [randomUUID(), new Date()];
    const patch = { id, trace_id: id, dotted_order: oldOrder(id), session_name: 'patches', outputs: { a: 1 } };
    await accepted(wire.multipart(multipart([[`patch.${id}`, JSON.stringify(patch)]])));
    expect(await readLocation(id)).toMatchObject([{ id }]);
    const [hour, ...more] = await usageHours(id);
    expect(more).toEqual([]);
    expect(hour).toBeGreaterThanOrEqual(floorToHour(before));
  });

  test('of a patch that is sent again does not let it override a newer patch', async () => {
    const id = randomUUID();
    const patch = { id, trace_id: id, dotted_order: oldOrder(id), session_name: 'patches' };
    for (const a of [1, 2, 1]) {
      await accepted(wire.json('POST', '/runs/batch', { patch: [{ ...patch, outputs: { a } }] }));
    }
    expect(await readLocation(id)).toMatchObject([{ id, outputs: { a: 2 } }]);
  });
});

test.each(['1979', '1970'])(
  'accepts a dotted_order of %s if start_time is recent, and the same in its patch',
  async (year) => {
    const id = randomUUID();
    const dotted_order = `${year}0102T030405000000Z${id}`;
    const run = rootRun({ id, dotted_order });
    await accepted(wire.multipart(multipart(buildPostParts(run))));
    const patch = { id, trace_id: id, dotted_order, outputs: { a: 1 }, end_time: new Date().toISOString() };
    await accepted(wire.json('POST', '/runs/batch', { patch: [patch] }));
    expect(await read(id)).toMatchObject({
      dotted_order,
      outputs: { a: 1 },
      start_time: (run.start_time as string).slice(0, -1),
    });
    const answerWithoutStart = await wire.json('POST', '/runs', { ...run, start_time: undefined, id: undefined });
    expect([answerWithoutStart.status, answerWithoutStart.text]).toEqual([
      422,
      expect.stringContaining('RUNLAKE_MAX_RUN_AGE_DAYS'),
    ]);
  },
);
