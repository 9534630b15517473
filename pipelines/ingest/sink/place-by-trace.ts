import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { placedAt, projectIdOf, traceKeyOf, traceTimeMicrosOf } from '../run-event/key-fields.ts';
import { nilUuid } from '../run-event/run-event.ts';
import type { TracePlace } from './known-traces.ts';

export interface Placement<R> {
  /** Events in their trace's project and time, in the order they came. */
  readonly placed: R[];
  /** Events of traces that nobody knows yet. */
  readonly parked: R[];
  /** Keys of the traces that events of this batch placed first. */
  readonly newTraces: string[];
  /** Events whose project or trace time was written over. */
  readonly moved: number;
}

interface HasRecord {
  readonly record: LogRecord;
}

/**
 * Puts every event where the first event of its trace that names a project put the trace.
 * One sink handles all events of a trace in the order of the log, so what it decides holds for good. Events that come
 * before that first one in the same batch take its place too; others, of traces still unknown, have to wait.
 *
 * @param places of the traces that are known; those that this batch places first are added.
 */
export function placeByTrace<R extends HasRecord>(events: readonly R[], places: Map<string, TracePlace>): Placement<R> {
  const newTraces: string[] = [];
  for (const { record } of events) {
    const key = traceKeyOf(record.value);
    const projectId = projectIdOf(record.value);
    if (projectId === nilUuid || places.has(key)) continue;
    places.set(key, { projectId, traceTimeMicros: traceTimeMicrosOf(record.value) });
    newTraces.push(key);
  }
  const placed: R[] = [];
  const parked: R[] = [];
  let moved = 0;
  for (const event of events) {
    const place = places.get(traceKeyOf(event.record.value));
    if (place === undefined) {
      parked.push(event);
      continue;
    }
    const record = moveTo(event.record, place);
    if (record !== event.record) moved++;
    placed.push(record === event.record ? event : { ...event, record, came: event.record });
  }
  return { placed, parked, newTraces, moved };
}

/** The record itself where it lies in `place` already, else a copy that does. */
export function moveTo(record: LogRecord, place: TracePlace): LogRecord {
  const { value } = record;
  if (projectIdOf(value) === place.projectId && traceTimeMicrosOf(value) === place.traceTimeMicros) return record;
  return { ...record, value: placedAt(value, place.projectId, place.traceTimeMicros) };
}
