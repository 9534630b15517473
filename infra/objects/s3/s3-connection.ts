/**
 * The S3 client, with timeouts for every call.
 *
 * Invariant: every call settles, whatever the store does, on whichever comes first:
 *
 * 1. the response, after at most `limits.attempts` attempts;
 * 2. its signal, with the reason of that signal;
 * 3. its timeout, which includes all attempts, the pauses between them and the lookup of credentials;
 * 4. `close` of the connection.
 */
import {
  type $Command,
  type PutObjectCommand,
  S3Client,
  type S3ClientResolvedConfig,
  type ServiceInputTypes,
  type ServiceOutputTypes,
  type UploadPartCommand,
} from '@aws-sdk/client-s3';
import { silenceStorageClient } from '../../config/quiet-storage-client.ts';
import { collectErrorText, explainConnection } from '../../errors/explain-connection.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../errors/runlake-error.ts';
import { openGuardedAgents } from '../../network/guarded-agents.ts';
import { raceWithAbort } from '../../timeouts/with-timeout.ts';
import { createDestinationError, type ObjectCall, readAtMost } from '../object-store.ts';

const deniedCode = 'DESTINATION_ACCESS_DENIED';
const unavailableCode = 'DESTINATION_UNAVAILABLE';
const invalidBucketCode = 'DESTINATION_BUCKET_NOT_VALID';
const invalidEndpointCode = 'DESTINATION_ENDPOINT_INVALID';

/**
 * Maps error names of stores to error codes and reasons. Source: the S3 API's list of error responses, and names that
 * compatible stores add.
 */
const errorByName: Readonly<
  Record<string, readonly [code: Parameters<typeof createDestinationError>[0], reason: string]>
> = {
  InvalidAccessKeyId: ['DESTINATION_KEY_UNKNOWN', 'the store does not know the key id'],
  SignatureDoesNotMatch: [deniedCode, 'the secret access key does not match the access key id'],
  AccessDenied: [deniedCode, 'the key has no permission for this operation'],
  AllAccessDisabled: [deniedCode, 'all access to the bucket is disabled'],
  AccountProblem: [deniedCode, 'the account of the key has a problem'],
  InvalidObjectState: [deniedCode, 'the object is in an archive'],
  ExpiredToken: [deniedCode, 'the session token has expired'],
  TokenRefreshRequired: [deniedCode, 'the session token has expired'],
  InvalidToken: [deniedCode, 'the session token is not valid'],
  RequestTimeTooSkewed: [deniedCode, 'the clocks of Runlake and the store differ too much'],
  CredentialsProviderError: [deniedCode, 'the S3 client found no credentials on the machine that runs Runlake'],
  NoSuchBucket: [invalidBucketCode, 'there is no such bucket'],
  InvalidBucketName: [invalidBucketCode, 'its name is not valid'],
  PermanentRedirect: [invalidBucketCode, 'it is in another region or at another endpoint'],
  TemporaryRedirect: [unavailableCode, 'the bucket was just created and is not available everywhere yet'],
  AuthorizationHeaderMalformed: [invalidBucketCode, 'it is not in the region of the destination'],
  IllegalLocationConstraintException: [invalidBucketCode, 'it is not in the region of the destination'],
  NoSuchUpload: [unavailableCode, 'the multipart upload no longer exists'],
  InvalidPart: [unavailableCode, 'a part of the upload no longer exists'],
  OperationAborted: [unavailableCode, 'another operation on the bucket is in progress'],
  RequestTimeout: [unavailableCode, 'the store waited too long for data'],
  IncompleteBody: [unavailableCode, 'the data were truncated in transit'],
  BadDigest: [unavailableCode, 'the data were changed in transit'],
  XAmzContentSHA256Mismatch: [unavailableCode, 'the data were changed in transit'],
};

/** Format of error names in the S3 API. Other values may be arbitrary text of an untrusted server, and are not passed on. */
const namePattern = /^[A-Za-z][A-Za-z0-9.]{1,63}$/;

/**
 * Converts an error of the S3 client to a RunlakeError. The new error never contains the text of the store, only the
 * error name.
 */
