import { LRUCache } from 'lru-cache';
import { RE2JS } from 're2js';
import type { ModelKey } from '../ingest/accept/price-of-run.ts';
import type { TokenPrices } from '../ingest/run-event/run-event.ts';

/** The model of a run, as an event names it. */
export interface NamedModel {
  readonly name: string;
  /** `ls_provider` of the metadata. */
  readonly provider: string | undefined;
  /** Undefined if the metadata name the model (`ls_model_name`). */
  readonly key: ModelKey | undefined;
}

/** The price of the models whose names match a pattern. */
export interface PriceEntry {
  readonly prices: TokenPrices;
  /** Whether the name of a model matches; must take time linear in the length of the name. */
  readonly pattern: { test(name: string): boolean };
  /** Undefined: any provider. */
  readonly provider: string | undefined;
  /** Keys whose names are compared; the entry always applies to `ls_model_name`. */
  readonly keys: ReadonlySet<ModelKey>;
  /** Start of the first run that the entry applies to, in microseconds since 1970. Undefined: all runs. */
  readonly startMicros: number | undefined;
}

/** Compiles a pattern of a caller. Matching takes linear time. @throws RE2JSException if RE2 does not accept it. */
export function compilePattern(pattern: string): RE2JS {
  return RE2JS.compile(pattern);
}

/** Maximum number of model names for which a map remembers the entries that match. */
const maxRememberedNames = 500;

/** Finds the price of a model. The first entry that applies wins. */
export class PriceMap {
  readonly #entries: readonly PriceEntry[];
  readonly #fallback: PriceMap | undefined;
  readonly #matching = new LRUCache<string, readonly PriceEntry[]>({ max: maxRememberedNames });

  /** @param fallback the map to use if no entry applies. */
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
    const text = `${key ?? ''}\n${provider ?? ''}\n${name}`;
    const known = this.#matching.get(text);
    if (known) return known;
    const matching = this.#entries.filter(
      (entry) =>
        (key === undefined || entry.keys.has(key)) &&
        (entry.provider === undefined || entry.provider === provider) &&
        entry.pattern.test(name),
    );
    this.#matching.set(text, matching);
    return matching;
  }
}
