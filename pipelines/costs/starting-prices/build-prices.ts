import { v5 as uuidv5 } from 'uuid';
import { divideByMillion } from '../decimal.ts';
import { type ModelKey, modelKeys } from '../price-map.ts';

/**
 * Token types in price details, by their names in the price lists. Clients use different names for the same type, so
 * each type has several names. For OpenAI the names begin with the service tier.
 */
export const promptTokenKinds = {
  cacheRead: ['cache_read', 'flex_cache_read', 'priority_cache_read'],
  cacheWrite: ['cache_creation', 'cache_write', 'ephemeral_5m_input_tokens'],
  cacheWriteHour: ['ephemeral_1h_input_tokens', 'ephemeral_1hr_input_tokens'],
  audio: ['audio'],
  image: ['image'],
  video: ['video'],
} as const;
const completionTokenKinds = { outputAudio: ['audio'], outputImage: ['image'], outputVideo: ['video'] } as const;

/** Prices in dollars per million tokens, as decimal text. */
type PricesPerMillion = {
  readonly [Kind in keyof typeof promptTokenKinds | keyof typeof completionTokenKinds]?: string;
} & {
  /** First day on which the price applies (UTC). The earlier price is in a later row with the same name. */
  readonly from?: string;
};

/** Name, pattern, dollars per million input tokens, dollars per million output tokens, and further prices. */
export type PriceRow = readonly [name: string, pattern: string, input: string, output: string, more?: PricesPerMillion];

/** Prices of one provider. If the patterns of several rows match a name, the first of these rows applies. */
export interface PriceList {
  readonly provider: string;
  /**
   * Prefix and suffix that are added to the pattern of each row. The resulting pattern must match the whole name of the
   * model.
   */
  readonly prefix?: string;
  readonly suffix?: string;
  /**
   * If the pattern of a row is empty, the name of the row is used as the pattern; each dot in the name then also
   * matches a dash.
   */
  readonly rows: readonly PriceRow[];
}

/** A price that ships with the release, in the form of the API. */
export interface StartingPrice {
  readonly id: string;
  readonly name: string;
  readonly tenant_id: null;
  readonly start_time: string | null;
  readonly match_path: readonly ModelKey[];
  readonly match_pattern: string;
  readonly provider: null;
  /** Price in dollars per token, as decimal text. */
  readonly prompt_cost: string;
  readonly completion_cost: string;
  readonly prompt_cost_details: Readonly<Record<string, string>> | null;
  readonly completion_cost_details: Readonly<Record<string, string>> | null;
}

/** UUID namespace of the price ids. It ensures that a price has the same id in every process and every release. */
const namespace = '6f0c7ae2-3a0b-4f0e-9c58-6d5b1c1f9a55';

export function buildPrices({ provider, prefix = '', suffix = '', rows }: PriceList): StartingPrice[] {
  return rows.map(([name, pattern, input, output, { from, ...more } = {}]) => ({
    id: uuidv5(`${provider}/${name}/${from ?? ''}`, namespace),
    name: `${provider}: ${name}`,
    tenant_id: null,
    start_time: from === undefined ? null : `${from}T00:00:00Z`,
    match_path: modelKeys,
    match_pattern: `^${prefix}(?:${pattern || name.replaceAll('.', '[.-]')})${suffix}$`,
    provider: null,
    prompt_cost: divideByMillion(input),
    completion_cost: divideByMillion(output),
    prompt_cost_details: buildDetails(promptTokenKinds, more),
    completion_cost_details: buildDetails(completionTokenKinds, more),
  }));
}

function buildDetails<Kind extends keyof PricesPerMillion>(
  kinds: Readonly<Record<Kind, readonly string[]>>,
  prices: PricesPerMillion,
): Record<string, string> | null {
  const details = Object.entries<readonly string[]>(kinds).flatMap(([kind, names]) => {
    const price = prices[kind as Kind];
    return price === undefined ? [] : names.map((name) => [name, divideByMillion(price)] as const);
  });
  return details.length > 0 ? Object.fromEntries(details) : null;
}
