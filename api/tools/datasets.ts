import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { dataTypes } from '../../pipelines/datasets/dataset.ts';
import { describeLimit, findDataset, maxLimit, pick, type StoredRecord } from './find-named.ts';
import { choice, flag, integer, list, object, text, uuid, uuids } from './parameters.ts';
import { defineTool } from './tool.ts';

const datasetFields = [
  'id',
  'name',
  'inputs_schema_definition',
  'outputs_schema_definition',
  'description',
  'data_type',
  'example_count',
  'session_count',
  'created_at',
  'modified_at',
  'last_session_start_time',
] as const;

export const listDatasets = defineTool({
  name: 'list_datasets',
  title: 'List datasets',
  description:
    'List datasets: collections of examples (inputs and expected outputs) that applications are evaluated on. Those with the newest ' +
    'experiments come first. Returns names, schemas, and numbers of examples and experiments.',
  parameters: {
    dataset_ids: uuids({ description: 'Only these datasets.' }).optional(),
    data_type: choice(dataTypes, { description: 'Only datasets of this type.' }).optional(),
    dataset_name: text({ description: 'Only the dataset with exactly this name.' }).optional(),
    dataset_name_contains: text({
      description: 'Only datasets whose name contains this text, ignoring case.',
    }).optional(),
    metadata: object({ description: 'Only datasets whose metadata contains these pairs.' }).optional(),
    limit: integer({ description: 'Maximum number of datasets; more than 100 count as 100.', minimum: 1 }).default(20),
  },
  output: {
    datasets: { type: 'array', items: { type: 'object' } },
    total_count: { type: 'integer', description: 'Number of datasets in this answer. More can match.' },
  },
  run: async (values, { api }) => {
    const found = (await api.get('/datasets', {
      id: values.dataset_ids,
      data_type: values.data_type,
      name: values.dataset_name,
      name_contains: values.dataset_name_contains,
      metadata: values.metadata && JSON.stringify(values.metadata),
      limit: Math.min(values.limit, maxLimit),
    })) as StoredRecord[];
    const datasets = found.map((dataset) => pick(dataset, datasetFields));
    return { datasets, total_count: datasets.length, ...describeLimit(values.limit) };
  },
});

const whichDataset = {
  dataset_id: uuid({ description: 'Id of the dataset.' }).optional(),
  dataset_name: text({ description: 'Exact name of the dataset.' }).optional(),
};

export const readDataset = defineTool({
  name: 'read_dataset',
  title: 'Read a dataset',
  description: 'Get one dataset by its id or its exact name, without its examples. Use list_examples to read those.',
  parameters: whichDataset,
  output: { dataset: { type: 'object' } },
  run: async ({ dataset_id: id, dataset_name: name }, { api }) => ({
    dataset: pick(await findDataset(api, { id, name }), datasetFields),
  }),
});

const exampleFields = [
  'id',
  'dataset_id',
  'inputs',
  'outputs',
  'metadata',
  'created_at',
  'modified_at',
  'source_run_id',
] as const;
const selectable = ['inputs', 'outputs', 'metadata', 'source_run_id'] as const;

/**
 * Formats an example as the original tool server does. `attachments` is a map by name, null if they were not requested.
 */
function formatExample(example: StoredRecord): StoredRecord {
  const { attachment_urls: links } = example as { attachment_urls?: StoredRecord | null };
  const attachments =
    links && Object.fromEntries(Object.entries(links).map(([name, link]) => [name.replace(/^attachment\./, ''), link]));
  return { ...pick(example, exampleFields), runs: [], attachments: attachments ?? null };
}

export const listExamples = defineTool({
  name: 'list_examples',
  title: 'List examples',
  description:
    'List examples: the inputs and expected outputs of a dataset. Pass dataset_id or dataset_name, or example_ids. Read further ' +
    'examples with offset. as_of reads an earlier version of the dataset.',
  parameters: {
    ...whichDataset,
    example_ids: uuids({ description: 'Only these examples.' }).optional(),
    filter: text({
      description: 'Condition in the filter language, such as has(metadata, \'{"topic": "tax"}\').',
    }).optional(),
    metadata: object({ description: 'Only examples whose metadata contains these pairs.' }).optional(),
    splits: list({ description: 'Only examples of these splits, such as train or test.' }).optional(),
    inline_s3_urls: flag({ description: 'Accepted; inputs and outputs are always inline.' }).default(true, 'true'),
    include_attachments: flag({ description: 'Include links to the attachments.' }).default(false, 'false'),
    as_of: text({ description: 'A time (ISO 8601) or a tag of the dataset.' }).optional(),
    limit: integer({ description: 'Maximum number of examples; more than 100 count as 100.', minimum: 1 }).default(10),
    offset: integer({ description: 'Number of examples to skip.' }).default(0),
  },
  output: {
    examples: { type: 'array', items: { type: 'object' } },
    total_count: {
      type: 'integer',
      description: 'Number of examples in this answer. More can match: read them with offset.',
    },
  },
  run: async (values, { api }) => {
    const { dataset_id: id, dataset_name: name, example_ids: ids } = values;
    if (id === undefined && name === undefined && ids === undefined)
      throw runlakeError('BAD_REQUEST', { reason: 'dataset_id, dataset_name or example_ids must be provided.' });
    const dataset = id ?? (name === undefined ? undefined : ((await findDataset(api, { id, name })).id as string));
    const found = (await api.get('/examples', {
      dataset,
      id: ids,
      filter: values.filter,
      metadata: values.metadata && JSON.stringify(values.metadata),
      splits: values.splits,
      as_of: values.as_of,
      limit: Math.min(values.limit, maxLimit),
      offset: values.offset,
      select: [...selectable, ...(values.include_attachments ? ['attachment_urls'] : [])],
    })) as StoredRecord[];
    const examples = found.map(formatExample);
    return { examples, total_count: examples.length, ...describeLimit(values.limit) };
  },
});

export const readExample = defineTool({
  name: 'read_example',
  title: 'Read an example',
  description:
    'Get one example of a dataset by its id, with inputs, expected outputs, metadata and links to attachments.',
  parameters: {
    example_id: uuid({ description: 'Id of the example.' }).required(),
    as_of: text({
      description: 'A time (ISO 8601) or a tag of the dataset: read the example as it was then.',
    }).optional(),
  },
  output: { example: { type: 'object' } },
  run: async ({ example_id: id, as_of: asOf }, { api }) => ({
    example: formatExample((await api.get(`/examples/${id}`, { as_of: asOf })) as StoredRecord),
  }),
});
