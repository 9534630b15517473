import { findShortText } from '../json/find.ts';
import { formatTime } from '../run-event/times.ts';
import { readAttributeHead, writeObject, writeUnwrappedValue } from './any-value.ts';
import { type AttributeTree, addLeaf, type RenameRules, writeMembers } from './attribute-tree.ts';
import { detectEmbeddedJson } from './json-text.ts';
import { AttributeList } from './span.ts';
import type { SpanContext } from './span-context.ts';
import { toMicros } from './span-fields.ts';

/**
 * Names of events that carry one message of the prompt, each with the role of the message that applies if no attribute
 * states a role.
 */
const messageRoles: ReadonlyMap<string, string> = new Map([
  ['gen_ai.system.message', 'system'],
  ['gen_ai.user.message', 'user'],
  ['gen_ai.assistant.message', 'assistant'],
  ['gen_ai.tool.message', 'tool'],
]);

/** Attributes of message events that are not part of the message. */
const ignoredAttributes: ReadonlySet<string> = new Set(['gen_ai.system', 'gen_ai.provider.name']);
const messageRenameRules: RenameRules = { key: new Map(), json: new Set(['message', 'tool_calls']) };
const toolMessageRenameRules: RenameRules = { ...messageRenameRules, key: new Map([['id', 'tool_call_id']]) };

/**
 * Writes the messages of span events as `{"messages":[…]}`; returns false if there are none. All these messages are
 * input of the model, including earlier turns of the assistant; the output of the model is in `gen_ai.choice`. Source:
 * GenAI semantic conventions up to 1.36, events.
 */
export function writeMessageEvents(context: SpanContext, events: readonly SpanEvent[]): boolean {
  return writeMatchingEvents(context, events, 'messages', (name) => messageRoles.has(name));
}

/** Writes `gen_ai.choice` events as `{"choices":[…]}`; returns false if there are none. */
export function writeChoiceEvents(context: SpanContext, events: readonly SpanEvent[]): boolean {
  return writeMatchingEvents(context, events, 'choices', (name) => name === 'gen_ai.choice');
}

function writeMatchingEvents(
  context: SpanContext,
  events: readonly SpanEvent[],
  key: string,
  accepts: (name: string) => boolean,
): boolean {
  const { out } = context;
  let hasMessage = false;
  for (const event of events) {
    if (!accepts(event.name)) continue;
    out.ascii(hasMessage ? ',' : `{"${key}":[`);
    hasMessage = true;
    event.taken = writeMessage(context, event);
  }
  if (hasMessage) out.ascii(']}');
  return hasMessage;
}

/**
 * Writes the message of an event. Returns false if the message does not contain every attribute; the caller must then
 * keep the event.
 */
function writeMessage(context: SpanContext, { name, attributes }: SpanEvent): boolean {
  const whole = findAttribute(attributes, 'gen_ai.event.content');
  if (whole >= 0) {
    writeUnwrappedValue(context, attributes.valueStarts[whole]!, attributes.valueEnds[whole]!);
    return attributes.count === 1;
  }
  const tree: AttributeTree = new Map();
  let isComplete = true;
  for (let index = 0; index < attributes.count; index++) {
    const key = attributes.names[index]!.text;
    if (!ignoredAttributes.has(key)) isComplete = addLeaf(context, tree, key, index) && isComplete;
  }
  const role = messageRoles.get(name);
  const { out } = context;
  out.byte(0x7b);
  if (role !== undefined && !tree.has('role')) out.ascii(`"role":"${role}"${tree.size > 0 ? ',' : ''}`);
  writeMembers(context, attributes, tree, role === 'tool' ? toolMessageRenameRules : messageRenameRules);
  out.byte(0x7d);
  return isComplete;
}

/**
 * Writes the messages or choices in `events`, an attribute with a JSON array of events of the GenAI conventions. Returns
 * false if the span has none. Source: Pydantic AI, version 1 of its format.
 */
