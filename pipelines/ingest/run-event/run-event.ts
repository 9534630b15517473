import {
  AvroWriter,
  copyUuidWords,
  getFieldOffset,
  isEightByteLong,
  readTimeMicrosAt,
  readUuidAt,
  writeTimeMicros,
  writeUuid,
} from '../../../infra/event-log/avro.ts';
import { fixedWidthBytes, runEvents } from '../../../schemas/topics.ts';

/** The UUID that means "none" in a fixed-width field, which cannot be absent. */
export const nilUuid = '00000000-0000-0000-0000-000000000000';

/** Accepted run types; all other types are rejected. Source: the public run schema. */
export const runTypes = ['tool', 'chain', 'llm', 'retriever', 'embedding', 'prompt', 'parser'] as const;
export type RunType = (typeof runTypes)[number];

/** JSON text exactly as received, validated and never changed. */
type JsonBytes = Uint8Array;

/** The values of a post or a patch. An absent value never overwrites the value of another event. */
export interface RunValues {
  name?: string;
  runType?: RunType;
  startedAtMicros?: number;
  endedAtMicros?: number;
  parentRunId?: string;
  referenceExampleId?: string;
  tags?: JsonBytes;
  inputs?: JsonBytes;
  outputs?: JsonBytes;
  /** A JSON string, including the quotes. */
  error?: JsonBytes;
  events?: JsonBytes;
  extra?: JsonBytes;
  serialized?: JsonBytes;
  promptTokens?: number;
  completionTokens?: number;
  totalTokens?: number;
  /** Costs are decimal text with all digits as received. */
  promptCost?: string;
  completionCost?: string;
  totalCost?: string;
  /** JSON object with any of prompt_token_details, completion_token_details, prompt_cost_details, completion_cost_details. */
  usageDetails?: JsonBytes;
  firstTokenTimeMicros?: number;
  price?: RunPrice;
}

/** Sets a value unless it is undefined. */
export function assignValue<K extends keyof RunValues>(
  values: RunValues,
  key: K,
  value: RunValues[K] | undefined,
): void {
  if (value !== undefined) values[key] = value as RunValues[K];
}

/** The price of the model that an event names, as of the time when the event was accepted. */
export interface RunPrice {
  /**
   * Rank of the place where the event names the model. If several events name a model, the event with the highest
   * number counts. At least 1.
   */
  readonly source: number;
  /** Undefined if the model has no price, or if the event states costs. */
  readonly tokens?: TokenPrices | undefined;
}

/** Prices in dollars per token, as decimal text with at most 18 digits before the point and 20 after it. */
export interface TokenPrices {
  /** Id of the price map entry. */
  readonly id: string;
  readonly prompt: string;
  readonly completion: string;
  /**
   * Prices of the kinds of tokens that have their own price: a JSON object with `prompt` and `completion`, each of
   * which lists kinds and decimal prices.
   */
  readonly details?: JsonBytes | undefined;
}

/**
 * One accepted post or patch of one run, with everything that determines where it is stored. UUIDs are in lower case
 * with dashes; times are microseconds since 1970, UTC.
 */
export interface RunEvent {
  readonly kind: 'post' | 'patch';
  readonly tenantId: string;
  readonly traceId: string;
  readonly runId: string;
  /** {@link nilUuid} if the event names no project: the sink assigns the project of the trace. */
  readonly projectId: string;
  /**
   * Start time of the run, from the last segment of dotted_order. It is part of the key, unless an earlier event of the
   * run has another time.
   */
  readonly startTimeMicros: number;
  /**
   * Start time of the trace, from the first segment of dotted_order. It determines the billing hour, unless an earlier
   * event of the trace has another time.
   */
  readonly traceTimeMicros: number;
  readonly receivedAtMicros: number;
  readonly userId: string;
  readonly keyId: string;
  readonly dottedOrder?: string | undefined;
  readonly deletedAtMicros?: number | undefined;
  readonly values: RunValues;
}

/**
 * Appends `event` as one Avro record of `schemas/avro/run-event.avsc`, with the fields in the order of the schema. A
 * test decodes the result with the schema.
 */
export function encodeRunEvent(writer: AvroWriter, event: RunEvent): void {
  writer.ascii(event.tenantId);
  writer.ascii(event.traceId);
  writer.ascii(event.runId);
  writer.ascii(event.projectId);
  writer.long(event.startTimeMicros);
  writer.long(event.traceTimeMicros);
  writer.byte(event.kind === 'patch' ? 1 : 0);
  writer.long(event.receivedAtMicros);
  writer.ascii(event.userId);
  writer.ascii(event.keyId);
  writer.optionalString(event.dottedOrder);
  writer.optionalLong(event.deletedAtMicros);
  encodeValues(writer, event.values);
}

function encodeValues(writer: AvroWriter, values: RunValues): void {
  writer.optionalString(values.name);
  writer.optionalString(values.runType);
  writer.optionalLong(values.startedAtMicros);
  writer.optionalLong(values.endedAtMicros);
  writer.optionalString(values.parentRunId);
  writer.optionalString(values.referenceExampleId);
  writer.optionalBytes(values.tags);
  writer.optionalBytes(values.inputs);
  writer.optionalBytes(values.outputs);
  writer.optionalBytes(values.error);
  writer.optionalBytes(values.events);
  writer.optionalBytes(values.extra);
  writer.optionalBytes(values.serialized);
  writer.optionalLong(values.promptTokens);
  writer.optionalLong(values.completionTokens);
  writer.optionalLong(values.totalTokens);
  writer.optionalString(values.promptCost);
  writer.optionalString(values.completionCost);
  writer.optionalString(values.totalCost);
  writer.optionalBytes(values.usageDetails);
  writer.optionalLong(values.firstTokenTimeMicros);
  writer.optionalLong(values.price?.source);
  writer.optionalString(values.price?.tokens?.id);
  writer.optionalString(values.price?.tokens?.prompt);
  writer.optionalString(values.price?.tokens?.completion);
  writer.optionalBytes(values.price?.tokens?.details);
}

