import type { FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import {
  defaultFields,
  type ExampleField,
  type ExampleLinkDeps,
  exampleFields,
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
/** An example in a list; see {@link buildSelectParameters}. */
export const ListedExample = Type.Interface([Type.Partial(Type.Omit(Example, ['id']))], { id: Uuid() });

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

/** Fields of the examples of a list by default. */
export const listedFields = exampleFields.filter((field) => field !== 'attachment_urls');

/** Returns the parameters of a list that select `fields` of its examples; without them, it has `byDefault`. */
export const buildSelectParameters = <const F extends ExampleField>(fields: readonly F[], byDefault: string) => ({
  select: Type.Optional(
    Type.Array(OneOf(['id', ...fields]), {
      maxItems: 20,
      description: `Fields of the examples in addition to \`${['id', ...defaultFields].join('`, `')}\`. Default: ${byDefault}.`,
    }),
  ),
  exclude_default_fields: Type.Boolean({
    default: false,
    description: 'If true, examples have only `id` and the fields of `select`.',
  }),
});

/**
 * Returns the fields that a response contains according to {@link buildSelectParameters}; `listed` without `select`.
 */
export function toFields(
  { select, exclude_default_fields }: { readonly select?: readonly string[]; readonly exclude_default_fields: boolean },
  listed: readonly ExampleField[],
): ReadonlySet<ExampleField> {
  if (select === undefined) return new Set(listed);
  const always: readonly ExampleField[] = exclude_default_fields ? [] : defaultFields;
  return new Set([...always, ...exampleFields.filter((field) => select.includes(field))]);
}
