import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { AvroWriter } from '../../infra/event-log/avro-writer.ts';
import type { EventLog, LogMessage } from '../../infra/event-log/event-log.ts';
import { wirePrefix } from '../../infra/event-log/wire-format.ts';
import { attachmentEvents } from '../../schemas/topics.ts';
import type { Sender } from '../ingest/accept/publish-runs.ts';
import { encodeAttachment } from './encode-attachment.ts';

export interface NewAttachment {
  readonly runId: string;
  readonly name: string;
  /** As sent, without parameters. */
  readonly mimeType: string;
  readonly content: Buffer;
}

const maxNameCharacters = 255;

/** RFC 9110: a type and a subtype, each a token. Other values are stored as `application/octet-stream`. */
const mimeForm = /^[!#$%&'*+.^_`|~0-9a-z-]{1,127}\/[!#$%&'*+.^_`|~0-9a-z-]{1,127}$/i;
const unknownMimeType = 'application/octet-stream';

/**
 * Encodes an attachment of a run as a log message, keyed by workspace and run. Sending the same name again replaces the
 * attachment.
 *
 * @throws INVALID_ATTACHMENT for an invalid name, RUN_TOO_LARGE.
 */
export function readAttachment(
  sender: Sender,
  { runId, name, mimeType, content }: NewAttachment,
  { log, config }: { readonly log: Pick<EventLog, 'schemaId'>; readonly config: Pick<Config, 'maxRunBytes'> },
): LogMessage {
  const reason = validateName(name);
  if (reason !== undefined)
    throw runlakeError('INVALID_ATTACHMENT', { attachment: `${name.slice(0, 64)} of ${runId}`, reason });
  const writer = new AvroWriter(content.length + 1_024);
  writer.raw(wirePrefix(log.schemaId(attachmentEvents)));
  encodeAttachment(writer, {
    tenantId: sender.workspaceId,
    runId,
    name,
    receivedAtMicros: Date.now() * 1_000,
    mimeType: mimeForm.test(mimeType) ? mimeType : unknownMimeType,
    content,
  });
  const value = writer.since(0);
  if (value.length > config.maxRunBytes) {
    const run = `${runId} with attachment ${name}`;
    throw runlakeError('RUN_TOO_LARGE', { run, limitBytes: config.maxRunBytes, limit: 'RUNLAKE_MAX_RUN_BYTES' });
  }
  return { key: `${sender.workspaceId}:${runId}`, value };
}

function validateName(name: string): string | undefined {
  if (name === '') return 'the part name contains no attachment name';
  if ([...name].length > maxNameCharacters) return `its name is longer than ${maxNameCharacters} characters`;
  return /\p{Cc}/u.test(name) ? 'its name contains control characters' : undefined;
}
