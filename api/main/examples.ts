import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { runWithMemory } from '../../infra/fairness/tenant-context.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { formatMarkedJson } from '../../infra/json/marked-json.ts';
import { deleteExamples as removeExamples } from '../../pipelines/datasets/delete-examples.ts';
import { allExampleFields, exampleFields } from '../../pipelines/datasets/example.ts';
import {
  countExamples as countMatching,
  exampleOrders,
  readExample,
  readExamples,
} from '../../pipelines/datasets/read-examples.ts';
import {
  updateExamples as changeExamples,
  createExamples as insertExamples,
  type NewExample,
} from '../../pipelines/datasets/write-examples.ts';
import { requirePermission, type WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import { JsonObject, jsonMediaType, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { pageParameters } from '../server/list-parameters.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import type { Services } from '../server/services.ts';
import {
  AsOf,
  buildSelectParameters,
  createExampleLinks,
  Example,
  Filter,
  filterParameters,
  ListedExample,
  listedFields,
  maxExamples,
  toFields,
  toFilter,
} from './example-fields.ts';

/** Requires the permission `runs:read` if any of the new examples contains data copied from runs. */
export function requireRunAccess(caller: WorkspaceCaller, examples: readonly NewExample[]): void {
  const usesRun = examples.some(
    ({ useSourceRunIo, useSourceRunAttachments }) => useSourceRunIo || (useSourceRunAttachments ?? []).length > 0,
  );
  if (usesRun) requirePermission(caller, 'runs:read');
}

/** Errors of the operations that create or change examples. */
export const exampleWriteErrors = [
  'NOT_FOUND',
  'CONFLICT',
  'INVALID_EXAMPLE',
  'INVALID_SCHEMA',
  'EXAMPLE_TOO_LARGE',
  'DATASET_FULL',
  ...clickhouseErrors,
] as const;

/** Errors of the operations that create examples, which may copy a run. */
export const exampleCreateErrors = [...exampleWriteErrors, 'NOT_STORED_YET', 'KAFKA_UNAVAILABLE'] as const;

const ExampleParams = Type.Object({ example_id: Uuid() });
const Split = () =>
  optional(
    Type.Union(
      [Type.Array(Text({ minLength: 1, maxLength: 512 }), { maxItems: 100 }), Text({ minLength: 1, maxLength: 512 })],
      {
        description: 'Default when an example is created: `base`.',
      },
    ),
  );

const listExamples = defineOperation({
  operationId: 'listExamples',
  method: 'GET',
  path: '/examples',
  summary: 'List examples',
  description:
    'Of a dataset, or those with the given ids. `order=recent` is by the last change, `recently_created` by creation.',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'INVALID_FILTER', 'SEARCH_TOO_SLOW', 'OVERLOADED'],
  schema: {
    query: Type.Object({
      ...filterParameters,
      order: OneOf(exampleOrders, { default: 'recent' }),
      random_seed: Type.Optional(Type.Number()),
      descending: Type.Optional(Type.Boolean({ description: 'Default: true for `recent` and `recently_created`.' })),
      ...buildSelectParameters(exampleFields, 'all, except `attachment_urls`'),
      inline_s3_urls: Type.Optional(Type.Boolean({ description: 'Accepted; inputs and outputs are always inline.' })),
      ...pageParameters,
    }),
    response: { 200: Type.Array(ListedExample) },
    produces: jsonMediaType,
  },
  handler: async ({ caller, query, services, request }) => {
    const body = await readExamples(
      services.database,
      caller.workspaceId,
      {
        ...toFilter(query),
        order: query.order,
        descending: query.descending,
        randomSeed: query.random_seed,
        fields: toFields(query, listedFields),
        limit: query.limit,
        offset: query.offset,
      },
      createExampleLinks(services, request),
    );
    return new RawResponse({ body });
  },
});

const countExamples = defineOperation({
  operationId: 'countExamples',
  method: 'GET',
  path: '/examples/count',
  summary: 'Count examples',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'INVALID_FILTER', 'SEARCH_TOO_SLOW', 'OVERLOADED'],
  schema: { query: Filter, response: { 200: Type.Integer() } },
  handler: async ({ caller, query, services }) => countMatching(services.database, caller.workspaceId, toFilter(query)),
});

const getExample = defineOperation({
  operationId: 'getExample',
  method: 'GET',
  path: '/examples/:example_id',
  summary: 'Get an example',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'OVERLOADED'],
  schema: {
    params: ExampleParams,
    query: Type.Object({ as_of: AsOf, dataset: Type.Optional(Uuid()) }),
    response: { 200: Example },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, query, services, request }) => {
    const which = { exampleId: params.example_id, datasetId: query.dataset, asOf: query.as_of };
    const links = createExampleLinks(services, request);
    return new RawResponse({
      body: await readExample(services.database, caller.workspaceId, which, allExampleFields, links),
    });
  },
});

