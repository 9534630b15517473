import type { RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { damaged, framed } from './sink-under-test.ts';

/** A value that looks like a UUID but is not valid. */
export const garbled = 'zzzzzzzz-zzzz-4zzz-8zzz-zzzzzzzzzzzz';
/** A schema id that no log or registry assigns. */
export const unknownSchemaId = 2 ** 31 - 5;

/** For each case: the defect of a record, the step that detects it, and the record, made from a valid event. */
export const poisonCases: readonly (readonly [what: string, step: string, make: (event: RunEvent) => Buffer])[] = [
  ['another framing', 'framing', (event) => damaged(event, (bytes) => void bytes.writeUInt8(1, 0))],
  ['too short for a schema id', 'framing', () => Buffer.from([0, 0, 0])],
  ['nothing at all', 'framing', () => Buffer.alloc(0)],
  [
    'an unknown schema id',
    'schema',
    (event) => damaged(event, (bytes) => void bytes.writeUInt32BE(unknownSchemaId, 1)),
  ],
  ['bytes after the record', 'walk', (event) => Buffer.concat([framed(event), Buffer.from('x')])],
  ['an early end', 'walk', (event) => framed(event).subarray(0, -1)],
  ['nothing after the frame', 'walk', (event) => framed(event).subarray(0, 5)],
  [
    'a union branch that the schema lacks',
    'walk',
    // The last field is encoded as its union branch, then the value 0.
    (event) => damaged({ ...event, values: {} }, (bytes) => void bytes.writeUInt8(4, bytes.length - 2)),
  ],
  ['a length below zero', 'walk', (event) => damaged(event, (bytes) => void bytes.writeUInt8(1, 5))],
  [
    'a start before the accepted years',
    'key',
    (event) => framed({ ...event, startTimeMicros: Date.UTC(1978, 10) * 1_000 }),
  ],
  ['a trace time of 1970', 'key', (event) => framed({ ...event, startTimeMicros: Date.UTC(2090, 1) * 1_000 })],
  ['a trace time of 1970', 'key', (event) => framed({ ...event, traceTimeMicros: 1 })],
  ['an identifier that is too short', 'key', (event) => framed({ ...event, traceId: event.traceId.slice(1) })],
  ['a tenant that is no UUID', 'key', (event) => framed({ ...event, tenantId: garbled })],
  ['a trace that is no UUID', 'key', (event) => framed({ ...event, traceId: garbled })],
  ['a run that is no UUID', 'key', (event) => framed({ ...event, runId: garbled })],
  ['a project that is no UUID', 'key', (event) => framed({ ...event, projectId: garbled })],
  ['a run in capitals', 'key', (event) => framed({ ...event, runId: event.runId.toUpperCase() })],
  ['a user that is no UUID', 'insert', (event) => framed({ ...event, userId: garbled })],
  ['a parent that is no UUID', 'insert', (event) => framed({ ...event, values: { parentRunId: garbled } })],
];
