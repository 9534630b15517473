import type { FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import {
  alwaysReturnedFields,
  type ExampleLinkDeps,
  type SelectableField,
  selectableFields,
} from '../../pipelines/datasets/example.ts';
import { parseExampleFilter } from '../../pipelines/datasets/example-filter.ts';
import type { ExampleFilter } from '../../pipelines/datasets/read-examples.ts';
import { JsonObject, OneOf, optional, Timestamp, Uuid } from '../server/formats.ts';
import { metadataParameter, parseMetadata } from '../server/list-parameters.ts';
import { buildPublicUrl } from '../server/public-base.ts';
import type { Services } from '../server/services.ts';

/** Examples in requests and responses. */

export function createExampleLinks({ attachmentSigner, config }: Services, request: FastifyRequest): ExampleLinkDeps {
  return { signer: attachmentSigner, linkBase: buildPublicUrl('/public/attachments/', request, config) };
}

export const maxExamples = 10_000;
const defaultFields = new Set(selectableFields.filter((field) => field !== 'attachment_urls'));
export const allFields = new Set(selectableFields);

export const AsOf = Type.Optional(
  Type.String({ maxLength: 512, description: 'A time, a tag of the dataset, or `latest`.' }),
);
/** An example in a response. */
export const exampleShape = {
  id: Uuid(),
  name: Type.String(),
  dataset_id: Uuid(),
  created_at: Timestamp(),
  modified_at: Timestamp({ description: 'The version that created or changed the example.' }),
  inputs: JsonObject({ description: 'The JSON that was sent.' }),
  outputs: optional(JsonObject({ description: 'The JSON that was sent.' })),
  metadata: Type.Optional(JsonObject({ description: '`dataset_split` is the list of splits.' })),
  source_run_id: optional(Uuid()),
  attachment_urls: Type.Optional(
    JsonObject({
      description: '`attachment.<name>` to its `presigned_url`, which is valid for an hour, and `mime_type`.',
    }),
  ),
};
export const Example = Type.Object(exampleShape);

export const filterParameters = {
  dataset: Type.Optional(Uuid()),
  id: Type.Optional(Type.Array(Uuid(), { maxItems: maxExamples })),
  as_of: AsOf,
  splits: Type.Optional(Type.Array(Type.String(), { maxItems: 100 })),
  metadata: metadataParameter,
  filter: Type.Optional(Type.String({ description: 'Condition in the filter language; see the guide.' })),
  full_text_contains: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 1_000 }), {
      maxItems: 10,
      description: 'Parts of the JSON of inputs or outputs, ignoring case.',
    }),
  ),
};
export const Filter = Type.Object(filterParameters);

export function toFilter(query: Static<typeof Filter>, parseFilter = parseExampleFilter): ExampleFilter {
  return {
    datasetId: query.dataset,
    ids: query.id,
    asOf: query.as_of,
    splits: query.splits,
    metadata: parseMetadata(query.metadata),
    texts: query.full_text_contains,
    condition: query.filter === undefined ? undefined : parseFilter(query.filter),
  };
}

export const selectParameter = Type.Optional(
  Type.Array(OneOf([...alwaysReturnedFields, ...selectableFields]), {
    maxItems: 20,
    description: 'Default: all fields except `attachment_urls`. Required fields are always returned.',
  }),
);

/** Returns the fields that a response contains according to {@link selectParameter}. */
export const toFields = (select: readonly string[] | undefined): ReadonlySet<SelectableField> =>
  select ? new Set(selectableFields.filter((field) => select.includes(field))) : defaultFields;
