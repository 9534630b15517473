/**
 * Uploaded sources of deployments.
 *
 *   1. The owner requests a link, which is signed, valid for an hour, and names one object.
 *   2. The body of the PUT request is written to a file of this process (`receive-source.ts`).
 *   3. The row gets the hash of the content. From then on the link accepts no other content, so that concurrent requests
 *      do not replace each other's object.
 *   4. The file is stored through the object port; then the row is marked as uploaded, after which the link is invalid.
 */
import { createHash, randomUUID } from 'node:crypto';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { lockDeployment } from './lock-deployment.ts';
import type { SourceReceiver } from './receive-source.ts';
import type { SourceStore } from './source-store.ts';

export interface UploadDeps {
  readonly database: Database;
  readonly uploadSigner: TokenSigner;
  readonly sourceStore: SourceStore;
  readonly config: { readonly deploymentsMaxSourceBytes: number };
}

const linkSeconds = 3_600;
/** Links and sources that no revision uses are deleted after this time. */
const unusedSeconds = 24 * 3_600;
/** Maximum number of links and sources of a deployment that no revision uses. */
const maxUnused = 20;
/** SQL: no revision uses the upload `u`. */
const isUnusedSql = `NOT EXISTS (SELECT FROM deployment_revisions AS r WHERE r.deployment_id = u.deployment_id
  AND r.source_revision_config->>'source_tarball_path' = u.object_path)`;

export interface UploadLink {
  readonly uploadId: string;
  readonly objectPath: string;
  /** Gives access without a key. */
  readonly token: string;
}

/** Creates an upload for a deployment. @throws NOT_FOUND, also if it is being deleted; UPLOADS_LIMITED */
export async function createUpload(
  { database, uploadSigner }: UploadDeps,
  workspaceId: string,
  deploymentId: string,
): Promise<UploadLink> {
  const uploadId = randomUUID();
  const objectPath = await database.transaction(async (tx) => {
    const { id } = await lockDeployment(tx, workspaceId, deploymentId);
    const unused = await tx.query(
      `SELECT FROM source_uploads AS u WHERE u.deployment_id = $1 AND ${isUnusedSql} LIMIT ${maxUnused}`,
      [id],
    );
    if (unused.length === maxUnused) throw runlakeError('UPLOADS_LIMITED', { limit: maxUnused });
    const path = `${workspaceId}/${id}/${uploadId}.tar.gz`;
    await tx.execute(
      `INSERT INTO source_uploads (id, deployment_id, workspace_id, object_path, expires_at)
       VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))`,
      [uploadId, id, workspaceId, path, unusedSeconds],
    );
    return path;
  });
  const token = uploadSigner.sign(uploadId, Math.floor(Date.now() / 1_000) + linkSeconds);
  return { uploadId, objectPath, token };
}

/**
 * Receives the source of an upload.
 *
 * @throws UPLOAD_LINK_INVALID, SOURCE_NOT_STORED, errors of the receiver and of the object store
 */
