import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { readNullableTextRows } from '../../infra/clickhouse/nullable-text-rows.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import { isLiveWorkspace } from '../tenants/read-workspace.ts';
import { openAttachmentToken } from './attachment-token.ts';

export interface StoredAttachment {
  readonly name: string;
  readonly mimeType: string;
  readonly content: Buffer;
}

/**
 * Reads the attachment that a token gives access to.
 *
 * @throws NOT_FOUND if the token is invalid, or the attachment or its workspace is deleted; LINK_EXPIRED; errors of
 *   ClickHouse.
 */
export async function getAttachment(
  {
    clickhouse,
    database,
    signer,
  }: { readonly clickhouse: ClickHouse; readonly database: Database; readonly signer: TokenSigner },
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
  const { tenantId, runId, name } = opened.key;
  if (!(await isLiveWorkspace(database, tenantId))) throw runlakeError('NOT_FOUND', { what: 'Attachment' });
  const answer = await clickhouse.queryText({
    name: 'read-attachment',
    sql: `SELECT CAST(mime_type AS Nullable(String)), CAST(content AS Nullable(String)) FROM attachments FINAL
          WHERE tenant_id = {tenant:UUID} AND run_id = {run:UUID} AND name = {name:String}`,
    params: { tenant: tenantId, run: runId, name },
    format: 'RowBinary',
  });
  const [mimeType, content] = readNullableTextRows(answer, 2)[0] ?? [];
  if (mimeType === undefined || content === undefined) throw runlakeError('NOT_FOUND', { what: 'Attachment' });
  return { name, mimeType: mimeType.toString('latin1'), content };
}
