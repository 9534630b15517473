/**
 * Costs of a model call, computed from its tokens and the price that ingest stored (`docs/decisions/0141-costs.md`). For a
 * page of runs, this takes less time than ClickHouse needs to plan the same expressions of `cost-sql.ts`, which all other
 * queries use. Both have the same results (`test/pipelines/runs/stored-values.test.ts`).
 */
import { isJsonObject } from '../../infra/json/json-value.ts';
import { formatScaled } from './decimal.ts';

const parts = ['prompt', 'completion'] as const;
type Part = (typeof parts)[number];

/** Number of digits after the point of the decimals in `runs`; they are integers here. */
const priceDigits = 20;

/** Price of a token of a part, and of the kinds of its tokens that have a price of their own. */
export interface PartPrice {
  readonly token: bigint | undefined;
  readonly kinds: readonly { readonly name: string; readonly token: bigint }[];
}

/** What `runs` stores of the tokens and costs of a model call. */
export interface CallUsage {
  readonly tokens: Readonly<Record<Part, number | undefined>>;
  readonly price: Readonly<Record<Part, PartPrice>>;
  /** Details of tokens and of stated costs: a JSON object. */
  readonly details: Buffer | undefined;
}

/** Returns the cost of a part as a decimal; undefined if its tokens or its price are not known. */
export function computePartCost(usage: CallUsage, part: Part): string | undefined {
  return format(computeCost(usage, part));
}

/** Returns the sum of the costs of both parts, as far as they are known; undefined if neither is. */
export function computeTotalCost(usage: CallUsage): string | undefined {
  const costs = parts.map((part) => computeCost(usage, part)).filter((cost) => cost !== undefined);
  return format(costs.length === 0 ? undefined : costs.reduce((sum, cost) => sum + cost));
}

/** Returns the details with the costs of the kinds of tokens that have a price of their own. */
export function addCostDetails(usage: CallUsage): Buffer | string | undefined {
  const { details } = usage;
  if (details === undefined) return undefined;
  const members = parts.flatMap((part) => {
    const costs = priceKinds(usage, part).filter(({ tokens }) => tokens > 0n);
    const texts = costs.map(({ name, tokens, token }) => `"${name}":"${format(tokens * token)}"`);
    return texts.length === 0 ? [] : [`,"${part}_cost_details":{${texts.join(',')}}`];
  });
  return members.length === 0 ? details : `${details.toString('utf8', 0, details.length - 1)}${members.join('')}}`;
}

/** Each kind of tokens is charged at its own price, the others at the price of the part. */
function computeCost(usage: CallUsage, part: Part): bigint | undefined {
  const { token } = usage.price[part];
  const tokens = usage.tokens[part];
  if (token === undefined || tokens === undefined) return undefined;
  const kinds = priceKinds(usage, part);
  const others = kinds.reduce((rest, kind) => rest - kind.tokens, BigInt(tokens));
  return kinds.reduce((sum, kind) => sum + kind.tokens * kind.token, token * (others > 0n ? others : 0n));
}

function priceKinds({ price, details }: CallUsage, part: Part) {
  const { kinds } = price[part];
  if (kinds.length === 0) return [];
  const parsed: unknown = details && JSON.parse(details.toString('utf8'));
  const counts = isJsonObject(parsed) ? parsed[`${part}_token_details`] : undefined;
  return kinds.map(({ name, token }) => ({
    name,
    token,
    tokens: isJsonObject(counts) && Object.hasOwn(counts, name) ? toCount(counts[name]) : 0n,
  }));
}

const maxCount = 2 ** 64;

/** Converts a JSON value to an unsigned integer as ClickHouse's `JSONExtractUInt` does; a value of another kind is 0. */
function toCount(value: unknown): bigint {
  if (typeof value === 'string' && /^\d{1,19}$/.test(value)) return BigInt(value);
  return typeof value === 'number' && value >= 0 && value < maxCount ? BigInt(Math.trunc(value)) : 0n;
}

const format = (decimal: bigint | undefined) =>
  decimal === undefined ? undefined : formatScaled(decimal, priceDigits);