export async function receiveUpload(
  { database, uploadSigner, sourceStore, sourceReceiver }: UploadDeps & { readonly sourceReceiver: SourceReceiver },
  token: string,
  body: NodeJS.ReadableStream,
): Promise<void> {
  const opened = uploadSigner.open(token, Math.floor(Date.now() / 1_000));
  const [upload] =
    opened.kind === 'valid'
      ? await database.query<{ id: string; objectPath: string; organizationId: string }>(
          `SELECT u.id, u.object_path AS "objectPath", d.organization_id AS "organizationId"
           FROM source_uploads AS u JOIN deployments AS d ON d.id = u.deployment_id
           WHERE u.id = $1 AND u.uploaded_at IS NULL`,
          [opened.text],
        )
      : [];
  if (upload === undefined) throw runlakeError('UPLOAD_LINK_INVALID');
  const { organizationId } = upload;
  await sourceReceiver.receive({ uploadId: upload.id, organizationId }, body, async ({ path, bytes, sha256 }) => {
    const claimed = await database.execute(
      `UPDATE source_uploads SET size_bytes = $2, sha256 = $3
       WHERE id = $1 AND uploaded_at IS NULL AND coalesce(sha256, $3) = $3`,
      [upload.id, bytes, sha256],
    );
    if (claimed === 0) throw runlakeError('UPLOAD_LINK_INVALID');
    const store = await sourceStore.open();
    await store.upload(upload.objectPath, path).catch((cause: unknown) => {
      if (!isRunlakeError(cause) || cause.code !== 'DESTINATION_UNAVAILABLE') throw cause;
      throw runlakeError('SOURCE_NOT_STORED', { reason: 'the store of sources is not available' }, { cause });
    });
    const marked = await database.execute(
      `UPDATE source_uploads SET uploaded_at = now() WHERE id = $1 AND uploaded_at IS NULL`,
      [upload.id],
    );
    if (marked > 0) return;
    // Another request has used the link, or the deployment was deleted with its objects in the meantime.
    const rows = await database.query('SELECT FROM source_uploads WHERE id = $1', [upload.id]);
    if (rows.length === 0) await store.delete(upload.objectPath);
    throw runlakeError('UPLOAD_LINK_INVALID');
  });
}

/** Checks that the source was uploaded for this deployment. @throws DEPLOYMENT_INVALID */
export async function requireUploadedSource(sql: Sql, deploymentId: string, objectPath: string): Promise<void> {
  const found = await sql.query(
    'SELECT FROM source_uploads WHERE deployment_id = $1 AND object_path = $2 AND uploaded_at IS NOT NULL',
    [deploymentId, objectPath],
  );
  if (found.length > 0) return;
  const reason = 'no source was uploaded to this path with the upload-url of this deployment';
  throw runlakeError('DEPLOYMENT_INVALID', { field: 'source_revision_config.source_tarball_path', reason });
}

/**
 * Reads an uploaded source, and verifies its hash.
 *
 * @throws BUILD_FAILED if it no longer exists or was changed; errors of the object store
 */
export async function readSource(
  { database, sourceStore, config }: Pick<UploadDeps, 'database' | 'sourceStore' | 'config'>,
  deploymentId: string,
  objectPath: string,
  signal: AbortSignal,
): Promise<Buffer> {
  const [upload] = await database.query<{ sha256: string }>(
    'SELECT sha256 FROM source_uploads WHERE deployment_id = $1 AND object_path = $2 AND uploaded_at IS NOT NULL',
    [deploymentId, objectPath],
  );
  if (upload === undefined) throw runlakeError('BUILD_FAILED', { reason: 'The uploaded source no longer exists' });
  const bytes = await (await sourceStore.open()).get(objectPath, {
    maxBytes: config.deploymentsMaxSourceBytes + 1,
    signal,
  });
  if (createHash('sha256').update(bytes).digest('hex') !== upload.sha256) {
    throw runlakeError('BUILD_FAILED', { reason: 'The stored source is not the one that was uploaded' });
  }
  return bytes;
}

/**
 * Deletes uploads that no revision uses and that are a day old, with their objects. An object that cannot be deleted does
 * not keep the others; it is due again after an hour.
 */
export async function deleteUnusedUploads({
  database,
  sourceStore,
  logger,
}: Pick<UploadDeps, 'database' | 'sourceStore'> & { readonly logger: Logger }): Promise<void> {
  const unused = await database.query<{ id: string; objectPath: string }>(
    `SELECT u.id, u.object_path AS "objectPath" FROM source_uploads AS u WHERE u.expires_at < now() AND ${isUnusedSql} LIMIT 100`,
  );
  for (const { id, objectPath } of unused) {
    try {
      await (await sourceStore.open()).delete(objectPath);
      await database.execute('DELETE FROM source_uploads WHERE id = $1', [id]);
    } catch (err) {
      logger.warn({ err, objectPath }, 'unused source not deleted; retrying in an hour');
      await database.execute(`UPDATE source_uploads SET expires_at = now() + interval '1 hour' WHERE id = $1`, [id]);
    }
  }
}
