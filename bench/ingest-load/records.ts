import { AvroWriter, buildWirePrefix } from '../../infra/event-log/avro.ts';
import { encodeRunEvent, nilUuid } from '../../pipelines/ingest/run-event/run-event.ts';
import type { LoadRun } from './bodies.ts';

/** A parsed run with the bytes of its stored values. */
export interface ParsedRun extends Omit<LoadRun, 'inputs' | 'outputs'> {
  readonly inputs: Buffer;
  readonly outputs: Buffer;
  readonly extra: Buffer;
}

export interface RecordOwner {
  readonly tenantId: string;
  readonly projectId: string;
  readonly schemaId: number;
}

export function parsed(runs: readonly LoadRun[]): ParsedRun[] {
  return runs.map((run) => ({
    ...run,
    inputs: Buffer.from(run.inputs),
    outputs: Buffer.from(run.outputs),
    extra: Buffer.from('{"metadata":{"revision":"a1b2c3d","thread_id":"thread-1"}}'),
  }));
}

/** Encodes parsed rows with the product's encoder: one record a run, in the wire format. */
export function encodeParsed(runs: readonly ParsedRun[], { tenantId, projectId, schemaId }: RecordOwner): Buffer[] {
  const writer = new AvroWriter(1_500 * runs.length);
  return runs.map((run) => {
    const start = writer.position;
    writer.raw(buildWirePrefix(schemaId));
    encodeRunEvent(writer, {
      kind: 'post',
      tenantId,
      projectId,
      traceId: run.traceId,
      runId: run.id,
      startTimeMicros: run.startTimeMicros,
      traceTimeMicros: run.traceTimeMicros,
      receivedAtMicros: Date.now() * 1_000,
      userId: nilUuid,
      keyId: nilUuid,
      dottedOrder: run.dottedOrder,
      values: {
        name: 'step of the agent',
        runType: 'tool',
        startedAtMicros: run.startTimeMicros,
        endedAtMicros: run.startTimeMicros + 250_000,
        inputs: run.inputs,
        outputs: run.outputs,
        extra: run.extra,
      },
    });
    return writer.since(start);
  });
}
