import { formatTime } from '../run-event/times.ts';
import { writeObject } from './any-value.ts';
import { AttributeList } from './span.ts';
import type { SpanContext } from './span-context.ts';
import { toMicros } from './span-identity.ts';

/** One Event of a span. */
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

/** Writes the events that inputs and outputs do not contain as `[{name, time, kwargs}]`; undefined if there are none. */
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

/** The time of the first event that marks the first token. */
export function firstTokenTime(events: readonly SpanEvent[]): number | undefined {
  return events.find(({ name, timeMicros }) => timeMicros > 0 && (name === 'new_token' || firstTokenEvents.has(name)))
    ?.timeMicros;
}

/** Events with which instrumentations mark the first token; the run format calls it `new_token`. */
const firstTokenEvents: ReadonlySet<string> = new Set(['ai.stream.firstChunk', 'First Token Stream Event']);

/** End of the year 9999, the last year that formats with four digits. */
const latestMicros = Date.UTC(10_000, 0) * 1000;

/** The index of an event's attribute by name, or -1. */
export function findAttribute(attributes: AttributeList, name: string): number {
  for (let index = 0; index < attributes.count; index++) if (attributes.names[index]!.text === name) return index;
  return -1;
}
