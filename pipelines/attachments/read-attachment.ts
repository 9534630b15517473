import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { readNullableTextRows } from '../../infra/clickhouse/row-binary.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { AvroWriter, buildWirePrefix } from '../../infra/event-log/avro.ts';
import type { EventLog, LogMessage } from '../../infra/event-log/event-log.ts';
import { reserveTexts, runForTenant } from '../../infra/fairness/tenant-context.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import { attachmentEvents } from '../../schemas/topics.ts';
import type { Sender } from '../ingest/accept/draft.ts';
import { isUuid } from '../ingest/run-event/uuid.ts';
import { isLiveShare } from '../shares/share-tokens.ts';
import { findOrganizationId } from '../tenants/workspaces.ts';
import { openAttachmentToken } from './attachment-urls.ts';

/**
 * A complete attachment, identified by workspace, run and name. If several events have the same identity, the last
 * received event wins.
 */
export interface AttachmentEvent {
  readonly tenantId: string;
  readonly runId: string;
  readonly name: string;
  readonly receivedAtMicros: number;
  readonly mimeType: string;
  readonly content: Uint8Array;
}

/**
 * Appends `event` as one Avro record of `schemas/avro/attachment-event.avsc`. The fields must be written in the order
 * of the schema; a test decodes the result with the schema.
 */
export function encodeAttachment(writer: AvroWriter, event: AttachmentEvent): void {
  writer.ascii(event.tenantId);
  writer.ascii(event.runId);
  writer.string(event.name);
  writer.long(event.receivedAtMicros);
  writer.string(event.mimeType);
  writer.bytes(event.content);
}

/** The trace of a run, as stated in the event of the run. */
interface RunTrace {
  readonly traceId: string;
  /** Id of the project; the nil UUID if the event names no project. */
  readonly projectId: string;
  readonly traceTimeMicros: number;
}

const traceHeader = 'runlake-trace';

/**
 * Returns headers for the message of an attachment whose run is sent in the same request, so that the attachment can
 * expire with the trace of the run.
 */
export function buildTraceHeaders({ traceId, projectId, traceTimeMicros }: RunTrace): Readonly<Record<string, string>> {
  return { [traceHeader]: `${traceId} ${projectId} ${traceTimeMicros}` };
}

/** Reads the headers that {@link buildTraceHeaders} returns; undefined if they are absent. */
export function readTraceHeaders(headers: Readonly<Record<string, string>>): RunTrace | undefined {
  const [, traceId, projectId, micros] =
    /^([0-9a-f-]{36}) ([0-9a-f-]{36}) (\d{1,16})$/.exec(headers[traceHeader] ?? '') ?? [];
  // Another producer may have sent the header.
  if (traceId === undefined || projectId === undefined || !isUuid(traceId) || !isUuid(projectId)) return undefined;
  return { traceId, projectId, traceTimeMicros: Number(micros) };
}

interface NewAttachment {
  readonly runId: string;
  readonly name: string;
  /** MIME type as sent by the client. */
  readonly mimeType: string;
  readonly content: Buffer;
}

const maxNameCharacters = 255;

/**
 * Matches a MIME type according to RFC 9110: a type and a subtype, each of which is a token. Other values are stored as
 * `application/octet-stream`.
 */
