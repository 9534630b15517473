import { isJsonObject, type JsonObject, replaceLoneSurrogates } from '../../../infra/json/json-value.ts';
import { addDecimals, formatDecimal } from '../../costs/decimal.ts';
import { findPath, skipColon, skipString, skipValue } from '../json/find.ts';
import type { JsonRange } from '../json/scan.ts';
import { skipSpace } from '../json/scan-any.ts';
import { decodeStringBytes, parseRange } from '../json/scan-string.ts';
import type { RunValues } from '../run-event/run-event.ts';
import { parseTime } from '../run-event/times.ts';

/** Paths at which SDKs write the usage of a model call. The first path with a usage object wins. */
const usagePaths = [
  ['extra', 'metadata', 'usage_metadata'],
  ['outputs', 'usage_metadata'],
] as const;

/**
 * Paths at which responses state usage in a form of the provider. A message states it with details. If LangChain
 * generates several responses at once, it adds up their usage and states the sum with the first one.
 */
const responseUsagePaths = [
  ['outputs', 'llm_output', 'token_usage'],
  ['outputs', 'usage'],
] as const;

/** Maximum size of a usage object; a larger value is ignored. */
export const maxUsageBytes = 64 * 1024;

/** Larger counts are ignored, because sums of them would exceed 64 bits. No model call has as many tokens. */
const maxTokens = 100_000_000_000;

/**
 * Reads token counts, explicit costs and the time of the first token from `extra`, `outputs` and `events` of a model
 * call, and adds them to `values`. Ignores malformed values, because they are not essential to the run. Source: the
 * public run format, `usage_metadata` and `new_token` events.
 */
export function readUsage(values: RunValues): void {
  const usage = findUsage(values);
  if (usage !== undefined) assignUsage(values, usage);
  const firstTokenTime = findFirstTokenTime(values.events);
  if (firstTokenTime !== undefined) values.firstTokenTimeMicros = firstTokenTime;
}

/**
 * Adds what only the usage in the outputs states, such as details and costs, to `values`, if both state the same numbers of
 * tokens.
 */
export function addUsageDetails(values: RunValues): void {
  const usage = findUsage({ outputs: values.outputs });
  if (usage === undefined) return;
  const stated: RunValues = {};
  assignUsage(stated, usage);
  const { promptTokens, completionTokens } = stated;
  if (promptTokens !== values.promptTokens || completionTokens !== values.completionTokens) return;
  Object.assign(values, { ...stated, ...values });
}

/** Adds the values of one usage object to `values`. Intended for callers that have already parsed the object. */
export function assignUsage(values: RunValues, usage: JsonObject): void {
  assignCount(values, 'promptTokens', usage.input_tokens ?? usage.prompt_tokens);
  assignCount(values, 'completionTokens', usage.output_tokens ?? usage.completion_tokens);
  assignCount(values, 'totalTokens', usage.total_tokens ?? sum(values.promptTokens, values.completionTokens));
  assignCost(values, 'promptCost', usage.input_cost);
  assignCost(values, 'completionCost', usage.output_cost);
  assignCost(values, 'totalCost', usage.total_cost ?? sumCosts(usage.input_cost, usage.output_cost));
  const details = encodeDetails(usage);
  if (details !== undefined) values.usageDetails = details;
}

type UsageSource = { readonly [K in 'extra' | 'outputs']?: Uint8Array | undefined };

function findUsage(values: UsageSource): JsonObject | undefined {
  return (
    findUsageAt(values, usagePaths) ??
    findMessageUsage(values.outputs as Buffer | undefined) ??
    addCacheTokens(findUsageAt(values, responseUsagePaths))
  );
}

/**
 * Converts the usage in a response of Anthropic to that of the public run format, as the SDKs do. Anthropic does not count
 * tokens that are read from or written to the cache among the input tokens.
 */
function addCacheTokens(usage: JsonObject | undefined): JsonObject | undefined {
  if (usage === undefined || !isCount(usage.input_tokens)) return usage;
  // Other providers state a total or details, and count these tokens among the input tokens.
  if (isCount(usage.total_tokens) || isJsonObject(usage.input_token_details)) return usage;
  const { cache_creation, cache_creation_input_tokens, cache_read_input_tokens } = usage;
  const { ephemeral_5m_input_tokens, ephemeral_1h_input_tokens } = isJsonObject(cache_creation) ? cache_creation : {};
  const written = listCounts({ ephemeral_5m_input_tokens, ephemeral_1h_input_tokens });
  const counts = [
    ...listCounts({ cache_read: cache_read_input_tokens }),
    ...(written.length > 0 ? written : listCounts({ cache_creation: cache_creation_input_tokens })),
  ];
  if (counts.length === 0) return usage;
  const cached = counts.reduce((total, [, count]) => total + count, 0);
  return {
    ...usage,
    input_tokens: usage.input_tokens + cached,
    input_token_details: Object.fromEntries(counts) as JsonObject,
  };
}

