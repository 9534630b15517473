import { explainConnection, signsOf } from '../../errors/explain-connection.ts';
import { fault, isRunlakeError, type RunlakeError } from '../../errors/runlake-error.ts';
import { destinationFault, type ObjectCall } from '../destination-fault.ts';

const denied = 'DESTINATION_ACCESS_DENIED';
const unavailable = 'DESTINATION_UNAVAILABLE';
const noBucket = 'DESTINATION_BUCKET_NOT_VALID';
const noEndpoint = 'DESTINATION_ENDPOINT_INVALID';

/** What stores call their errors; source: the S3 API's list of error responses, and what compatible stores add. */
const byName: Readonly<Record<string, readonly [code: Parameters<typeof destinationFault>[0], reason: string]>> = {
  InvalidAccessKeyId: ['DESTINATION_KEY_UNKNOWN', 'the store does not know it'],
  SignatureDoesNotMatch: [denied, 'the secret access key does not fit the access key id'],
  AccessDenied: [denied, 'the key may not do this'],
  AllAccessDisabled: [denied, 'all access to the bucket is disabled'],
  AccountProblem: [denied, 'the account of the key has a problem'],
  InvalidObjectState: [denied, 'the object is in an archive'],
  ExpiredToken: [denied, 'the session token has expired'],
  TokenRefreshRequired: [denied, 'the session token has expired'],
  InvalidToken: [denied, 'the session token is not valid'],
  RequestTimeTooSkewed: [denied, 'the clocks of Runlake and of the store differ too much'],
  CredentialsProviderError: [denied, 'the S3 client found no credentials on the machine of Runlake'],
  NoSuchBucket: [noBucket, 'there is no such bucket'],
  InvalidBucketName: [noBucket, 'its name is not a valid one'],
  PermanentRedirect: [noBucket, 'it lies in another region or at another endpoint'],
  TemporaryRedirect: [unavailable, 'the bucket has just been made and is not everywhere yet'],
  AuthorizationHeaderMalformed: [noBucket, 'it lies in another region than the destination says'],
  IllegalLocationConstraintException: [noBucket, 'it lies in another region than the destination says'],
  NoSuchUpload: [unavailable, 'the upload in parts is gone'],
  InvalidPart: [unavailable, 'a part of the upload is gone'],
  OperationAborted: [unavailable, 'another operation on the bucket is under way'],
  RequestTimeout: [unavailable, 'the store waited too long for data'],
  BadDigest: [unavailable, 'data changed on the way'],
  XAmzContentSHA256Mismatch: [unavailable, 'data changed on the way'],
};

/** A name of an error as the S3 API writes it; anything longer or odder may be text of whoever answers. */
const nameForm = /^[A-Za-z][A-Za-z0-9.]{1,63}$/;

/**
 * The catalogue's error for whatever a call of the S3 client failed with. The text of the store is not passed on, only the
 * name that the S3 API gives an error.
 */
export function s3Fault(raw: unknown, call: ObjectCall, place: string): RunlakeError {
  const own = [raw, causeOf(raw)].find(isRunlakeError);
  if (own !== undefined) return own;
  const { status, name, isFromStore } = answerOf(raw);
  const known = name !== undefined && Object.hasOwn(byName, name) ? byName[name] : undefined;
  if (known !== undefined && (isFromStore || name === 'CredentialsProviderError' || name === 'InvalidBucketName')) {
    return destinationFault(known[0], call, known[1], raw);
  }
  if (status === undefined) return withoutAnswer(raw, call, place);
  const answered = `the answer was ${status}${name === undefined ? '' : ` ${name}`}`;
  if (status === 404 && call.step === 'read') return fault('DESTINATION_OBJECT_MISSING', { where: call.where });
  if (status >= 500 && status !== 501) return destinationFault(unavailable, call, answered, raw);
  if (status === 408 || status === 429) return destinationFault(unavailable, call, answered, raw);
  if (status === 401 || status === 403) return destinationFault(denied, call, answered, raw);
  if (status === 301 || status === 307) return destinationFault(noBucket, call, 'it lies elsewhere', raw);
  // A store of this kind says what is wrong by a name; who does not is something else.
  const isStore = isFromStore && name !== undefined;
  return destinationFault(isStore ? noBucket : noEndpoint, call, isStore ? answered : notS3(place, answered), raw);
}

export const notS3 = (place: string, found: string): string => `${place} does not speak the S3 API (${found})`;

/** Nothing came back, or nothing that could be read. */
function withoutAnswer(raw: unknown, call: ObjectCall, place: string): RunlakeError {
  const signs = signsOf(raw);
  const explained = explainConnection(raw, {
    place,
    variable: 'endpoint_url',
    withTls: 'https://',
    withoutTls: 'http://',
  });
  const reason = explained?.words ?? `the connection to ${place} failed`;
  // Before anything was sent: the client has made no address of what it was given.
  if (/\b(ERR_INVALID_URL|EndpointError)\b/.test(signs)) {
    return destinationFault(noBucket, call, 'its name makes no address of a store', raw);
  }
  const isLasting =
    /\bENOTFOUND\b|getaddrinfo EINVAL|\bHPE_|\bCERT_|CERT\b|CERTIFICATE|certificate|\bERR_(TLS|SSL)_|\bEPROTO\b|wrong version/.test(
      signs,
    );
  if (isLasting) return destinationFault(noEndpoint, call, reason, raw);
  if (/\b(SyntaxError|Deserialization)\b|[Dd]eseriali[sz]ation|xml|XML/.test(signs)) {
    return destinationFault(noEndpoint, call, notS3(place, 'what it answered is not XML'), raw);
  }
  return destinationFault(unavailable, call, reason, raw);
}

/** Of the answer that an error of the S3 client is about. */
export function statusOf(raw: unknown): number | undefined {
  return (raw as { $metadata?: { httpStatusCode?: number } } | undefined)?.$metadata?.httpStatusCode;
}

/** Whether the answer to a HEAD of a bucket means that there is none. Whatever else answers so gives its answers no id. */
export function isNoBucket(raw: unknown): boolean {
  const { requestId } = (raw as { $metadata?: { requestId?: string } }).$metadata ?? {};
  return statusOf(raw) === 404 && requestId !== undefined;
}

function causeOf(raw: unknown): unknown {
  return raw instanceof Error ? raw.cause : undefined;
}

interface StoreAnswer {
  readonly status: number | undefined;
  /** What the error is called. */
  readonly name: string | undefined;
  /** Whether the answer itself said so, rather than the client made it up from the status. */
  readonly isFromStore: boolean;
}

function answerOf(raw: unknown): StoreAnswer {
  if (typeof raw !== 'object' || raw === null) return { status: undefined, name: undefined, isFromStore: false };
  const { name, Code } = raw as { name?: unknown; Code?: unknown };
  const given = typeof Code === 'string' ? Code : name;
  const isNamed =
    typeof given === 'string' && nameForm.test(given) && !['Error', 'Unknown', 'UnknownError'].includes(given);
  return {
    status: statusOf(raw),
    name: isNamed ? given : undefined,
    isFromStore: typeof Code === 'string',
  };
}
