import { randomUUID } from 'node:crypto';
import { type Attempt, own } from './attempt.ts';
import type { ApiUnderTest } from './start-api.ts';

export interface DatasetVictim {
  readonly datasetId: string;
  readonly exampleId: string;
  readonly projectId: string;
  readonly comparisonId: string;
}

/** Adds a dataset with an example and a comparative experiment, all of which contain `word`. */
export async function addDatasets(
  { ask, database }: Pick<ApiUnderTest, 'ask' | 'database'>,
  owner: { readonly key: string; readonly workspaceId: string; readonly projectId: string; readonly word: string },
): Promise<Omit<DatasetVictim, 'projectId'>> {
  const { key, workspaceId, projectId, word } = owner;
  const { id: datasetId } = (await ask(key, 'POST', '/datasets', { name: word, description: word })).body;
  const example = { dataset_id: datasetId, inputs: { secret: word } };
  const { id: exampleId } = (await ask(key, 'POST', '/examples', example)).body;
  await ask(key, 'PUT', `/datasets/${datasetId}/share`);
  const comparisonId = randomUUID();
  await database.execute(
    `INSERT INTO comparative_experiments (id, workspace_id, dataset_id, experiment_ids, name)
     VALUES ($1, $2, $3, ARRAY[$4::uuid], $5)`,
    [comparisonId, workspaceId, datasetId, projectId, word],
  );
  return { datasetId, exampleId, comparisonId };
}

/** Parts of one example, as a multipart request. */
function exampleParts(exampleId: string, more: object = {}) {
  const content = JSON.stringify({ stolen: true, ...more });
  const part = (name: string) => `--cut\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${content}\r\n`;
  return {
    headers: { 'content-type': 'multipart/form-data; boundary=cut' },
    payload: `${part(exampleId)}${part(`${exampleId}.inputs`)}--cut--\r\n`,
  };
}