function toS3Error(raw: unknown, call: ObjectCall, location: string): RunlakeError {
  const own = [raw, raw instanceof Error ? raw.cause : undefined].find(isRunlakeError);
  if (own !== undefined) return own;
  const { status, name, isFromStore } = parseErrorResponse(raw);
  const known = name !== undefined && Object.hasOwn(errorByName, name) ? errorByName[name] : undefined;
  if (known !== undefined && (isFromStore || name === 'CredentialsProviderError' || name === 'InvalidBucketName')) {
    return createDestinationError(known[0], call, known[1], raw);
  }
  if (status === undefined) return toConnectionError(raw, call, location);
  const responseText = `the response was ${status}${name === undefined ? '' : ` ${name}`}`;
  if (status === 404 && call.step === 'read' && isFromStore)
    return runlakeError('DESTINATION_OBJECT_MISSING', { where: call.location });
  if (status >= 500 && status !== 501) return createDestinationError(unavailableCode, call, responseText, raw);
  if (status === 408 || status === 429) return createDestinationError(unavailableCode, call, responseText, raw);
  if (status === 401 || status === 403) return createDestinationError(deniedCode, call, responseText, raw);
  if (status === 301 || status === 307)
    return createDestinationError(invalidBucketCode, call, 'it is in another region or at another endpoint', raw);
  // An S3 store names its errors. A server that does not name them is not an S3 store.
  const isStore = isFromStore && name !== undefined;
  return isStore
    ? createDestinationError(invalidBucketCode, call, responseText, raw)
    : createNotS3Error(call, location, responseText, raw);
}

/** Creates the error for a server at `location` that is not an S3 store. */
export function createNotS3Error(call: ObjectCall, location: string, found: string, raw?: unknown): RunlakeError {
  return createDestinationError(invalidEndpointCode, call, `${location} does not speak the S3 API (${found})`, raw);
}

/** Converts an error without a response, or with a response that cannot be parsed. */
function toConnectionError(raw: unknown, call: ObjectCall, location: string): RunlakeError {
  const signs = collectErrorText(raw);
  const explanation = explainConnection(raw, {
    location,
    variable: 'endpoint_url',
    withTls: 'https://',
    withoutTls: 'http://',
  });
  const reason = explanation?.words ?? `the connection to ${location} failed`;
  // Nothing was sent, because the client could not build a URL from its options.
  if (/\b(ERR_INVALID_URL|EndpointError)\b/.test(signs)) {
    return createDestinationError(invalidBucketCode, call, 'its name is not valid in the URL of a store', raw);
  }
  const isPermanent =
    /\bENOTFOUND\b|getaddrinfo EINVAL|\bHPE_|\bCERT_|CERT\b|CERTIFICATE|certificate|\bERR_(TLS|SSL)_|\bEPROTO\b|wrong version/.test(
      signs,
    );
  if (isPermanent) return createDestinationError(invalidEndpointCode, call, reason, raw);
  if (/\b(SyntaxError|Deserialization)\b|[Dd]eseriali[sz]ation|xml|XML/.test(signs)) {
    return createNotS3Error(call, location, 'the response is not XML', raw);
  }
  return createDestinationError(unavailableCode, call, reason, raw);
}

/** Returns the HTTP status in an error of the S3 client; undefined if there was no response. */
export function getStatus(raw: unknown): number | undefined {
  return (raw as { $metadata?: { httpStatusCode?: number } } | undefined)?.$metadata?.httpStatusCode;
}

/**
 * Returns true if the response to HEAD of a bucket means that the bucket does not exist. Servers other than S3 stores
 * send no request id.
 */
export function isMissingBucketError(raw: unknown): boolean {
  const { requestId } = (raw as { $metadata?: { requestId?: string } }).$metadata ?? {};
  return getStatus(raw) === 404 && requestId !== undefined;
}

interface StoreErrorResponse {
  readonly status: number | undefined;
  /** Error name of the S3 API, such as `NoSuchKey`. */
  readonly name: string | undefined;
  /** Whether the name comes from the response; otherwise the client derived it from the status. */
  readonly isFromStore: boolean;
}

