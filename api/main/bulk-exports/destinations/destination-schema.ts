import { Type } from 'typebox';
import type { DestinationRecord } from '../../../../pipelines/exports/destinations/destination-config.ts';
import { JsonObject, nullable, optional, Text, Timestamp, Uuid } from '../../../server/formats.ts';

export const DestinationParams = Type.Object({ destination_id: Uuid() });

const DisplayName = Type.String({ minLength: 1, maxLength: 255, pattern: "^[A-Za-z0-9\\-_ ']+$" });

/** What travels in headers of requests, so no spaces and no control characters. */
const secretText = (maxLength: number) => Type.String({ minLength: 1, maxLength, pattern: '^[\\x21-\\x7e]+$' });

const Credentials = Type.Object(
  {
    access_key_id: secretText(255),
    secret_access_key: secretText(2_048),
    session_token: optional(secretText(2_048), { description: 'Of temporary credentials.' }),
  },
  { additionalProperties: false },
);

const NewConfig = Type.Object({
  bucket_name: optional(Type.String({ minLength: 3, maxLength: 63 })),
  prefix: optional(Text({ maxLength: 1_024 }), {
    description: 'Goes before the names of all objects; folders by `/`.',
  }),
  region: optional(Type.String({ minLength: 1, maxLength: 63 }), { description: 'For AWS. Absent: us-east-1.' }),
  endpoint_url: optional(Text({ minLength: 1, maxLength: 2_048 }), {
    description: 'Of a store other than AWS that speaks the S3 API. For AWS leave it out.',
  }),
  include_bucket_in_prefix: optional(Type.Boolean(), {
    description:
      'Default true. False: `endpoint_url` is the address of the bucket itself, and paths are told without it.',
  }),
  config_kwargs_s3: optional(
    Type.Object({
      addressing_style: optional(Type.Union([Type.Literal('virtual'), Type.Literal('path'), Type.Literal('auto')]), {
        description: 'auto, the default: in the path at an `endpoint_url`, in the host name at AWS.',
      }),
    }),
  ),
  s3_additional_kwargs: optional(JsonObject(), { description: 'Not supported: null or empty.' }),
  aws_role_arn: optional(Type.String({ maxLength: 2_048 }), { description: 'Not supported: null or empty.' }),
});

export const NewDestination = Type.Object({
  destination_type: optional(Type.Union([Type.Literal('s3'), Type.Literal('local')]), {
    default: 's3',
    description: 'local: a folder, `config.prefix`, below the root that the operator of the server has set.',
  }),
  display_name: DisplayName,
  config: NewConfig,
  credentials: optional(Credentials, {
    description: 'Absent: those that the server finds on its machine, unless its operator forbids that.',
  }),
});

export const DestinationChange = Type.Object({
  display_name: optional(DisplayName),
  credentials: optional(Credentials, { description: 'Tested before they replace those that there are.' }),
});

/** A destination as it is answered: without its credentials. */
export const Destination = Type.Object({
  id: Uuid(),
  tenant_id: Uuid({ description: 'The workspace.' }),
  destination_type: Type.String(),
  display_name: Type.String(),
  config: Type.Object({
    bucket_name: nullable(Type.String()),
    prefix: Type.String(),
    region: nullable(Type.String()),
    endpoint_url: nullable(Type.String()),
    include_bucket_in_prefix: Type.Boolean(),
    config_kwargs_s3: nullable(Type.Object({ addressing_style: Type.String() })),
    s3_additional_kwargs: Type.Null(),
    aws_role_arn: Type.Null(),
  }),
  credentials_keys: Type.Array(Type.String(), {
    description: 'Which credentials there are. Their values never come back.',
  }),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

export function showDestination({ config, credentials_keys, ...record }: DestinationRecord) {
  return {
    ...record,
    config: { ...config, s3_additional_kwargs: null, aws_role_arn: null },
    credentials_keys: [...credentials_keys],
  };
}

/** Errors of the checks that a destination passes before it, or new credentials, are stored. */
export const checkErrors = [
  'BAD_REQUEST',
  'PARAMETER_NOT_SUPPORTED',
  'DESTINATION_ACCESS_DENIED',
  'DESTINATION_BUCKET_NOT_VALID',
  'DESTINATION_CREDENTIALS_REQUIRED',
  'DESTINATION_ENDPOINT_INVALID',
  'DESTINATION_ENDPOINT_NOT_ALLOWED',
  'DESTINATION_KEY_UNKNOWN',
  'DESTINATION_OBJECT_DAMAGED',
  'DESTINATION_TYPE_OFF',
  'DESTINATION_UNAVAILABLE',
  'OVERLOADED',
] as const;
