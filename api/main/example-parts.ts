import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { formatMarkedJson } from '../../infra/json/marked-json.ts';
import { changeMetadata, type MetadataChange, metadataOperations } from '../../pipelines/datasets/change-metadata.ts';
import {
  deleteExampleOfDataset,
  hardDeleteExamples,
  deleteExamples as removeExamples,
} from '../../pipelines/datasets/delete-examples.ts';
import { findCommonDataset, readExampleParts } from '../../pipelines/datasets/example-parts.ts';
import { upsertExamples } from '../../pipelines/datasets/upsert-examples.ts';
import { createExamples, updateExamples, type WrittenExamples } from '../../pipelines/datasets/write-examples.ts';
import { OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse, type WorkspaceRequest } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { withBody } from '../server/request-body.ts';
import { DatasetParams } from './datasets.ts';
import { maxExamples } from './example-fields.ts';
import { exampleCreateErrors, requireRunAccess } from './examples.ts';

/** Examples as multipart/form-data. The official SDKs use these routes. */

const WrittenResponse = Type.Object({
  count: Type.Integer(),
  example_ids: Type.Array(Uuid()),
  as_of: Timestamp({ description: 'The new version of the dataset.' }),
});

const buildWrittenResponse = ({ ids, asOf }: WrittenExamples) =>
  new RawResponse({ status: 201, body: { count: ids.length, example_ids: [...ids], as_of: asOf } });

/** Reads the examples of a request, and writes them if the caller may read the runs that they copy. */
function writeParts(
  { caller, services, request }: WorkspaceRequest,
  write: (examples: Awaited<ReturnType<typeof readExampleParts>>) => Promise<WrittenExamples>,
): Promise<RawResponse> {
  const contentType = request.headers['content-type'] ?? '';
  return withBody({ request, caller }, services.config, async (body, memory) => {
    const examples = await readExampleParts({ body, contentType, memory }, services.config);
    requireRunAccess(caller, examples);
    return buildWrittenResponse(await write(examples));
  });
}

const partErrors = [
  ...exampleCreateErrors,
  'INVALID_MULTIPART',
  'TOO_MANY_PARTS',
  'INVALID_JSON',
  'INVALID_UTF8',
  'TOO_DEEP',
  'OVERLOADED',
] as const;

const createExampleParts = defineOperation({
  operationId: 'createExampleParts',
  method: 'POST',
  path: '/v1/platform/datasets/:dataset_id/examples',
  summary: 'Create examples with attachments as multipart/form-data',
  description:
    'All or none, as one version. Parts: `<id>` (JSON: created_at, metadata, split, source_run_id, use_source_run_io, ' +
    'use_source_run_attachments), `<id>.inputs`, `<id>.outputs` (JSON objects), `<id>.attachment.<name>` (bytes).',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: partErrors,
  rawBody: { contentTypes: ['multipart/form-data'], description: 'Examples and attachments as parts.' },
  schema: { params: DatasetParams, response: { 201: WrittenResponse } },
  handler: ({ caller, params, services, request }) =>
    writeParts({ caller, services, request }, (examples) =>
      createExamples(services, caller.workspaceId, params.dataset_id, examples),
    ),
});

const updateExampleParts = defineOperation({
  operationId: 'updateExampleParts',
  method: 'PATCH',
  path: '/v1/platform/datasets/:dataset_id/examples',
  summary: 'Update examples with attachments as multipart/form-data',
  description:
    'All or none, as one version. The parts are those of the creation, and `<id>.attachments_operations` (JSON: rename, retain). ' +
    'Absent inputs, outputs, metadata and splits stay. Without attachments_operations, new attachments replace all former ones.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: partErrors,
  rawBody: { contentTypes: ['multipart/form-data'], description: 'Changes and attachments as parts.' },
  schema: { params: DatasetParams, response: { 201: WrittenResponse } },
  handler: ({ caller, params, services, request }) =>
    writeParts({ caller, services, request }, (changes) =>
      updateExamples(services, caller.workspaceId, params.dataset_id, changes),
    ),
});

const upsertExampleParts = defineOperation({
  operationId: 'upsertExampleParts',
  method: 'POST',
  path: '/v1/platform/examples/multipart',
  summary: 'Create or update examples with attachments as multipart/form-data',
  description:
    'All or none, as one version. Examples that are in the dataset are updated, the others are created. The parts are those of the ' +
    'update; the JSON of each example has `dataset_id`, and all examples must belong to the same dataset.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: partErrors,
  rawBody: { contentTypes: ['multipart/form-data'], description: 'Examples and attachments as parts.' },
  schema: { response: { 201: WrittenResponse } },
  handler: ({ caller, services, request }) =>
    writeParts({ caller, services, request }, (examples) =>
      upsertExamples(services, caller.workspaceId, findCommonDataset(examples), examples),
    ),
});

