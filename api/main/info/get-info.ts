import { Type } from 'typebox';
import { JsonObject, nullable, Timestamp } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';

const Info = Type.Object({
  version: Type.String({ description: 'The release of the original API that this server is compatible with.' }),
  git_sha: nullable(Type.String()),
  license_expiration_time: nullable(Timestamp()),
  batch_ingest_config: Type.Object({
    use_multipart_endpoint: Type.Boolean(),
    scale_up_qsize_trigger: Type.Integer(),
    scale_up_nthreads_limit: Type.Integer(),
    scale_down_nempty_trigger: Type.Integer(),
    size_limit: Type.Integer({ description: 'Runs of a batch that clients should not exceed.' }),
    size_limit_bytes: Type.Integer({ description: 'Bytes of a batch that clients should not exceed.' }),
  }),
  instance_flags: JsonObject({ description: 'What clients switch on.' }),
  customer_info: Type.Null(),
});

/**
 * Clients warn below 0.16.14 and send feedback inside multipart bodies from 0.8.10 on, so this number says what we understand.
 */
const COMPATIBLE_VERSION = '0.16.20';

const flags = {
  // The multipart route takes both compressions.
  gzip_body_enabled: true,
  zstd_compression_enabled: true,
  // There are no datasets yet. Clients then say so themselves, where `true` would send them to a route that is not there.
  dataset_examples_multipart_enabled: false,
  examples_multipart_enabled: false,
  // Runs are read through `POST /runs/query` only; the routes of version 2 are not there yet.
  ch_query_enabled: true,
  sdb_query_enabled: false,
};

export const getInfo = defineOperation({
  operationId: 'getInfo',
  method: 'GET',
  path: '/info',
  tag: 'info',
  summary: 'What this server can do; clients ask it first',
  access: { public: true, tenantScope: 'none' },
  schema: { response: { 200: Info } },
  handler: async ({ services: { config } }) => ({
    version: COMPATIBLE_VERSION,
    git_sha: null,
    license_expiration_time: null,
    batch_ingest_config: {
      use_multipart_endpoint: true,
      scale_up_qsize_trigger: 1000,
      scale_up_nthreads_limit: 16,
      scale_down_nempty_trigger: 4,
      // A run goes as up to nine parts: the run, its large fields and what they name.
      size_limit: Math.max(1, Math.min(100, Math.floor(config.maxParts / 9))),
      size_limit_bytes: Math.min(20 * 1024 * 1024, config.maxBodyBytes),
    },
    instance_flags: flags,
    customer_info: null,
  }),
});
