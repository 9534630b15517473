import { LRUCache } from 'lru-cache';
import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { type ModelPrice, readOwnPrices, startingPrices } from './model-price.ts';
import { compilePattern, type PriceEntry, PriceMap } from './price-map.ts';

/**
 * The price maps of workspaces, for ingest.
 *
 * A map is cached for {@link cacheMs}: another process uses changed prices after at most that time. The process that
 * changes a price calls {@link PriceMaps.forget}.
 */
export interface PriceMaps {
  /** @throws errors of the database. */
  load(workspaceId: string): Promise<PriceMap>;
  forget(workspaceId: string): void;
}

const cacheMs = 5_000;

function toEntry(price: ModelPrice, pattern: PriceEntry['pattern']): PriceEntry {
  const { prompt_cost_details: prompt, completion_cost_details: completion } = price;
  const pairs = { prompt: Object.entries(prompt ?? {}), completion: Object.entries(completion ?? {}) };
  const details = prompt || completion ? Buffer.from(JSON.stringify(pairs)) : undefined;
  return {
    prices: { id: price.id, prompt: price.prompt_cost, completion: price.completion_cost, details },
    pattern,
    provider: price.provider ?? undefined,
    keys: new Set(price.match_path),
    startMicros: price.start_time === null ? undefined : parseTime(price.start_time),
  };
}

/** The patterns of the release are anchored and have no nested repetition, so the engine of JavaScript is safe and faster. */
const startingMap = new PriceMap(startingPrices.map((price) => toEntry(price, new RegExp(price.match_pattern))));

export function createPriceMaps(database: Database): PriceMaps {
  const loaded = new PromiseCache<PriceMap>({ max: 50_000, ttlMs: cacheMs });
  // A map that is loaded again is reused if no price has changed, with what it knows of model names.
  const compiled = new LRUCache<string, { readonly text: string; readonly map: PriceMap }>({ max: 200 });

  async function load(workspaceId: string): Promise<PriceMap> {
    const prices = await readOwnPrices(database, workspaceId);
    if (prices.length === 0) return startingMap;
    const text = JSON.stringify(prices);
    const known = compiled.get(workspaceId);
    if (known?.text === text) return known.map;
    const entries = prices.map((price) => toEntry(price, compilePattern(price.match_pattern)));
    const map = new PriceMap(entries, startingMap);
    compiled.set(workspaceId, { text, map });
    return map;
  }

  return {
    load: async (workspaceId) => (await loaded.get(workspaceId, () => load(workspaceId)))!,
    forget: (workspaceId) => loaded.forget(workspaceId),
  };
}