const listCounts = (kinds: Readonly<Record<string, unknown>>) =>
  Object.entries(kinds).filter((entry): entry is [string, number] => isCount(entry[1]) && entry[1] > 0);

function findUsageAt(
  values: UsageSource,
  paths: ReadonlyArray<readonly [keyof UsageSource, ...string[]]>,
): JsonObject | undefined {
  for (const [member, ...path] of paths) {
    const json = values[member] as Buffer | undefined;
    const last = path.at(-1) as string;
    if (json === undefined || !json.includes(last)) continue;
    const usage = parseUsage(json, findPath(json, 0, json.length, path));
    if (usage !== undefined) return usage;
  }
  return undefined;
}

function parseUsage(json: Buffer, range: JsonRange | undefined): JsonObject | undefined {
  if (range === undefined || range.end - range.start > maxUsageBytes) return undefined;
  const usage = parseRange(json, range.start, range.end);
  // Some clients send an empty object beside the usage that the response states.
  return isJsonObject(usage) && Object.values(usage).some((value) => value !== null) ? usage : undefined;
}

/** Paths from a message, or from a generation of LangChain, to its usage. `kwargs` has the fields of a serialised message. */
const messageUsagePaths = [
  ['usage_metadata'],
  ['kwargs', 'usage_metadata'],
  ['message', 'kwargs', 'usage_metadata'],
  ['message', 'usage_metadata'],
] as const;

/** Maximum number of members of `outputs` that are searched, which bounds the time for hostile outputs. */
const maxMessageMembers = 100;

/**
 * Returns the usage of the first message among the members of `outputs`. LangChain before 1.0 states the usage only
 * there. Of several generations, the first one is read, because candidates of one response repeat its usage.
 */
function findMessageUsage(outputs: Buffer | undefined): JsonObject | undefined {
  if (outputs === undefined || !outputs.includes('"usage_metadata"')) return undefined;
  const end = outputs.length;
  let index = skipSpace(outputs, 0, end);
  if (outputs[index] !== 0x7b) return undefined;
  index = skipSpace(outputs, index + 1, end);
  for (let members = 0; members < maxMessageMembers && outputs[index] === 0x22; members++) {
    const keyEnd = skipString(outputs, index);
    const isList = decodeStringBytes(outputs, index, keyEnd) === 'generations';
    let value = skipColon(outputs, keyEnd, end);
    const after = skipValue(outputs, value, end);
    for (let level = 0; isList && level < 2 && outputs[value] === 0x5b; level++)
      value = skipSpace(outputs, value + 1, end);
    for (const path of outputs[value] === 0x7b ? messageUsagePaths : []) {
      const usage = parseUsage(outputs, findPath(outputs, value, after, path));
      if (usage !== undefined) return usage;
    }
    index = skipSpace(outputs, after, end);
    if (outputs[index] === 0x2c) index = skipSpace(outputs, index + 1, end);
  }
  return undefined;
}

function assignCount(
  values: RunValues,
  key: 'promptTokens' | 'completionTokens' | 'totalTokens',
  value: unknown,
): void {
  if (isCount(value)) values[key] = value;
}

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= maxTokens;
}

function assignCost(values: RunValues, key: 'promptCost' | 'completionCost' | 'totalCost', value: unknown): void {
  const text = formatCost(value);
  if (text !== undefined) values[key] = text;
}

/** Returns a cost as a decimal. Ignores negative ones, because they would lower sums. */
function formatCost(value: unknown): string | undefined {
  const text = formatDecimal(value);
  return text?.startsWith('-') ? undefined : text;
}

function sum(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined && b === undefined ? undefined : (a ?? 0) + (b ?? 0);
}

function sumCosts(a: unknown, b: unknown): string | undefined {
  const left = formatCost(a);
  const right = formatCost(b);
  if (left === undefined || right === undefined) return left ?? right;
  return addDecimals(left, right);
}

/** Names of the usage details, each as a pair: the name that clients send and the name that the API returns. */
const detailNames = [
  ['input_token_details', 'prompt_token_details'],
  ['output_token_details', 'completion_token_details'],
  ['input_cost_details', 'prompt_cost_details'],
  ['output_cost_details', 'completion_cost_details'],
] as const;

/** Maximum nesting depth of usage details; deeper details are ignored. Encoding them is recursive. */
const maxDetailsDepth = 16;