const contentFields = {
  inputs: optional(JsonObject()),
  outputs: optional(JsonObject()),
  metadata: optional(JsonObject()),
  split: Split(),
};

const exactDocuments = ['inputs', 'outputs', 'metadata'];
/** Larger examples are sent as multipart, which is not parsed as a whole. */
const maxJsonBytes = 16 * 1024 ** 2;

const NewExampleBody = Type.Object({
  dataset_id: Uuid(),
  id: optional(Uuid()),
  created_at: optional(Timestamp()),
  source_run_id: optional(Uuid()),
  use_source_run_io: optional(
    Type.Boolean({ description: 'Take inputs, outputs and all attachments from the source run.' }),
  ),
  use_source_run_attachments: optional(
    Type.Array(Type.String(), { maxItems: 100, description: 'Names of attachments of the source run to copy.' }),
  ),
  ...contentFields,
});

const toJson = (value: object | null | undefined) => (value == null ? undefined : formatMarkedJson(value));

function toNewExample(body: Static<typeof NewExampleBody>): NewExample {
  return {
    id: body.id?.toLowerCase() ?? crypto.randomUUID(),
    createdAt: body.created_at,
    inputs: toJson(body.inputs),
    outputs: toJson(body.outputs),
    metadata: body.metadata,
    split: body.split,
    sourceRunId: body.source_run_id?.toLowerCase(),
    useSourceRunIo: body.use_source_run_io,
    useSourceRunAttachments: body.use_source_run_attachments,
  };
}

/** Returns the dataset of the items. @throws BAD_REQUEST if the items belong to several datasets. */
function findDataset(items: readonly { readonly dataset_id?: string | null | undefined }[]): string | undefined {
  const ids = new Set(items.flatMap(({ dataset_id }) => (dataset_id == null ? [] : [dataset_id.toLowerCase()])));
  if (ids.size > 1) throw runlakeError('BAD_REQUEST', { reason: 'All examples must belong to the same dataset.' });
  return [...ids][0];
}

/**
 * Reads what a request has written, without reserving memory: if the response were refused, clients would repeat the write.
 */
const readWritten = <Result>(read: () => Promise<Result>): Promise<Result> => runWithMemory(() => undefined, read);

const createExample = defineOperation({
  operationId: 'createExample',
  method: 'POST',
  path: '/examples',
  summary: 'Create an example',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  unsupported: { body: ['use_legacy_message_format'], flags: ['use_legacy_message_format'] },
  errors: exampleCreateErrors,
  exactFields: exactDocuments,
  maxBodyBytes: maxJsonBytes,
  schema: { body: NewExampleBody, response: { 200: Example }, produces: jsonMediaType },
  handler: async ({ caller, body, services, request }) => {
    const example = toNewExample(body);
    requireRunAccess(caller, [example]);
    const { asOf } = await insertExamples(services, caller.workspaceId, body.dataset_id, [example]);
    const which = { exampleId: example.id, datasetId: body.dataset_id, asOf };
    const links = createExampleLinks(services, request);
    return new RawResponse({
      body: await readWritten(() => readExample(services.database, caller.workspaceId, which, allExampleFields, links)),
    });
  },
});

const createExamples = defineOperation({
  operationId: 'createExamples',
  method: 'POST',
  path: '/examples/bulk',
  summary: 'Create examples in one version',
  description: 'All or none. All examples must belong to the same dataset.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errors: exampleCreateErrors,
  exactFields: exactDocuments,
  maxBodyBytes: maxJsonBytes,
  schema: {
    body: Type.Array(NewExampleBody, { minItems: 1, maxItems: maxExamples }),
    response: { 200: Type.Array(Example) },
    produces: jsonMediaType,
  },
  handler: async ({ caller, body, services, request }) => {
    const datasetId = findDataset(body) as string;
    const examples = body.map(toNewExample);
    requireRunAccess(caller, examples);
    const { asOf, ids } = await insertExamples(services, caller.workspaceId, datasetId, examples);
    const page = { order: 'given', fields: allExampleFields, limit: ids.length, offset: 0 } as const;
    const links = createExampleLinks(services, request);
    return new RawResponse({
      body: await readWritten(() =>
        readExamples(services.database, caller.workspaceId, { datasetId, ids, asOf, ...page }, links),
      ),
    });
  },
});

