import { describe, expect, it } from 'vitest';
import { formatDottedOrderSegment as segment } from '../../../pipelines/ingest/run-event/dotted-order.ts';
import type { RunEvent, RunValues } from '../../../pipelines/ingest/run-event/run-event.ts';
import { sumDescendants } from '../../../pipelines/runs/descendant-figures.ts';
import { forSuite } from '../../for-suite.ts';
import {
  everything,
  exportAllChunks,
  openExporting,
  queryExpectedRows,
  rowsOf,
  wholeDay,
} from '../exports/exporting.ts';
import { deriveUuid, insertEvents, json, noonMicros, projectId, runEvent, tenantId } from './run-events.ts';

const exporting = forSuite(() => openExporting());

const minute = 60_000_000;
const store = (events: readonly RunEvent[]) => insertEvents(exporting.reading.stores.clickhouse, events);
const read = async (...runIds: string[]) => {
  const { runs } = await exporting.reading.page({ runIds });
  return runIds.map((id) => runs.find((run) => run.id === id));
};

interface Node extends RunValues {
  readonly name: string;
  /** Name of an earlier node, the parent of this one; absent for the root. */
  readonly under?: string;
  readonly at?: number;
  /** Whether the run is sent without dotted_order, as OTLP exporters and old clients do. */
  readonly unplaced?: true;
}

const idOf = (trace: string, name: string) => deriveUuid('figures', trace, name);

/** Returns the posts of a trace; each node's dotted_order is built from its ancestors. */
function traceOf(trace: string, nodes: readonly Node[]): RunEvent[] {
  const orders = new Map<string, string>();
  const traceId = idOf(trace, nodes[0]?.name ?? '');
  return nodes.map(({ name, under, at = noonMicros, unplaced, ...values }) => {
    const runId = idOf(trace, name);
    const own = segment(at, runId);
    const order = under === undefined ? own : `${orders.get(under)}.${own}`;
    orders.set(name, order);
    const parentRunId = under === undefined ? undefined : idOf(trace, under);
    return runEvent({
      runId,
      traceId,
      startTimeMicros: at,
      traceTimeMicros: nodes[0]?.at ?? noonMicros,
      dottedOrder: unplaced ? undefined : order,
      values: { name, runType: 'llm', ...values, ...(parentRunId && { parentRunId }) },
    });
  });
}

const chain = { runType: 'chain' } as const;
const chainRoot = { name: 'root', ...chain };