// Positions of the first fields of a framed run event. They have fixed widths, so that the sink reads and writes them
// in place.
const tenantOffset = getFieldOffset(runEvents, 'tenant_id');
const traceOffset = getFieldOffset(runEvents, 'trace_id');
const projectOffset = getFieldOffset(runEvents, 'session_id');
const idOffset = getFieldOffset(runEvents, 'id');
const startTimeOffset = getFieldOffset(runEvents, 'start_time');
const traceTimeOffset = getFieldOffset(runEvents, 'trace_time');
const isPatchOffset = getFieldOffset(runEvents, 'is_patch');
/**
 * Offset of `received_at`, which follows the fields of fixed width. It is a varint, but takes eight bytes for times
 * from 1978 to 3111.
 */
const receivedAtOffset = isPatchOffset + fixedWidthBytes.flag;

export interface TenantTrace {
  readonly tenantId: string;
  readonly traceId: string;
}

/** Returns tenant and trace as one string, which serves as a key for caches. */
export function readTraceKey(framed: Buffer): string {
  return framed.toString('latin1', tenantOffset + 1, traceOffset + 37);
}
/** Builds the key that {@link readTraceKey} reads; the `H` is the length byte of the second UUID: 36 in zig-zag. */
export function buildTraceKey(tenantId: string, traceId: string): string {
  return `${tenantId}H${traceId}`;
}
export function readTenantId(framed: Buffer): string {
  return readUuidAt(framed, tenantOffset);
}
export function readTraceId(framed: Buffer): string {
  return readUuidAt(framed, traceOffset);
}
export function readProjectId(framed: Buffer): string {
  return readUuidAt(framed, projectOffset);
}
export function readTraceTimeMicros(framed: Buffer): number {
  return readTimeMicrosAt(framed, traceTimeOffset);
}
/** Number of 32-bit words that {@link copyRunKey} writes. */
export const runKeyWords = 12;
/** Writes tenant, trace and run as binary UUIDs to `keys`, starting at `keys[at]`, as a key for caches. */
export function copyRunKey(framed: Buffer, keys: Uint32Array, at: number): void {
  copyUuidWords(framed, tenantOffset, keys, at);
  copyUuidWords(framed, traceOffset, keys, at + 4);
  copyUuidWords(framed, idOffset, keys, at + 8);
}
export function readRunId(framed: Buffer): string {
  return readUuidAt(framed, idOffset);
}
export function readStartTimeMicros(framed: Buffer): number {
  return readTimeMicrosAt(framed, startTimeOffset);
}

export function isPatch(framed: Buffer): boolean {
  return framed[isPatchOffset] === 1;
}

/**
 * Returns the acceptance time of the event, in microseconds since 1970; `undefined` if the time cannot be read in
 * place.
 */
export function readReceivedAtMicros(framed: Buffer): number | undefined {
  if (framed.length < receivedAtOffset + 8 || !isEightByteLong(framed, receivedAtOffset)) return undefined;
  return readTimeMicrosAt(framed, receivedAtOffset);
}

/** Overwrites the project of the event. */
export function writeProjectId(framed: Buffer, projectId: string): void {
  writeUuid(framed, projectOffset, projectId);
}

/** Returns a copy of the event with another key time; the original is unchanged. */
export function copyWithStartTime(framed: Buffer, micros: number): Buffer {
  const copy = Buffer.from(framed);
  writeTimeMicros(copy, startTimeOffset, micros);
  return copy;
}

/**
 * Builds an event that deletes the run of `framed`. It has the same keys, sender and acceptance time, and no values.
 *
 * @param wirePrefix Prefix of the current schema.
 */
export function buildDeletionEvent(framed: Buffer, wirePrefix: Buffer): Buffer {
  const acceptedMicros = readReceivedAtMicros(framed);
  const receivedAtMicros = acceptedMicros ?? readTraceTimeMicros(framed);
  const senderOffset = receivedAtOffset + 8;
  const writer = new AvroWriter(512);
  writer.raw(wirePrefix);
  encodeRunEvent(writer, {
    kind: 'post',
    tenantId: readTenantId(framed),
    traceId: readTraceId(framed),
    runId: readRunId(framed),
    projectId: readProjectId(framed),
    startTimeMicros: readTimeMicrosAt(framed, startTimeOffset),
    traceTimeMicros: readTraceTimeMicros(framed),
    receivedAtMicros,
    userId: acceptedMicros === undefined ? nilUuid : readUuidAt(framed, senderOffset),
    keyId: acceptedMicros === undefined ? nilUuid : readUuidAt(framed, senderOffset + fixedWidthBytes.uuid),
    deletedAtMicros: receivedAtMicros,
    values: {},
  });
  return writer.since(0);
}

/** Returns a copy of the event with another project and trace time; the original is unchanged. */
export function copyWithTraceLocation(framed: Buffer, projectId: string, traceTimeMicros: number): Buffer {
  const copy = Buffer.from(framed);
  writeUuid(copy, projectOffset, projectId);
  writeTimeMicros(copy, traceTimeOffset, traceTimeMicros);
  return copy;
}
