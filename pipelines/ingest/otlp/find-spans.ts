import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { StepwiseWork } from '../../../infra/timeouts/time-slices.ts';
import { classifyByte, type JsonRange, requireEnd } from '../json/scan.ts';
import { ChildCursor, scanAny, skipSpace } from '../json/scan-any.ts';
import { ScanInput } from '../json/scan-input.ts';
import { decodeStringBytes } from '../json/scan-string.ts';
import { computeJsonDepth, toProtoName } from './json-message.ts';
import {
  createMessageValueLimit,
  createRequestPartLimit,
  createValueLimit,
  enforceMemberLimit,
  type PartLimit,
} from './part-limit.ts';
import type { ProtobufReader } from './protobuf.ts';
import type { ByteRange } from './span.ts';

/** The spans of one instrumentation scope of one resource, as ranges of the body. */
export interface ScopeSpans {
  readonly resource: ByteRange | undefined;
  readonly scope: ByteRange | undefined;
  readonly spans: readonly ByteRange[];
}

/**
 * Finds the spans of an ExportTraceServiceRequest. Spans, scopes and resources are each limited to `maxParts`. Field
 * numbers: opentelemetry/proto/collector/trace/v1/trace_service.proto, trace/v1/trace.proto.
 *
 * @param addItem Called for each span, scope and resource.
 * @throws INVALID_PROTOBUF; TOO_MANY_PARTS when a limit is exceeded; the errors of `addItem`.
 */
export function decodeProtobuf(reader: ProtobufReader, maxParts: number, addItem?: () => void): ScopeSpans[] {
  const scopes: ScopeSpans[] = [];
  const createLimit = () => createRequestPartLimit(maxParts, addItem);
  const [resourceCount, scopeCount, spanCount] = [createLimit(), createLimit(), createLimit()];
  const whole = { start: 0, end: reader.source.length };
  const { many: resourceSpans } = split(reader, whole, { one: 0, many: 0x0a }, resourceCount);
  for (const range of resourceSpans) {
    const { one: resource, many: scopeSpans } = split(reader, range, { one: 0x0a, many: 0x12 }, scopeCount);
    for (const inner of scopeSpans) {
      const { one: scope, many: spans } = split(reader, inner, { one: 0x0a, many: 0x12 }, spanCount);
      scopes.push({ resource, scope, spans });
    }
  }
  return scopes;
}

/** Reads a message with one optional and one repeated field, in any order. */
function split(
  reader: ProtobufReader,
  { start, end }: ByteRange,
  tags: { readonly one: number; readonly many: number },
  limit: PartLimit,
) {
  let one: ByteRange | undefined;
  const many: ByteRange[] = [];
  reader.seek(start, end);
  while (reader.more) {
    const tag = reader.tag();
    if (tag !== tags.one && tag !== tags.many) {
      reader.skip(tag);
      continue;
    }
    if (tag === tags.many) limit.add();
    const from = reader.delimited();
    const range = { start: from, end: reader.position };
    if (tag === tags.one) one = range;
    else many.push(range);
  }
  return { one, many };
}

/** The ranges of a resource, its scopes and their spans in a JSON body. */
export interface ResourcePositions {
  readonly resource: JsonRange | undefined;
  readonly scopes: readonly ScopePositions[];
}

export interface ScopePositions {
  readonly scope: JsonRange | undefined;
  readonly spans: readonly JsonRange[];
}

/**
 * Validates a whole ExportTraceServiceRequest in JSON and finds its spans. Spans, scopes and resources are each limited
 * to `maxParts`. Creates no JavaScript values for the JSON.
 *
 * @param addItem Called for each span, scope and resource.
 * @throws INVALID_UTF8, INVALID_JSON, TOO_DEEP; TOO_MANY_PARTS when a limit is exceeded; the errors of `addItem`.
 */
export function findSpans(
  body: Buffer,
  maxJsonDepth: number,
  maxParts: number,
  addItem?: () => void,
): StepwiseWork<ResourcePositions[]> {
  return new SpanFinder(body, maxJsonDepth, maxParts, addItem).request();
}

/** Reads the list element that begins at `index`, which is an object. */
type ReadElement<T> = (index: number) => StepwiseWork<T>;

interface MessageFields<T> {
  readonly one?: string;
  readonly list: string;
  readonly count: PartLimit;
  readonly read: ReadElement<T>;
}

class SpanFinder {
  readonly #origin: ScanInput;
  readonly #maxParts: number;
  readonly #ownValues = createMessageValueLimit();
  readonly #resourceCount: PartLimit;
  readonly #scopeCount: PartLimit;
  readonly #spanCount: PartLimit;
  /** Error for the first field of a wrong type. It is reported only after the whole JSON has been validated. */
  #firstError: string | undefined;
  /** End of the last value that was read. */
  #end = 0;

