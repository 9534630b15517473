/**
 * Encodes messages of a worker as frames, and decodes and validates them in the parent process.
 *
 * Trust boundary: graph code runs in the same process as the encoder, so the parent process treats each frame as
 * untrusted input. Decoding returns a message of the declared type or throws WORKER_PROTOCOL_VIOLATED. States, answers
 * and events are verified to be JSON text.
 */
import { type TSchema, Type } from 'typebox';
import { Compile } from 'typebox/compile';
import { catalogue, type ErrorCode } from '../../../infra/errors/catalogue.ts';
import { Dictionary } from '../../../infra/json/dictionary.ts';
import { protocolMode } from '../streams/stream-types.ts';
import type { Interrupt } from '../threads/thread.ts';
import type { ChildRun } from '../traces/trace-order.ts';
import { createViolationError, encodeFrame, type Frame, findStateFlaw, maxHeadValues, requireJson } from './frames.ts';
import type { Chunk, MessageFromWorker, RunOutcome, SerializedError } from './messages.ts';

/** Maximum length of an error text, in characters; longer texts are truncated. */
const maxReasonCharacters = 128 * 1024;
/** Minimum value of the event size limit, in bytes. It ensures that error events always fit. */
export const minEventLimitBytes = 4_096;
const maxNames = 10_000;
/** Maximum number of child runs in one message. A tracer flushes after about 260 runs. */
const maxTracedRuns = 1_000;

const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const openBrace = 0x7b;

const closedObject = <Properties extends Record<string, TSchema>>(properties: Properties) =>
  Type.Object(properties, { additionalProperties: false });
const messageSchema = <Kind extends string, Properties extends Record<string, TSchema>>(kind: Kind, more: Properties) =>
  Compile(closedObject({ kind: Type.Literal(kind), ...more }));

const key = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });
const name = Type.String({ maxLength: 1_024 });
const reason = Type.String({ maxLength: maxReasonCharacters });
const names = Type.Array(name, { maxItems: maxNames });
const bytes = Type.Integer({ minimum: 0, maximum: 0xffff_ffff });
const count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
/** Maximum number of executed nodes that a worker can report for one attempt, so that it cannot overflow the usage. */
const maxExecutedNodes = 1_000_000_000;
/**
 * Mode, event, namespace and size in bytes of a chunk. The data of the chunk is in the body. `requireChunk` checks the
 * names.
 */
const chunkHeadSchema = Type.Tuple([Type.String(), Type.String(), Type.String(), bytes]);
/** Mode, event and namespace of a chunk. */
const chunkNames = Compile(
  Type.Tuple([
    Type.String({ minLength: 1, maxLength: 256 }),
    Type.String({ minLength: 1, maxLength: 1_024, pattern: '^[^\\r\\n\\0]*$' }),
    Type.String({ maxLength: 8_192, pattern: '^[^\\r\\n\\0]*$' }),
  ]),
);
const serializedErrorSchema = closedObject({
  code: Type.Union(Object.keys(catalogue).map((code) => Type.Literal(code as ErrorCode))),
  params: Dictionary(Type.Union([reason, Type.Number()]), { maxProperties: 20 }),
});
const interruptSchema = Type.Object({ id: Type.Optional(Type.String()), value: Type.Optional(Type.Unknown()) });
const interruptsSchema = Dictionary(Type.Array(interruptSchema), { maxProperties: maxHeadValues });
/** Head of an outcome message. Its `values` are sent as the body of the frame. */
const outcome = Type.Union([
  closedObject({
    kind: Type.Literal('finished'),
    // The number of tasks of a graph is not limited, only the number of values in a message.
    next: Type.Array(name, { maxItems: maxHeadValues }),
    interrupts: interruptsSchema,
  }),
  closedObject({
    ...{ kind: Type.Literal('failed'), error: reason, message: reason },
    hasValues: Type.Boolean(),
    interrupts: Type.Optional(interruptsSchema),
  }),
  closedObject({ kind: Type.Enum(['cancelled', 'timeout', 'fenced']) }),
  closedObject({ kind: Type.Literal('lost'), cause: Type.Literal('external'), message: reason }),
]);