const deleteExampleList = defineOperation({
  operationId: 'deleteExampleList',
  method: 'POST',
  path: '/v1/platform/datasets/examples/delete',
  summary: 'Delete examples, on request from all versions',
  description: 'All or none. With `hard_delete`, no version contains the examples any more.',
  access: { permission: 'datasets:delete', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: ['NOT_FOUND', 'DATASET_FULL', ...clickhouseErrors],
  schema: {
    body: Type.Object({
      example_ids: Type.Array(Uuid(), { maxItems: 1_000 }),
      hard_delete: Type.Optional(Type.Boolean({ default: false })),
    }),
    response: { 200: Type.Object({ count: Type.Integer(), example_ids: Type.Array(Uuid()) }) },
  },
  handler: async ({ caller, body, services }) => {
    const { example_ids: ids, hard_delete: isHard = false } = body;
    if (isHard) await hardDeleteExamples(services, caller.workspaceId, ids);
    else await removeExamples(services.database, caller.workspaceId, ids);
    return { count: ids.length, example_ids: ids };
  },
});

const deleteDatasetExample = defineOperation({
  operationId: 'deleteDatasetExample',
  method: 'DELETE',
  path: '/v1/platform/datasets/:dataset_id/examples/:example_id',
  summary: 'Delete an example from the newest version of its dataset',
  description: 'Earlier versions keep it. Deleting it again has no effect.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: ['NOT_FOUND', 'DATASET_FULL'],
  schema: {
    params: Type.Object({ dataset_id: Uuid(), example_id: Uuid() }),
    response: { 204: Type.Null() },
  },
  handler: async ({ caller, params, services }) => {
    const example = { datasetId: params.dataset_id, exampleId: params.example_id };
    await deleteExampleOfDataset(services.database, caller.workspaceId, example);
    return null;
  },
});

const maxArrayChanges = 10;
const maxValueBytes = 64 * 1024;

const MetadataOperations = Type.Array(
  Type.Object({
    key: Text({ minLength: 1, maxLength: 255 }),
    operation: OneOf(metadataOperations.flatMap((name) => [name, name.toLowerCase() as Lowercase<typeof name>])),
    value: Type.Optional(Type.Unknown({ description: 'Of `SET`: any JSON value, at most 64 KB.' })),
    values: optional(
      Type.Array(Text({ maxLength: 255 }), { maxItems: 1_000, description: 'Of the array operations.' }),
    ),
  }),
  { minItems: 1, maxItems: 50 },
);

const updateExampleMetadata = defineOperation({
  operationId: 'updateExampleMetadata',
  method: 'PATCH',
  path: '/v1/platform/datasets/:dataset_id/examples/metadata',
  summary: 'Change keys in the metadata of examples',
  description:
    'The same changes, in order, to all examples, as one version. `SET` replaces the value of a key; `ARRAY_ADD` and ' +
    '`ARRAY_REMOVE` change the list of a key, such as `dataset_split`. Ids that are not in the dataset are skipped.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: ['NOT_FOUND', 'BAD_REQUEST', 'EXAMPLE_TOO_LARGE', 'DATASET_FULL'],
  exactFields: ['operations.value'],
  schema: {
    params: DatasetParams,
    body: Type.Object({
      example_ids: Type.Array(Uuid(), { minItems: 1, maxItems: maxExamples }),
      operations: MetadataOperations,
    }),
    response: {
      207: Type.Object({
        statuses: Type.Array(
          Type.Object({
            id: Uuid(),
            status: OneOf(['UPDATED', 'NOT_FOUND']),
            description: Type.Optional(Type.String()),
          }),
        ),
      }),
    },
  },
  handler: async ({ caller, params, body, services }) => {
    const changes = body.operations.map(({ operation, ...change }) => ({
      ...change,
      operation: operation.toUpperCase() as MetadataChange['operation'],
    }));
    if (changes.filter(({ operation }) => operation !== 'SET').length > maxArrayChanges) {
      throw runlakeError('BAD_REQUEST', { reason: `At most ${maxArrayChanges} array operations are possible.` });
    }
    if (changes.some(({ value }) => value !== undefined && formatMarkedJson(value).length > maxValueBytes)) {
      throw runlakeError('BAD_REQUEST', { reason: `A value has more than ${maxValueBytes} bytes.` });
    }
    const request = { exampleIds: body.example_ids, changes };
    const changed = await changeMetadata(services, caller.workspaceId, params.dataset_id.toLowerCase(), request);
    const statuses = body.example_ids.map((id) =>
      changed.has(id.toLowerCase())
        ? { id, status: 'UPDATED' as const }
        : { id, status: 'NOT_FOUND' as const, description: 'The example is not in the dataset.' },
    );
    return new RawResponse({ status: 207, body: { statuses } });
  },
});

export const examplePartOperations = [
  createExampleParts,
  updateExampleParts,
  upsertExampleParts,
  updateExampleMetadata,
  deleteExampleList,
  deleteDatasetExample,
];
