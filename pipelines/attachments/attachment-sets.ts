/**
 * Stores the attachments of examples as sets, in the same table as the attachments of runs. A set has its own random
 * id, which is used instead of the run id. A set never changes and never expires; the versions of an example refer to
 * sets.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { deleteRows } from '../../infra/clickhouse/delete-rows.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import { signAttachmentToken } from './attachment-urls.ts';

/** Location of the stored content of an attachment. */
export interface AttachmentLocation {
  /** Id of the set. */
  readonly set: string;
  /** Name of the attachment in the set. The example may use a different name. */
  readonly name: string;
  readonly mime_type: string;
}

export interface NewSetAttachment {
  readonly set: string;
  readonly name: string;
  /** MIME type as returned by `normaliseMimeType`. */
  readonly mimeType: string;
  readonly content: Buffer;
}

/**
 * Version of all rows of sets. Those of events are smaller, so that an attachment of a run does not replace that of a set
 * whose id the client chose as the id of the run: links to attachments contain the ids of sets.
 */
const setVersion = 2n ** 63n;

/** SQL condition: an attachment belongs to a run. A set may have the id of a run, see {@link setVersion}. */
export const ofRunCondition = `version < ${setVersion}`;
const ofSetCondition = `version >= ${setVersion}`;

/** Stores attachments in their sets. Resolves when they are stored. @throws errors of ClickHouse. */
export async function storeAttachmentSets(
  clickhouse: ClickHouse,
  workspaceId: string,
  attachments: readonly NewSetAttachment[],
): Promise<void> {
  if (attachments.length === 0) return;
  const nowMicros = BigInt(Date.now()) * 1_000n;
  const body = Buffer.concat(
    attachments.flatMap(({ set, name, mimeType, content }) => [
      encodeUint64(setVersion),
      encodeUuid(workspaceId),
      encodeUuid(set),
      ...encodeString(Buffer.from(name)),
      encodeUint64(nowMicros),
      ...encodeString(Buffer.from(mimeType)),
      ...encodeString(content),
    ]),
  );
  await clickhouse.insertBody({
    name: 'store-attachment-sets',
    table: 'attachments',
    columns: ['version', 'tenant_id', 'run_id', 'name', 'received_at', 'mime_type', 'content'],
    format: 'RowBinary',
    body,
  });
}

// Encoding functions for the format RowBinary. Source: ClickHouse documentation, "Formats for Input and Output Data".

function encodeUint64(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  return bytes;
}

/** Encodes a UUID as two 8-byte integers, each little-endian. */
function encodeUuid(id: string): Buffer {
  const bytes = Buffer.from(id.replaceAll('-', ''), 'hex');
  bytes.subarray(0, 8).reverse();
  bytes.subarray(8).reverse();
  return bytes;
}

function encodeString(bytes: Buffer): [Buffer, Buffer] {
  const length: number[] = [];
  let rest = bytes.length;
  for (; rest > 0x7f; rest >>>= 7) length.push((rest & 0x7f) | 0x80);
  length.push(rest);
  return [Buffer.from(length), bytes];
}

/** Returns a hash of the names, MIME types and content of each set, by set. @throws errors of ClickHouse. */
export async function hashAttachmentSets(
  clickhouse: ClickHouse,
  workspaceId: string,
  sets: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const hashes = new Map<string, string>();
  for (let at = 0; at < sets.length; at += setsPerStatement) {
    const rows = await clickhouse.query<{ set: string; hash: string }>({
      name: 'hash-attachment-sets',
      sql: `SELECT run_id AS set, hex(SHA256(toString(arraySort(groupArray((name, mime_type, hex(SHA256(content)))))))) AS hash
            FROM attachments FINAL WHERE tenant_id = {tenant:UUID} AND run_id IN {sets:Array(UUID)} AND ${ofSetCondition}
            GROUP BY run_id`,
      params: { tenant: workspaceId, sets: sets.slice(at, at + setsPerStatement) },
    });
    for (const { set, hash } of rows) hashes.set(set, hash);
  }
  return hashes;
}

export interface AttachmentCopies {
  /** Id of a run or of a set. */
  readonly from: string;
  /** Id of the set that gets the copies. */
  readonly to: string;
  readonly names: readonly string[];
}

/**
 * Copies attachments of runs or sets into other sets.
 *
 * @returns for each set, the copies by name; attachments that do not exist are omitted.
 * @throws errors of ClickHouse.
 */
export async function copyAttachments(
  clickhouse: ClickHouse,
  workspaceId: string,
  copies: readonly AttachmentCopies[],
): Promise<ReadonlyMap<string, Record<string, AttachmentLocation>>> {
  const measured = copies.map((copy) => ({ ...copy, attachments: copy.names.length }));
  for (const copiesOfStatement of groupCopies(measured, attachmentsPerCopy)) {
    const chunk = copiesOfStatement.flatMap(({ from, to, names }) => names.map((name) => ({ from, to, name })));
    await clickhouse.command({
      name: 'copy-attachments',
      sql: `INSERT INTO attachments (version, tenant_id, run_id, name, received_at, mime_type, content)
            SELECT ${setVersion}, tenant_id, target, name, received_at, mime_type, content FROM (
              SELECT * FROM attachments FINAL
              PREWHERE tenant_id = {tenant:UUID} AND (run_id, name) IN (
                SELECT pair.1, pair.2 FROM (SELECT arrayJoin(arrayZip({sources:Array(UUID)}, {names:Array(String)})) AS pair))
              ORDER BY run_id, name, version DESC LIMIT 1 BY run_id, name)
            ARRAY JOIN arrayFilter((target, source, wanted) -> source = run_id AND wanted = name,
              {targets:Array(UUID)}, {sources:Array(UUID)}, {names:Array(String)}) AS target`,
      params: {
        tenant: workspaceId,
        targets: chunk.map(({ to }) => to),
        sources: chunk.map(({ from }) => from),
        names: chunk.map(({ name }) => name),
      },
    });
  }
  const copied = new Map(copies.map(({ to }) => [to, {} as Record<string, AttachmentLocation>]));
  const targets = [...copied.keys()];
  for (let at = 0; at < targets.length; at += setsPerStatement) {
    const rows = await clickhouse.query<{ set: string; name: string; mime_type: string }>({
      name: 'list-copied-attachments',
      sql: `SELECT run_id AS set, name, mime_type FROM attachments FINAL
            WHERE tenant_id = {tenant:UUID} AND run_id IN {sets:Array(UUID)} AND ${ofSetCondition}`,
      params: { tenant: workspaceId, sets: targets.slice(at, at + setsPerStatement) },
    });
    for (const { set, name, mime_type } of rows) {
      copied.set(set, { ...copied.get(set), [name]: { set, name, mime_type } });
    }
  }
  return copied;
}

