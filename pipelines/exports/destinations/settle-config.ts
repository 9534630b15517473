import { fault } from '../../../infra/errors/runlake-error.ts';
import { destinationFault } from '../../../infra/objects/destination-fault.ts';
import type { AddressingStyle, DestinationConfig, DestinationType } from './destination-config.ts';

/** What a caller says of a place. `null` says nothing. */
export interface GivenConfig {
  readonly bucket_name?: string | null | undefined;
  readonly prefix?: string | null | undefined;
  readonly region?: string | null | undefined;
  readonly endpoint_url?: string | null | undefined;
  readonly include_bucket_in_prefix?: boolean | null | undefined;
  readonly config_kwargs_s3?: Readonly<Record<string, unknown>> | null | undefined;
  readonly s3_additional_kwargs?: Readonly<Record<string, unknown>> | null | undefined;
  readonly aws_role_arn?: string | null | undefined;
}

/** A key has 1,024 bytes at most (S3 API); what an export adds to the prefix has fewer than 320. */
const maxPrefixBytes = 700;
// AWS gives out none that begin with xn--, which would make their hosts names in other alphabets.
const bucketForm = /^(?!xn--)[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]$/;
const regionForm = /^[A-Za-z0-9-]{1,63}$/;

/**
 * The configuration to store, complete.
 *
 * @throws PARAMETER_NOT_SUPPORTED that names a field which is not built; BAD_REQUEST, DESTINATION_BUCKET_NOT_VALID,
 * DESTINATION_ENDPOINT_INVALID.
 */
export function settleConfig(type: DestinationType, given: GivenConfig): DestinationConfig {
  refuseUnsupported(given);
  const prefix = given.prefix ?? '';
  checkPrefix(prefix);
  return type === 'local' ? localConfig(given, prefix) : s3Config(given, prefix);
}

function s3Config(given: GivenConfig, prefix: string): DestinationConfig {
  const bucket = given.bucket_name ?? null;
  const endpoint = given.endpoint_url ?? null;
  const region = given.region ?? null;
  const includesBucket = given.include_bucket_in_prefix ?? true;
  if (endpoint !== null) checkEndpoint(endpoint);
  if (region !== null && !regionForm.test(region)) throw badBucket('region', 'region is not the name of one');
  // Only an address can hold the name instead.
  if (bucket === null && (includesBucket || endpoint === null))
    throw badBucket('bucket_name', 'bucket_name is missing');
  if (bucket !== null && (!bucketForm.test(bucket) || bucket.includes('..'))) {
    throw badBucket('bucket_name', 'bucket_name is not the name of one');
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

/** Below the root that the operator named, by the prefix alone. */
function localConfig(given: GivenConfig, prefix: string): DestinationConfig {
  for (const field of ['bucket_name', 'region', 'endpoint_url', 'config_kwargs_s3'] as const) {
    if (given[field] == null) continue;
    throw fault('BAD_REQUEST', { reason: `A destination of type local has no config.${field}, only config.prefix.` });
  }
  if (prefix.startsWith('/')) {
    throw fault('BAD_REQUEST', { reason: 'config.prefix of a destination of type local is relative to its root.' });
  }
  // In a bucket it is part of a name; no folder has an empty one.
  if (prefix.includes('//')) {
    throw fault('BAD_REQUEST', {
      reason: "config.prefix of a destination of type local has a part without a name: '//'.",
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

function refuseUnsupported(given: GivenConfig): void {
  const isEmpty = (value: unknown) =>
    value == null || value === '' || (typeof value === 'object' && Object.values(value).every((one) => one == null));
  for (const field of ['s3_additional_kwargs', 'aws_role_arn'] as const) {
    if (!isEmpty(given[field])) throw fault('PARAMETER_NOT_SUPPORTED', { parameter: `config.${field}` });
  }
  for (const [name, value] of Object.entries(given.config_kwargs_s3 ?? {})) {
    if (name === 'addressing_style' || isEmpty(value)) continue;
    // A name of the caller's own, and as long as they like.
    const known = /^\w{1,64}$/.test(name) ? `.${name}` : '';
    throw fault('PARAMETER_NOT_SUPPORTED', { parameter: `config.config_kwargs_s3${known}` });
  }
}

function checkPrefix(prefix: string): void {
  const refuse = (reason: string) => fault('BAD_REQUEST', { reason: `config.prefix ${reason}.` });
  if (Buffer.byteLength(prefix) > maxPrefixBytes) throw refuse(`is longer than ${maxPrefixBytes} bytes`);
  // Stores answer with XML, which cannot hold these.
  if (/[\p{Cc}\p{Surrogate}\u{fffe}\u{ffff}]/u.test(prefix)) throw refuse('holds a character that no name can have');
  if (prefix.split('/').some((part) => part === '.' || part === '..')) throw refuse("has a part '.' or '..'");
}

/** What is wrong with it is said without it: it may hold a password. */
function checkEndpoint(text: string): void {
  const refuse = (reason: string) =>
    destinationFault('DESTINATION_ENDPOINT_INVALID', { step: 'reach', where: 'config.endpoint_url' }, reason);
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:\/\//i.test(text))
    throw refuse('it is no address that begins with https:// or http://');
  if (url.username !== '' || url.password !== '')
    throw refuse('it holds a user or a password, which belong into credentials');
  if (text.includes('?') || text.includes('#')) throw refuse('it goes on behind its path');
}

const badBucket = (field: string, reason: string) =>
  destinationFault('DESTINATION_BUCKET_NOT_VALID', { step: 'reach', where: `config.${field}` }, reason);
