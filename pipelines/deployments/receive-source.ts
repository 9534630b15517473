/**
 * Receives the bodies of uploads in files of this process, each in a folder of its own.
 *
 * Invariant: an upload has one receiver in this process, and all files together have at most the bytes of the budget,
 * those of an organisation at most half of them. The next upload deletes the folders of a killed process.
 */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Config } from '../../infra/config/settings.ts';
import { isSystemError } from '../../infra/embedded/private-file.ts';
import { createProcessFolder } from '../../infra/embedded/process-identity.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';

export interface ReceivedSource {
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
}

export interface ReceivedUpload {
  readonly uploadId: string;
  readonly organizationId: string;
}

export interface SourceReceiver {
  /**
   * Writes a body to a file and passes it to `work`, after which the file is deleted. A receiver of the same upload that
   * has not received its whole body ends: a client that lost its connection may send the source again at once.
   *
   * @throws SOURCE_TOO_LARGE, SOURCE_NOT_STORED, BODY_TOO_SLOW, OVERLOADED; UPLOAD_LINK_INVALID if a later request has
   *   taken the upload.
   */
  receive(
    upload: ReceivedUpload,
    body: NodeJS.ReadableStream,
    work: (source: ReceivedSource) => Promise<void>,
  ): Promise<void>;
}

/** Minimum progress of a body. The limit on the time of a request does not apply to uploads. */
const minProgress = { bytes: 1024 ** 2, windowMs: 60_000 };
/** Budget of a process, in sources of the maximum size. */
const maxSources = 8;
/** Budget of an organisation: a slow body may take hours. */
const maxSourcesOfOrganization = maxSources / 2;
const retryAfterSeconds = 10;

const isDiskFull = (error: unknown) => isSystemError(error, 'ENOSPC') || isSystemError(error, 'EDQUOT');

export function createSourceReceiver(
  { deploymentsMaxSourceBytes: maxBytes }: Pick<Config, 'deploymentsMaxSourceBytes'>,
  progress: { readonly bytes: number; readonly windowMs: number } = minProgress,
): SourceReceiver {
  const receiving = new Map<string, AbortController>();
  let usedBytes = 0;
  const bytesByOrganization = new Map<string, number>();

  return {
    async receive({ uploadId, organizationId }, body, work) {
      receiving.get(uploadId)?.abort(runlakeError('UPLOAD_LINK_INVALID'));
      const ended = new AbortController();
      receiving.set(uploadId, ended);
      const hash = createHash('sha256');
      let bytes = 0;
      let bytesBefore = 0;
      const meter = new Transform({
        transform(chunk: Buffer, _encoding, done) {
          bytes += chunk.length;
          usedBytes += chunk.length;
          const ownBytes = (bytesByOrganization.get(organizationId) ?? 0) + chunk.length;
          bytesByOrganization.set(organizationId, ownBytes);
          if (bytes > maxBytes) return done(runlakeError('SOURCE_TOO_LARGE', { limitBytes: maxBytes }));
          if (usedBytes > maxSources * maxBytes || ownBytes > maxSourcesOfOrganization * maxBytes)
            return done(runlakeError('OVERLOADED', { what: 'uploads of sources' }, { retryAfterSeconds }));
          hash.update(chunk);
          done(null, chunk);
        },
      });
      const watch = setInterval(() => {
        if (bytes - bytesBefore < progress.bytes)
          ended.abort(runlakeError('BODY_TOO_SLOW', { bytes: progress.bytes, seconds: progress.windowMs / 1_000 }));
        bytesBefore = bytes;
      }, progress.windowMs);
      let folder: string | undefined;
      try {
        folder = await createProcessFolder(tmpdir(), { prefix: 'runlake-upload-' });
        const path = join(folder, 'source.tar.gz');
        const file = createWriteStream(path, { mode: 0o600 });
        await pipeline(body, meter, file, { signal: ended.signal }).catch((error: unknown) => {
          throw ended.signal.aborted ? ended.signal.reason : error;
        });
        await work({ path, bytes, sha256: hash.digest('hex') });
      } catch (error) {
        if (!isDiskFull(error)) throw error;
        throw runlakeError('SOURCE_NOT_STORED', { reason: 'the disk is full' }, { cause: error });
      } finally {
        clearInterval(watch);
        if (receiving.get(uploadId) === ended) receiving.delete(uploadId);
        if (folder !== undefined) await rm(folder, { recursive: true, force: true });
        usedBytes -= bytes;
        const leftBytes = (bytesByOrganization.get(organizationId) ?? 0) - bytes;
        if (leftBytes > 0) bytesByOrganization.set(organizationId, leftBytes);
        else bytesByOrganization.delete(organizationId);
      }
    },
  };
}
