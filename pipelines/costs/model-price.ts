import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { RE2JS, RE2JSException } from 're2js';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { parseNullableJson } from '../../infra/json/json-value.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { fetchRows, statements } from '../../infra/postgres/list-page.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { enforceLimit, type Limit } from '../tenants/enforce-limit.ts';
import { formatDecimal } from './decimal.ts';
import { anthropic, claudeOnBedrock } from './starting-prices/anthropic.ts';
import { buildPrices, type StartingPrice } from './starting-prices/build-prices.ts';
import { google } from './starting-prices/google.ts';
import { cohere, deepseek, mistral, xai } from './starting-prices/mistral-and-others.ts';
import { bedrock, fireworks, groq, together } from './starting-prices/open-models.ts';
import { openai } from './starting-prices/openai.ts';

const lists = [
  openai,
  anthropic,
  claudeOnBedrock,
  google,
  mistral,
  xai,
  deepseek,
  cohere,
  groq,
  together,
  fireworks,
  bedrock,
];

/** The prices that ship with the release and apply in every workspace, in the order in which they apply. */
export const startingPrices: readonly StartingPrice[] = lists.flatMap(buildPrices);

const startingPricesById = new Map(startingPrices.map((price) => [price.id, price]));

/** Maximum number of prices in a workspace. */
const maxPrices = 500;
/**
 * Size limits for the patterns of a workspace, in RE2 instructions: for one pattern, and in total. A name is compared
 * with each pattern in time proportional to the number of instructions. The patterns of the release have 58 on average.
 */
const maxPatternSize = 1_000;
const maxTotalPatternSize = 10_000;

const limits: readonly Limit[] = [
  {
    max: maxPrices,
    countSql: 'SELECT count(*) AS count FROM model_prices WHERE workspace_id = $1',
    what: 'model prices in a workspace',
  },
  {
    max: maxTotalPatternSize,
    countSql: 'SELECT coalesce(sum(pattern_size), 0) AS count FROM model_prices WHERE workspace_id = $1',
    what: 'instructions of RE2 in the match patterns of a workspace',
    hint: 'Use smaller patterns',
  },
];

type PriceDetails = Readonly<Record<string, string>>;

/** A price of the price map, in the form that the API returns. */
export interface ModelPrice extends Omit<StartingPrice, 'tenant_id' | 'provider'> {
  /** Id of the workspace; null for prices that ship with the release. */
  readonly tenant_id: string | null;
  readonly provider: string | null;
}

type SentCost = number | string;

/** A price in the form that clients send. */
export interface SentPrice
  extends Pick<ModelPrice, 'name' | 'start_time' | 'match_path' | 'match_pattern' | 'provider'> {
  readonly prompt_cost: SentCost;
  readonly completion_cost: SentCost;
  readonly prompt_cost_details: Readonly<Record<string, SentCost>> | null;
  readonly completion_cost_details: Readonly<Record<string, SentCost>> | null;
}

interface PriceRow extends Omit<ModelPrice, 'prompt_cost_details' | 'completion_cost_details'> {
  readonly prompt_cost_details: string | null;
  readonly completion_cost_details: string | null;
}

const toPrice = (row: PriceRow): ModelPrice => ({
  ...row,
  prompt_cost_details: parseNullableJson<PriceDetails>(row.prompt_cost_details),
  completion_cost_details: parseNullableJson<PriceDetails>(row.completion_cost_details),
});

function selectPrices(workspaceId: string) {
  return statements
    .selectFrom('model_prices')
    .select([
      'id',
      'name',
      'workspace_id as tenant_id',
      'start_time',
      'match_path',
      'match_pattern',
      'provider',
      'prompt_cost',
      'completion_cost',
      'prompt_cost_details',
      'completion_cost_details',
    ])
    .where('workspace_id', '=', workspaceId);
}

/**
 * Returns the prices of a workspace in the order in which they apply: first prices for a single provider, then prices
 * with a later start time, then newer prices.
 */
export async function readWorkspacePrices(database: Sql, workspaceId: string): Promise<ModelPrice[]> {
  const query = selectPrices(workspaceId)
    .orderBy(sql`provider IS NULL, start_time DESC NULLS LAST, created_at DESC, id`)
    .limit(maxPrices);
  return (await fetchRows(database, query)).map((row) => toPrice(row as PriceRow));
}

/**
 * Returns the prices of a workspace, followed by the prices that ship with the release, in the order in which they
 * apply.
 */
export async function listPrices(database: Sql, workspaceId: string): Promise<readonly ModelPrice[]> {
  return [...(await readWorkspacePrices(database, workspaceId)), ...startingPrices];
}

/** Returns the values of the columns from `name` to `completion_cost_details`. @throws BAD_REQUEST */
function toColumns(price: SentPrice): readonly unknown[] {
  return [
    price.name,
    price.start_time,
    price.match_path,
    price.match_pattern,
    measurePattern(price.match_pattern),
    price.provider,
    parseCost('prompt_cost', price.prompt_cost),
    parseCost('completion_cost', price.completion_cost),
    encodeDetails('prompt_cost_details', price.prompt_cost_details),
    encodeDetails('completion_cost_details', price.completion_cost_details),
  ];
}

