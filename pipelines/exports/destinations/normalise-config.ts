import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { createDestinationError } from '../../../infra/objects/object-store.ts';
import type { AddressingStyle, DestinationConfig, DestinationType } from './destination.ts';

/** Configuration in the form in which a caller sends it. `null` has the same meaning as an absent field. */
export interface DestinationConfigInput {
  readonly bucket_name?: string | null | undefined;
  readonly prefix?: string | null | undefined;
  readonly region?: string | null | undefined;
  readonly endpoint_url?: string | null | undefined;
  readonly include_bucket_in_prefix?: boolean | null | undefined;
  readonly config_kwargs_s3?: Readonly<Record<string, unknown>> | null | undefined;
  readonly s3_additional_kwargs?: Readonly<Record<string, unknown>> | null | undefined;
  readonly aws_role_arn?: string | null | undefined;
}

/**
 * Maximum size of a prefix in bytes. The S3 API limits a key to 1,024 bytes, and an export adds fewer than 320 bytes to
 * the prefix.
 */
const maxPrefixBytes = 700;
// AWS reserves names that begin with xn--, the prefix of internationalised host names.
const bucketPattern = /^(?!xn--)[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]$/;
const regionPattern = /^[A-Za-z0-9-]{1,63}$/;

/**
 * Validates the given configuration and adds defaults.
 *
 * @throws PARAMETER_NOT_SUPPORTED for a field that is not implemented; BAD_REQUEST, DESTINATION_BUCKET_NOT_VALID,
 * DESTINATION_ENDPOINT_INVALID.
 */
export function normaliseConfig(type: DestinationType, given: DestinationConfigInput): DestinationConfig {
  rejectUnsupported(given);
  const prefix = given.prefix ?? '';
  checkPrefix(prefix);
  return type === 'local' ? toLocalConfig(given, prefix) : toS3Config(given, prefix);
}

function toS3Config(given: DestinationConfigInput, prefix: string): DestinationConfig {
  const bucket = given.bucket_name ?? null;
  const endpoint = given.endpoint_url ?? null;
  const region = given.region ?? null;
  const includesBucket = given.include_bucket_in_prefix ?? true;
  if (endpoint !== null) checkEndpoint(endpoint);
  if (region !== null && !regionPattern.test(region)) throw createBucketError('region', 'region is not a valid name');
  // Without `bucket_name`, the endpoint URL must contain the bucket.
  if (bucket === null && (includesBucket || endpoint === null))
    throw createBucketError('bucket_name', 'bucket_name is missing');
  if (bucket !== null && (!bucketPattern.test(bucket) || bucket.includes('..'))) {
    throw createBucketError('bucket_name', 'bucket_name is not a valid name');
  }
  const style = (given.config_kwargs_s3?.addressing_style ?? null) as AddressingStyle | null;
  return {
    bucket_name: bucket,
    prefix,
    region,
    endpoint_url: endpoint,
    include_bucket_in_prefix: includesBucket,
    config_kwargs_s3: style === null ? null : { addressing_style: style },
  };
}

/**
 * Converts the configuration of a local destination. Its folder is below the root that the operator has configured, and
 * only the prefix selects it.
 */
function toLocalConfig(given: DestinationConfigInput, prefix: string): DestinationConfig {
  for (const field of ['bucket_name', 'region', 'endpoint_url', 'config_kwargs_s3'] as const) {
    if (given[field] == null) continue;
    throw runlakeError('BAD_REQUEST', {
      reason: `A destination of type local has no config.${field}, only config.prefix.`,
    });
  }
  if (prefix.startsWith('/')) {
    throw runlakeError('BAD_REQUEST', {
      reason: 'config.prefix of a destination of type local is relative to its root.',
    });
  }
  // An S3 key may contain `//`, but a folder name cannot be empty.
  if (prefix.includes('//')) {
    throw runlakeError('BAD_REQUEST', {
      reason: "config.prefix of a destination of type local contains an empty folder name: '//'.",
    });
  }
  return {
    bucket_name: null,
    prefix,
    region: null,
    endpoint_url: null,
    include_bucket_in_prefix: false,
    config_kwargs_s3: null,
  };
}

function rejectUnsupported(given: DestinationConfigInput): void {
  const isEmpty = (value: unknown) =>
    value == null || value === '' || (typeof value === 'object' && Object.values(value).every((one) => one == null));
  for (const field of ['s3_additional_kwargs', 'aws_role_arn'] as const) {
    if (!isEmpty(given[field])) throw runlakeError('PARAMETER_NOT_SUPPORTED', { parameter: `config.${field}` });
  }
  for (const [name, value] of Object.entries(given.config_kwargs_s3 ?? {})) {
    if (name === 'addressing_style' || isEmpty(value)) continue;
    // The name comes from the caller and may have any length, so it is quoted only if it is short and plain.
    const known = /^\w{1,64}$/.test(name) ? `.${name}` : '';
    throw runlakeError('PARAMETER_NOT_SUPPORTED', { parameter: `config.config_kwargs_s3${known}` });
  }
}

function checkPrefix(prefix: string): void {
  const refuse = (reason: string) => runlakeError('BAD_REQUEST', { reason: `config.prefix ${reason}.` });
  if (Buffer.byteLength(prefix) > maxPrefixBytes) throw refuse(`is longer than ${maxPrefixBytes} bytes`);
  // Object stores list keys as XML, in which these characters cannot be represented.
  if (/[\p{Cc}\p{Surrogate}\u{fffe}\u{ffff}]/u.test(prefix))
    throw refuse('contains a character that object keys cannot have');
  if (prefix.split('/').some((part) => part === '.' || part === '..'))
    throw refuse("contains '.' or '..' as a folder name");
}

/** Checks an endpoint URL. The error does not quote the URL, because it may contain a password. */
function checkEndpoint(text: string): void {
  const refuse = (reason: string) =>
    createDestinationError('DESTINATION_ENDPOINT_INVALID', { step: 'reach', location: 'config.endpoint_url' }, reason);
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:\/\//i.test(text))
    throw refuse('it is not a URL that begins with https:// or http://');
  if (url.username !== '' || url.password !== '')
    throw refuse('it contains a user or a password, which belong in credentials');
  if (text.includes('?') || text.includes('#')) throw refuse('it has a query or a fragment');
}

const createBucketError = (field: string, reason: string) =>
  createDestinationError('DESTINATION_BUCKET_NOT_VALID', { step: 'reach', location: `config.${field}` }, reason);
