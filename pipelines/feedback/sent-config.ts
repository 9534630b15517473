/** Reads and stores the feedback configs that clients send with feedback and with feedback tokens. */
import { LRUCache } from 'lru-cache';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { MemberReader } from '../ingest/accept/read-run.ts';
import {
  configTypes,
  createConfig,
  type FeedbackConfig,
  findConfiguredKeys,
  maxCategories,
} from './feedback-config.ts';
import type { FeedbackKey } from './feedback-values.ts';

const maxLabelCharacters = 1_000;
/** Maximum size of a config as JSON, that of the bodies of `/feedback-configs`: parsing more blocks other requests. */
const maxConfigBytes = 1024 ** 2;

/** Reads `feedback_config`. JavaScript clients send this member in camel case. @throws INVALID_FEEDBACK */
export function readSentConfig(reader: MemberReader<FeedbackKey>): FeedbackConfig | undefined {
  const name = reader.json('feedback_config') ? 'feedback_config' : 'feedbackConfig';
  const bytes = reader.json(name, 'object');
  if (bytes === undefined) return undefined;
  const refuse = (reason: string) => reader.createError(name, reason);
  if (bytes.length > maxConfigBytes) throw refuse(`is longer than ${maxConfigBytes} bytes`);
  const members = JSON.parse(bytes.toString('utf8')) as Readonly<Record<string, unknown>>;
  const { type, min, max, categories, allows_multiple_categories: allowsMultiple = null } = members;
  const isConfigType = (value: unknown): value is FeedbackConfig['type'] => configTypes.some((each) => each === value);
  if (!isConfigType(type)) throw refuse(`must have a type that is one of ${configTypes.join(', ')}`);
  const readNumber = (value: unknown, what: string): number | null => {
    if (value === undefined || value === null) return null;
    if (typeof value !== 'number' || !Number.isFinite(value)) throw refuse(`must have a number as ${what}`);
    return value;
  };
  const readCategory = (category: unknown) => {
    const { value, label = null } = (category ?? {}) as { readonly value?: unknown; readonly label?: unknown };
    const number = readNumber(value, 'value of each category');
    if (number === null) throw refuse('must have a value in each category');
    const isLabel = typeof label === 'string' && label !== '' && label.length <= maxLabelCharacters;
    if (label !== null && !isLabel) throw refuse(`must have labels of 1 to ${maxLabelCharacters} characters`);
    return { value: number, label: label as string | null };
  };
  const list = categories ?? null;
  if (list !== null && !(Array.isArray(list) && list.length <= maxCategories)) {
    throw refuse(`must have a list of at most ${maxCategories} categories`);
  }
  if (allowsMultiple !== null && typeof allowsMultiple !== 'boolean') {
    throw refuse('must have a boolean as allows_multiple_categories');
  }
  if (allowsMultiple === true && type !== 'categorical')
    throw refuse('allows several categories and is not categorical');
  const config: FeedbackConfig = {
    type,
    min: readNumber(min, 'min'),
    max: readNumber(max, 'max'),
    categories: list?.map(readCategory) ?? null,
    ...(allowsMultiple === true && { allows_multiple_categories: true }),
  };
  if (config.min !== null && config.max !== null && config.min > config.max) throw refuse('has a min above its max');
  if (type === 'categorical' && (list ?? []).length === 0) throw refuse('is categorical and has no categories');
  return config;
}

const toKnownKey = (workspaceId: string, key: string) => `${workspaceId} ${key}`;

/**
 * Stores configs that clients send with feedback. The first config of a key is kept. If a later config differs, it is
 * ignored and the feedback is still accepted.
 */
export class SentConfigs {
  readonly #database: Database;
  /** Keys that are known to have a config. An entry expires after a minute, because configs can be deleted. */
  readonly #known = new LRUCache<string, true>({ max: 10_000, ttl: 60_000 });

  constructor(database: Database) {
    this.#database = database;
  }

  /** Returns those of `keys` that have a config. @throws errors of the database. */
  async findKnown(workspaceId: string, keys: readonly string[]): Promise<ReadonlySet<string>> {
    const isKnown = (key: string) => this.#known.has(toKnownKey(workspaceId, key));
    const known = keys.filter(isKnown);
    const others = keys.filter((key) => !isKnown(key));
    const found = await findConfiguredKeys(this.#database, workspaceId, others);
    for (const key of found) this.#known.set(toKnownKey(workspaceId, key), true);
    return new Set([...known, ...found]);
  }

  /** Stores the config of a key, unless the key already has a config. @throws LIMIT_REACHED; errors of the database. */
  async keep(workspaceId: string, key: string, config: FeedbackConfig): Promise<void> {
    const known = toKnownKey(workspaceId, key);
    if (this.#known.has(known)) return;
    try {
      await createConfig(this.#database, workspaceId, key, { config });
    } catch (error) {
      if (!isRunlakeError(error) || error.code !== 'CONFLICT') throw error;
    }
    this.#known.set(known, true);
  }

  /** Applies the deletion of a config at once in this process. */
  forget(workspaceId: string, key: string): void {
    this.#known.delete(toKnownKey(workspaceId, key));
  }
}
