import { schemaIdOf } from '../../infra/event-log/avro.ts';
import type { DeadLetterHead, DeadLetterRecord } from '../../infra/event-log/event-log.ts';
import { printable } from './print-table.ts';

/** Maximum number of bytes in a hex dump. */
const maxDumpBytes = 4 * 1024;

type Shown = Pick<DeadLetterRecord, 'value' | 'headers'> & { readonly record: Record<string, unknown> | undefined };

/** Formats a dead-letter record for programs. A record that cannot be decoded is base64. */
export function deadLetterAsJson(head: DeadLetterHead, replayedAt: string | undefined, shown?: Shown): object {
  const { id, topic, partition, offset, key, sizeBytes, reason, step, deadAtMs } = head;
  return {
    id,
    topic,
    partition,
    offset,
    key,
    size_bytes: sizeBytes,
    reason,
    step,
    time: new Date(deadAtMs).toISOString(),
    replayed_at: replayedAt ?? null,
    ...(shown && {
      headers: shown.headers,
      schema_id: schemaIdOf(shown.value) ?? null,
      ...(shown.record ? { record: shown.record } : { value_base64: shown.value.toString('base64') }),
    }),
  };
}

/**
 * Formats a dead-letter record as text: metadata, headers, then the decoded record as JSON, or a hex dump if it cannot
 * be decoded.
 */
export function deadLetterAsText(
  deadLetter: DeadLetterRecord,
  replayedAt: string | undefined,
  record: Record<string, unknown> | undefined,
): string[] {
  const schemaId = schemaIdOf(deadLetter.value);
  const facts: [string, string][] = [
    ['Id', deadLetter.id],
    ['Reason', deadLetter.reason],
    ['Step', deadLetter.step],
    ['Time', new Date(deadLetter.deadAtMs).toISOString()],
    ['Event', `partition ${deadLetter.partition}, offset ${deadLetter.offset} of ${deadLetter.topic}`],
    ['Key', deadLetter.key],
    ['Size', `${deadLetter.sizeBytes} bytes`],
    ['Schema', schemaId === undefined ? 'none: the bytes are not in the wire format' : String(schemaId)],
    ['Replayed', replayedAt ?? 'no'],
    ...Object.entries(deadLetter.headers).map(([name, value]): [string, string] => [`Header ${name}`, value]),
  ];
  const lines = facts.map(([name, value]) => `${printable(name).padEnd(10)} ${printable(value)}`);
  if (record !== undefined) return [...lines, '', ...JSON.stringify(record, undefined, 2).split('\n').map(printable)];
  return [...lines, '', 'The record cannot be decoded. Its bytes:', ...hexDump(deadLetter.value)];
}

function hexDump(bytes: Buffer): string[] {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, maxDumpBytes); at += 16) {
    const row = bytes.subarray(at, at + 16);
    const hex = [...row].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    const text = row.toString('latin1').replace(/[^ -~]/g, '.');
    lines.push(`${at.toString(16).padStart(8, '0')}  ${hex.padEnd(47)}  ${text}`);
  }
  if (bytes.length > maxDumpBytes) lines.push(`… and ${bytes.length - maxDumpBytes} more bytes: see --json`);
  return lines;
}