const messageSchemas = {
  loading: messageSchema('loading', { graphId: Type.String() }),
  ready: messageSchema('ready', {
    loadErrors: Dictionary(reason, { maxProperties: maxNames }),
    routes: Type.Array(closedObject({ method: name, path: Type.String({ maxLength: 8_192 }) }), { maxItems: maxNames }),
    nodes: Dictionary(closedObject({ names, targets: names }), { maxProperties: maxNames }),
  }),
  heartbeat: messageSchema('heartbeat', {}),
  chunks: messageSchema('chunks', { key, heads: Type.Array(chunkHeadSchema, { minItems: 1 }) }),
  traced: messageSchema('traced', {
    key,
    droppedRuns: count,
    droppedValues: count,
    /** Head of a message with child runs. The body consists of the concatenated texts of all child runs. */
    runs: Type.Array(
      closedObject({
        kind: Type.Enum(['post', 'patch']),
        runId: Type.String({ maxLength: 64 }),
        open: Type.Boolean(),
        sizes: Type.Tuple([bytes, bytes, bytes]),
      }),
      { maxItems: maxTracedRuns },
    ),
  }),
  ended: messageSchema('ended', { key, nodes: Type.Integer({ minimum: 0, maximum: maxExecutedNodes }), outcome }),
  response: messageSchema('response', { key }),
  'query-error': messageSchema('query-error', { key, error: serializedErrorSchema }),
  dying: messageSchema('dying', { reason }),
  unusable: messageSchema('unusable', { error: serializedErrorSchema }),
};

/** @throws WORKER_PROTOCOL_VIOLATED */
export function decodeMessage({ head, body }: Frame, maxEventBytes: number): MessageFromWorker {
  requireJson(head);
  const parsed = JSON.parse(head.toString('utf8')) as unknown;
  const kind = typeof parsed === 'object' && parsed !== null && 'kind' in parsed ? String(parsed.kind) : '';
  const decode = Object.hasOwn(decoders, kind) ? decoders[kind as MessageFromWorker['kind']] : undefined;
  if (decode === undefined) throw createViolationError('a message of unknown kind');
  return decode(parsed, body, maxEventBytes);
}

type Decoder = (parsed: unknown, body: Buffer, maxEventBytes: number) => MessageFromWorker;

const decoders: Readonly<Record<MessageFromWorker['kind'], Decoder>> = {
  loading: (parsed, body) => validateBodiless('loading', parsed, body),
  ready: (parsed, body) => {
    const { nodes, ...ready } = validateBodiless('ready', parsed, body);
    const nodeSets = Object.entries(nodes).map(
      ([id, graph]) => [id, { names: new Set(graph.names), targets: new Set(graph.targets) }] as const,
    );
    return { ...ready, nodes: Object.fromEntries(nodeSets) };
  },
  heartbeat: (parsed, body) => validateBodiless('heartbeat', parsed, body),
  chunks: (parsed, body, maxEventBytes) => {
    const { kind, key, heads } = validate('chunks', parsed);
    return { kind, key, chunks: decodeChunks(heads, body, maxEventBytes) };
  },
  traced: (parsed, body) => {
    const { kind, key, runs, ...marks } = validate('traced', parsed);
    let at = 0;
    const text = (size: number) => {
      if (at + size > body.byteLength) throw createViolationError('traced runs without their text');
      at += size;
      return body.toString('utf8', at - size, at);
    };
    const traced = runs.map(({ sizes: [location, members, values], ...run }): ChildRun => {
      return { ...run, location: text(location), members: text(members), values: text(values) };
    });
    if (at < body.byteLength) throw createViolationError('text without a traced run');
    return { kind, key, traced: { ...marks, runs: traced } };
  },
  ended: (parsed, body) => {
    const { kind, key, nodes, outcome } = validate('ended', parsed);
    return { kind, key, nodes, outcome: decodeOutcome(outcome, body) };
  },
  response: (parsed, body) => {
    requireJson(body);
    return { ...validate('response', parsed), json: body.toString('utf8') };
  },
  'query-error': (parsed, body) => validateBodiless('query-error', parsed, body),
  dying: (parsed, body) => validateBodiless('dying', parsed, body),
  unusable: (parsed, body) => validateBodiless('unusable', parsed, body),
};

type MessageSchemas = typeof messageSchemas;
type Head<Kind extends keyof MessageSchemas> = MessageSchemas[Kind] extends { Parse(value: unknown): infer Parsed }
  ? Parsed
  : never;

function validate<Kind extends keyof MessageSchemas>(kind: Kind, parsed: unknown): Head<Kind> {
  if (!messageSchemas[kind].Check(parsed))
    throw createViolationError(`a message '${kind}' that does not match its schema`);
  return parsed as Head<Kind>;
}

function validateBodiless<Kind extends keyof MessageSchemas>(kind: Kind, parsed: unknown, body: Buffer): Head<Kind> {
  if (body.byteLength > 0) throw createViolationError(`a message '${kind}' with data`);
  return validate(kind, parsed);
}

/** Returns the chunks, which share the memory of `body`. Each chunk must be JSON text on one line. */
function decodeChunks(heads: Head<'chunks'>['heads'], body: Buffer, maxEventBytes: number): Chunk[] {
  if (body.includes(lineFeed) || body.includes(carriageReturn)) throw createViolationError('an event of several lines');
  let from = 0;
  const chunks = heads.map(([mode, event, namespace, size]) => {
    const to = from + size;
    if (to > body.byteLength) throw createViolationError('events without their data');
    const chunk = { mode, event, namespace, data: body.subarray(from, to) };
    requireChunk(chunk, maxEventBytes);
    from = to;
    return chunk;
  });
  if (from !== body.byteLength) throw createViolationError('data without an event');
  return chunks;
}

