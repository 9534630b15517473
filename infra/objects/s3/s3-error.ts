import { collectErrorText, explainConnection } from '../../errors/explain-connection.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../errors/runlake-error.ts';
import { destinationError, type ObjectCall } from '../object-store.ts';

const denied = 'DESTINATION_ACCESS_DENIED';
const unavailable = 'DESTINATION_UNAVAILABLE';
const noBucket = 'DESTINATION_BUCKET_NOT_VALID';
const noEndpoint = 'DESTINATION_ENDPOINT_INVALID';

/** Error names of stores; source: the S3 API's list of error responses, and names that compatible stores add. */
const byName: Readonly<Record<string, readonly [code: Parameters<typeof destinationError>[0], reason: string]>> = {
  InvalidAccessKeyId: ['DESTINATION_KEY_UNKNOWN', 'the store does not know the key id'],
  SignatureDoesNotMatch: [denied, 'the secret access key does not match the access key id'],
  AccessDenied: [denied, 'the key has no permission for this operation'],
  AllAccessDisabled: [denied, 'all access to the bucket is disabled'],
  AccountProblem: [denied, 'the account of the key has a problem'],
  InvalidObjectState: [denied, 'the object is in an archive'],
  ExpiredToken: [denied, 'the session token has expired'],
  TokenRefreshRequired: [denied, 'the session token has expired'],
  InvalidToken: [denied, 'the session token is not valid'],
  RequestTimeTooSkewed: [denied, 'the clocks of Runlake and the store differ too much'],
  CredentialsProviderError: [denied, 'the S3 client found no credentials on the machine that runs Runlake'],
  NoSuchBucket: [noBucket, 'there is no such bucket'],
  InvalidBucketName: [noBucket, 'its name is not valid'],
  PermanentRedirect: [noBucket, 'it is in another region or at another endpoint'],
  TemporaryRedirect: [unavailable, 'the bucket was just created and is not available everywhere yet'],
  AuthorizationHeaderMalformed: [noBucket, 'it is not in the region of the destination'],
  IllegalLocationConstraintException: [noBucket, 'it is not in the region of the destination'],
  NoSuchUpload: [unavailable, 'the multipart upload no longer exists'],
  InvalidPart: [unavailable, 'a part of the upload no longer exists'],
  OperationAborted: [unavailable, 'another operation on the bucket is in progress'],
  RequestTimeout: [unavailable, 'the store waited too long for data'],
  BadDigest: [unavailable, 'the data were changed in transit'],
  XAmzContentSHA256Mismatch: [unavailable, 'the data were changed in transit'],
};

/** Format of error names in the S3 API. Other values may be arbitrary text of an untrusted server, and are not passed on. */
const namePattern = /^[A-Za-z][A-Za-z0-9.]{1,63}$/;

/**
 * Converts an error of the S3 client to an error of the catalogue. The new error never contains the text of the store,
 * only the error name.
 */
export function s3Error(raw: unknown, call: ObjectCall, location: string): RunlakeError {
  const own = [raw, raw instanceof Error ? raw.cause : undefined].find(isRunlakeError);
  if (own !== undefined) return own;
  const { status, name, isFromStore } = parseErrorResponse(raw);
  const known = name !== undefined && Object.hasOwn(byName, name) ? byName[name] : undefined;
  if (known !== undefined && (isFromStore || name === 'CredentialsProviderError' || name === 'InvalidBucketName')) {
    return destinationError(known[0], call, known[1], raw);
  }
  if (status === undefined) return connectionFailure(raw, call, location);
  const answered = `the response was ${status}${name === undefined ? '' : ` ${name}`}`;
  if (status === 404 && call.step === 'read') return runlakeError('DESTINATION_OBJECT_MISSING', { where: call.where });
  if (status >= 500 && status !== 501) return destinationError(unavailable, call, answered, raw);
  if (status === 408 || status === 429) return destinationError(unavailable, call, answered, raw);
  if (status === 401 || status === 403) return destinationError(denied, call, answered, raw);
  if (status === 301 || status === 307)
    return destinationError(noBucket, call, 'it is in another region or at another endpoint', raw);
  // An S3 store names its errors. A server that does not name them is not an S3 store.
  const isStore = isFromStore && name !== undefined;
  return isStore ? destinationError(noBucket, call, answered, raw) : notS3(call, location, answered, raw);
}

/** Creates the error for a server at `location` that is not an S3 store. */
export function notS3(call: ObjectCall, location: string, found: string, raw?: unknown): RunlakeError {
  return destinationError(noEndpoint, call, `${location} does not speak the S3 API (${found})`, raw);
}

/** Converts an error without a response, or with a response that cannot be parsed. */
function connectionFailure(raw: unknown, call: ObjectCall, location: string): RunlakeError {
  const signs = collectErrorText(raw);
  const explained = explainConnection(raw, {
    location,
    variable: 'endpoint_url',
    withTls: 'https://',
    withoutTls: 'http://',
  });
  const reason = explained?.words ?? `the connection to ${location} failed`;
  // Nothing was sent, because the client could not build a URL from its options.
  if (/\b(ERR_INVALID_URL|EndpointError)\b/.test(signs)) {
    return destinationError(noBucket, call, 'its name is not valid in the URL of a store', raw);
  }
  const isLasting =
    /\bENOTFOUND\b|getaddrinfo EINVAL|\bHPE_|\bCERT_|CERT\b|CERTIFICATE|certificate|\bERR_(TLS|SSL)_|\bEPROTO\b|wrong version/.test(
      signs,
    );
  if (isLasting) return destinationError(noEndpoint, call, reason, raw);
  if (/\b(SyntaxError|Deserialization)\b|[Dd]eseriali[sz]ation|xml|XML/.test(signs)) {
    return notS3(call, location, 'the response is not XML', raw);
  }
  return destinationError(unavailable, call, reason, raw);
}

/** HTTP status in an error of the S3 client; undefined if there was no response. */
export function getStatus(raw: unknown): number | undefined {
  return (raw as { $metadata?: { httpStatusCode?: number } } | undefined)?.$metadata?.httpStatusCode;
}

/**
 * Returns true if the response to HEAD of a bucket means that the bucket does not exist. Servers other than S3 stores
 * send no request id.
 */
export function isNoBucket(raw: unknown): boolean {
  const { requestId } = (raw as { $metadata?: { requestId?: string } }).$metadata ?? {};
  return getStatus(raw) === 404 && requestId !== undefined;
}

interface StoreErrorResponse {
  readonly status: number | undefined;
  /** Error name. */
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