/** Number of attachments from which a statement copies no more sets. ClickHouse sorts their content in memory. */
const attachmentsPerCopy = 20;

/** Divides copies into groups, none of which gets more copies after it has `max` attachments. */
function* groupCopies<Copy extends { readonly attachments: number }>(
  copies: readonly Copy[],
  max: number,
): Generator<readonly Copy[]> {
  let group: Copy[] = [];
  let attachments = 0;
  for (const copy of copies) {
    group.push(copy);
    attachments += copy.attachments;
    if (attachments < max) continue;
    yield group;
    [group, attachments] = [[], 0];
  }
  if (group.length > 0) yield group;
}

/**
 * Copies whole sets into new sets.
 *
 * @param copyIdsBySourceId Maps the id of each set to the id of its new copy.
 * @throws errors of ClickHouse.
 */
export async function copyAttachmentSets(
  clickhouse: ClickHouse,
  workspaceId: string,
  copyIdsBySourceId: Readonly<Record<string, string>>,
): Promise<void> {
  const counted = await countAttachments(clickhouse, workspaceId, Object.keys(copyIdsBySourceId));
  for (const group of groupCopies(counted, attachmentsPerSetCopy)) {
    const from = group.map(({ set }) => set);
    await clickhouse.command({
      name: 'copy-attachment-sets',
      sql: `INSERT INTO attachments (version, tenant_id, run_id, name, received_at, mime_type, content)
            SELECT ${setVersion}, tenant_id, arrayElement({to:Array(UUID)}, indexOf({from:Array(UUID)}, run_id)), name, received_at,
              mime_type, content
            FROM attachments FINAL WHERE tenant_id = {tenant:UUID} AND run_id IN {from:Array(UUID)} AND ${ofSetCondition}`,
      params: { tenant: workspaceId, from, to: from.map((set) => copyIdsBySourceId[set] ?? '') },
    });
  }
}

/**
 * Limits the content that one statement copies: it must end before its timeout, also if each attachment has several
 * megabytes.
 */
const attachmentsPerSetCopy = 100;

/** Returns those of the sets that have attachments, with their number. */
async function countAttachments(clickhouse: ClickHouse, workspaceId: string, sets: readonly string[]) {
  const counted: { readonly set: string; readonly attachments: number }[] = [];
  for (let at = 0; at < sets.length; at += setsPerStatement) {
    const rows = await clickhouse.query<{ set: string; attachments: number }>({
      name: 'count-set-attachments',
      sql: `SELECT run_id AS set, toUInt32(count()) AS attachments FROM attachments
            WHERE tenant_id = {tenant:UUID} AND run_id IN {sets:Array(UUID)} AND ${ofSetCondition} GROUP BY run_id`,
      params: { tenant: workspaceId, sets: sets.slice(at, at + setsPerStatement) },
    });
    for (const row of rows) counted.push(row);
  }
  return counted;
}

/** Deletes sets and their content. @throws errors of ClickHouse. */
export async function deleteAttachmentSets(
  clickhouse: ClickHouse,
  workspaceId: string,
  sets: readonly string[],
): Promise<void> {
  for (let at = 0; at < sets.length; at += setsPerStatement) {
    await deleteRows(clickhouse, {
      name: 'delete-attachment-sets',
      table: 'attachments',
      condition: 'tenant_id = {tenant:UUID} AND run_id IN {sets:Array(UUID)}',
      params: { tenant: workspaceId, sets: sets.slice(at, at + setsPerStatement) },
    });
  }
}

/** Limits the size of the query parameter, which must not exceed 128 KiB. */
const setsPerStatement = 2_000;

/**
 * Returns the `attachment_urls` of an example: it maps `attachment.<name>` to links that work for an hour without an
 * API key. With `share`, they end with that share.
 */
export function buildExampleAttachmentUrls(
  {
    signer,
    linkBase,
    share,
  }: { readonly signer: TokenSigner; readonly linkBase: string; readonly share?: string | undefined },
  workspaceId: string,
  attachments: Readonly<Record<string, AttachmentLocation>>,
): Record<string, { presigned_url: string; mime_type: string; storage_url: null }> {
  return Object.fromEntries(
    Object.entries(attachments).map(([displayName, { set, name, mime_type }]) => {
      const token = signAttachmentToken(signer, { tenantId: workspaceId, runId: set, name, share });
      return [`attachment.${displayName}`, { presigned_url: linkBase + token, mime_type, storage_url: null }];
    }),
  );
}
