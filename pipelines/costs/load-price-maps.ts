import { LRUCache } from 'lru-cache';
import { RE2JS } from 're2js';
import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { type ModelPrice, readWorkspacePrices, startingPrices } from './model-price.ts';
import { CachedPriceMap, type PriceEntry, type PriceMap, RequestPriceMap } from './price-map.ts';
import { promptTokenKinds } from './starting-prices/build-prices.ts';

/**
 * Loads the price maps of workspaces for ingest.
 *
 * Each map is cached for {@link cacheMs}. The process that changes a price calls {@link PriceMaps.forget}; all other
 * processes use the new price after at most that time.
 */
export interface PriceMaps {
  /** Returns the price map for one request. @throws errors of the database. */
  load(workspaceId: string): Promise<PriceMap>;
  forget(workspaceId: string): void;
}

const cacheMs = 5_000;

/**
 * Names that clients use for a kind of tokens and for parts of it. A price that does not name them applies the one
 * of the kind.
 */
const partNames: Readonly<Record<string, readonly string[]>> = {
  cache_read: promptTokenKinds.cacheRead,
  cache_creation: [...promptTokenKinds.cacheWrite, ...promptTokenKinds.cacheWriteHour],
};

function addParts(details: ModelPrice['prompt_cost_details']): ModelPrice['prompt_cost_details'] {
  if (details === null) return null;
  const parts = Object.entries(partNames).flatMap(([kind, names]) => {
    const cost = details[kind];
    return cost === undefined ? [] : names.map((name) => [name, cost] as const);
  });
  return { ...Object.fromEntries(parts), ...details };
}

function toEntry(price: ModelPrice, pattern: PriceEntry['pattern']): PriceEntry {
  const { prompt_cost_details, completion_cost_details: completion } = price;
  const prompt = addParts(prompt_cost_details);
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

/**
 * The patterns that ship with a release are anchored and have no nested repetition, so the regular expressions of
 * JavaScript are safe for them, and faster than RE2.
 */
const startingPriceMap = new CachedPriceMap(
  startingPrices.map((price) => toEntry(price, new RegExp(price.match_pattern))),
);

interface LoadedPrices {
  readonly map: PriceMap;
  /** Number of RE2 instructions of all patterns of the workspace. */
  readonly patternSize: number;
}

export function createPriceMaps(database: Database): PriceMaps {
  const loaded = new PromiseCache<LoadedPrices>({ max: 50_000, ttlMs: cacheMs });
  // If no price has changed when a map is loaded again, the existing map is reused, together with its cached matches
  // for model names.
  const compiledMaps = new LRUCache<string, LoadedPrices & { readonly text: string }>({ max: 200 });

  async function load(workspaceId: string): Promise<LoadedPrices> {
    const prices = await readWorkspacePrices(database, workspaceId);
    if (prices.length === 0) return { map: startingPriceMap, patternSize: 0 };
    const text = JSON.stringify(prices);
    const known = compiledMaps.get(workspaceId);
    if (known?.text === text) return known;
    const patterns = prices.map((price) => RE2JS.compile(price.match_pattern));
    const entries = prices.map((price, index) => toEntry(price, patterns[index]!));
    const patternSize = patterns.reduce((size, pattern) => size + pattern.programSize(), 0);
    const compiled = { text, map: new CachedPriceMap(entries, startingPriceMap), patternSize };
    compiledMaps.set(workspaceId, compiled);
    return compiled;
  }

  return {
    async load(workspaceId) {
      const { map, patternSize } = (await loaded.get(workspaceId, () => load(workspaceId)))!;
      return patternSize === 0 ? map : new RequestPriceMap(map, patternSize);
    },
    forget: (workspaceId) => loaded.forget(workspaceId),
  };
}