export function writeListedEvents(context: SpanContext, side: 'input' | 'output'): boolean {
  const { span, out, reader } = context;
  const index = span.find('listedEvents');
  if (index < 0) return false;
  const { kind, start, end } = readAttributeHead(context, index);
  if (kind !== 'string') return false;
  const before = out.position;
  const opening = side === 'input' ? '{"messages":[' : '{"choices":[';
  let isEventList = true;
  const onEvent = (_kind: string, from: number, to: number) => {
    const name = findShortText(reader.source, from, to, 'event.name', 64);
    const eventSide = name === 'gen_ai.choice' ? 'output' : 'input';
    isEventList &&= name !== undefined && (eventSide === 'output' || messageRoles.has(name));
    if (!isEventList || eventSide !== side) return;
    out.ascii(out.position === before ? opening : ',');
    out.copy(reader.source, from, to);
  };
  const form = detectEmbeddedJson(reader.source, start, end, context.maxJsonDepth, onEvent);
  if (form !== 'array' || !isEventList || out.position === before) {
    out.rewind(before);
    return false;
  }
  out.ascii(']}');
  span.take(index);
  return true;
}

export interface SpanEvent {
  /** Name in Latin-1, like attribute names. */
  readonly name: string;
  readonly nameStart: number;
  readonly nameEnd: number;
  /** 0 if the event has no time. */
  readonly timeMicros: number;
  readonly attributes: AttributeList;
  /** True if inputs or outputs contain the event. */
  taken: boolean;
}

/** Decodes the span's events. @throws INVALID_PROTOBUF */
export function readEvents(context: SpanContext): SpanEvent[] {
  const { reader, span } = context;
  return span.events.map(({ start, end }) => {
    let nameStart = start;
    let nameEnd = start;
    let timeMicros = 0;
    const attributes = new AttributeList();
    reader.seek(start, end);
    while (reader.more) {
      const tag = reader.tag();
      if (tag === 0x09) {
        reader.fixed64();
        timeMicros = toMicros(reader.low, reader.high);
      } else if (tag === 0x12) {
        nameStart = reader.delimited();
        nameEnd = reader.position;
      } else if (tag === 0x1a) {
        const from = reader.delimited();
        const next = reader.position;
        attributes.add(reader, from, next);
        reader.seek(next, end);
      } else reader.skip(tag);
    }
    const name = reader.source.toString('latin1', nameStart, nameEnd);
    return { name, nameStart, nameEnd, timeMicros, attributes, taken: false };
  });
}

/**
 * Writes the events that inputs and outputs do not contain as `[{name, time, kwargs}]`; returns undefined if there are
 * none.
 */
export function writeEvents(context: SpanContext, events: readonly SpanEvent[]): Buffer | undefined {
  if (events.every(({ taken }) => taken)) return undefined;
  const { out } = context;
  const start = out.position;
  let isFirst = true;
  out.byte(0x5b);
  for (const event of events) {
    if (event.taken) continue;
    out.ascii(isFirst ? '{"name":' : ',{"name":');
    isFirst = false;
    const isFirstToken = firstTokenEvents.has(event.name);
    if (isFirstToken) out.ascii('"new_token"');
    else context.writeString(event.nameStart, event.nameEnd);
    if (event.timeMicros > 0 && event.timeMicros < latestMicros)
      out.ascii(`,"time":"${formatTime(event.timeMicros)}Z"`);
    if (event.attributes.count > 0) {
      out.ascii(',"kwargs":');
      writeObject(context, event.attributes);
    }
    out.byte(0x7d);
  }
  out.byte(0x5d);
  return out.since(start);
}

/** Returns the time of the first event that marks the first token. */
export function findFirstTokenTime(events: readonly SpanEvent[]): number | undefined {
  return events.find(({ name, timeMicros }) => timeMicros > 0 && (name === 'new_token' || firstTokenEvents.has(name)))
    ?.timeMicros;
}

/** Events that instrumentations use to mark the first token; the run format calls this event `new_token`. */
const firstTokenEvents: ReadonlySet<string> = new Set(['ai.stream.firstChunk', 'First Token Stream Event']);

/** End of the year 9999, the last year that formats with four digits. */
const latestMicros = Date.UTC(10_000, 0) * 1000;

/** Returns the index of an event attribute by name, or -1 if there is none. */
export function findAttribute(attributes: AttributeList, name: string): number {
  for (let index = 0; index < attributes.count; index++) if (attributes.names[index]!.text === name) return index;
  return -1;
}