function hasAtMostLevels(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  if (levels === 0) return false;
  for (const key in value) if (!hasAtMostLevels((value as JsonObject)[key], levels - 1)) return false;
  return true;
}

/** Names of details in responses of OpenAI, by the names that clients send. */
const responseDetailNames: Readonly<Record<string, readonly string[]>> = {
  input_token_details: ['prompt_tokens_details', 'input_tokens_details'],
  output_token_details: ['completion_tokens_details', 'output_tokens_details'],
};

/** Kinds of tokens in responses of OpenAI, each as a pair: its name there and the name that clients send. */
const responseTokenKinds = [
  ['cached_tokens', 'cache_read'],
  ['reasoning_tokens', 'reasoning'],
  ['audio_tokens', 'audio'],
] as const;

/** Returns the details of a response of OpenAI under the names that clients send; undefined if there are none. */
function readResponseDetails(usage: JsonObject, name: string): JsonObject | undefined {
  const details = responseDetailNames[name]?.map((key) => usage[key]).find(isJsonObject);
  const kinds = responseTokenKinds.flatMap(([from, to]) => {
    const count = details?.[from];
    return isCount(count) && count > 0 ? [[to, count]] : [];
  });
  return kinds.length > 0 ? (Object.fromEntries(kinds) as JsonObject) : undefined;
}

/**
 * Encodes the details as JSON that ClickHouse can parse, with counts of tokens that have the same value for it as for
 * JavaScript. What is malformed is left out.
 */
function encodeDetails(usage: JsonObject): Buffer | undefined {
  const details: Record<string, unknown> = {};
  for (const [from, to] of detailNames) {
    const value = usage[from] ?? readResponseDetails(usage, from);
    if (!isJsonObject(value) || !hasAtMostLevels(value, maxDetailsDepth)) continue;
    const kinds = from === 'input_token_details' ? leaveOutRepeatedCount(value) : value;
    details[to] = leaveOutOtherNumbers(kinds, to.endsWith('token_details') ? isCount : isCost);
  }
  if (Object.keys(details).length === 0) return undefined;
  const isTooLarge = (value: unknown) => typeof value === 'number' && Math.abs(value) > maxTokens;
  const text = JSON.stringify(details, (_key, value: unknown) => (isTooLarge(value) ? undefined : value));
  return Buffer.from(replaceLoneSurrogates(text));
}

/**
 * Leaves out the count of tokens that are written to the cache if it is the sum of those by lifetime:
 * langchain-anthropic before March 2026 states both, and each kind of tokens is charged.
 */
function leaveOutRepeatedCount(kinds: JsonObject): JsonObject {
  const { cache_creation: written, ...others } = kinds;
  const { ephemeral_5m_input_tokens, ephemeral_1h_input_tokens } = others;
  const byLifetime = listCounts({ ephemeral_5m_input_tokens, ephemeral_1h_input_tokens });
  const isRepeated = byLifetime.length > 0 && byLifetime.reduce((total, [, count]) => total + count, 0) === written;
  return isRepeated ? others : kinds;
}

/** Leaves out numbers and texts, which may be numbers in some form, that are no counts or costs. */
function leaveOutOtherNumbers(kinds: JsonObject, isWanted: (value: unknown) => boolean): JsonObject {
  const entries = Object.entries(kinds).filter(
    ([, value]) => (typeof value !== 'number' && typeof value !== 'string') || isWanted(value),
  );
  return Object.fromEntries(entries);
}

const isCost = (value: unknown) => formatCost(value) !== undefined;

/**
 * Returns the time of the first `new_token` event. Parses only names and times, because the list may be as large as a
 * run.
 */
function findFirstTokenTime(events: Uint8Array | undefined): number | undefined {
  const json = events as Buffer | undefined;
  if (json === undefined || json[0] !== 0x5b || !json.includes('"new_token"')) return undefined;
  let index = skipSpace(json, 1, json.length);
  while (json[index] !== 0x5d) {
    const end = skipValue(json, index, json.length);
    if (readSmallMember(json, index, end, 'name') === 'new_token') {
      const time = readSmallMember(json, index, end, 'time');
      return typeof time === 'string' || typeof time === 'number' ? parseTime(time) : undefined;
    }
    index = skipSpace(json, end, json.length);
    if (json[index] === 0x2c) index = skipSpace(json, index + 1, json.length);
  }
  return undefined;
}

/**
 * Returns the member `key` of the JSON in `json[start, end)`. Returns undefined if the member is absent or longer than
 * a name or a time can be.
 */
function readSmallMember(json: Buffer, start: number, end: number, key: string): unknown {
  const range = findPath(json, start, end, [key]);
  return range && range.end - range.start <= 64 ? parseRange(json, range.start, range.end) : undefined;
}
