/** What operations that ask graph code can fail with. */
export const graphErrors = [
  'ASSISTANT_NOT_FOUND',
  'GRAPH_NOT_FOUND',
  'GRAPH_UNUSABLE',
  'GRAPH_FAILED',
  'GRAPH_WORKER_BUSY',
] as const;
