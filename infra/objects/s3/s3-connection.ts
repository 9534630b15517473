/**
 * The S3 client, with timeouts for every call.
 *
 * Invariant: every call ends, whatever the store does. It ends by the first of
 *
 * 1. the response, after at most `limits.attempts` attempts;
 * 2. its signal, with the reason of that signal;
 * 3. its timeout, which includes all attempts, the pauses between them and the lookup of credentials;
 * 4. `close` of the connection.
 */
import { S3Client } from '@aws-sdk/client-s3';
import { quietStorageClient } from '../../config/quiet-storage-client.ts';
import { runlakeError } from '../../errors/runlake-error.ts';
import { openGuardedAgents } from '../../network/guarded-agents.ts';
import { destinationError, type ObjectCall } from '../destination-error.ts';
import { boundAnswers } from './bound-answers.ts';
import { orAborted } from './or-aborted.ts';
import { s3Error } from './s3-error.ts';
import { defaultLimits, type S3Options } from './s3-options.ts';

/** Enough for the concurrent parts of an upload and one small call. */
const maxConnections = 4;
const bodyBytesPerMs = 64;
const defaultRegion = 'us-east-1';

export interface S3CallOptions {
  readonly signal?: AbortSignal | undefined;
  /** Size of the body; a larger body has a longer timeout. */
  readonly bytes?: number;
}

export interface S3Connection {
  /** Value of `Bucket` in commands. */
  readonly bucket: string;
  /** The store for messages, as `host:port`. */
  readonly location: string;
  /** Runs one call. @throws an error of the catalogue about `call`, or the reason of the signal. */
  send<Result>(
    call: ObjectCall,
    work: (client: S3Client, abortSignal: AbortSignal) => Promise<Result>,
    options?: S3CallOptions,
  ): Promise<Result>;
  /** Closes the connections. Running calls fail. */
  close(): void;
}

export function openS3Connection(options: S3Options): S3Connection {
  const { endpointUrl, credentials } = options;
  const limits = { ...defaultLimits, ...options.limits };
  const region = options.region ?? defaultRegion;
  const location = endpointUrl === undefined ? `AWS S3 in ${region}` : new URL(endpointUrl).host;
  const holdsBucket = options.isBucketInEndpoint && endpointUrl !== undefined;
  const agents = openGuardedAgents({
    allowPrivate: options.allowPrivateEndpoints,
    refuse: (host, { about }) => runlakeError('DESTINATION_ENDPOINT_NOT_ALLOWED', { host, range: about }),
    maxConnections,
    authorities: options.authorities,
  });
  quietStorageClient();
  const client = new S3Client({
    region,
    maxAttempts: limits.attempts,
    retryMode: 'standard',
    // Stores other than AWS support only the signed checksum of the body.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    expectContinueHeader: false,
    forcePathStyle: isPathStyle(options),
    requestHandler: {
      httpAgent: agents.http,
      httpsAgent: agents.https,
      connectionTimeout: limits.connectMs,
      socketTimeout: limits.silenceMs,
    },
    ...(endpointUrl === undefined ? {} : { endpoint: endpointUrl }),
    ...(holdsBucket ? { bucketEndpoint: true } : {}),
    ...(credentials === undefined ? {} : { credentials: plain(credentials) }),
  });
  boundAnswers(client);
  const inFlight = new Set<AbortController>();

  return {
    bucket: holdsBucket ? endpointUrl.replace(/\/+$/, '') : (options.bucket ?? ''),
    location,
    async send(call, work, { signal, bytes = 0 } = {}) {
      signal?.throwIfAborted();
      const controller = new AbortController();
      const end = () => controller.abort();
      const callMs = limits.callMs + Math.ceil(bytes / bodyBytesPerMs);
      let isLate = false;
      const timer = setTimeout(() => {
        isLate = true;
        end();
      }, callMs);
      signal?.addEventListener('abort', end, { once: true });
      inFlight.add(controller);
      try {
        // The client ignores the signal while it looks up credentials.
        return await orAborted(work(client, controller.signal), controller.signal);
      } catch (raw) {
        if (signal?.aborted) throw signal.reason;
        const reason = isLate ? `${location} did not respond within ${callMs} ms` : 'Runlake closed the connection';
        if (controller.signal.aborted) throw destinationError('DESTINATION_UNAVAILABLE', call, reason, raw);
        throw s3Error(raw, call, location);
      } finally {
        clearTimeout(timer);
        signal?.removeEventListener('abort', end);
        inFlight.delete(controller);
      }
    },
    close() {
      for (const controller of inFlight) controller.abort();
      client.destroy();
      agents.close();
    },
  };
}

function isPathStyle({ addressingStyle, endpointUrl }: S3Options): boolean {
  return addressingStyle === 'auto' ? endpointUrl !== undefined : addressingStyle === 'path';
}

function plain({ accessKeyId, secretAccessKey, sessionToken }: NonNullable<S3Options['credentials']>) {
  return { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) };
}
