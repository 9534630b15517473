import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import { signAttachmentToken } from './attachment-token.ts';

export interface LinkDeps {
  readonly clickhouse: ClickHouse;
  readonly signer: TokenSigner;
  /** Prefix of a link; with a token appended it is an absolute URL. */
  readonly linkBase: string;
}

/**
 * The attachments of each of `runIds`, as JSON objects by run: `attachment.<name>` → `presigned_url` (valid for an hour
 * without an API key) and `mime_type`. Runs without attachments are left out.
 *
 * @throws errors of ClickHouse.
 */
export async function attachmentUrls(
  { clickhouse, signer, linkBase }: LinkDeps,
  tenantId: string,
  runIds: readonly string[],
): Promise<Map<string, string>> {
  if (runIds.length === 0) return new Map();
  const rows = await clickhouse.query<{ run_id: string; name: string; mime_type: string }>({
    name: 'list-attachments',
    sql: `SELECT run_id, name, mime_type FROM attachments FINAL
          WHERE tenant_id = {tenant:UUID} AND run_id IN runs ORDER BY run_id, name`,
    params: { tenant: tenantId },
    external: { name: 'runs', structure: 'run_id UUID', rows: [...new Set(runIds)].map((id) => [id]) },
  });
  const members = new Map<string, string[]>();
  for (const { run_id: runId, name, mime_type } of rows) {
    const list = members.get(runId) ?? [];
    members.set(runId, list);
    const presigned_url = linkBase + signAttachmentToken(signer, { tenantId, runId, name });
    list.push(`${JSON.stringify(`attachment.${name}`)}:${JSON.stringify({ presigned_url, mime_type })}`);
  }
  return new Map([...members].map(([runId, list]) => [runId, `{${list.join(',')}}`]));
}