/** Attempts to use the datasets of another workspace, by operation. */
export const datasetAttempts: Readonly<Record<string, (victim: DatasetVictim) => Attempt>> = {
  listDatasets: ({ datasetId }) => ({ url: `/datasets?id=${datasetId}`, answers: own }),
  listV2Datasets: ({ datasetId }) => ({ url: `/api/v2/datasets?id=${datasetId}`, answers: own }),
  createDataset: ({ datasetId }) => ({
    url: '/datasets',
    payload: { id: datasetId, name: `mine ${randomUUID()}` },
    answers: [409],
  }),
  getDataset: ({ datasetId }) => ({ url: `/datasets/${datasetId}` }),
  updateDataset: ({ datasetId }) => ({ url: `/datasets/${datasetId}`, payload: { name: 'stolen' } }),
  deleteDataset: ({ datasetId }) => ({ url: `/datasets/${datasetId}` }),
  listDatasetVersions: ({ datasetId }) => ({ url: `/datasets/${datasetId}/versions` }),
  getDatasetVersion: ({ datasetId }) => ({ url: `/datasets/${datasetId}/version?tag=latest` }),
  tagDatasetVersion: ({ datasetId }) => ({
    url: `/datasets/${datasetId}/tags`,
    payload: { as_of: 'latest', tag: 'stolen' },
  }),
  diffDatasetVersions: ({ datasetId }) => ({
    url: `/datasets/${datasetId}/versions/diff?from_version=2020-01-01&to_version=latest`,
  }),
  listDatasetSplits: ({ datasetId }) => ({ url: `/datasets/${datasetId}/splits` }),
  updateDatasetSplit: ({ datasetId, exampleId }) => ({
    url: `/datasets/${datasetId}/splits`,
    payload: { split_name: 'stolen', examples: [exampleId] },
  }),
  uploadDataset: () => ({
    url: '/datasets/upload',
    headers: { 'content-type': 'multipart/form-data; boundary=cut' },
    payload: `--cut\r\nContent-Disposition: form-data; name="file"\r\n\r\na\r\n1\r\n--cut--\r\n`,
    answers: [422],
  }),
  downloadDatasetCsv: ({ datasetId }) => ({ url: `/datasets/${datasetId}/csv` }),
  downloadDatasetJsonl: ({ datasetId }) => ({ url: `/datasets/${datasetId}/jsonl` }),
  downloadDatasetOpenAi: ({ datasetId }) => ({ url: `/datasets/${datasetId}/openai` }),
  downloadDatasetOpenAiFineTuning: ({ datasetId }) => ({ url: `/datasets/${datasetId}/openai_ft` }),
  cloneDataset: ({ datasetId }) => ({
    url: '/datasets/clone',
    payload: { source_dataset_id: datasetId, target_dataset_id: datasetId },
  }),
  getDatasetShare: ({ datasetId }) => ({ url: `/datasets/${datasetId}/share` }),
  shareDataset: ({ datasetId }) => ({ url: `/datasets/${datasetId}/share` }),
  // Does nothing, because the victim's share must remain.
  unshareDataset: ({ datasetId }) => ({ url: `/datasets/${datasetId}/share`, answers: own }),
  listExperimentRuns: ({ datasetId, projectId }) => ({
    url: `/datasets/${datasetId}/runs`,
    payload: { session_ids: [projectId] },
  }),
  queryExperimentRuns: ({ datasetId, projectId }) => ({
    url: `/api/v2/datasets/${datasetId}/experiment-runs`,
    payload: { experiment_ids: [projectId] },
  }),
  createComparativeExperiment: ({ datasetId, projectId }) => ({
    url: '/datasets/comparative',
    payload: { reference_dataset_id: datasetId, experiment_ids: [projectId], name: 'stolen' },
  }),
  listComparativeExperiments: ({ datasetId }) => ({ url: `/datasets/${datasetId}/comparative` }),
  deleteComparativeExperiment: ({ comparisonId }) => ({ url: `/datasets/comparative/${comparisonId}` }),
  createExampleParts: ({ datasetId }) => ({
    url: `/v1/platform/datasets/${datasetId}/examples`,
    ...exampleParts(randomUUID()),
  }),
  updateExampleParts: ({ datasetId, exampleId }) => ({
    url: `/v1/platform/datasets/${datasetId}/examples`,
    ...exampleParts(exampleId),
  }),
  upsertExampleParts: ({ datasetId, exampleId }) => ({
    url: '/v1/platform/examples/multipart',
    ...exampleParts(exampleId, { dataset_id: datasetId }),
  }),
  updateExampleMetadata: ({ datasetId, exampleId }) => ({
    url: `/v1/platform/datasets/${datasetId}/examples/metadata`,
    payload: { example_ids: [exampleId], operations: [{ key: 'a', operation: 'SET', value: 'stolen' }] },
  }),
  deleteExampleList: ({ exampleId }) => ({
    url: '/v1/platform/datasets/examples/delete',
    payload: { example_ids: [exampleId], hard_delete: true },
  }),
  listExamples: ({ exampleId }) => ({ url: `/examples?id=${exampleId}`, answers: own }),
  countExamples: ({ datasetId }) => ({ url: `/examples/count?dataset=${datasetId}` }),
  createExample: ({ datasetId }) => ({ url: '/examples', payload: { dataset_id: datasetId, inputs: {} } }),
  createExamples: ({ datasetId }) => ({ url: '/examples/bulk', payload: [{ dataset_id: datasetId, inputs: {} }] }),
  updateExamples: ({ datasetId, exampleId }) => ({
    url: '/examples/bulk',
    payload: [{ id: exampleId, dataset_id: datasetId, inputs: {} }],
  }),
  getExample: ({ exampleId }) => ({ url: `/examples/${exampleId}` }),
  updateExample: ({ exampleId }) => ({ url: `/examples/${exampleId}`, payload: { inputs: {} } }),
  deleteExample: ({ exampleId }) => ({ url: `/examples/${exampleId}` }),
  deleteDatasetExample: ({ datasetId, exampleId }) => ({
    url: `/v1/platform/datasets/${datasetId}/examples/${exampleId}`,
  }),
  deleteExamples: ({ exampleId }) => ({ url: `/examples?example_ids=${exampleId}` }),
};
