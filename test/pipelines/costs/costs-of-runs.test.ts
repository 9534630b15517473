import { describe, expect, it } from 'vitest';
import type { RunEvent, RunPrice, RunValues, TokenPrices } from '../../../pipelines/ingest/run-event/run-event.ts';
import { forSuite } from '../../for-suite.ts';
import { everything, exportAllChunks, openExporting, rowsOf, wholeDay } from '../exports/exporting.ts';
import { deriveUuid, insertEvents, json, runEvent } from '../runs/run-events.ts';

const exporting = forSuite(() => openExporting());

const store = (events: readonly RunEvent[]) => insertEvents(exporting.reading.stores.clickhouse, events);
async function read(runId: string) {
  const { runs } = await exporting.reading.page({ runIds: [runId] });
  return runs[0] as Record<string, unknown>;
}

const id = deriveUuid('price');
const details = (prompt: object | null, completion: object | null = null) =>
  json({ prompt: Object.entries(prompt ?? {}), completion: Object.entries(completion ?? {}) });
/** Prices of the example in the public documentation, and a price of completion tokens. */
const cached: TokenPrices = {
  id,
  prompt: '0.000002',
  completion: '0.000003',
  details: details({ cache_read: '0.000001' }),
};
const price = (tokens: TokenPrices | undefined, source = 100): RunPrice => ({ source, tokens });
const used = (prompt: object, completion: object = {}) =>
  json({ prompt_token_details: prompt, completion_token_details: completion });

interface Case {
  readonly values: RunValues;
  readonly prompt: string | null;
  readonly completion: string | null;
  readonly total: string | null;
  readonly promptDetails?: object | null;
  readonly completionDetails?: object | null;
  readonly priced?: false;
}

const cases: Readonly<Record<string, Case>> = {
  'tokens without details': {
    values: { promptTokens: 20, completionTokens: 10, price: price(cached) },
    prompt: '0.00004',
    completion: '0.00003',
    total: '0.00007',
  },
  'a kind with its own price, and the remainder': {
    values: { promptTokens: 20, completionTokens: 10, usageDetails: used({ cache_read: 5 }), price: price(cached) },
    prompt: '0.000035',
    completion: '0.00003',
    total: '0.000065',
    promptDetails: { cache_read: '0.000005' },
  },
  'kinds without their own price': {
    values: { promptTokens: 20, usageDetails: used({ audio: 5 }, { reasoning: 3 }), price: price(cached) },
    prompt: '0.00004',
    completion: null,
    total: '0.00004',
  },
  'several kinds, of prompt and completion': {
    values: {
      promptTokens: 1_000,
      completionTokens: 100,
      usageDetails: used({ cache_read: 500, audio: 100, other: 7 }, { audio: 40, cache_read: 9 }),
      price: price({
        ...cached,
        details: details({ cache_read: '0.000001', audio: '0.00004', image: '9' }, { audio: '0.00008' }),
      }),
    },
    prompt: '0.0053',
    completion: '0.00338',
    total: '0.00868',
    promptDetails: { cache_read: '0.0005', audio: '0.004' },
    completionDetails: { audio: '0.0032' },
  },
  'kinds that exceed the tokens are charged in full': {
    values: { promptTokens: 10, usageDetails: used({ cache_read: 1_000 }), price: price(cached) },
    prompt: '0.001',
    completion: null,
    total: '0.001',
    promptDetails: { cache_read: '0.001' },
  },
  'kinds that are not counts': {
    values: {
      promptTokens: 10,
      usageDetails: used({ cache_read: '5', other: null, audio: -3 }),
      price: price({ ...cached, details: details({ audio: '7', other: '7' }) }),
    },
    prompt: '0.00002',
    completion: null,
    total: '0.00002',
  },
  'all digits': {
    values: {
      promptTokens: 3,
      completionTokens: 9_007_199_254_740_991,
      price: price({ id, prompt: '0.00000000000000000001', completion: '1000000' }),
    },
    prompt: '0.00000000000000000003',
    completion: '9007199254740991000000',
    total: '9007199254740991000000.00000000000000000003',
  },
  'a price of zero': {
    values: { promptTokens: 3, completionTokens: 4, price: price({ id, prompt: '0', completion: '0.0' }) },
    prompt: '0',
    completion: '0',
    total: '0',
  },
  'no tokens': { values: { price: price(cached) }, prompt: null, completion: null, total: null },
  'a model without a price': {
    values: { promptTokens: 20, completionTokens: 10, price: price(undefined) },
    prompt: null,
    completion: null,
    total: null,
    priced: false,
  },
  'an explicit cost is untouched, and no other is computed': {
    values: { promptTokens: 20, completionTokens: 10, totalCost: '5', price: price(undefined, 255) },
    prompt: null,
    completion: null,
    total: '5',
    priced: false,
  },
  'explicit details of costs': {
    values: {
      promptTokens: 20,
      usageDetails: json({ prompt_token_details: { cache_read: 5 }, prompt_cost_details: { cache_read: '2' } }),
      price: price(undefined, 255),
    },
    prompt: null,
    completion: null,
    total: null,
    promptDetails: { cache_read: '2' },
    priced: false,
  },
  'a run that is not a model call': {
    values: { runType: 'chain', promptTokens: 20, price: price(cached) },
    prompt: null,
    completion: null,
    total: null,
    priced: false,
  },
};

describe('costs of a run', () => {
  it.each(Object.entries(cases))('%s', async (name, { values, prompt, completion, total, priced = true, ...rest }) => {
    const event = runEvent({ runId: deriveUuid('case', name), values: { runType: 'llm', ...values } });
    await store([event]);
    expect(await read(event.runId)).toMatchObject({
      prompt_cost: prompt,
      completion_cost: completion,
      total_cost: total,
      prompt_cost_details: rest.promptDetails ?? null,
      completion_cost_details: rest.completionDetails ?? null,
      price_model_id: priced ? id : null,
    });
  });

  it('are the same in exports, and add up in parents', async () => {
    const root = runEvent({ runId: deriveUuid('parent'), values: { runType: 'chain', name: 'parent' } });
    const calls = ['a', 'b'].map((name) => {
      const own = runEvent({ runId: deriveUuid('child', name), values: {} });
      const dottedOrder = `${root.dottedOrder}.${own.dottedOrder}`;
      const values: RunValues = {
        runType: 'llm',
        promptTokens: 20,
        completionTokens: 10,
        usageDetails: used({ cache_read: 5 }),
        price: price(cached),
      };
      return { ...own, traceId: root.runId, dottedOrder, values };
    });
    await store([root, ...calls]);
    expect(await read(root.runId)).toMatchObject({
      prompt_cost: '0.00007',
      completion_cost: '0.00006',
      total_cost: '0.00013',
      prompt_cost_details: { cache_read: '0.00001' },
      price_model_id: null,
    });
    const parts = await exportAllChunks(exporting, wholeDay, everything);
    const rows = (await Promise.all(parts.map((part) => rowsOf(part.path)))).flat();
    expect(rows.find((row) => row.id === root.runId)).toMatchObject({ total_cost: '0.00013' });
    expect(rows.find((row) => row.id === calls[0]?.runId)).toMatchObject({ prompt_cost: '0.000035' });
  });
});