  constructor(body: Buffer, maxJsonDepth: number, maxParts: number, addItem?: () => void) {
    const values = createValueLimit(maxParts);
    const messageValues = this.#ownValues;
    this.#origin = new ScanInput(body, 0, body.length, {
      part: 'the body',
      maxDepth: computeJsonDepth(maxJsonDepth),
      limitDepth: maxJsonDepth,
      values: {
        add() {
          values.add();
          messageValues.add();
        },
      },
    });
    this.#maxParts = maxParts;
    this.#resourceCount = createRequestPartLimit(maxParts, addItem);
    this.#scopeCount = createRequestPartLimit(maxParts, addItem);
    this.#spanCount = createRequestPartLimit(maxParts, addItem);
  }

  *request(): StepwiseWork<ResourcePositions[]> {
    const origin = this.#origin;
    const first = skipSpace(origin.bytes, 0, origin.end);
    let resources: ResourcePositions[] = [];
    if (origin.bytes[first] === 0x7b) resources = (yield* this.#resources(first)) ?? [];
    else {
      this.#end = scanAny(origin, first, 0);
      this.#firstError ??= 'it is not an object';
    }
    requireEnd(origin, this.#end);
    if (this.#firstError !== undefined) {
      throw runlakeError('INVALID_JSON', { part: 'the body', offset: 0, reason: this.#firstError });
    }
    return resources;
  }

  *#resources(first: number): StepwiseWork<ResourcePositions[] | undefined> {
    const read: ReadElement<ResourcePositions> = (index) => this.#resource(index);
    const { list } = yield* this.#message(first, 0, { list: 'resourceSpans', count: this.#resourceCount, read });
    return list;
  }

  *#resource(first: number): StepwiseWork<ResourcePositions> {
    const read: ReadElement<ScopePositions> = (index) => this.#scope(index);
    const fields = { one: 'resource', list: 'scopeSpans', count: this.#scopeCount, read };
    const { one, list = [] } = yield* this.#message(first, 2, fields);
    return { resource: one, scopes: list };
  }

  *#scope(first: number): StepwiseWork<ScopePositions> {
    const read: ReadElement<JsonRange> = (index) => this.#span(index);
    const fields = { one: 'scope', list: 'spans', count: this.#spanCount, read };
    const { one, list = [] } = yield* this.#message(first, 4, fields);
    return { scope: one, spans: list };
  }

  *#span(start: number): StepwiseWork<JsonRange> {
    this.#end = scanAny(this.#origin, start, 6);
    yield;
    return { kind: 'object', start, end: this.#end };
  }

  /**
   * Reads an object that contains one single message and one list of messages. If a name is repeated, the last member
   * wins. If both spellings of a name occur, the camelCase spelling wins unless its value is null.
   */
  *#message<T>(
    first: number,
    depth: number,
    fields: MessageFields<T>,
  ): StepwiseWork<{ one: JsonRange | undefined; list: T[] | undefined }> {
    const origin = this.#origin;
    const cursor = new ChildCursor(origin, first, depth);
    const { one: oneName, list: listName } = fields;
    const protoListName = toProtoName(listName);
    let one: JsonRange | undefined;
    let list: T[] | undefined;
    let protoList: T[] | undefined;
    let hasMember = cursor.first();
    for (let members = 1; hasMember; members++) {
      enforceMemberLimit(members, this.#maxParts);
      this.#ownValues.reset();
      const { keyStart, keyEnd, at } = cursor;
      // A longer key could match a name only if it were written with escapes; such a key is ignored.
      const key = keyEnd - keyStart > 100 ? '' : decodeStringBytes(origin.bytes, keyStart, keyEnd);
      if (key === listName) list = yield* this.#list(at, depth + 1, fields);
      else if (key === protoListName) protoList = yield* this.#list(at, depth + 1, fields);
      else {
        this.#end = scanAny(origin, at, depth + 1);
        if (key === oneName) one = this.#object(at, oneName);
      }
      yield;
      hasMember = cursor.next(this.#end);
    }
    this.#end = cursor.at;
    return { one, list: list ?? protoList };
  }

  *#list<T>(
    first: number,
    depth: number,
    { list: name, count, read }: MessageFields<T>,
  ): StepwiseWork<T[] | undefined> {
    const origin = this.#origin;
    if (origin.bytes[first] !== 0x5b) {
      this.#end = scanAny(origin, first, depth);
      if (origin.bytes[first] !== 0x6e) this.#firstError ??= `${name} is not a list`;
      return undefined;
    }
    const list: T[] = [];
    const cursor = new ChildCursor(origin, first, depth);
    for (let hasElement = cursor.first(); hasElement; hasElement = cursor.next(this.#end)) {
      count.add();
      this.#ownValues.reset();
      if (origin.bytes[cursor.at] === 0x7b) list.push(yield* read(cursor.at));
      else {
        this.#end = scanAny(origin, cursor.at, depth + 1);
        this.#firstError ??= `an element of ${name} is not an object`;
        yield;
      }
    }
    this.#end = cursor.at;
    return list;
  }

  #object(start: number, name: string): JsonRange | undefined {
    const kind = classifyByte(this.#origin.bytes[start]!);
    if (kind === 'object') return { kind, start, end: this.#end };
    if (kind !== 'null') this.#firstError ??= `${name} is not an object`;
    return undefined;
  }
}