/**
 * Checks one event. The worker calls this before it sends an event, and the parent process when it has received one.
 *
 * @throws WORKER_PROTOCOL_VIOLATED
 */
export function requireChunk(
  { mode, event, namespace, data }: Chunk & { readonly data: Buffer },
  maxEventBytes: number,
): void {
  if (!chunkNames.Check([mode, event, namespace]))
    throw createViolationError('an event with an invalid mode, name or namespace');
  if (data.byteLength > Math.max(maxEventBytes, minEventLimitBytes))
    throw createViolationError(`an event of ${data.byteLength} bytes`);
  requireJson(data);
  if (mode === protocolMode && data[0] !== openBrace)
    throw createViolationError('an event of the protocol without params');
}

function decodeOutcome(outcome: Head<'ended'>['outcome'], body: Buffer): RunOutcome {
  const values = () => {
    requireJson(body);
    const flaw = findStateFlaw(body);
    if (flaw !== undefined) throw createViolationError(flaw);
    return body.toString('utf8');
  };
  type Interrupts = Readonly<Record<string, readonly Interrupt[]>>;
  if (outcome.kind === 'finished') {
    return { kind: 'finished', values: values(), next: outcome.next, interrupts: outcome.interrupts as Interrupts };
  }
  if (outcome.kind === 'failed') {
    const { hasValues, interrupts, ...failed } = outcome;
    if (hasValues) return { ...failed, values: values(), ...(interrupts && { interrupts: interrupts as Interrupts }) };
  }
  if (body.byteLength > 0) throw createViolationError('an outcome with a state that it cannot have');
  if (outcome.kind !== 'failed') return outcome as RunOutcome;
  return { kind: 'failed', error: outcome.error, message: outcome.message };
}

/** Encodes a message and returns its buffers. Checks no limits, because the outbox does. */
export function encodeMessage(message: MessageFromWorker): Uint8Array[] {
  switch (message.kind) {
    case 'chunks': {
      const { kind, key, chunks } = message;
      const heads = chunks.map(({ mode, event, namespace, data }) => [mode, event, namespace, data.byteLength]);
      return encodeFrame({ kind, key, heads }, [Buffer.concat(chunks.map(({ data }) => data))]);
    }
    case 'traced': {
      const { kind, key, traced } = message;
      const body: Uint8Array[] = [];
      const runs = traced.runs.map(({ location, members, values, ...run }) => {
        const texts = [location, members, values].map((text) => Buffer.from(text));
        body.push(...texts);
        return { ...run, sizes: texts.map((text) => text.byteLength) };
      });
      const { droppedRuns, droppedValues } = traced;
      return encodeFrame({ kind, key, droppedRuns, droppedValues, runs }, body);
    }
    case 'ended': {
      const { kind, key, nodes, outcome } = message;
      if (outcome.kind === 'finished') {
        const { values, ...rest } = outcome;
        return encodeFrame({ kind, key, nodes, outcome: rest }, [Buffer.from(values)]);
      }
      if (outcome.kind !== 'failed') return encodeFrame({ kind, key, nodes, outcome });
      const { values, ...rest } = outcome;
      const texts = { error: truncate(rest.error), message: truncate(rest.message) };
      const head = { kind, key, nodes, outcome: { ...rest, ...texts, hasValues: values !== undefined } };
      return encodeFrame(head, values === undefined ? [] : [Buffer.from(values)]);
    }
    case 'response':
      return encodeFrame({ kind: message.kind, key: message.key }, [Buffer.from(message.json)]);
    case 'ready': {
      const nodes = Object.entries(message.nodes).map(([id, graph]) => {
        return [id, { names: [...graph.names], targets: [...graph.targets] }] as const;
      });
      const loadErrors = Object.entries(message.loadErrors).map(([id, text]) => [id, truncate(text)] as const);
      return encodeFrame({ ...message, nodes: Object.fromEntries(nodes), loadErrors: Object.fromEntries(loadErrors) });
    }
    case 'query-error':
    case 'unusable':
      return encodeFrame({ ...message, error: truncateError(message.error) });
    case 'dying':
      return encodeFrame({ ...message, reason: truncate(message.reason) });
    default:
      return encodeFrame(message);
  }
}

function truncateError({ code, params }: SerializedError): SerializedError {
  const truncatedParams = Object.entries(params).map(
    ([name, value]) => [name, typeof value === 'string' ? truncate(value) : value] as const,
  );
  return { code, params: Object.fromEntries(truncatedParams) };
}

function truncate(text: string): string {
  return text.length <= maxReasonCharacters ? text : `${text.slice(0, maxReasonCharacters - 1)}…`;
}
