import { LRUCache } from 'lru-cache';
import type { TokenPrices } from '../ingest/run-event/run-event.ts';

/** Members that can name the model of a run. They occur in the inputs or in the invocation parameters of the run. */
export const modelKeys = ['model', 'model_name', 'model_id', 'model_path', 'endpoint_name'] as const;

export type ModelKey = (typeof modelKeys)[number];

/** The model of a run, as named in an event. */
export interface NamedModel {
  readonly name: string;
  /** The value of `ls_provider` in the metadata. */
  readonly provider: string | undefined;
  /** Key under which the event names the model. Undefined if the model is named in the metadata (`ls_model_name`). */
  readonly key: ModelKey | undefined;
}

/** A price for all models whose names match a pattern. */
export interface PriceEntry {
  readonly prices: TokenPrices;
  /** Returns whether a model name matches. Must take time linear in the length of the name. */
  readonly pattern: { test(name: string): boolean };
  /** If undefined, the entry applies to every provider. */
  readonly provider: string | undefined;
  /** Keys under which the entry applies. Model names in `ls_model_name` are always compared. */
  readonly keys: ReadonlySet<ModelKey>;
  /**
   * Earliest start time of runs to which the entry applies, in microseconds since 1970. If undefined, the entry applies
   * to all runs.
   */
  readonly startMicros: number | undefined;
}

/** Finds the prices of models. */
export interface PriceMap {
  /** Returns the price of a model for a run that starts at `runStartMicros`. The first entry that applies wins. */
  find(model: NamedModel, runStartMicros: number): TokenPrices | undefined;
}

const buildKey = ({ name, provider, key }: NamedModel) => `${key ?? ''}\n${provider ?? ''}\n${name}`;

/** Maximum number of model names for which a map caches the matching entries. */
const maxRememberedNames = 500;

/** A price map that many requests use. */
export class CachedPriceMap implements PriceMap {
  readonly #entries: readonly PriceEntry[];
  readonly #fallback: PriceMap | undefined;
  readonly #matching = new LRUCache<string, readonly PriceEntry[]>({ max: maxRememberedNames });

  /** @param fallback The map that is searched if no entry applies. */
  constructor(entries: readonly PriceEntry[], fallback?: PriceMap) {
    this.#entries = entries;
    this.#fallback = fallback;
  }

  find(model: NamedModel, runStartMicros: number): TokenPrices | undefined {
    const found = this.#findMatching(model).find(({ startMicros = -Infinity }) => startMicros <= runStartMicros);
    return found?.prices ?? this.#fallback?.find(model, runStartMicros);
  }

  #findMatching(model: NamedModel): readonly PriceEntry[] {
    if (this.#entries.length === 0) return [];
    const { name, provider, key } = model;
    const text = buildKey(model);
    const known = this.#matching.get(text);
    if (known) return known;
    const matchingEntries = this.#entries.filter(
      (entry) =>
        (key === undefined || entry.keys.has(key)) &&
        (entry.provider === undefined || entry.provider === provider) &&
        entry.pattern.test(name),
    );
    this.#matching.set(text, matchingEntries);
    return matchingEntries;
  }
}

/**
 * Maximum size of the different model names of one request, in characters times the instructions of the patterns that
 * they are compared with. RE2 takes about a second for it.
 */
const maxComparedSize = 20_000_000;

/**
 * A price map for one request. When the limit is reached, further names have no price. Names that other requests have
 * cached count, too, so that a request that is sent again gets the same prices.
 */
export class RequestPriceMap implements PriceMap {
  readonly #map: PriceMap;
  readonly #patternSize: number;
  readonly #names = new Set<string>();
  #sizeLeft = maxComparedSize;

  /** @param patternSize Number of RE2 instructions of all patterns. */
  constructor(map: PriceMap, patternSize: number) {
    this.#map = map;
    this.#patternSize = patternSize;
  }

  find(model: NamedModel, runStartMicros: number): TokenPrices | undefined {
    const text = buildKey(model);
    if (!this.#names.has(text)) {
      const size = this.#patternSize * model.name.length;
      if (size > this.#sizeLeft) return undefined;
      this.#sizeLeft -= size;
      this.#names.add(text);
    }
    return this.#map.find(model, runStartMicros);
  }
}
