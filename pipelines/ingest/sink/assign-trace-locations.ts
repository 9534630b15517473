import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { projectIdOf, traceKeyOf, traceTimeMicrosOf, withTraceLocation } from '../run-event/key-fields.ts';
import { nilUuid } from '../run-event/run-event.ts';
import type { TraceLocation } from './trace-location-cache.ts';

export interface LocatedEvents<R> {
  /** Events with the project and time of their trace, in log order. */
  readonly located: R[];
  /** Events whose trace location is not known yet. */
  readonly deferred: R[];
  /** Keys of the traces whose location this batch decides. */
  readonly newTraces: string[];
  /** Number of events whose project or trace time was overwritten. */
  readonly moved: number;
}

interface HasRecord {
  readonly record: LogRecord;
}

/**
 * Assigns each event the location of its trace, which the trace's first event with a project decides.
 *
 * The decision is final, because one sink handles all events of a trace in log order. It also applies to events before
 * that first one in the same batch. Events of traces that still have no location are deferred.
 *
 * @param locations known locations by trace key; the function adds those that this batch decides.
 */
export function assignTraceLocations<R extends HasRecord>(
  events: readonly R[],
  locations: Map<string, TraceLocation>,
): LocatedEvents<R> {
  const newTraces: string[] = [];
  for (const { record } of events) {
    const key = traceKeyOf(record.value);
    const projectId = projectIdOf(record.value);
    if (projectId === nilUuid || locations.has(key)) continue;
    locations.set(key, { projectId, traceTimeMicros: traceTimeMicrosOf(record.value) });
    newTraces.push(key);
  }
  const located: R[] = [];
  const deferred: R[] = [];
  let moved = 0;
  for (const event of events) {
    const location = locations.get(traceKeyOf(event.record.value));
    if (location === undefined) {
      deferred.push(event);
      continue;
    }
    const record = moveTo(event.record, location);
    if (record !== event.record) moved++;
    located.push(record === event.record ? event : { ...event, record, original: event.record });
  }
  return { located, deferred, newTraces, moved };
}

/** Returns the record itself if it already has `location`, else a copy that does. */
export function moveTo(record: LogRecord, location: TraceLocation): LogRecord {
  const { value } = record;
  if (projectIdOf(value) === location.projectId && traceTimeMicrosOf(value) === location.traceTimeMicros) return record;
  return { ...record, value: withTraceLocation(value, location.projectId, location.traceTimeMicros) };
}