function measurePattern(pattern: string): number {
  try {
    const size = RE2JS.compile(pattern).programSize();
    if (size <= maxPatternSize) return size;
    throw runlakeError('BAD_REQUEST', {
      reason: `match_pattern is too large: it has ${size} instructions of RE2, and at most ${maxPatternSize} are allowed. Use smaller repetitions.`,
    });
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error;
    throw runlakeError('BAD_REQUEST', {
      reason: `match_pattern is not a regular expression of RE2, which has no backreferences and no look-around: ${error.message}.`,
    });
  }
}

/**
 * Maximum cost per token in dollars. It has fewer digits before the point than the decimals of ClickHouse, so that no
 * sum can overflow.
 */
const maxCost = 1_000_000;

function parseCost(field: string, value: SentCost): string {
  const text = formatDecimal(value);
  // A number that is rounded to zero would hide costs.
  const isRoundedToZero = typeof value === 'number' && value !== 0 && Number(text) === 0;
  if (text === undefined || isRoundedToZero || text.startsWith('-') || Number(text) > maxCost) {
    throw runlakeError('BAD_REQUEST', {
      reason: `${field} is ${JSON.stringify(value)}, not dollars a token from 0 to ${maxCost}, with at most 20 digits after the point.`,
    });
  }
  return text;
}

/** Matches the name of a token type. ClickHouse writes these names into JSON without escaping. */
const tokenKindPattern = /^[\w.:-]{1,64}$/;

function encodeDetails(field: string, details: Readonly<Record<string, SentCost>> | null): string | null {
  if (details === null) return null;
  const costs = Object.entries(details).map(([kind, cost]) => {
    if (tokenKindPattern.test(kind)) return [kind, parseCost(`${field}.${kind}`, cost)] as const;
    throw runlakeError('BAD_REQUEST', {
      reason: `${field} has the kind of token ${JSON.stringify(kind)}; names have 1 to 64 letters, digits, and characters of "_.:-".`,
    });
  });
  return JSON.stringify(Object.fromEntries(costs));
}

const columns = `name, start_time, match_path, match_pattern, pattern_size, provider, prompt_cost, completion_cost,
  prompt_cost_details, completion_cost_details`;
const placeholders = '$3, $4, $5, $6, $7, $8, $9, $10, $11, $12';

/** Creates a price. @throws BAD_REQUEST; LIMIT_REACHED */
export async function createPrice(database: Database, workspaceId: string, sent: SentPrice): Promise<ModelPrice> {
  const id = randomUUID();
  const values = toColumns(sent);
  return database.transaction(async (tx) => {
    await tx.execute(`INSERT INTO model_prices (workspace_id, id, ${columns}) VALUES ($1, $2, ${placeholders})`, [
      workspaceId,
      id,
      ...values,
    ]);
    for (const limit of limits) await enforceLimit(tx, 'workspace', workspaceId, limit);
    return readPrice(tx, workspaceId, id);
  });
}

/** Replaces a price. @throws NOT_FOUND; BAD_REQUEST; LIMIT_REACHED */
export async function updatePrice(
  database: Database,
  workspaceId: string,
  id: string,
  sent: SentPrice,
): Promise<ModelPrice> {
  rejectStartingPrice(id);
  const values = toColumns(sent);
  return database.transaction(async (tx) => {
    await tx.execute(`UPDATE model_prices SET (${columns}) = (${placeholders}) WHERE workspace_id = $1 AND id = $2`, [
      workspaceId,
      id,
      ...values,
    ]);
    for (const limit of limits) await enforceLimit(tx, 'workspace', workspaceId, limit);
    return readPrice(tx, workspaceId, id);
  });
}

/** Deletes a price. @throws NOT_FOUND; BAD_REQUEST for a price that ships with the release */
export async function deletePrice(database: Database, workspaceId: string, id: string): Promise<void> {
  rejectStartingPrice(id);
  const deleted = await database.execute('DELETE FROM model_prices WHERE workspace_id = $1 AND id = $2', [
    workspaceId,
    id,
  ]);
  if (deleted === 0) throw createNotFoundError();
}

const createNotFoundError = () => runlakeError('NOT_FOUND', { what: 'Model price' });

async function readPrice(database: Sql, workspaceId: string, id: string): Promise<ModelPrice> {
  const [row] = await fetchRows(database, selectPrices(workspaceId).where('id', '=', id));
  if (!row) throw createNotFoundError();
  return toPrice(row as PriceRow);
}

function rejectStartingPrice(id: string): void {
  const price = startingPricesById.get(id.toLowerCase());
  if (price === undefined) return;
  throw runlakeError('BAD_REQUEST', {
    reason: `The price ${price.name} is part of the release and cannot be changed. Create a price whose match_pattern matches the same models: it takes precedence.`,
  });
}
