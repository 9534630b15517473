import { collectErrorText, explainConnection } from '../../errors/explain-connection.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../errors/runlake-error.ts';
import { destinationError, type ObjectCall } from '../object-store.ts';

const deniedCode = 'DESTINATION_ACCESS_DENIED';
const unavailableCode = 'DESTINATION_UNAVAILABLE';
const noBucketCode = 'DESTINATION_BUCKET_NOT_VALID';
const noEndpointCode = 'DESTINATION_ENDPOINT_INVALID';

/** Error names of stores; source: the S3 API's list of error responses, and names that compatible stores add. */
const errorByName: Readonly<Record<string, readonly [code: Parameters<typeof destinationError>[0], reason: string]>> = {
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
  NoSuchBucket: [noBucketCode, 'there is no such bucket'],
  InvalidBucketName: [noBucketCode, 'its name is not valid'],
  PermanentRedirect: [noBucketCode, 'it is in another region or at another endpoint'],
  TemporaryRedirect: [unavailableCode, 'the bucket was just created and is not available everywhere yet'],
  AuthorizationHeaderMalformed: [noBucketCode, 'it is not in the region of the destination'],
  IllegalLocationConstraintException: [noBucketCode, 'it is not in the region of the destination'],
  NoSuchUpload: [unavailableCode, 'the multipart upload no longer exists'],
  InvalidPart: [unavailableCode, 'a part of the upload no longer exists'],
  OperationAborted: [unavailableCode, 'another operation on the bucket is in progress'],
  RequestTimeout: [unavailableCode, 'the store waited too long for data'],
  BadDigest: [unavailableCode, 'the data were changed in transit'],
  XAmzContentSHA256Mismatch: [unavailableCode, 'the data were changed in transit'],
};

/** Format of error names in the S3 API. Other values may be arbitrary text of an untrusted server, and are not passed on. */
const namePattern = /^[A-Za-z][A-Za-z0-9.]{1,63}$/;

/**
 * Converts an error of the S3 client to a RunlakeError. The new error never contains the text of the store, only the
 * error name.
 */
export function s3Error(raw: unknown, call: ObjectCall, location: string): RunlakeError {
  const own = [raw, raw instanceof Error ? raw.cause : undefined].find(isRunlakeError);
  if (own !== undefined) return own;
  const { status, name, isFromStore } = parseErrorResponse(raw);
  const known = name !== undefined && Object.hasOwn(errorByName, name) ? errorByName[name] : undefined;
  if (known !== undefined && (isFromStore || name === 'CredentialsProviderError' || name === 'InvalidBucketName')) {
    return destinationError(known[0], call, known[1], raw);
  }
  if (status === undefined) return toConnectionError(raw, call, location);
  const responseText = `the response was ${status}${name === undefined ? '' : ` ${name}`}`;
  if (status === 404 && call.step === 'read')
    return runlakeError('DESTINATION_OBJECT_MISSING', { where: call.location });
  if (status >= 500 && status !== 501) return destinationError(unavailableCode, call, responseText, raw);
  if (status === 408 || status === 429) return destinationError(unavailableCode, call, responseText, raw);
  if (status === 401 || status === 403) return destinationError(deniedCode, call, responseText, raw);
  if (status === 301 || status === 307)
    return destinationError(noBucketCode, call, 'it is in another region or at another endpoint', raw);
  // An S3 store names its errors. A server that does not name them is not an S3 store.
  const isStore = isFromStore && name !== undefined;
  return isStore ? destinationError(noBucketCode, call, responseText, raw) : notS3(call, location, responseText, raw);
}

/** Creates the error for a server at `location` that is not an S3 store. */
export function notS3(call: ObjectCall, location: string, found: string, raw?: unknown): RunlakeError {
  return destinationError(noEndpointCode, call, `${location} does not speak the S3 API (${found})`, raw);
}

/** Converts an error without a response, or with a response that cannot be parsed. */
function toConnectionError(raw: unknown, call: ObjectCall, location: string): RunlakeError {
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
    return destinationError(noBucketCode, call, 'its name is not valid in the URL of a store', raw);
  }
  const isPermanent =
    /\bENOTFOUND\b|getaddrinfo EINVAL|\bHPE_|\bCERT_|CERT\b|CERTIFICATE|certificate|\bERR_(TLS|SSL)_|\bEPROTO\b|wrong version/.test(
      signs,
    );
  if (isPermanent) return destinationError(noEndpointCode, call, reason, raw);
  if (/\b(SyntaxError|Deserialization)\b|[Dd]eseriali[sz]ation|xml|XML/.test(signs)) {
    return notS3(call, location, 'the response is not XML', raw);
  }
  return destinationError(unavailableCode, call, reason, raw);
}

/** Returns the HTTP status in an error of the S3 client; undefined if there was no response. */
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