const mimePattern = /^[!#$%&'*+.^_`|~0-9a-z-]{1,127}\/[!#$%&'*+.^_`|~0-9a-z-]{1,127}$/i;
const unknownMimeType = 'application/octet-stream';

/** Returns the MIME type without its parameters. */
export function normaliseMimeType(mimeType: string): string {
  const [essence = ''] = mimeType.split(';', 1);
  return mimePattern.test(essence.trim()) ? essence.trim() : unknownMimeType;
}

/**
 * Encodes an attachment of a run as a log message, keyed by workspace and run. A second attachment with the same name
 * replaces the first one.
 *
 * @throws INVALID_ATTACHMENT for an invalid name, RUN_TOO_LARGE.
 */
export function readAttachment(
  sender: Sender,
  { runId, name, mimeType, content }: NewAttachment,
  { log, config }: { readonly log: Pick<EventLog, 'schemaId'>; readonly config: Pick<Config, 'maxRunBytes'> },
): LogMessage {
  const reason = validateAttachmentName(name);
  if (reason !== undefined)
    throw runlakeError('INVALID_ATTACHMENT', { attachment: `${name.slice(0, 64)} of ${runId}`, reason });
  const writer = new AvroWriter(content.length + 1_024);
  writer.raw(buildWirePrefix(log.schemaId(attachmentEvents)));
  encodeAttachment(writer, {
    tenantId: sender.workspaceId,
    runId,
    name,
    receivedAtMicros: Date.now() * 1_000,
    mimeType: normaliseMimeType(mimeType),
    content,
  });
  const value = writer.since(0);
  if (value.length > config.maxRunBytes) {
    const run = `${runId} with attachment ${name}`;
    throw runlakeError('RUN_TOO_LARGE', { run, limitBytes: config.maxRunBytes, limit: 'RUNLAKE_MAX_RUN_BYTES' });
  }
  return { key: `${sender.workspaceId}:${runId}`, value };
}

/** Returns the reason why the name of an attachment is invalid; undefined if it is valid. */
export function validateAttachmentName(name: string): string | undefined {
  if (name === '') return 'the part name contains no attachment name';
  if ([...name].length > maxNameCharacters) return `its name is longer than ${maxNameCharacters} characters`;
  return /[\p{Cc}\p{Surrogate}]/u.test(name) ? 'its name contains control characters or lone surrogates' : undefined;
}

interface StoredAttachment {
  readonly name: string;
  readonly mimeType: string;
  readonly content: Buffer;
}

/**
 * Reads the attachment to which a token gives access.
 *
 * @throws NOT_FOUND if the token is invalid, if its share has ended, or if the attachment or its workspace is deleted; LINK_EXPIRED; errors of
 *   ClickHouse.
 */
export async function getAttachment(
  {
    clickhouse,
    database,
    signer,
    disconnected,
  }: {
    readonly clickhouse: ClickHouse;
    readonly database: Database;
    readonly signer: TokenSigner;
    readonly disconnected: AbortSignal;
  },
  token: string,
): Promise<StoredAttachment> {
  const opened = openAttachmentToken(signer, token);
  switch (opened.kind) {
    case 'expired':
      throw runlakeError('LINK_EXPIRED');
    case 'invalid':
      throw runlakeError('NOT_FOUND', { what: 'Attachment' });
    case 'valid':
      break;
    default:
      opened satisfies never;
  }
  const { tenantId, runId, name, share } = opened.key;
  const organizationId = await findOrganizationId(database, tenantId);
  if (organizationId === undefined) throw runlakeError('NOT_FOUND', { what: 'Attachment' });
  if (share !== undefined && !(await isLiveShare(database, tenantId, share)))
    throw runlakeError('NOT_FOUND', { what: 'Attachment' });
  return runForTenant({ organizationId, disconnected }, async () => {
    const response = await clickhouse.queryText({
      name: 'read-attachment',
      sql: `SELECT CAST(mime_type AS Nullable(String)), CAST(content AS Nullable(String)) FROM attachments FINAL
            WHERE tenant_id = {tenant:UUID} AND run_id = {run:UUID} AND name = {name:String} ORDER BY version DESC LIMIT 1`,
      params: { tenant: tenantId, run: runId, name },
      format: 'RowBinary',
    });
    const [mimeType, content] = readNullableTextRows(response, 2)[0] ?? [];
    if (mimeType === undefined || content === undefined) throw runlakeError('NOT_FOUND', { what: 'Attachment' });
    reserveTexts(content.length);
    return { name, mimeType: mimeType.toString('latin1'), content };
  });
}
