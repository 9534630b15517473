/**
 * Costs of a model call, computed from its tokens and the price that ingest stored (`docs/decisions/0141-costs.md`). For a
 * page of runs, this takes less time than ClickHouse needs to plan the same expressions of `cost-sql.ts`, which all other
 * queries use. Both have the same results for the details that ingest stores (`test/pipelines/runs/stored-values.test.ts`).
 */
import { type JsonObject, toJsonObject } from '../../infra/json/json-value.ts';
import { formatScaled } from './decimal.ts';

const sides = ['prompt', 'completion'] as const;
type Side = (typeof sides)[number];

/** Number of digits after the point of the decimals in `runs`; they are integers here. */
const priceDigits = 20;

/** Price of a token of the prompt or of the completion, and of the kinds of tokens that have a price of their own. */
export interface SidePrice {
  readonly perToken: bigint | undefined;
  readonly kinds: readonly { readonly name: string; readonly perToken: bigint }[];
}

/** What `runs` stores of the tokens and costs of a model call. */
export interface StoredUsage {
  readonly tokens: Readonly<Record<Side, number | undefined>>;
  readonly price: Readonly<Record<Side, SidePrice>>;
  /** Details of tokens and of stated costs: a JSON object. */
  readonly details: Buffer | undefined;
}

interface SideCosts {
  readonly cost: bigint | undefined;
  /** Costs of the kinds of tokens that have a price of their own, as members of a JSON object. */
  readonly kindMembers: readonly string[];
}

/** The costs of a model call. Costs that are not known are undefined. */
export class CallCosts {
  readonly #details: Buffer | undefined;
  readonly #costs: Readonly<Record<Side, SideCosts>>;

  constructor({ tokens, price, details }: StoredUsage) {
    const hasKinds = details !== undefined && sides.some((side) => price[side].kinds.length > 0);
    const parsed = hasKinds ? toJsonObject(JSON.parse(details.toString('utf8'))) : {};
    const compute = (side: Side) =>
      computeSide(tokens[side], price[side], toJsonObject(parsed[`${side}_token_details`]));
    this.#details = details;
    this.#costs = { prompt: compute('prompt'), completion: compute('completion') };
  }

  /** Returns the cost of the prompt or of the completion as a decimal. */
  getCost(side: Side): string | undefined {
    const { cost } = this.#costs[side];
    return cost === undefined ? undefined : formatPrice(cost);
  }

  /** Returns the sum of both costs, as far as they are known. */
  getTotal(): string | undefined {
    const costs = sides.flatMap((side) => this.#costs[side].cost ?? []);
    return costs.length === 0 ? undefined : formatPrice(costs.reduce((sum, cost) => sum + cost));
  }

  /** Returns the details with the costs of the kinds of tokens that have a price of their own. */
  getDetails(): Buffer | string | undefined {
    const details = this.#details;
    const members = sides.flatMap((side) => {
      const { kindMembers } = this.#costs[side];
      return kindMembers.length === 0 ? [] : [`,"${side}_cost_details":{${kindMembers.join(',')}}`];
    });
    if (details === undefined || members.length === 0) return details;
    return `${details.toString('utf8', 0, details.length - 1)}${members.join('')}}`;
  }
}

/** Each kind of tokens is charged at its own price, the others at the price of the side. */
function computeSide(tokens: number | undefined, price: SidePrice, counts: JsonObject): SideCosts {
  const kinds = price.kinds.map(({ name, perToken }) => {
    const count = Object.hasOwn(counts, name) ? toCount(counts[name]) : 0n;
    return { name, count, cost: count * perToken };
  });
  const used = kinds.filter(({ count }) => count > 0n);
  const kindMembers = used.map(({ name, cost }) => `"${name}":"${formatPrice(cost)}"`);
  const { perToken } = price;
  if (tokens === undefined || perToken === undefined) return { cost: undefined, kindMembers };
  const others = kinds.reduce((rest, { count }) => rest - count, BigInt(tokens));
  return { cost: kinds.reduce((sum, { cost }) => sum + cost, perToken * (others > 0n ? others : 0n)), kindMembers };
}

const maxCount = 2 ** 64;

/** Converts a JSON value to an unsigned integer as ClickHouse's `JSONExtractUInt` does; a value of another type is 0. */
function toCount(value: unknown): bigint {
  if (typeof value === 'string' && /^\d{1,19}$/.test(value)) return BigInt(value);
  return typeof value === 'number' && value >= 0 && value < maxCount ? BigInt(Math.trunc(value)) : 0n;
}

const formatPrice = (price: bigint) => formatScaled(price, priceDigits);