describe('tokens and costs of runs', () => {
  it('are the sums of the model calls below them, with their details', async () => {
    await store(
      traceOf('sums', [
        { name: 'root', ...chain },
        { name: 'step', under: 'root', ...chain, at: noonMicros + 1 },
        {
          name: 'one',
          under: 'step',
          promptTokens: 10,
          completionTokens: 5,
          totalTokens: 15,
          promptCost: '0.1',
          totalCost: '0.3',
          usageDetails: json({
            prompt_token_details: { cache_read: 4, audio: 1 },
            prompt_cost_details: { cache_read: 1e-7 },
          }),
        },
        {
          name: 'two',
          under: 'root',
          promptTokens: 3,
          totalTokens: 3,
          totalCost: '0.00000000000000000001',
          usageDetails: json({ prompt_token_details: { cache_read: 2 }, prompt_cost_details: { cache_read: '0.2' } }),
        },
        { name: 'vectors', under: 'step', runType: 'embedding', promptTokens: 100, totalTokens: 100 },
        { name: 'silent', under: 'root', ...chain },
      ]),
    );
    const [root, step, one, silent] = await read(
      ...['root', 'step', 'one', 'silent'].map((name) => idOf('sums', name)),
    );
    expect(root).toMatchObject({
      prompt_tokens: 113,
      completion_tokens: 5,
      total_tokens: 118,
      prompt_cost: '0.1',
      completion_cost: null,
      total_cost: '0.30000000000000000001',
      prompt_token_details: { cache_read: 6, audio: 1 },
      completion_token_details: null,
      prompt_cost_details: { cache_read: '0.2000001' },
    });
    expect(step).toMatchObject({ prompt_tokens: 110, total_tokens: 115, total_cost: '0.3' });
    expect(one).toMatchObject({
      prompt_tokens: 10,
      total_cost: '0.3',
      prompt_token_details: { cache_read: 4, audio: 1 },
    });
    expect(silent).toMatchObject({ prompt_tokens: 0, total_tokens: 0, total_cost: null, prompt_token_details: null });
  });

  it('are counted once if a call and a nested call both report them', async () => {
    await store(
      traceOf('nested', [
        { name: 'root', ...chain },
        { name: 'outer', under: 'root', promptTokens: 7, totalTokens: 9, totalCost: '5' },
        { name: 'between', under: 'outer', ...chain },
        { name: 'inner', under: 'between', promptTokens: 6, totalTokens: 8 },
      ]),
    );
    const [root, outer] = await read(idOf('nested', 'root'), idOf('nested', 'outer'));
    // The inner call reports no cost, so the cost of the outer call applies.
    for (const run of [root, outer]) expect(run).toMatchObject({ prompt_tokens: 6, total_tokens: 8, total_cost: '5' });
  });

  it('are those of merged runs: repeats, patches, late and deleted runs', async () => {
    const [root, call, gone] = traceOf('merged', [
      { name: 'root', ...chain },
      { name: 'call', under: 'root', totalTokens: 1 },
      { name: 'gone', under: 'root', totalTokens: 1_000 },
    ]) as [RunEvent, RunEvent, RunEvent];
    await store([{ ...call, kind: 'patch', values: { totalTokens: 50 } }]);
    await store([call]);
    await store([call, root]);
    await store([gone, { ...gone, kind: 'patch', values: {}, deletedAtMicros: noonMicros }]);
    expect((await read(root.runId))[0]).toMatchObject({ total_tokens: 50 });
  });

  it('are summed across midnight and months, and for runs that arrived without dotted_order', async () => {
    await store(
      traceOf('far', [
        { name: 'root', ...chain },
        { name: 'step', under: 'root', ...chain, unplaced: true },
        { name: 'a', under: 'step', unplaced: true, totalTokens: 1, at: noonMicros + 13 * 60 * minute },
        { name: 'b', under: 'step', totalTokens: 10, at: noonMicros + 40 * 24 * 60 * minute },
        // An OpenTelemetry span may begin before the first span of its trace that arrived.
        { name: 'c', under: 'root', unplaced: true, totalTokens: 100, at: noonMicros - 30 * minute },
      ]),
    );
    const [root, step] = await read(idOf('far', 'root'), idOf('far', 'step'));
    expect([root?.total_tokens, step?.total_tokens]).toEqual([111, 11]);
  });

  it('are found if a call states only one of them', async () => {
    const stated: Record<string, RunValues> = {
      prompt_tokens: { promptTokens: 1 },
      completion_tokens: { completionTokens: 2 },
      total_tokens: { totalTokens: 3 },
      prompt_cost: { promptCost: '0.4' },
      completion_cost: { completionCost: '0.5' },
      total_cost: { totalCost: '0.6' },
      prompt_token_details: { usageDetails: json({ prompt_token_details: { audio: 7 } }) },
    };
    const names = Object.keys(stated);
    await store(
      names.flatMap((name) =>
        traceOf(name, [chainRoot, { name: 'call', under: 'root', at: noonMicros + 1, ...stated[name] }]),
      ),
    );
    const roots = await read(...names.map((name) => idOf(name, 'root')));
    expect(names.map((name, at) => roots[at]?.[name])).toEqual([1, 2, 3, '0.4', '0.5', '0.6', { audio: 7 }]);
  });

  it('are summed for ancestors without dotted_order that started long before the calls', async () => {
    await store(
      traceOf('before', [
        chainRoot,
        { name: 'step', under: 'root', ...chain, unplaced: true, at: noonMicros + minute },
        { name: 'call', under: 'step', unplaced: true, totalTokens: 1, at: noonMicros + 600 * minute },
      ]),
    );
    const runs = await read(idOf('before', 'root'), idOf('before', 'step'));
    expect(runs.map((run) => run?.total_tokens)).toEqual([1, 1]);
  });

  it('include their details if those are selected', async () => {
    const ids = { runIds: [idOf('sums', 'root')] };
    const { runs } = await exporting.reading.page({ ...ids, select: ['prompt_tokens', 'total_cost'] });
    expect(runs[0]).toMatchObject({ prompt_tokens: 113, prompt_token_details: { cache_read: 6, audio: 1 } });
    expect(runs[0]).toMatchObject({ prompt_cost_details: { cache_read: '0.2000001' } });
    expect(runs[0]).not.toHaveProperty('completion_tokens');
  });

  it('omit the sums of unusually many or long kinds', async () => {
    const kinds = Object.fromEntries(Array.from({ length: 5_000 }, (_, at) => [`k${at}`, 1]));
    const usageDetails = json({
      prompt_token_details: { cache_read: 4, ...kinds },
      prompt_cost_details: { ['x'.repeat(200)]: '1', cache_read: '0.5' },
    });
    await store(
      traceOf('kinds', [chainRoot, { name: 'call', under: 'root', promptTokens: 1, totalTokens: 1, usageDetails }]),
    );
    const [root, call] = await read(idOf('kinds', 'root'), idOf('kinds', 'call'));
    const { prompt_token_details: sums } = root as { prompt_token_details: object };
    expect(sums).toMatchObject({ cache_read: 4, k0: 1 });
    expect(Object.keys(sums).length).toBeLessThan(100);
    expect(root).toMatchObject({ prompt_tokens: 1, prompt_cost_details: { cache_read: '0.5' } });
    expect(Object.keys((call as { prompt_token_details: object }).prompt_token_details)).toHaveLength(5_001);
    const { clickhouse } = exporting.reading.stores;
    const request = {
      scope: { tenantId, projectIds: [projectId] },
      traces: '{ids:Array(UUID)}',
      targets: '{ids:Array(UUID)}',
      params: { ids: [idOf('kinds', 'root')] },
    };
    const without = await sumDescendants(clickhouse, { ...request, withDetails: false });
    expect([...(without.get(idOf('kinds', 'root')) ?? [])].sort()).toEqual([
      ['prompt_tokens', '1'],
      ['total_tokens', '1'],
    ]);
  });

  it('are the same in exports', async () => {
    const [part] = await exportAllChunks(exporting, wholeDay, everything);
    const rows = await rowsOf(part!.path);
    const expected = await queryExpectedRows(exporting, wholeDay, 'v2_beta');
    for (const [index, row] of rows.entries()) expect(row, `row ${index}`).toEqual(expected[index]);
    const row = rows.find(({ id }) => id === idOf('sums', 'root'));
    expect(row).toMatchObject({ total_tokens: 118, total_cost: '0.30000000000000000001', completion_cost: null });
    const tokens = await exportAllChunks(exporting, wholeDay, { ...everything, fields: ['total_tokens', 'id'] });
    const read = await rowsOf(tokens[0]!.path);
    expect(read.find(({ id }) => id === idOf('far', 'root'))).toEqual({ total_tokens: 111, id: idOf('far', 'root') });
  });

  it('are the greatest integer in exports if they exceed it', async () => {
    const calls = Array.from(
      { length: 1_025 },
      (_, at): Node => ({
        name: `call${at}`,
        under: 'root',
        promptTokens: Number.MAX_SAFE_INTEGER,
        totalTokens: at,
      }),
    );
    await store(traceOf('immense', [chainRoot, ...calls]));
    const fields = ['id', 'prompt_tokens', 'total_tokens'];
    const parts = await exportAllChunks(exporting, wholeDay, { ...everything, fields });
    const rows = await Promise.all(parts.map(({ path }) => rowsOf(path)));
    expect(rows.flat().find(({ id }) => id === idOf('immense', 'root'))).toEqual({
      id: idOf('immense', 'root'),
      prompt_tokens: Number(2n ** 63n - 1n),
      total_tokens: (1_024 * 1_025) / 2,
    });
  });

  it('are summed in little memory for calls far below the root', async () => {
    const usageDetails = json({
      prompt_token_details: Object.fromEntries(Array.from({ length: 30 }, (_, at) => [`k${at}`, 1])),
    });
    const traceIds = Array.from({ length: 20 }, (_, at) => deriveUuid('deep', at));
    await store(
      traceIds.map((traceId) => {
        const above = Array.from({ length: 898 }, (_, at) => deriveUuid('level', traceId, at));
        const runId = deriveUuid('call', traceId);
        return runEvent({
          traceId,
          runId,
          dottedOrder: [traceId, ...above, runId].map((id) => segment(noonMicros, id)).join('.'),
          values: { runType: 'llm', promptTokens: 7, usageDetails },
        });
      }),
    );
    const found = await sumDescendants(exporting.reading.stores.clickhouse, {
      scope: { tenantId, projectIds: [projectId] },
      traces: '{ids:Array(UUID)}',
      targets: '{ids:Array(UUID)}',
      params: { ids: traceIds },
      withDetails: true,
      settings: { max_memory_usage: String(500 * 1024 * 1024) },
    });
    for (const traceId of traceIds) expect(found.get(traceId)?.get('prompt_tokens')).toBe('7');
  });

  it('are right in a trace of 100,000 runs, ten deep', async () => {
    const names = Array.from({ length: 100_000 }, (_, at) => `r${at}`);
    const nodes = names.map((name, at): Node => {
      const call = { promptTokens: 1, totalTokens: 2, totalCost: '0.001' };
      // Ten nested chains; all calls are below the last chain.
      return at < 10 ? { name, ...chain, ...(at > 0 && { under: `r${at - 1}` }) } : { name, under: 'r9', ...call };
    });
    await store(traceOf('huge', nodes));
    const [root, last] = await read(idOf('huge', 'r0'), idOf('huge', 'r9'));
    const sums = { prompt_tokens: 99_990, total_tokens: 199_980, total_cost: '99.99' };
    expect(root).toMatchObject(sums);
    expect(last).toMatchObject(sums);
  });
});

