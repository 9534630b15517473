import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import type { OpenedToken, TokenSigner } from '../../infra/signing/token-signer.ts';

/** Identifies the attachment to which a link gives access. */
interface AttachmentKey {
  readonly tenantId: string;
  readonly runId: string;
  readonly name: string;
  /** Identifies the share for whose readers the link was made; see `identifyShare`. The link ends with the share. */
  readonly share?: string | undefined;
}

/** Lifetime of a link in seconds, measured from the response that contains the link. */
const linkLifetimeSeconds = 3_600;

/** Signs a token that allows clients to read this attachment for an hour. */
export function signAttachmentToken(signer: TokenSigner, { tenantId, runId, name, share }: AttachmentKey): string {
  const nowSeconds = Math.floor(Date.now() / 1_000);
  return signer.sign(
    JSON.stringify([tenantId, runId, name, ...(share === undefined ? [] : [share])]),
    nowSeconds + linkLifetimeSeconds,
  );
}

type OpenedAttachmentToken =
  | { readonly kind: 'valid'; readonly key: AttachmentKey }
  | Exclude<OpenedToken, { kind: 'valid' }>;

export function openAttachmentToken(signer: TokenSigner, token: string): OpenedAttachmentToken {
  const opened = signer.open(token, Math.floor(Date.now() / 1_000));
  if (opened.kind !== 'valid') return opened;
  // The signature proves that this server created the text.
  const [tenantId, runId, name, share] = JSON.parse(opened.text) as [string, string, string, string?];
  return { kind: 'valid', key: { tenantId, runId, name, share } };
}

interface LinkDeps {
  readonly clickhouse: ClickHouse;
  readonly signer: TokenSigner;
  /** Prefix of links. With a token appended, it forms an absolute URL. */
  readonly linkBase: string;
}

/**
 * Returns the names and MIME types of the attachments of runs, by run, ordered by name. Runs without attachments are
 * omitted.
 *
 * @throws errors of ClickHouse.
 */
export async function listAttachments(
  clickhouse: ClickHouse,
  tenantId: string,
  runIds: readonly string[],
): Promise<Map<string, { readonly name: string; readonly mime_type: string }[]>> {
  if (runIds.length === 0) return new Map();
  // If the retention of an attachment was extended, the partition of its former expiry also contains it.
  const rows = await clickhouse.query<{ run_id: string; name: string; mime_type: string }>({
    name: 'list-attachments',
    shardTables: ['attachments'],
    settings: lookupSettings,
    sql: `SELECT run_id, name, mime_type FROM {stored_attachments:Identifier} FINAL
          WHERE tenant_id = {tenant:UUID} AND run_id IN runs ORDER BY run_id, name, version DESC LIMIT 1 BY run_id, name`,
    params: { tenant: tenantId },
    externalTable: { name: 'runs', structure: 'run_id UUID', rows: [...new Set(runIds)].map((id) => [id]) },
  });
  const byRun = new Map<string, { readonly name: string; readonly mime_type: string }[]>();
  for (const { run_id: runId, name, mime_type } of rows) {
    const list = byRun.get(runId) ?? [];
    byRun.set(runId, list);
    list.push({ name, mime_type });
  }
  return byRun;
}

/**
 * Returns the attachments of `runIds` as one JSON object for each run. The object maps `attachment.<name>` to
 * `presigned_url` (valid for an hour without an API key) and `mime_type`. Runs without attachments are omitted.
 *
 * @throws errors of ClickHouse.
 */
export async function attachmentUrls(
  { clickhouse, signer, linkBase }: LinkDeps,
  tenantId: string,
  runIds: readonly string[],
): Promise<Map<string, string>> {
  const byRun = await listAttachments(clickhouse, tenantId, runIds);
  const toMember = (runId: string, name: string, mime_type: string) => {
    const presigned_url = linkBase + signAttachmentToken(signer, { tenantId, runId, name });
    return `${JSON.stringify(`attachment.${name}`)}:${JSON.stringify({ presigned_url, mime_type })}`;
  };
  return new Map(
    [...byRun].map(([runId, attachments]) => [
      runId,
      `{${attachments.map(({ name, mime_type }) => toMember(runId, name, mime_type)).join(',')}}`,
    ]),
  );
}