const ExampleChangeBody = Type.Object({
  dataset_id: optional(Uuid({ description: 'Must be the dataset of the example.' })),
  attachments_operations: optional(
    Type.Object({
      rename: optional(Dictionary(Type.String())),
      retain: optional(Type.Array(Type.String(), { maxItems: 1_000 })),
    }),
    { description: 'Attachments that are neither renamed nor retained are removed.' },
  ),
  ...contentFields,
});

function toExampleChange(id: string, body: Static<typeof ExampleChangeBody>) {
  return {
    id: id.toLowerCase(),
    inputs: toJson(body.inputs),
    outputs: toJson(body.outputs),
    metadata: body.metadata,
    split: body.split,
    attachmentsOperations: body.attachments_operations,
  };
}

/** Returns the dataset of an example. @throws NOT_FOUND */
async function findExampleDataset(services: Services, workspaceId: string, exampleId: string): Promise<string> {
  const links = { signer: services.attachmentSigner, linkBase: '' };
  const example = await readExample(
    services.database,
    workspaceId,
    { exampleId },
    new Set(['dataset_id'] as const),
    links,
  );
  return (JSON.parse(example.toString()) as { dataset_id: string }).dataset_id;
}

const updateExample = defineOperation({
  operationId: 'updateExample',
  method: 'PATCH',
  path: '/examples/:example_id',
  summary: 'Update an example',
  description:
    'Absent and null fields stay unchanged. New metadata replaces the former metadata, except for the splits.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  unsupported: { body: ['overwrite'], flags: ['overwrite'] },
  errors: exampleWriteErrors,
  exactFields: exactDocuments,
  maxBodyBytes: maxJsonBytes,
  schema: { params: ExampleParams, body: ExampleChangeBody, response: { 200: Example }, produces: jsonMediaType },
  handler: async ({ caller, params, body, services, request }) => {
    const { workspaceId } = caller;
    const exampleId = params.example_id.toLowerCase();
    const datasetId = body.dataset_id ?? (await findExampleDataset(services, workspaceId, exampleId));
    const { asOf } = await changeExamples(services, workspaceId, datasetId, [toExampleChange(exampleId, body)]);
    const links = createExampleLinks(services, request);
    return new RawResponse({
      body: await readWritten(() =>
        readExample(services.database, workspaceId, { exampleId, datasetId, asOf }, allExampleFields, links),
      ),
    });
  },
});

const updateExamples = defineOperation({
  operationId: 'updateExamples',
  method: 'PATCH',
  path: '/examples/bulk',
  summary: 'Update examples in one version',
  description: 'All or none. All examples must belong to the same dataset.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errors: exampleWriteErrors,
  exactFields: exactDocuments,
  maxBodyBytes: maxJsonBytes,
  schema: {
    body: Type.Array(Type.Interface([ExampleChangeBody], { id: Uuid() }), { minItems: 1, maxItems: maxExamples }),
    response: { 200: Type.Object({ message: Type.String(), count: Type.Integer(), as_of: Timestamp() }) },
  },
  handler: async ({ caller, body, services }) => {
    const { workspaceId } = caller;
    const datasetId = findDataset(body) ?? (await findExampleDataset(services, workspaceId, body[0]?.id ?? ''));
    const changes = body.map(({ id, ...change }) => toExampleChange(id, change));
    const { asOf, ids } = await changeExamples(services, workspaceId, datasetId, changes);
    return { message: `${ids.length} examples updated`, count: ids.length, as_of: asOf };
  },
});

const DeletedResponse = Type.Object({ message: Type.String() });

const deleteExample = defineOperation({
  operationId: 'deleteExample',
  method: 'DELETE',
  path: '/examples/:example_id',
  summary: 'Delete an example from the newest version',
  description: 'Earlier versions keep it.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'DATASET_FULL'],
  schema: { params: ExampleParams, response: { 200: DeletedResponse } },
  handler: async ({ caller, params, services }) => {
    await removeExamples(services.database, caller.workspaceId, [params.example_id]);
    return { message: 'Example deleted' };
  },
});

const deleteExamples = defineOperation({
  operationId: 'deleteExamples',
  method: 'DELETE',
  path: '/examples',
  summary: 'Delete examples from the newest version',
  description: 'All or none. Earlier versions keep them.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'DATASET_FULL'],
  schema: {
    query: Type.Object({ example_ids: Type.Array(Uuid(), { maxItems: 1_000, default: [] }) }),
    response: { 200: DeletedResponse },
  },
  handler: async ({ caller, query, services }) => {
    await removeExamples(services.database, caller.workspaceId, query.example_ids);
    return { message: 'Examples deleted' };
  },
});

export const exampleOperations = [
  listExamples,
  countExamples,
  createExamples,
  updateExamples,
  createExample,
  deleteExamples,
  getExample,
  updateExample,
  deleteExample,
];