function parseErrorResponse(raw: unknown): StoreErrorResponse {
  if (typeof raw !== 'object' || raw === null) return { status: undefined, name: undefined, isFromStore: false };
  const { name, Code } = raw as { name?: unknown; Code?: unknown };
  const given = typeof Code === 'string' ? Code : name;
  const isNamed =
    typeof given === 'string' && namePattern.test(given) && !['Error', 'Unknown', 'UnknownError'].includes(given);
  return {
    status: getStatus(raw),
    name: isNamed ? given : undefined,
    isFromStore: typeof Code === 'string',
  };
}

/** Maximum number of connections: enough for the concurrent parts of an upload and one small call. */
const maxConnections = 4;
const bodyBytesPerMs = 64;
const defaultRegion = 'us-east-1';

export const defaultContentType = 'application/octet-stream';

export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

export interface S3Options {
  /** Undefined if `endpointUrl` contains the bucket. */
  readonly bucket: string | undefined;
  /** Prefix of all keys; slashes at its ends are ignored. */
  readonly prefix: string;
  /** Region of the bucket. Default: `us-east-1`. Stores other than AWS ignore the region. */
  readonly region: string | undefined;
  /** URL of the S3 endpoint. Default: AWS. */
  readonly endpointUrl: string | undefined;
  /** Whether `endpointUrl` is the URL of the bucket; `resolvePath` then omits the bucket. */
  readonly isBucketInEndpoint: boolean;
  /**
   * Where URLs contain the name of the bucket. `auto`: in the path if `endpointUrl` is set, in the host name for AWS.
   */
  readonly addressingStyle: 'virtual' | 'path' | 'auto';
  /** Credentials for the store. Default: the credential chain of the S3 client. */
  readonly credentials: S3Credentials | undefined;
  /** Whether endpoints on loopback and private addresses are allowed. */
  readonly allowPrivateEndpoints: boolean;
  /** Trusted CA certificates, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  readonly limits?: S3Limits | undefined;
}

/** Limits of calls. Defaults: {@link defaultLimits}. */
export interface S3Limits {
  /** Maximum number of attempts of a request. */
  readonly attempts?: number;
  readonly connectTimeoutMs?: number;
  /** Idle timeout of a connection in use. */
  readonly idleTimeoutMs?: number;
  /** Timeout of a call with all its attempts; each 64 kB of its body adds a second. */
  readonly callTimeoutMs?: number;
}

const defaultLimits = { attempts: 3, connectTimeoutMs: 5_000, idleTimeoutMs: 20_000, callTimeoutMs: 60_000 } as const;

export interface S3CallOptions {
  readonly signal?: AbortSignal | undefined;
  /** Size of the body; a larger body has a longer timeout. */
  readonly bytes?: number;
}

/** Sends a command to the store, under the timeout and the signal of its call. */
export type RunCommand = <Input extends ServiceInputTypes, Output extends ServiceOutputTypes>(
  command: $Command<Input, Output, S3ClientResolvedConfig, ServiceInputTypes, ServiceOutputTypes>,
) => Promise<Output>;

export interface S3Connection {
  /** Value of `Bucket` in commands. */
  readonly bucket: string;
  /** Name of the store in messages: `host:port` of the endpoint, or AWS S3 with its region. */
  readonly location: string;
  /** Runs `work` under the call's timeout. @throws a RunlakeError for `call`, or `signal.reason`. */
  send<Result>(call: ObjectCall, work: (run: RunCommand) => Promise<Result>, options?: S3CallOptions): Promise<Result>;
  /** Closes the connections. Running calls fail. */
  close(): void;
}

export function openS3Connection(options: S3Options): S3Connection {
  const { endpointUrl, credentials } = options;
  const limits = { ...defaultLimits, ...options.limits };
  const region = options.region ?? defaultRegion;
  const location = endpointUrl === undefined ? `AWS S3 in ${region}` : new URL(endpointUrl).host;
  const hasBucketInUrl = options.isBucketInEndpoint && endpointUrl !== undefined;
  const agents = openGuardedAgents({
    allowPrivate: options.allowPrivateEndpoints,
    refuse: (host, { about }) => runlakeError('DESTINATION_ENDPOINT_NOT_ALLOWED', { host, range: about }),
    maxConnections,
    authorities: options.authorities,
  });
  silenceStorageClient();
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
      connectionTimeout: limits.connectTimeoutMs,
      socketTimeout: limits.idleTimeoutMs,
    },
    ...(endpointUrl === undefined ? {} : { endpoint: endpointUrl }),
    ...(hasBucketInUrl ? { bucketEndpoint: true } : {}),
    ...(credentials === undefined ? {} : { credentials: toClientCredentials(credentials) }),
  });
  limitResponseSize(client);
  const closed = new AbortController();

  return {
    bucket: hasBucketInUrl ? endpointUrl.replace(/\/+$/, '') : (options.bucket ?? ''),
    location,
    async send(call, work, { signal, bytes = 0 } = {}) {
      signal?.throwIfAborted();
      const callMs = limits.callTimeoutMs + Math.ceil(bytes / bodyBytesPerMs);
      const timeout = AbortSignal.timeout(callMs);
      const abortSignal = AbortSignal.any([timeout, closed.signal, ...(signal ? [signal] : [])]);
      try {
        const run: RunCommand = (command) => client.send(command, { abortSignal });
        // The client ignores the signal while it looks up credentials.
        return await raceWithAbort(work(run), abortSignal);
      } catch (raw) {
        if (signal?.aborted) throw signal.reason;
        if (!abortSignal.aborted) throw toS3Error(raw, call, location);
        const reason = timeout.aborted
          ? `${location} did not respond within ${callMs} ms`
          : 'Runlake closed the connection';
        throw createDestinationError('DESTINATION_UNAVAILABLE', call, reason, raw);
      }
    },
    close() {
      closed.abort();
      client.destroy();
      agents.close();
    },
  };
}