describe('against a model', () => {
  it('random traces, some partly without dotted_order, in random order with repeats', async () => {
    let seed = 7;
    const random = (below: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
      return Math.floor((seed / 2 ** 31) * below);
    };
    const expected = new Map<string, [number, number]>();
    const events: RunEvent[] = [];
    for (let trace = 0; trace < 12; trace++) {
      const nodes: Node[] = [{ name: 'n0', ...chain }];
      for (let at = 1; at < 40; at++) {
        const isCall = random(2) === 0;
        nodes.push({
          name: `n${at}`,
          under: `n${random(at)}`,
          at: noonMicros + at,
          ...(trace % 3 === 0 && random(3) === 0 && { unplaced: true as const }),
          ...(isCall && random(4) > 0 ? { totalTokens: random(50) } : chain),
          ...(isCall && random(2) === 0 ? { runType: 'llm' as const, promptTokens: random(9) } : {}),
        });
      }
      const sumFigure = (name: string, figure: 'totalTokens' | 'promptTokens'): number | undefined => {
        const below = nodes.filter(({ under }) => under === name).map((child) => sumFigure(child.name, figure));
        const reported = below.filter((value) => value !== undefined);
        const own = nodes.find((node) => node.name === name);
        if (reported.length > 0) return reported.reduce((a, b) => a + b, 0);
        return own?.runType === 'chain' ? undefined : own?.[figure];
      };
      for (const { name } of nodes) {
        expected.set(idOf(`m${trace}`, name), [
          sumFigure(name, 'totalTokens') ?? 0,
          sumFigure(name, 'promptTokens') ?? 0,
        ]);
      }
      events.push(...traceOf(`m${trace}`, nodes));
    }
    const shuffled = [...events, ...events.slice(100, 300)].sort(() => random(3) - 1);
    await store(shuffled.slice(0, 250));
    await store(shuffled.slice(250));
    const ids = [...expected.keys()];
    for (let at = 0; at < ids.length; at += 100) {
      for (const run of await read(...ids.slice(at, at + 100))) {
        expect([run?.total_tokens, run?.prompt_tokens], String(run?.id)).toEqual(expected.get(String(run?.id)));
      }
    }
  });
});
