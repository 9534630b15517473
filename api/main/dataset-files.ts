import { type Static, type TSchema, Type } from 'typebox';
import { Value } from 'typebox/value';
import type { DataType } from '../../pipelines/datasets/dataset.ts';
import {
  type DownloadFormat,
  downloadDataset as formatDownload,
} from '../../pipelines/datasets/files/download-dataset.ts';
import { createFormError, readUploadForm } from '../../pipelines/datasets/files/read-upload-form.ts';
import { uploadDataset as storeUpload } from '../../pipelines/datasets/files/upload-dataset.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { maxParsedDepth, parseJsonBody, withBody } from '../server/request-body.ts';
import { Dataset, DatasetParams, NewDataset, Transformations } from './datasets.ts';
import { AsOf } from './example-fields.ts';

/** Operations that upload and download datasets as files. */

const uploadDataset = defineOperation({
  operationId: 'uploadDataset',
  method: 'POST',
  path: '/datasets/upload',
  summary: 'Create a dataset from a CSV or JSONL file',
  description:
    'All or none; each row becomes an example. Cells of CSV are texts, and the first row names the columns; values of JSONL are ' +
    'stored as they are.',
  access: { permission: 'datasets:create', tenantScope: 'workspace' },
  errors: [
    'INVALID_REQUEST',
    'INVALID_FILE',
    'INVALID_EXAMPLE',
    'EXAMPLE_TOO_LARGE',
    'DATASET_FULL',
    'INVALID_SCHEMA',
    'BAD_REQUEST',
    'CONFLICT',
    'LIMIT_REACHED',
    'INVALID_MULTIPART',
    'TOO_MANY_PARTS',
    'PARAMETER_NOT_SUPPORTED',
    'OVERLOADED',
  ],
  rawBody: {
    contentTypes: ['multipart/form-data'],
    description:
      '`file` (CSV, or JSONL if its name ends in `.jsonl`), `input_keys` (a column, repeated), and any of `output_keys`, ' +
      '`metadata_keys` (repeated), `id`, `name` (default: the name of the file), `description`, `data_type`, ' +
      '`inputs_schema_definition`, `outputs_schema_definition`, `transformations` (JSON).',
  },
  schema: { response: { 200: Dataset } },
  handler: async ({ caller, request, services }) => {
    const contentType = request.headers['content-type'] ?? '';
    return withBody({ request, caller }, services.config, async (body) => {
      const { file, fileName, fields } = await readUploadForm(body, contentType);
      const name = readField('name', fields.name ?? fileName ?? '', NewDataset.properties.name);
      const dataset = {
        id: readField('id', fields.id, NewDataset.properties.id),
        name,
        description: readField('description', fields.description, NewDataset.properties.description),
        dataType: readField('data_type', fields.data_type ?? 'kv', NewDataset.properties.data_type) as DataType,
        inputsSchema: parseSchema('inputs_schema_definition', fields.inputs_schema_definition),
        outputsSchema: parseSchema('outputs_schema_definition', fields.outputs_schema_definition),
        transformations: parseTransformations(fields.transformations),
      };
      return storeUpload(services, caller.workspaceId, dataset, file, request.disconnected);
    });
  },
});

/**
 * Validates a form field.
 *
 * @throws INVALID_REQUEST if the field does not match the schema that the same field has in JSON.
 */
function readField<T extends string | undefined>(field: string, value: T, schema: TSchema): T {
  if (value === undefined || Value.Check(schema, value)) return value;
  throw createFormError(field, 'is invalid');
}

function parseSchema(field: string, text: string | undefined): Record<string, unknown> | undefined {
  if (text === undefined) return undefined;
  try {
    const schema = parseJsonBody(Buffer.from(text), maxParsedDepth);
    if (typeof schema === 'object' && !Array.isArray(schema)) return (schema ?? undefined) as Record<string, unknown>;
  } catch {
    // Invalid and too deep JSON has the same error as JSON that is not an object.
  }
  throw createFormError(field, `must be a JSON object of at most ${maxParsedDepth} levels`);
}

function parseTransformations(text: string | undefined): Static<typeof Transformations> | undefined {
  if (text === undefined) return undefined;
  try {
    const transformations = parseJsonBody(Buffer.from(text), maxParsedDepth);
    if (transformations === null) return undefined;
    if (Value.Check(Transformations, transformations)) return transformations;
  } catch {
    // The same error as for JSON of another form.
  }
  throw createFormError('transformations', 'must be a JSON list of objects with path and transformation_type');
}

const ndjsonMediaType = 'application/x-ndjson; charset=utf-8';

const defineDownload = (
  format: DownloadFormat,
  operationId: string,
  { summary, description, mediaType }: { summary: string; description: string; mediaType: string },
) =>
  defineOperation({
    operationId,
    method: 'GET',
    path: `/datasets/:dataset_id/${format}`,
    summary,
    description: `${description} In the order of the last changes. An error after the start cuts the response off.`,
    access: { permission: 'datasets:read', tenantScope: 'workspace' },
    errors: ['NOT_FOUND', 'BAD_REQUEST', 'OVERLOADED'],
    schema: {
      params: DatasetParams,
      query: Type.Object({ as_of: AsOf }),
      response: { 200: Type.String({ description: 'The file.' }) },
      produces: mediaType,
    },
    handler: async ({ caller, params, query, services }) => {
      const version = { datasetId: params.dataset_id.toLowerCase(), asOf: query.as_of };
      const body = await formatDownload(services.database, caller.workspaceId, version, format);
      const fileName = `${version.datasetId}.${format === 'csv' ? 'csv' : 'jsonl'}`;
      return new RawResponse({
        headers: { 'content-type': mediaType, 'content-disposition': `attachment; filename="${fileName}"` },
        body,
      });
    },
  });

const downloadCsv = defineDownload('csv', 'downloadDatasetCsv', {
  summary: 'Download the examples of a dataset as CSV',
  description:
    'Columns: `id`, `inputs.<key>`, `outputs.<key>`, `metadata`. Cells of values that are no texts are JSON.',
  mediaType: 'text/csv; charset=utf-8',
});

const downloadJsonLines = defineDownload('jsonl', 'downloadDatasetJsonl', {
  summary: 'Download the examples of a dataset as JSONL',
  description: 'Each line: `id`, `inputs`, `outputs`, `metadata`.',
  mediaType: ndjsonMediaType,
});

const downloadOpenAiEvals = defineDownload('openai', 'downloadDatasetOpenAi', {
  summary: 'Download the examples of a dataset for OpenAI evals',
  description: 'Each line: `input` (messages) and `ideal` (the last message of the outputs as text).',
  mediaType: ndjsonMediaType,
});

const downloadOpenAiFineTuning = defineDownload('openai_ft', 'downloadDatasetOpenAiFineTuning', {
  summary: 'Download the examples of a dataset for fine-tuning at OpenAI',
  description:
    'Each line: `messages`. Inputs or outputs without messages become one message of the user or the assistant.',
  mediaType: ndjsonMediaType,
});

export const datasetFileOperations = [
  uploadDataset,
  downloadCsv,
  downloadJsonLines,
  downloadOpenAiEvals,
  downloadOpenAiFineTuning,
];