function isPathStyle({ addressingStyle, endpointUrl }: S3Options): boolean {
  return addressingStyle === 'auto' ? endpointUrl !== undefined : addressingStyle === 'path';
}

function toClientCredentials({ accessKeyId, secretAccessKey, sessionToken }: NonNullable<S3Options['credentials']>) {
  return { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) };
}

/** Maximum size of a response. It is larger than any response of the S3 API about one object. */
const maxResponseBytes = 256 * 1024;

/**
 * Limits the size of responses. The S3 client buffers each response in memory, and an endpoint that a user chooses may
 * send an endless response. A response above the limit is truncated, and the client then fails to parse it. The limit
 * does not apply to contents of objects, because the caller limits those.
 */
function limitResponseSize(client: S3Client): void {
  client.middlewareStack.add(
    (next, context) => async (args) => {
      const result = await next(args);
      const response = result.response as { statusCode?: number; body?: unknown } | undefined;
      const isObjectBody = context.commandName === 'GetObjectCommand' && (response?.statusCode ?? 0) < 300;
      if (response && !isObjectBody && isStream(response.body)) {
        response.body = await readAtMost(response.body, maxResponseBytes);
      }
      return result;
    },
    { step: 'deserialize', priority: 'low', name: 'boundAnswers' },
  );
}

const isStream = (body: unknown): body is AsyncIterable<Buffer> =>
  typeof body === 'object' && body !== null && Symbol.asyncIterator in body;

/**
 * Sets the signed SHA-256 of the body of a command, which stores compare with the received data. Otherwise the client
 * would compute the hash in one step, which blocks the event loop.
 */
export function setPayloadHash(command: PutObjectCommand | UploadPartCommand, sha256: string): void {
  // The two stacks differ only in type parameters that are not used here.
  const stack = command.middlewareStack as PutObjectCommand['middlewareStack'];
  stack.add(
    (next) => (args) => {
      (args.request as { headers: Record<string, string> }).headers['x-amz-content-sha256'] = sha256;
      return next(args);
    },
    { step: 'build', name: 'signedAs' },
  );
}
