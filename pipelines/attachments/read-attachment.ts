import type { Config } from '../../infra/config/settings.ts';
import { fault } from '../../infra/errors/runlake-error.ts';
import { AvroWriter } from '../../infra/event-log/avro-writer.ts';
import type { EventLog, LogMessage } from '../../infra/event-log/event-log.ts';
import { wirePrefix } from '../../infra/event-log/wire-format.ts';
import { attachmentEvents } from '../../schemas/topics.ts';
import type { Sender } from '../ingest/accept/publish-runs.ts';
import { encodeAttachment } from './encode-attachment.ts';

export interface NewAttachment {
  readonly runId: string;
  readonly name: string;
  /** As the sender gave it, without parameters. */
  readonly mimeType: string;
  readonly content: Buffer;
}

const maxNameCharacters = 255;

/** RFC 9110: a type and a subtype, each a token. What has another form is told by nobody. */
const mimeForm = /^[!#$%&'*+.^_`|~0-9a-z-]{1,127}\/[!#$%&'*+.^_`|~0-9a-z-]{1,127}$/i;
const unknownMimeType = 'application/octet-stream';

/**
 * One attachment of a run, as a message for the log, keyed by workspace and run. The same name again replaces it.
 * @throws INVALID_ATTACHMENT for its name, RUN_TOO_LARGE.
 */
export function readAttachment(
  sender: Sender,
  { runId, name, mimeType, content }: NewAttachment,
  { log, config }: { readonly log: Pick<EventLog, 'schemaId'>; readonly config: Pick<Config, 'maxRunBytes'> },
): LogMessage {
  const reason = nameFault(name);
  if (reason !== undefined)
    throw fault('INVALID_ATTACHMENT', { attachment: `${name.slice(0, 64)} of ${runId}`, reason });
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
    throw fault('RUN_TOO_LARGE', { run, limitBytes: config.maxRunBytes, limit: 'RUNLAKE_MAX_RUN_BYTES' });
  }
  return { key: `${sender.workspaceId}:${runId}`, value };
}

function nameFault(name: string): string | undefined {
  if (name === '') return 'the name of the part ends before that of the attachment';
  if ([...name].length > maxNameCharacters) return `its name is longer than ${maxNameCharacters} characters`;
  return /\p{Cc}/u.test(name) ? 'its name has control characters' : undefined;
}
