import { randomUUID } from 'node:crypto';
import { type Attempt, closed, own } from './attempt.ts';

export interface DatasetVictim {
  readonly datasetId: string;
}

/** Attempts to use the datasets of another workspace, by operation. */
export const datasetAttempts: Readonly<Record<string, (victim: DatasetVictim) => Attempt>> = {
  listDatasets: ({ datasetId }) => ({ url: `/datasets?id=${datasetId}`, answers: own }),
  createDataset: ({ datasetId }) => ({
    url: '/datasets',
    payload: { id: datasetId, name: `mine ${randomUUID()}` },
    answers: [409],
  }),
  getDataset: ({ datasetId }) => ({ url: `/datasets/${datasetId}`, answers: closed }),
  updateDataset: ({ datasetId }) => ({ url: `/datasets/${datasetId}`, payload: { name: 'stolen' }, answers: closed }),
  deleteDataset: ({ datasetId }) => ({ url: `/datasets/${datasetId}`, answers: closed }),
};
